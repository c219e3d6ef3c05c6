"""A fleet in memory behind a real page: what the hub's caches hold, changed by a test, served over real HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from fairlead.api.httploadbalancer import RouteKey
from fairlead.api.meta import WireCondition
from fairlead.api.tenant import Tenant
from fairlead.model.keys import LoadBalancerKey
from fairlead.page.board import Board, TableSource, VisibleItem
from fairlead.page.routes import RouteRow
from fairlead.page.tables import (
    CertificateItem,
    ClassItem,
    Detail,
    GroupItem,
    HubItem,
    MachineItem,
    NameItem,
    PlanItem,
    PoolItem,
    ProxyItem,
    RegionItem,
    SharedItem,
    ZoneItem,
    load_balancer_item,
    member_item,
)
from fairlead.page.timeline import EventItem
from fairlead.page.traffic import Traffic
from fairlead.page.web import AllRights, TokenGate, ViewerGate, WebPage
from fairlead.runtime.clock import SystemClock
from fairlead.runtime.telemetry import StatusServer
from tests.fleet_objects import EAST, GOOD, NOW, lease, load_balancer


class Fleet:
    """The objects of a hub; each table is a source of the board."""

    def __init__(self) -> None:
        self.load_balancers: dict[str, Any] = {}
        self.tenants: dict[str, Tenant] = {"east": EAST}
        self.agent_age_s = 3.0
        self.plans: dict[str, PlanItem] = {}
        self.regions: dict[str, RegionItem] = {}
        self.shared: dict[str, SharedItem] = {}
        self.names: dict[str, NameItem] = {}
        self.zones: dict[str, ZoneItem] = {}
        self.certificates: dict[str, CertificateItem] = {}
        self.pools: dict[str, PoolItem] = {}
        self.classes: dict[str, ClassItem] = {}
        self.groups: dict[str, GroupItem] = {}
        self.proxies: dict[str, ProxyItem] = {}
        self.machines: dict[str, MachineItem] = {}
        self.hub = HubItem(id="hub-1", leading=True, version="1.2.3", started="2029-12-31T00:00:00Z")
        #: What is known of a load balancer in detail, by its id.
        self.details: dict[str, Detail] = {}
        self.routes: dict[str, RouteRow] = {}
        self.events: dict[str, EventItem] = {}
        self.changed: dict[str, Callable[[Hashable], None]] = {}

    def add(self, count: int) -> None:
        """Add load balancers of Services shop/s0, shop/s1, ..."""
        for number in range(count):
            self.put(f"s{number}", *GOOD)

    def put(self, name: str, *conditions: WireCondition) -> None:
        """Give a Service a load balancer with these conditions."""
        lb = load_balancer(*conditions)
        metadata = msgspec.structs.replace(
            lb.metadata,
            name=f"shop.{name}",
            creation_timestamp="2029-12-31T00:00:00Z",
            annotations={"fairlead.dev/origin": f"east/shop/{name}"},
        )
        self.load_balancers[name] = msgspec.structs.replace(lb, metadata=metadata)
        self.mark("lb", name)

    def mark(self, table: str, key: str) -> None:
        """Have the page look at something again."""
        if table in self.changed:
            self.changed[table](key)

    def sources(self) -> list[Table]:
        """Return the tables of the page."""
        return [
            Table(self, "lb", lambda: self.load_balancers, self._load_balancer),
            Table(self, "member", lambda: self.tenants, self._member),
            *(
                Table(self, table, lambda items=items: items, _shown_of(items, resource))
                for table, items, resource in (
                    ("route", self.routes, "loadbalancerroutes"),
                    ("event", self.events, ""),
                    ("plan", self.plans, "tcploadbalancers"),
                    ("region", self.regions, "poolservices"),
                    ("shared", self.shared, "tenants"),
                    ("name", self.names, "hostnames"),
                    ("zone", self.zones, "dnszones"),
                    ("certificate", self.certificates, "managedcertificates"),
                    ("pool", self.pools, "addresspools"),
                    ("class", self.classes, "loadbalancerclasses"),
                    ("group", self.groups, "backendgroups"),
                    ("proxy", self.proxies, "tenants"),
                    ("machine", self.machines, "proxymachines"),
                )
            ),
            Table(self, "hub", lambda: {self.hub.id: 1}, lambda _key: VisibleItem(self.hub, "")),
        ]

    def _load_balancer(self, name: str) -> VisibleItem:
        item = load_balancer_item(self.load_balancers[name], self.tenants["east"])
        return VisibleItem(item, "tcploadbalancers", item.namespace)

    def _member(self, name: str) -> VisibleItem:
        return VisibleItem(member_item(self.tenants[name], lease(self.agent_age_s), NOW), "tenants")

    async def explain(self, key: LoadBalancerKey, _only: RouteKey | None) -> Detail | None:
        """Return what is known of one load balancer."""
        return self.details.get(str(key), Detail(id=str(key), conditions=[], providers=[], history=[]))


def _shown_of(items: Mapping[str, msgspec.Struct], resource: str) -> Callable[[str], VisibleItem]:
    return lambda key: VisibleItem(items[key], resource)


class Table(TableSource):
    """One table: what there is by key, and the item of a key."""

    def __init__(self, fleet: Fleet, table: str, there: Callable[[], Any], shown: Callable[[str], VisibleItem]) -> None:
        self.table = table
        self._fleet = fleet
        self._there = there
        self._shown = shown

    def watch(self, changed: Callable[[Hashable], None]) -> None:
        self._fleet.changed[self.table] = changed

    def all_keys(self) -> Iterable[Hashable]:
        return list(self._there())

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        return self._shown(str(key)) if key in self._there() else None


@contextlib.asynccontextmanager
async def served(
    fleet: Fleet,
    *,
    gate: ViewerGate | None = None,
    port: int = 0,
    traffic: Traffic | None = None,
    actors: TokenGate | None = None,
) -> AsyncGenerator[StatusServer]:
    """Serve the page of a fleet."""
    board = Board([*fleet.sources(), *([traffic] if traffic is not None else [])], clock=SystemClock())
    page = WebPage(board, gate=gate or AllRights(), explain=fleet.explain, traffic=traffic, actors=actors)
    async with StatusServer("127.0.0.1", port, CollectorRegistry(), list, extend=page.add_to) as server:
        yield server
