"""The JSON of published objects and status entries: it names every field that we own.

In: values. Out: dicts with defaults included, so that what a server would default is ours and stays as it is. Pure.
Never writes a field that we do not mean to own.
"""

from __future__ import annotations

from typing import Any, cast

from fairlead.api.kubernetes import ENDPOINT_SLICES, EndpointSlice, Ingress
from fairlead.api.meta import AnyResource, JSONObject, ObjectMeta, Wire
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer


def whole(value: Wire) -> JSONObject:
    """Return the JSON of a value with all fields, defaults included, except those that are None."""
    names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
    return {on_wire: _whole(part) for name, on_wire in names if (part := getattr(value, name)) is not None}


def object_from_load_balancer(load_balancer: TCPLoadBalancer) -> JSONObject:
    """Write a TCPLoadBalancer; a region, or families, that are empty are left out."""
    spec = whole(load_balancer.spec)
    for name in ("region", "ipFamilies", "ipFamilyPolicy"):
        # A hub of an earlier version would refuse a field that it does not know.
        if not spec[name]:
            del spec[name]
    return {**_head(TCP_LOAD_BALANCERS, load_balancer.metadata), "spec": spec}


def object_from_slice(endpoint_slice: EndpointSlice) -> JSONObject:
    """Write an EndpointSlice in canonical form."""
    return {
        **_head(ENDPOINT_SLICES, endpoint_slice.metadata),
        "addressType": endpoint_slice.address_type,
        "endpoints": _whole(endpoint_slice.endpoints or []),
        "ports": _whole(endpoint_slice.ports or []),
    }


def object_from_ingress(ingress: Ingress) -> JSONObject:
    """Write one entry of ``status.loadBalancer.ingress``."""
    body: JSONObject = {"ip": ingress.ip} if ingress.ip else {"hostname": ingress.hostname}
    if ingress.ip and ingress.ip_mode:
        # The API server refuses ipMode beside a host name.
        body["ipMode"] = ingress.ip_mode
    return body | ({"ports": _whole(ingress.ports)} if ingress.ports else {})


def _head(kind: AnyResource, meta: ObjectMeta) -> JSONObject:
    """Return apiVersion, kind and the owned metadata of an object."""
    parts = (meta.annotations, meta.finalizers, meta.owner_references)
    names = ("annotations", "finalizers", "ownerReferences")
    body: JSONObject = {"name": meta.name, "namespace": meta.namespace, "labels": dict(meta.labels or {})}
    body |= {name: _whole(part) for name, part in zip(names, parts, strict=True) if part}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": body}


def _whole(part: object) -> Any:
    if isinstance(part, Wire):
        return whole(part)
    return [_whole(each) for each in cast("list[object]", part)] if isinstance(part, (list, tuple)) else part
