"""The page with 5,000 load balancers in a real Chromium: first paint, a change seen, and what ten idle viewers cost."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from pathlib import Path

import aiohttp
import msgspec
from prometheus_client import CollectorRegistry

from bench.figures import Figure
from fairlead.page.board import Board, TableSource, VisibleItem
from fairlead.page.tables import load_balancer_item
from fairlead.page.web import AllRights, WebPage
from fairlead.runtime.clock import SystemClock
from fairlead.runtime.telemetry import StatusServer
from tests.fleet_objects import EAST, GOOD, condition, load_balancer
from tests.worlds.browser import Browser

_COUNT, _VIEWERS, _IDLE_S, _CHANGES = 5000, 10, 20.0, 20
_ROWS = "document.querySelectorAll('#grid .row').length"
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


class LoadBalancers(TableSource):
    """Load balancers of one member, in memory."""

    table = "lb"

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.changed: Callable[[Hashable], None] = lambda _key: None

    def watch(self, changed: Callable[[Hashable], None]) -> None:
        self.changed = changed

    def all_keys(self) -> Iterable[Hashable]:
        return [f"s{number}" for number in range(_COUNT)]

    def visible_item(self, key: Hashable) -> VisibleItem:
        bad = [condition("Serving", "False", "NoHealthyTargets")] if key in self.broken else []
        lb = load_balancer(*GOOD, *bad)
        metadata = msgspec.structs.replace(
            lb.metadata, name=f"shop.{key}", annotations={"fairlead.dev/origin": f"east/shop/{key}"}
        )
        return VisibleItem(load_balancer_item(msgspec.structs.replace(lb, metadata=metadata), EAST), "tcploadbalancers")


async def none(_key: object, _route: object) -> None:
    return None


async def measured() -> AsyncIterator[Figure]:
    """Measure the first paint, a change until a viewer sees it, and idle viewers, with 5,000 load balancers."""
    fleet = LoadBalancers()
    page = WebPage(Board([fleet], clock=SystemClock()), gate=AllRights(), explain=none)
    with tempfile.TemporaryDirectory(prefix="fairlead-") as home:
        async with (
            StatusServer("127.0.0.1", 0, CollectorRegistry(), list, extend=page.add_to) as server,
            Browser(Path(home) / "chromium") as browser,
        ):
            await browser.open(server.url)
            await browser.until(f"{_ROWS} > 3", "rows are shown")
            # The second time: the first one also starts Chromium's processes.
            await browser.open("about:blank")
            await browser.open(server.url)
            listed_ms = await browser.until(f"{_ROWS} > 3 && performance.now()", "rows are shown")
            yield Figure(
                name="page: first paint, 5,000 load balancers", value=await browser.js(_PAINTED), unit="ms", limit=1000
            )
            yield Figure(name="page: rows shown, 5,000 load balancers", value=listed_ms, unit="ms", limit=1000)
            seen: list[float] = []
            for number in range(_CHANGES):
                began_s = time.perf_counter()
                fleet.broken = {f"s{number}"}
                for key in (f"s{number}", f"s{number - 1}"):
                    fleet.changed(key)
                await browser.until(
                    f"document.querySelector('#grid .row[aria-rowindex=\"1\"]').innerText.includes('s{number}\\n')",
                    "the change is seen",
                )
                seen.append((time.perf_counter() - began_s) * 1000)
            yield Figure(name="page: a change seen, p50", value=sorted(seen)[_CHANGES // 2], unit="ms", limit=500)
            yield Figure(name="page: a change seen, slowest of 20", value=max(seen), unit="ms", limit=500)
        async with StatusServer("127.0.0.1", 0, CollectorRegistry(), list, extend=page.add_to) as server:
            yield Figure(
                name=f"page: CPU of the hub for {_VIEWERS} idle viewers",
                value=await _idle(server.url),
                unit="%",
                limit=2,
            )


async def _idle(url: str) -> float:
    """Return the processor time that viewers who see no change cost, in percent of one core."""
    async with aiohttp.ClientSession() as session, contextlib.AsyncExitStack() as stack:
        for _ in range(_VIEWERS):
            answer = await stack.enter_async_context(session.get(f"{url}/page/events"))
            received = b""
            while not received.endswith(b"\n\n"):
                received = received[-1:] + await answer.content.readany()
        began_s = time.process_time()
        await asyncio.sleep(_IDLE_S)
        return (time.process_time() - began_s) / _IDLE_S * 100
