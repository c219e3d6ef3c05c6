"""How are published objects and status entries written? Values become JSON that names every field that we own.

In: values. Out: dicts with defaults included, so that what a server would default is ours and stays as it is. Pure.
Never writes a field that we do not mean to own.
"""

from __future__ import annotations

from fairlead.api.kubernetes import ENDPOINT_SLICES, Endpoint, EndpointSlice, Ingress
from fairlead.api.meta import JSONObject, ObjectMeta, OwnerReference, WireCondition
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer


def object_from_load_balancer(load_balancer: TCPLoadBalancer) -> JSONObject:
    """Write a TCPLoadBalancer."""
    spec, origin = load_balancer.spec, load_balancer.spec.origin
    body: JSONObject = {
        "className": spec.class_name,
        "targets": spec.targets,
        "externalTrafficPolicy": spec.external_traffic_policy,
        "sessionAffinity": spec.session_affinity,
        "loadBalancerSourceRanges": list(spec.load_balancer_source_ranges),
        "proxyProtocol": spec.proxy_protocol,
        "address": spec.address,
        "origin": {"kind": origin.kind, "namespace": origin.namespace, "name": origin.name, "uid": origin.uid},
        "ports": [
            {"port": port.port, "name": port.name, "protocol": port.protocol, "nodePort": port.node_port}
            for port in spec.ports
        ],
    }
    if spec.region:
        body["region"] = spec.region
    kind, meta = TCP_LOAD_BALANCERS, _meta(load_balancer.metadata)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": body}


def object_from_slice(endpoint_slice: EndpointSlice) -> JSONObject:
    """Write an EndpointSlice."""
    ports = endpoint_slice.ports or ()
    return {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": _meta(endpoint_slice.metadata),
        "addressType": endpoint_slice.address_type,
        "endpoints": [_endpoint(endpoint) for endpoint in endpoint_slice.endpoints or ()],
        "ports": [{"name": p.name or "", "port": p.port, "protocol": p.protocol or "TCP"} for p in ports],
    }


def object_from_ingress(ingress: Ingress) -> JSONObject:
    """Write one entry of ``status.loadBalancer.ingress``."""
    body: JSONObject = {"ip": ingress.ip} if ingress.ip else {"hostname": ingress.hostname}
    if ingress.ip and ingress.ip_mode:
        # The API server refuses ipMode beside a host name.
        body["ipMode"] = ingress.ip_mode
    if ingress.ports:
        body["ports"] = [
            {"port": port.port, "protocol": port.protocol} | ({"error": port.error} if port.error else {})
            for port in ingress.ports
        ]
    return body


def object_from_condition(condition: WireCondition) -> JSONObject:
    """Write one condition."""
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": condition.observed_generation,
        "lastTransitionTime": condition.last_transition_time,
    }


def owner_reference(reference: OwnerReference) -> JSONObject:
    """Write one owner reference, without the flags that are not set."""
    body: JSONObject = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "name": reference.name,
        "uid": reference.uid,
    }
    flags = {"controller": reference.controller, "blockOwnerDeletion": reference.block_owner_deletion}
    return body | {name: value for name, value in flags.items() if value is not None}


def _meta(meta: ObjectMeta) -> JSONObject:
    body: JSONObject = {"name": meta.name, "namespace": meta.namespace, "labels": dict(meta.labels or {})}
    if meta.annotations:
        body["annotations"] = dict(meta.annotations)
    if meta.finalizers:
        body["finalizers"] = list(meta.finalizers)
    if meta.owner_references:
        body["ownerReferences"] = [owner_reference(reference) for reference in meta.owner_references]
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
