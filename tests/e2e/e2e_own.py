"""Objects of one test in the shared fleet: under their own names, and deleted before the next test begins.

In: the fleet, a member, names. Out: objects as their users write them; each ``no_...`` returns once the hub has
deleted them. Objects of other tests are ignored.
"""

from __future__ import annotations

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kubernetes import INGRESS_CLASSES, INGRESSES, NODES, SERVICES
from fairlead.api.names import INGRESS_CONTROLLER
from fairlead.errors import NotFound
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.web import put


async def no_services(fleet: Fleet, member: Member, *names: str, namespace: str = "default") -> None:
    """Delete Services, and wait until the hub has none of them."""
    for name in names:
        await member.cluster.delete(SERVICES, namespace, name)
    for name in names:
        await fleet.gone(member.name, f"{namespace}.{name}")


async def no_nodes(member: Member, *names: str) -> None:
    """Delete nodes; what still names one of them as a target has to be gone before."""
    for name in names:
        await member.cluster.delete(NODES, "", name)


async def own_class(member: Member, name: str) -> None:
    """Write an IngressClass: its Ingresses have a load balancer, and an address, of their own."""
    await put(member, INGRESS_CLASSES, name, {"controller": INGRESS_CONTROLLER})


async def no_ingresses(fleet: Fleet, member: Member, of_class: str, *names: str) -> None:
    """Delete all Ingresses of a class, and the class; wait until the hub has no load balancer for it."""
    for name in names:
        await member.cluster.delete(INGRESSES, "default", name)
    await member.cluster.delete(INGRESS_CLASSES, "", of_class)
    await no_web(fleet, member, f"ingressclass.{of_class}")


async def no_web(fleet: Fleet, member: Member, load_balancer: str) -> None:
    """Wait until the hub has deleted the HTTP load balancer of this name."""

    async def gone() -> bool:
        try:
            await fleet.cluster.get(HTTP_LOAD_BALANCERS, f"tenant-{member.name}", load_balancer)
        except NotFound:
            return True
        return False

    await wait_until(gone, f"{load_balancer} of {member.name} is gone from the hub")


async def changes_of_envoy(fleet: Fleet) -> float:
    """Return how many responses of the hub, since it was started, have changed listeners, routes or certificates.

    Clusters are left out: those of a load balancer for HTTP that another test has deleted stay for its connections, as
    long as the hub runs that removed it, and go with the next one.
    """
    kinds = ("listener", "routes", "secret")
    name = "fairlead_xds_changing_pushes_total"
    return sum([await fleet.hub.metric(name, f'type="{kind}"') for kind in kinds])
