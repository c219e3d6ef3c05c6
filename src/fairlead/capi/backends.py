"""The BackendGroup of a load balancer's members: what it holds, and how it is written.

    spec.static           every backend that is or may be registered
    spec.draining         those of them that get no new connections
    annotation members    which member each backend is of, until it is deregistered: it outlives the member's object

In: a group as it was read; what it is to ask for. Out: what the hub has of each backend, or the body of the group.
"""

from __future__ import annotations

import msgspec

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.json_text import read_json
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer, LoadBalancerListener
from fairlead.api.meta import JSONObject
from fairlead.api.names import ANNOTATION_MEMBERS, LABEL_MANAGED_BY, LABEL_MEMBERS_OF, MANAGED_BY, label_value
from fairlead.capi.members import Presence, presence_of
from fairlead.capi.view import GroupPlan
from fairlead.model.in_words import host_port


def members_in(group: BackendGroup | None) -> dict[str, str]:
    """Return the member of each backend that is, or may be, registered; the backend itself where it is not recorded."""
    if group is None:
        return {}
    names = read_json(group.annotation(ANNOTATION_MEMBERS) or "{}", dict[str, str]) or {}
    return {**names, **{backend: backend for backend in group.spec.static or () if backend not in names}}


def presence_in(group: BackendGroup | None, backend: str) -> Presence:
    """Return the presence of ``backend`` at the load balancer by its group; LEAVING while there is no group."""
    if group is None:
        return presence_of(requested=False, draining=False, listed="", in_effect=False)
    listed = {each.backend: each.state for each in group.status.listed or ()}
    return presence_of(
        requested=backend in (group.spec.static or ()),
        draining=backend in (group.spec.draining or ()),
        listed=listed.get(backend, ""),
        in_effect=group.status.listed_generation == group.metadata.generation,
    )


def backend_of(address: str, listener: LoadBalancerListener) -> str:
    """Return address and port of a member, as a group names it."""
    return host_port(address, listener.target_port or listener.port)


def is_same(group: BackendGroup | None, plan: GroupPlan) -> bool:
    """Return whether the spec of ``group`` is equal to ``plan``."""
    return (
        group is not None
        and members_in(group) == dict(plan.members)
        and frozenset(group.spec.static or ()) == plan.static
        and frozenset(group.spec.draining or ()) == plan.draining
        and group.spec.list_backends
    )


def group_body(load_balancer: LoadBalancer, name: str, listener: LoadBalancerListener, plan: GroupPlan) -> JSONObject:
    """Return the group as it is applied."""
    meta = load_balancer.metadata
    spec: JSONObject = {
        "loadBalancers": [meta.name],
        "static": sorted(plan.static),
        "draining": sorted(plan.draining),
        "listBackends": True,
    }
    if len(load_balancer.spec.listeners) > 1:
        spec["listener"] = listener.name
    return {
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_MEMBERS_OF: label_value(meta.name)},
            "annotations": {ANNOTATION_MEMBERS: msgspec.json.encode(dict(sorted(plan.members.items()))).decode()},
            "ownerReferences": [msgspec.to_builtins(LOAD_BALANCERS.owner(meta))],
        },
        "spec": spec,
    }
