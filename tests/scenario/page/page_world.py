"""A fleet in memory behind a real page: what the hub's caches hold, changed by a test, served over real HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from fairlead.api.meta import WireCondition
from fairlead.api.tenant import Tenant
from fairlead.model.keys import LoadBalancerKey
from fairlead.page.board import Board, VisibleItem
from fairlead.page.detail import Detail
from fairlead.page.items import HubItem, PoolItem, RegionItem, ZoneItem, load_balancer_item, member_item
from fairlead.page.plans import PlanItem
from fairlead.page.rights import AllRights, Gate
from fairlead.page.web import Page
from fairlead.runtime.clock import SystemClock
from fairlead.runtime.telemetry import StatusServer
from fairlead.testing.fleet_objects import EAST, GOOD, NOW, lease, load_balancer


class Fleet:
    """The objects of a hub; each table is a source of the board."""

    def __init__(self) -> None:
        self.load_balancers: dict[str, Any] = {}
        self.tenants: dict[str, Tenant] = {"east": EAST}
        self.agent_age_s = 3.0
        self.plans: dict[str, PlanItem] = {}
        self.regions: dict[str, RegionItem] = {}
        self.zones: dict[str, ZoneItem] = {}
        self.pools: dict[str, PoolItem] = {}
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
            Table(self, "plan", lambda: self.plans, lambda key: VisibleItem(self.plans[key], "tcploadbalancers")),
            Table(self, "region", lambda: self.regions, lambda key: VisibleItem(self.regions[key], "poolservices")),
            Table(self, "zone", lambda: self.zones, lambda key: VisibleItem(self.zones[key], "dnszones")),
            Table(self, "pool", lambda: self.pools, lambda key: VisibleItem(self.pools[key], "addresspools")),
            Table(self, "hub", lambda: {"hub-1": 1}, self._hub),
        ]

    def _load_balancer(self, name: str) -> VisibleItem:
        item = load_balancer_item(self.load_balancers[name], self.tenants["east"])
        return VisibleItem(item, "tcploadbalancers", item.namespace)

    def _member(self, name: str) -> VisibleItem:
        return VisibleItem(member_item(self.tenants[name], lease(self.agent_age_s), NOW), "tenants")

    def _hub(self, name: str) -> VisibleItem:
        return VisibleItem(HubItem(id=name, leading=True, version="1.2.3", started="2029-12-31T00:00:00Z"), "")


class Table:
    """One table: what there is by key, and the item of a key."""

    every_s = 0.0

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


async def explain(key: LoadBalancerKey) -> Detail | None:
    return Detail(id=str(key), conditions=[], providers=[], history=[])


def board_of(fleet: Fleet) -> Board:
    return Board(fleet.sources(), clock=SystemClock())


@contextlib.asynccontextmanager
async def served(board: Board, *, gate: Gate | None = None, port: int = 0) -> AsyncGenerator[StatusServer]:
    """Serve the page of a board."""
    page = Page(board, gate=gate or AllRights(), explain=explain)
    async with StatusServer("127.0.0.1", port, CollectorRegistry(), list, extend=page.add_to) as server:
        yield server
