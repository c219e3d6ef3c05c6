"""The page of a hub process: its tables, who may look, and how one load balancer is explained.

In: a hub and how it was started. Out: ``Page``. On loopback everyone on this machine may look; anywhere else a token
of the hub's API is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import ip_address

from fairlead import __version__
from fairlead.api.hostname import HOSTNAMES
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES
from fairlead.api.names import DEFAULT_CLASS
from fairlead.api.poolservice import POOL_SERVICES, PoolService
from fairlead.api.times import wire_time
from fairlead.hub.app import Hub
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.model.desired import Target
from fairlead.model.keys import LoadBalancerKey
from fairlead.page.board import Board
from fairlead.page.detail import Detail, Place, detail_of
from fairlead.page.items import certificate_item, name_item, region_item
from fairlead.page.plans import Plans
from fairlead.page.rights import Everything, TokenGate
from fairlead.page.sources import LoadBalancers, Members, Objects, Proxies, ThisHub
from fairlead.page.traffic import Traffic
from fairlead.page.web import Page
from fairlead.runtime.clock import Clock
from fairlead.status.proxies import ProxyRow


def make_page(
    hub: Hub,
    cluster: Cluster,
    *,
    identity: str,
    host: str,
    deployment: bool,
    proxies: Callable[[], Sequence[ProxyRow]],
    problems: Callable[[], list[str]],
    traffic: Traffic,
    regions: WatchCache[PoolService],
    clock: Clock,
) -> Page:
    """Build the page of ``hub``, served at the address ``host``.

    ``problems`` are why it is not ready, ``regions`` the cache of what the hub itself has no use for.
    """
    now, inventory = cluster.server_clock.now, hub.inventory
    board = Board(
        [
            LoadBalancers(inventory),
            Members(inventory, now),
            # Certificates end without a change of their object.
            Objects(
                "certificate",
                inventory.managed,
                MANAGED_CERTIFICATES,
                lambda obj: certificate_item(obj, now()),
                every_s=300.0,
            ),
            Objects("name", inventory.hostnames, HOSTNAMES, name_item),
            Objects("region", regions, POOL_SERVICES, region_item),
            Plans(inventory, hub.providers, clock),
            Proxies(proxies),
            traffic,
            ThisHub(
                identity=identity,
                version=__version__,
                started=wire_time(clock.now()),
                leading=lambda: hub.leading,
                problems=problems,
            ),
        ],
        clock=clock,
    )

    async def explain(key: LoadBalancerKey) -> Detail | None:
        registered: dict[Place, Target] = {}
        unhealthy: tuple[str, ...] = ()
        for name, runner in hub.providers.items():
            if (state := runner.tracker.state(key)) is not None:
                for listener, targets in state.recorded.items():
                    registered |= {(listener, address): each.target for address, each in targets.items()}
                if name == DEFAULT_CLASS and (observed := await runner.provider.observe(key)) is not None:
                    # The hub's own proxies report by themselves: this asks no other machine.
                    unhealthy = observed.health.unhealthy if observed.health is not None else ()
        return detail_of(key, hub.debug_key(key), inventory, registered, unhealthy)

    closed = deployment or not is_loopback(host)
    gate = TokenGate(cluster.config, clock=clock) if closed else Everything()
    return Page(board, gate=gate, explain=explain, known=hub.debug_key, traffic=traffic, any_host=closed)


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches ``host``."""
    if host in ("", "localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
