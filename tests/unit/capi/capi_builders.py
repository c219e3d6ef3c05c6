"""Clusters, machines, load balancers and groups as caches hold them, in the fewest words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.clusterapi import CapiCluster, TargetObject
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.capi.view import CapiView, Marks, held
from fairlead.testing.builders import decoded

NAMESPACE = "fleet"


def lb(name: str = "api", *, status: Mapping[str, Any] | None = None, **spec: Any) -> LoadBalancer:
    whole = {"className": "edge", "clusterName": "blue", "listeners": [{"port": 6443}], **spec}
    meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "resourceVersion": "1"}
    return decoded({"metadata": meta, "spec": whole, "status": status or {"address": "192.0.2.1"}}, LoadBalancer)


def cluster(name: str = "blue", *, endpoint: str = "", paused: bool = False) -> CapiCluster:
    spec: dict[str, Any] = {"controlPlaneRef": {"kind": "AnyControlPlane", "name": name}}
    if paused:
        spec["paused"] = paused
    if endpoint:
        spec["controlPlaneEndpoint"] = {"host": endpoint, "port": 6443}
    return decoded({"metadata": {"name": name, "namespace": NAMESPACE, "uid": "c"}, "spec": spec}, CapiCluster)


def machine(
    name: str,
    *addresses: str,
    cluster: str = "blue",
    behind: str = "api",
    marked: Sequence[str] = (),
    deleting: bool = False,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> TargetObject:
    marks = Marks.of(annotations, ())
    for each in marked:
        marks = held(marks, each, "active", hooks=True, deleting=False)
    meta = {
        "name": name,
        "namespace": NAMESPACE,
        "resourceVersion": "1",
        "labels": labels
        if labels is not None
        else {"cluster.x-k8s.io/cluster-name": cluster, "loadbalancer.cluster.x-k8s.io/name": behind},
        "annotations": dict(marks.annotations),
        "finalizers": list(marks.finalizers),
    }
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"addresses": [{"type": "InternalIP", "address": each} for each in addresses]}
    return decoded({"metadata": meta, "spec": {"clusterName": cluster}, "status": status}, TargetObject)


def group(
    members: Mapping[str, str],
    *,
    static: Sequence[str] | None = None,
    draining: Sequence[str] = (),
    listed: Mapping[str, str] | None = None,
    in_effect: bool = True,
    name: str = "api",
) -> BackendGroup:
    """Return the group that asks for ``members`` (by backend); in effect, with every backend as it is asked for."""
    asked = list(members) if static is None else list(static)
    states = (
        listed if listed is not None else {each: "Draining" if each in draining else "Registered" for each in asked}
    )
    return decoded(
        {
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "generation": 7,
                "annotations": {"fairlead.dev/backends-of-members": json.dumps(dict(members))},
            },
            "spec": {"loadBalancers": ["api"], "static": asked, "draining": list(draining), "listBackends": True},
            "status": {
                "listed": [{"backend": key, "state": state} for key, state in states.items()],
                "listedGeneration": 7 if in_effect else 6,
            },
        },
        BackendGroup,
    )


def view(*objects: TargetObject, groups: Sequence[BackendGroup] = (), **others: Any) -> CapiView:
    by_name = {each.metadata.name: each for each in groups}
    plain = CapiView(load_balancer=lb(), cluster=cluster(), objects=tuple(objects), groups=by_name)
    return msgspec.structs.replace(plain, **others)
