"""The present traffic of each load balancer: rates, from counts that are read while they are looked at.

In: readers of data planes. Out: figures by load balancer and backend, a table of the page, the answer for ``fairlead
top``, and what was added for the metrics. After ``_LOOKED_S`` without a question nothing is read any more; a scrape of
the metrics reads once. The work follows what is busy: a load balancer without traffic has no figure.
Never: a number of a data plane that could not be read; the reason is shown instead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from fairlead.api.times import wire_time
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.traffic import Counted, Reading, Totals, TrafficReader
from fairlead.page.board import VisibleItem
from fairlead.page.sources import RESOURCE_OF
from fairlead.page.traffic_rates import Figure, TrafficRates, figure_of
from fairlead.runtime.clock import Clock

#: Envoy sums up the times of requests every five seconds.
READ_S = 5.0
_LOOKED_S = 20.0
#: Of the time at the most one part in so many is spent on reading.
_SHARE = 50
#: A scrape does not wait longer for a data plane; its counts are in the next one.
_SCRAPE_S = 3.0


class TrafficAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to ``fairlead top``: the figures of what is busy, when they were read, and what could not be read.

    ``backends`` are of those that got HTTP requests; the ``id`` is that of the load balancer, ``#`` and a name.
    ``routes`` are of load balancers that count them; the ``id`` has ``@`` and a name such as ingress/shop/web.
    """

    at: str
    figures: list[Figure]
    problem: str = ""
    backends: list[Figure] = []
    routes: list[Figure] = []


class Traffic:
    """The figures of one hub; a source of the board (table ``traffic``).

    ``readers`` returns those that there are now. ``added`` is called with what each reading adds.
    """

    table = "traffic"
    every_s = 2.0

    def __init__(
        self,
        readers: Callable[[], Sequence[TrafficReader]],
        *,
        clock: Clock,
        now: Callable[[], datetime],
        added: Callable[[Mapping[Counted, Totals]], None] = lambda _added: None,
    ) -> None:
        self._readers = readers
        self._clock = clock
        self._now = now
        self._added = added
        self._rates = TrafficRates()
        self._figures: dict[Counted, Figure] = {}
        self._gone: set[Counted] = set()
        self._at_s = float("-inf")
        self._rated_s = float("-inf")
        self._read_at = ""
        self._problem = ""
        self._asked = asyncio.Event()
        self._asked_s = float("-inf")
        self._fresh = asyncio.Condition()
        self._reading = asyncio.Lock()

    async def run(self) -> None:
        """Read while there are questions, until cancelled."""
        while True:
            if self._clock.monotonic() - self._asked_s > _LOOKED_S:
                self._asked.clear()
                await self._asked.wait()
            began_s = self._clock.monotonic()
            await self.read()
            took_s = self._clock.monotonic() - began_s
            await self._clock.sleep(max(READ_S, _SHARE * took_s))

    async def read(self) -> None:
        """Read all data planes once."""
        async with self._reading:
            readings = await asyncio.gather(*(reader.read() for reader in self._readers()))
            self._take([reading for each in readings for reading in each])
        async with self._fresh:
            self._fresh.notify_all()

    async def refresh(self) -> None:
        """Read once for a scrape of the metrics, unless that was done a moment ago; waits a few seconds at the most."""
        if self._clock.monotonic() - self._at_s >= READ_S:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SCRAPE_S):
                    await self.read()

    def active(self, key: LoadBalancerKey) -> int:
        """Return how many connections of a load balancer are open."""
        return self._rates.active(Counted(key))

    def ask(self) -> None:
        """Request that figures are read during the next seconds."""
        self._asked_s = self._clock.monotonic()
        self._asked.set()

    async def answer(self, timeout_s: float = 3 * READ_S) -> TrafficAnswer:
        """Return the figures; without recent reads, wait until there are rates."""
        self.ask()
        asked_s = self._asked_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._fresh:
                await self._fresh.wait_for(lambda: asked_s - self._rated_s <= READ_S)
        backends = [figure for counted, figure in self._figures.items() if counted.backend]
        routes = [figure for counted, figure in self._figures.items() if counted.route]
        figures = [figure for counted, figure in self._figures.items() if counted.whole]
        return TrafficAnswer(self._read_at, figures, self._problem, backends, routes)

    # --- the board's table --------------------------------------------------------------------------------------

    def watch(self, changed: Callable[[Hashable], None]) -> None:
        """Do nothing: the table is polled, which also triggers reads of the figures."""

    def all_keys(self) -> Iterable[Hashable]:
        """Return the keys of load balancers with traffic, now or at the last reading."""
        self.ask()
        keys = {*self._figures, *self._gone}
        self._gone.clear()
        return keys

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the figure of one; None when it is idle."""
        if not isinstance(key, Counted) or (figure := self._figures.get(key)) is None:
            return None
        return VisibleItem(figure, RESOURCE_OF.get(key.load_balancer.kind, ""), key.load_balancer.namespace)

    def _take(self, readings: Sequence[Reading]) -> None:
        now_s = self._clock.monotonic()
        seconds, self._at_s = now_s - self._at_s, now_s
        added = self._rates.take(readings)
        self._added(added)
        figures: dict[Counted, Figure] = {}
        # Rates over a time in which nothing was read would be averages of long ago.
        if 0 < seconds <= _LOOKED_S:
            self._rated_s = now_s
            for counted, totals in added.items():
                figure = figure_of(counted, totals, seconds, http=self._rates.is_http(counted))
                if figure.busy:
                    figures[counted] = figure
        for counted, figure in self._figures.items():
            # Connections that stay open without a byte are still there.
            if counted not in added and (active := self._rates.active(counted)):
                figures[counted] = Figure(figure.id, active=active)
        self._gone |= set(self._figures) - set(figures)
        self._figures = figures
        self._problem = "; ".join(dict.fromkeys(each.problem for each in readings if each.problem))
        self._read_at = wire_time(self._now())
