"""Translates messages of the hub's conditions into the fields of the user's Service, Ingress or Gateway.

    hub                      Service
    -----------------------  ------------------------------------------------------------------------
    spec.className           spec.loadBalancerClass; of an Ingress or Gateway the parameters of its class
    spec.address             spec.loadBalancerIP, or the annotation when that was used
    spec.proxyProtocol       annotation fairlead.dev/proxy-protocol
    spec.targets             annotation fairlead.dev/target
    TCPLoadBalancer/ns/name  nothing: the Event is on the Service

In: a message, and the object. Out: the message about the object's own fields. Never changes its meaning.
"""

from __future__ import annotations

import re

from fairlead.api.kubernetes import Service
from fairlead.api.names import ANNOTATION_PROXY_PROTOCOL, ANNOTATION_REQUESTED_ADDRESS, ANNOTATION_TARGET
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS

_ITSELF = re.compile(rf"^{TCP_LOAD_BALANCERS.kind}/[^ /]+/[^ /:]+: ")
_FIELD = re.compile(r"\bspec\.(className|address|proxyProtocol|targets)\b")


_PARAMETERS = {"Ingress": "spec.parameters of its IngressClass", "Gateway": "spec.parametersRef of its GatewayClass"}


def name_class_parameters(message: str, kind: str) -> str:
    """Return ``message`` of an HTTPLoadBalancer with the field that names its class: ``kind`` is Ingress or Gateway."""
    return message.replace("spec.className", _PARAMETERS[kind])


def translate_message(message: str, service: Service) -> str:
    """Return ``message`` with the fields of the Service in place of those of the TCPLoadBalancer."""
    by_annotation = bool(service.annotation(ANNOTATION_REQUESTED_ADDRESS))
    fields = {
        "className": "spec.loadBalancerClass",
        "address": f"annotation {ANNOTATION_REQUESTED_ADDRESS}" if by_annotation else "spec.loadBalancerIP",
        "proxyProtocol": f"annotation {ANNOTATION_PROXY_PROTOCOL}",
        "targets": f"annotation {ANNOTATION_TARGET}",
    }
    return _FIELD.sub(lambda match: fields[match[1]], _ITSELF.sub("", message))
