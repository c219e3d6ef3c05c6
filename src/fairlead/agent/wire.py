"""How is an object written? Canonical values become the JSON of a server-side apply.

In: the objects that ``export`` and ``nodes`` build. Out: dicts that name every field we own, defaults included, so that
what a server would default is ours and stays as it is.
Never writes a field that we do not mean to own.
"""

from __future__ import annotations

from fairlead.api.kubernetes import ENDPOINT_SLICES, Endpoint, EndpointSlice, Ingress
from fairlead.api.meta import JSONObject, ObjectMeta
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer


def object_from_load_balancer(one: TCPLoadBalancer) -> JSONObject:
    """Write a TCPLoadBalancer."""
    spec = one.spec
    body: JSONObject = {
        "className": spec.class_name,
        "targets": spec.targets,
        "externalTrafficPolicy": spec.external_traffic_policy,
        "sessionAffinity": spec.session_affinity,
        "loadBalancerSourceRanges": list(spec.load_balancer_source_ranges),
        "proxyProtocol": spec.proxy_protocol,
        "address": spec.address,
        "origin": {
            "kind": spec.origin.kind,
            "namespace": spec.origin.namespace,
            "name": spec.origin.name,
            "uid": spec.origin.uid,
        },
        "ports": [
            {"port": port.port, "name": port.name, "protocol": port.protocol, "nodePort": port.node_port}
            for port in spec.ports
        ],
    }
    resource = TCP_LOAD_BALANCERS
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": _meta(one.metadata), "spec": body}


def object_from_slice(one: EndpointSlice) -> JSONObject:
    """Write an EndpointSlice."""
    return {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": _meta(one.metadata),
        "addressType": one.address_type,
        "endpoints": [_endpoint(endpoint) for endpoint in one.endpoints or ()],
        "ports": [{"name": p.name or "", "port": p.port, "protocol": p.protocol or "TCP"} for p in one.ports or ()],
    }


def object_from_ingress(one: Ingress) -> JSONObject:
    """Write one entry of a Service's status.loadBalancer.ingress."""
    body: JSONObject = {"ip": one.ip} if one.ip else {"hostname": one.hostname}
    if one.ip and one.ip_mode:
        # The API server refuses ipMode beside a host name.
        body["ipMode"] = one.ip_mode
    if one.ports:
        body["ports"] = [
            {"port": port.port, "protocol": port.protocol} | ({"error": port.error} if port.error else {})
            for port in one.ports
        ]
    return body


def _meta(meta: ObjectMeta) -> JSONObject:
    body: JSONObject = {"name": meta.name, "namespace": meta.namespace, "labels": dict(meta.labels or {})}
    if meta.annotations:
        body["annotations"] = dict(meta.annotations)
    if meta.finalizers:
        body["finalizers"] = list(meta.finalizers)
    return body


def _endpoint(endpoint: Endpoint) -> JSONObject:
    body: JSONObject = {"addresses": list(endpoint.addresses or ())}
    if endpoint.conditions is not None:
        body["conditions"] = {
            "ready": endpoint.conditions.ready,
            "serving": endpoint.conditions.serving,
            "terminating": endpoint.conditions.terminating,
        }
    if endpoint.node_name:
        body["nodeName"] = endpoint.node_name
    if endpoint.zone:
        body["zone"] = endpoint.zone
    return body
