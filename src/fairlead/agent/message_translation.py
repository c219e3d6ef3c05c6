"""How does what the hub says of its object read on the user's Service?

    hub                      Service
    -----------------------  ------------------------------------------------------------------------
    spec.className           spec.loadBalancerClass
    spec.address             spec.loadBalancerIP, or the annotation when that was used
    spec.proxyProtocol       annotation fairlead.dev/proxy-protocol
    spec.targets             annotation fairlead.dev/target
    TCPLoadBalancer/ns/name  nothing: the Event is on the Service

In: a message, and the Service. Out: the message in the Service's own words. Never changes what it says.
"""

from __future__ import annotations

import re

from fairlead.api.kubernetes import Service
from fairlead.api.names import ANNOTATION_PROXY_PROTOCOL, ANNOTATION_REQUESTED_ADDRESS, ANNOTATION_TARGET
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS

_ITSELF = re.compile(rf"^{TCP_LOAD_BALANCERS.kind}/[^ /]+/[^ /:]+: ")
_FIELD = re.compile(r"\bspec\.(className|address|proxyProtocol|targets)\b")


def in_words_of_service(message: str, service: Service) -> str:
    """Translate the fields that ``message`` names."""
    by_annotation = bool(service.annotation(ANNOTATION_REQUESTED_ADDRESS))
    fields = {
        "className": "spec.loadBalancerClass",
        "address": f"annotation {ANNOTATION_REQUESTED_ADDRESS}" if by_annotation else "spec.loadBalancerIP",
        "proxyProtocol": f"annotation {ANNOTATION_PROXY_PROTOCOL}",
        "targets": f"annotation {ANNOTATION_TARGET}",
    }
    return _FIELD.sub(lambda found: fields[found[1]], _ITSELF.sub("", message))
