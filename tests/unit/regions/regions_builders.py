"""Builders for the pure tests of regions: objects as an API server would send them, in the fewest words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.api.kubernetes import EndpointSlice, Node
from fairlead.api.meta import ObjectMeta
from fairlead.api.poolservice import PoolService, PoolServiceSpec
from fairlead.regions.inventory import compact_node, compact_slice
from fairlead.regions.plan import owners
from fairlead.regions.source import (
    SOURCE_SERVICES,
    Membership,
    RegionKey,
    RegionPool,
    SourceService,
    claims_of,
    pool_service_labels,
    source_from_whole,
)

FINALIZER = "fairlead.dev/pool-services"
SELECTOR = "fairlead.dev/nodepool-selector"


def service(
    name: str = "test",
    *,
    namespace: str = "default",
    kind: str = "LoadBalancer",
    class_name: str | None = "elb",
    selector: str | None = "app=deploy",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    finalizers: list[str] | None = None,
    status: dict[str, Any] | None = None,
    deleting: bool = False,
    version: str = "1",
    **spec: Any,
) -> SourceService:
    meta: dict[str, Any] = {
        "name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": version, "labels": labels,
        "annotations": {**(annotations or {}), **({} if selector is None else {SELECTOR: selector})},
        "finalizers": finalizers,
    }  # fmt: skip
    if deleting:
        meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    body = {"type": kind, "ports": [{"name": "http", "port": 80}], "clusterIP": "10.96.0.1", **spec}
    if class_name is not None:
        body["loadBalancerClass"] = class_name
    whole = {"metadata": meta, "spec": body, "status": status or {}}
    return source_from_whole(msgspec.json.decode(msgspec.json.encode(whole), type=SOURCE_SERVICES.type))


def pool(name: str, *, region: str = "", created: str = "1", deleting: bool = False, **labels: str) -> RegionPool:
    return RegionPool(
        name=name, uid=f"uid-{name}", labels=labels, node_selector={"region": region or name}, region=region or name,
        created=created, deleting=deleting,
    )  # fmt: skip


def pool_service(
    service_name: str, pool_name: str, *, name: str = "", of: SourceService | None = None, **more: Any
) -> PoolService:
    """Build a PoolService of ours; with ``of`` it has its owners and its document."""
    annotations = dict(more.pop("annotations", {}))
    references = None
    if of is not None:
        annotations.setdefault("fairlead.dev/service", of.document)
        references = list(owners(of, pool(pool_name)))
    meta = ObjectMeta(
        name=name or f"{service_name}-{pool_name}",
        namespace=more.pop("namespace", "default"),
        uid=f"uid-{name or service_name + pool_name}",
        resource_version=more.pop("version", "1"),
        labels=more.pop("labels", pool_service_labels(service_name, pool_name)),
        annotations=annotations,
        owner_references=more.pop("references", references),
        deletion_timestamp="2030-01-01T00:00:00Z" if more.pop("deleting", False) else None,
    )
    spec = PoolServiceSpec(pool_name, "2030-01-01T00:00:00.000000Z", more.pop("class_name", "elb"))
    built = PoolService(metadata=meta, spec=spec)
    ingress = more.pop("ingress", ())
    status: dict[str, Any] = {"loadBalancer": {"ingress": [{"ip": ip} for ip in ingress] or None}, **more}
    return msgspec.structs.replace(built, status=msgspec.convert(status, type=type(built.status)))


def node(
    name: str, marks: Mapping[str, str] | None = None, *, address: str = "10.1.0.1", ready: bool = True, **labels: str
) -> Node:
    body = {
        "metadata": {"name": name, "labels": {**(marks or {}), **labels}},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
    return compact_node(msgspec.convert(body, type=Node))


def slice_of(
    *pods: tuple[str, str, bool], name: str = "test-1", service_name: str = "test", address_type: str = "IPv4"
) -> EndpointSlice:
    body = {
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": service_name}},
        "addressType": address_type,
        "endpoints": [{"addresses": [a], "nodeName": n or None, "conditions": {"ready": r}} for a, n, r in pods],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }
    return compact_slice(msgspec.convert(body, type=EndpointSlice))


def membership(**pool_of_node: str) -> Membership:
    """Return who is where: ``membership(n1="east")``."""
    made = Membership()
    for name, pool_name in pool_of_node.items():
        made.put(name, claims_of(node(name, region=pool_name), [pool(pool_name)] if pool_name else []))
    return made


__all__ = ["FINALIZER", "RegionKey", "membership", "node", "pool", "pool_service", "service", "slice_of"]
