"""Resolves an object of a member to its load balancers at the hub.

In: an open connection to the hub, and what was typed. Out: references to TCPLoadBalancers, or HTTPLoadBalancers.
Never: a guess between two members that both have such an object, where something is to be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.cli.object_ref import IN_MEMBERS, SERVICE, ObjectRef

if TYPE_CHECKING:
    from fairlead.api.meta import KubeObject
    from fairlead.api.tcploadbalancer import Origin
    from fairlead.kube.cluster import Cluster


async def resolve_all(cluster: Cluster, ref: ObjectRef) -> list[ObjectRef]:
    """Return ``ref`` itself, or all load balancers for an object of a member; ``NotFound`` when there are none."""
    from fairlead.errors import NotFound

    if ref.kind not in IN_MEMBERS:
        return [ref]
    matching = await (_of_service if ref.kind == SERVICE else _of_requests)(cluster, ref)
    if not matching:
        why = "is not of type LoadBalancer" if ref.kind == SERVICE else "is of no class of Fairlead's"
        raise NotFound(
            f"No load balancer here is for {ref.title}: it does not exist, {why}, or its agent "
            f"has not exported it; ask its member: fairlead explain {ref.argument} --kubeconfig MEMBER.kubeconfig"
        )
    return sorted(matching)


async def _of_service(cluster: Cluster, ref: ObjectRef) -> set[ObjectRef]:
    from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS

    there = await cluster.list(TCP_LOAD_BALANCERS)
    return {ObjectRef(TCP_LOAD_BALANCERS.kind, *lb.key) for lb in there if _is_for(lb, lb.spec.origin, ref)}


async def _of_requests(cluster: Cluster, ref: ObjectRef) -> set[ObjectRef]:
    """Return the load balancer of a Gateway, or those that the routes of an Ingress or a route are on."""
    from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES

    kind = HTTP_LOAD_BALANCERS.kind
    own = {
        ObjectRef(kind, *lb.key) for lb in await cluster.list(HTTP_LOAD_BALANCERS) if _is_for(lb, lb.spec.origin, ref)
    }
    return own | {
        ObjectRef(kind, route.metadata.namespace, route.spec.load_balancer)
        for route in await cluster.list(LOAD_BALANCER_ROUTES)
        if _is_for(route, route.spec.origin, ref)
    }


def _is_for(obj: KubeObject, origin: Origin, ref: ObjectRef) -> bool:
    from fairlead.api.names import ANNOTATION_ORIGIN

    member = obj.annotation(ANNOTATION_ORIGIN).partition("/")[0]
    is_it = (origin.namespace, origin.name) == (ref.namespace, ref.name) and origin.kind in ("", ref.kind)
    return is_it and ref.member in ("", member)


async def resolve_one(cluster: Cluster, ref: ObjectRef) -> ObjectRef:
    """Return the one that is meant; ``BadConfiguration`` lists them when several members have such a Service."""
    from fairlead.errors import BadConfiguration

    matching = await resolve_all(cluster, ref)
    if len(matching) > 1:
        listed = ", ".join(each.path for each in matching)
        raise BadConfiguration(f"{ref.path} is in several members; name one of {listed}")
    return matching[0]
