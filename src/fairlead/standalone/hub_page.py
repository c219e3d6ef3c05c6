"""The page of a hub process: its tables, who may look, and how one load balancer is explained.

In: a hub and how it was started. Out: ``Page``. On loopback everyone on this machine may look; anywhere else a token
of the hub's API is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from fairlead import __version__
from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.dnszone import DNS_ZONES
from fairlead.api.hostname import HOSTNAMES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES
from fairlead.api.names import DEFAULT_CLASS
from fairlead.api.poolservice import POOL_SERVICES, PoolService
from fairlead.api.times import wire_time
from fairlead.hub.app import Hub
from fairlead.hub.inventory import Inventory
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.model.keys import LoadBalancerKey
from fairlead.page.board import Board
from fairlead.page.detail import Detail, Place, detail_of, target_status_of
from fairlead.page.items import (
    certificate_item,
    class_item,
    group_item,
    name_item,
    pool_item,
    region_item,
    zone_item,
)
from fairlead.page.plans import Plans
from fairlead.page.rights import AllRights, TokenGate
from fairlead.page.sources import LoadBalancers, Members, Objects, Proxies, ThisHub
from fairlead.page.traffic import Traffic
from fairlead.page.web import Page
from fairlead.runtime.clock import Clock
from fairlead.runtime.hosts import is_loopback
from fairlead.status.proxies import ProxyRow


def make_page(
    hub: Hub,
    cluster: Cluster,
    *,
    identity: str,
    host: str,
    deployment: bool,
    proxies: Callable[[], Sequence[ProxyRow]],
    unhealthy: Callable[[LoadBalancerKey], Mapping[Place, float | None]],
    problems: Callable[[], list[str]],
    traffic: Traffic,
    regions: WatchCache[PoolService],
    clock: Clock,
) -> Page:
    """Build the page of ``hub``, served at the address ``host``.

    ``unhealthy`` returns the targets that the hub's own proxies see so, and for how many seconds, as far as that is
    known. ``problems`` are why it is not ready, ``regions`` the cache of what the hub itself has no use for.
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
            *_of_intents(inventory),
            Objects("class", inventory.classes, LOAD_BALANCER_CLASSES, class_item),
            Objects("pool", inventory.address_pools, ADDRESS_POOLS, pool_item),
            Objects("region", regions, POOL_SERVICES, region_item),
            Plans(inventory, hub.providers, clock),
            Proxies(proxies),
            traffic,
            ThisHub(
                identity=identity,
                version=__version__,
                started=wire_time(clock.now()),
                leading=lambda: hub.leading,
                leader=lambda: hub.elector.holder,
                problems=problems,
            ),
        ],
        clock=clock,
    )

    def ago(seconds: float | None) -> str:
        return wire_time(clock.now() - timedelta(seconds=seconds)) if seconds is not None else ""

    async def explain(key: LoadBalancerKey) -> Detail | None:
        # The hub's own proxies report by themselves: this asks no other machine.
        failing = unhealthy(key)
        registered = {
            (listener, address): target_status_of(
                each,
                lambda since_s: ago(clock.monotonic() - since_s),
                unhealthy=name == DEFAULT_CLASS and (listener, address) in failing,
                unhealthy_since=ago(failing.get((listener, address))),
            )
            for name, runner in hub.providers.items()
            if (state := runner.tracker.state(key)) is not None
            for listener, targets in state.recorded.items()
            for address, each in targets.items()
        }
        return detail_of(key, hub.debug_key(key), inventory, registered)

    closed = deployment or not is_loopback(host)
    gate = TokenGate(cluster.config, clock=clock) if closed else AllRights()
    return Page(board, gate=gate, explain=explain, known=hub.debug_key, traffic=traffic, any_host=closed)


def _of_intents(inventory: Inventory) -> Iterator[Objects[Any]]:
    """Yield the tables of zones and groups, where the hub has an intent that reads them."""
    items = (("zone", DNS_ZONES, zone_item), ("group", BACKEND_GROUPS, group_item))
    for table, resource, item in items:
        cache = inventory.caches.get(resource.plural)
        if cache is not None:
            yield Objects(table, cache, resource, item)
