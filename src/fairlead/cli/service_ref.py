"""Which load balancers at the hub are for a Service of a member?

In: an open connection to the hub, and what was typed. Out: references to TCPLoadBalancers. Never: a guess between two
members that both have such a Service, where something is to be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.cli.object_ref import SERVICE, ObjectRef

if TYPE_CHECKING:
    from fairlead.kube.cluster import Cluster


async def resolve_all(cluster: Cluster, ref: ObjectRef) -> list[ObjectRef]:
    """Return ``ref`` itself, or of a Service all load balancers that are for it; ``NotFound`` when there are none."""
    from fairlead.api.names import ANNOTATION_ORIGIN
    from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
    from fairlead.errors import NotFound

    if ref.kind != SERVICE:
        return [ref]
    matching = [
        ObjectRef(TCP_LOAD_BALANCERS.kind, *lb.key)
        for lb in await cluster.list(TCP_LOAD_BALANCERS)
        if (lb.spec.origin.namespace, lb.spec.origin.name) == (ref.namespace, ref.name)
        and ref.member in ("", lb.annotation(ANNOTATION_ORIGIN).partition("/")[0])
    ]
    if not matching:
        raise NotFound(
            f"No load balancer here is for {ref.title}: it does not exist, is not of type LoadBalancer, or its agent "
            f"has not exported it; ask its member: fairlead explain {ref.argument} --kubeconfig MEMBER.kubeconfig"
        )
    return sorted(matching)


async def resolve_one(cluster: Cluster, ref: ObjectRef) -> ObjectRef:
    """Return the one that is meant; ``BadConfiguration`` lists them when several members have such a Service."""
    from fairlead.errors import BadConfiguration

    matching = await resolve_all(cluster, ref)
    if len(matching) > 1:
        listed = ", ".join(each.path for each in matching)
        raise BadConfiguration(f"{ref.path} is in several members; name one of {listed}")
    return matching[0]
