"""Make the pictures of the page in the README: a small fleet behind the real page, in a real Chromium.

In: nothing. Out: docs/images/page.webp and docs/images/page-dark.webp. Run by ``make screenshots``.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Hashable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.times import wire_time
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Counted, Totals
from fairlead.page.board import Board, TableSource, VisibleItem
from fairlead.page.routes import ChainBackend, chain_of
from fairlead.page.tables import BackendItem, ConditionItem, Detail, HubItem, load_balancer_item
from fairlead.page.traffic import Figure, Traffic
from fairlead.page.web import AllRights, WebPage
from fairlead.runtime.clock import SystemClock
from fairlead.runtime.telemetry import StatusServer
from fairlead.status.fleet import Trouble, load_balancer_row
from tests.fleet_objects import EAST, GOOD, condition, load_balancer
from tests.worlds.browser import Browser

_IMAGES = Path(__file__).parents[1] / "docs" / "images"
_NAMES = ("api", "cart", "checkout", "feed", "login", "mail", "media", "orders", "pay", "search", "shop", "web")
_BROKEN = condition("Serving", "False", "NoHealthyTargets", "none of 3 targets is healthy")
_DRIFTED = condition("Drifted", "True", "Drifted", "1 entry was changed at the provider")
_OPEN = "TCPLoadBalancer/tenant-east/shop.checkout"


class Fleet(TableSource):
    """Load balancers, their figures and the hub: three tables with one content."""

    def __init__(self, table: str, items: dict[str, msgspec.Struct]) -> None:
        self.table = table
        self._items = items

    def all_keys(self) -> Iterable[Hashable]:
        """Return all keys."""
        return list(self._items)

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return one item."""
        return VisibleItem(self._items[str(key)], "")


def _ago(hours: float) -> str:
    return wire_time(datetime.now(UTC) - timedelta(hours=hours))


def _items() -> dict[str, msgspec.Struct]:
    items: dict[str, msgspec.Struct] = {}
    for number, name in enumerate(_NAMES * 3):
        bad = {"checkout": [_BROKEN], "media": [_DRIFTED]}.get(name, []) if number < len(_NAMES) else []
        region, place = (("east", "shop"), ("east", "blog"), ("east", "lab"))[number // len(_NAMES)]
        lb = load_balancer(
            *(msgspec.structs.replace(each, last_transition_time=_ago(number)) for each in (*GOOD, *bad))
        )
        metadata = msgspec.structs.replace(
            lb.metadata,
            name=f"{place}.{name}",
            annotations={"fairlead.dev/origin": f"{region}/{place}/{name}"},
            creation_timestamp=_ago(30 + number),
        )
        status = msgspec.structs.replace(
            lb.status, address=f"192.0.2.{number + 10}", targets="0/3" if bad == [_BROKEN] else "3/3"
        )
        item = load_balancer_item(msgspec.structs.replace(lb, metadata=metadata, status=status), EAST)
        items[item.id] = item
    return items


async def _explain(key: LoadBalancerKey, _only: object) -> Detail:
    conditions = [
        ConditionItem(each.type, each.status, each.reason, each.message, _ago(0.2)) for each in (*GOOD, _BROKEN)
    ]
    backends = [
        BackendItem("TCP/80", f"10.1.0.{number}:8080", f"Pod/shop/checkout-{number}", "Unhealthy", _ago(0.2))
        for number in (4, 5, 6)
    ]
    parts = [ChainBackend("TCP/80", each.address, each.source, Trouble.NOT_SERVING, each.state) for each in backends]
    lb = _broken()
    return Detail(id=str(key), conditions=conditions, providers=[], history=[], backends=backends,
                  chain=chain_of(lb, load_balancer_row(lb), (), parts))  # fmt: skip


def _broken() -> TCPLoadBalancer:
    lb = load_balancer(*GOOD, _BROKEN)
    meta = msgspec.structs.replace(lb.metadata, annotations={"fairlead.dev/origin": "east/shop/checkout"})
    status = msgspec.structs.replace(lb.status, address="192.0.2.12")
    return msgspec.structs.replace(lb, metadata=meta, status=status)


class Busy(Traffic):
    """Traffic that is made up: an hour of each load balancer, and no readers."""

    def __init__(self, keys: Iterable[str]) -> None:
        super().__init__(list, clock=SystemClock(), now=lambda: datetime.now(UTC))
        subjects = [Counted(LoadBalancerKey(*key.split("/"))) for key in keys]
        for minute in range(62):
            added = {
                subject: Totals(int(60 * (12 + 8 * math.sin(minute / 9 + number) + minute * 7 % 5)))
                for number, subject in enumerate(subjects)
            }
            self.last_hour.add(added, 60.0 * minute + 45, 30.0)
        self._shown = {
            str(subject): Figure(str(subject), 12.0 + number, 31, 49_000.0, 210_000.0, (), 0.4, 1.8)
            for number, subject in enumerate(subjects)
        }

    def all_keys(self) -> Iterable[Hashable]:
        """Return all load balancers."""
        return list(self._shown)

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the figure of one."""
        return VisibleItem(self._shown[str(key)], "")


async def main() -> None:
    """Write both pictures."""
    hub = HubItem(id="hub-1", leading=True, version="0.2.0", started=_ago(200))
    traffic = Busy(_items())
    tables = [Fleet("lb", _items()), Fleet("hub", {"hub-1": hub}), traffic]
    page = WebPage(Board(tables, clock=SystemClock()), gate=AllRights(), explain=_explain, traffic=traffic)
    _IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fairlead-") as home:
        async with (
            StatusServer("127.0.0.1", 0, CollectorRegistry(), list, extend=page.add_to) as server,
            Browser(Path(home) / "chromium") as browser,
        ):
            await browser.call(
                "Emulation.setDeviceMetricsOverride", width=1280, height=720, deviceScaleFactor=1, mobile=False
            )
            await browser.open(f"{server.url}/#/load-balancers/{_OPEN}")
            await browser.until("document.querySelectorAll('#grid .row').length > 5", "rows are shown")
            await browser.until("document.querySelector('#detail .diagram path')", "the details are shown")
            for dark, name in ((False, "page.webp"), (True, "page-dark.webp")):
                await browser.dark(on=dark)
                await asyncio.sleep(1.0)
                await browser.screenshot(_IMAGES / name)


if __name__ == "__main__":
    asyncio.run(main())
