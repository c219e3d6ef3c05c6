"""Removes everything that Fairlead put on machines, before Fairlead is removed from a management cluster.

    Machines, and objects of each kind that some LoadBalancer names    hooks, finalizers and markers of ours go
    LoadBalancers                                                      our finalizer for their members goes

In: a cluster in which no controller of ours runs. Out: the names of what was freed. Never: touches what others
put there, or a backend: what is registered stays, and is removed with its LoadBalancer.
"""

from __future__ import annotations

from fairlead.api.clusterapi import TargetObject
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import JSONObject, Resource
from fairlead.api.names import FINALIZER_MEMBERS, MANAGER_CAPI
from fairlead.capi.hooks import Marks, patch_of, released_of_all
from fairlead.capi.view import DEFAULT_KIND
from fairlead.errors import Conflict, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import find_kind
from fairlead.kube.writes import release

_TRIES = 5


async def release_hooks(cluster: Cluster, hub: Cluster | None = None) -> list[str]:
    """Release every object; return those that were changed, as "kind namespace/name", sorted.

    ``hub`` has the LoadBalancers; None: ``cluster`` has them, too.

    Raises:
        Conflict: another client writes an object faster than it can be read.
    """
    hub = hub or cluster
    load_balancers = [obj for obj in await hub.list(LOAD_BALANCERS) if obj.spec.cluster_name]
    kinds = {obj.spec.target_kind or DEFAULT_KIND for obj in load_balancers} | {DEFAULT_KIND}
    freed: list[str] = []
    for kind in sorted(kinds, key=str):
        resource = await find_kind(cluster, kind.api_group, kind.kind, TargetObject)
        if resource is None:
            continue
        marked = [obj for obj in await cluster.list(resource) if await _free(cluster, resource, obj)]
        freed += [f"{kind.kind} {obj.key}" for obj in marked]
    for obj in load_balancers:
        if obj.held_by(FINALIZER_MEMBERS):
            fresh = await hub.get(LOAD_BALANCERS, *obj.key)
            await release(hub, LOAD_BALANCERS, fresh, FINALIZER_MEMBERS, manager=MANAGER_CAPI)
            freed.append(f"LoadBalancer {obj.key}")
    return freed


async def _free(cluster: Cluster, resource: Resource[TargetObject], obj: TargetObject) -> bool:
    for number in range(_TRIES):
        before = Marks.of(obj.metadata.annotations, obj.metadata.finalizers)
        patch = patch_of(before, released_of_all(before))
        if not patch:
            return False
        body: JSONObject = {"metadata": {**patch, "resourceVersion": obj.metadata.resource_version}}
        try:
            await cluster.merge_patch(resource, *obj.key, body, manager=MANAGER_CAPI)
        except NotFound:
            return True
        except Conflict:
            if number == _TRIES - 1:
                raise
            obj = await cluster.get(resource, *obj.key)
        else:
            return True
    return False
