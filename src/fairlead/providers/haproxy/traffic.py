"""The traffic of each load balancer of a HAProxy.

    show stat -1 2 -1 ──► a line for each backend ──► those whose counts differ from the last time ──► counts

In: the sockets, and which backends load balancers have. Out: counts by load balancer, those of its backends together;
servers of others in the same backend count too, and what a backend had before it was given to the load balancer does
not. What is idle costs HAProxy a line and us a comparison. HAProxy keeps averages of times, no quantiles, so there is
no p50 or p99. Source: https://docs.haproxy.org/2.6/management.html#9.1
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from fairlead.errors import Retry
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.numbers import whole_number
from fairlead.model.traffic import Classes, Counted, Reading, Totals, added, summed
from fairlead.providers.haproxy.runtime_api import RuntimeApi

#: Of every proxy, only backends, every line.
_COMMAND = "show stat -1 2 -1"
#: A HAProxy that hangs holds up the figures of no other.
_ANSWER_S = 2.0
#: The columns up to ``bout``: name, queue, sessions and bytes. Those behind have times, which differ each second.
_COUNTS = 10
_NO_OWNER = LoadBalancerKey("", "", "")
_CLASSES = tuple(f"hrsp_{number}xx" for number in range(1, 6))


class BackendCounts:
    """The counts of the backends of one HAProxy, text by text."""

    def __init__(self) -> None:
        self._counts: dict[str, list[str]] = {}
        self._rows: dict[str, Totals] = {}
        #: By backend: whose it is, and what it had counted before.
        self._before: dict[str, tuple[LoadBalancerKey, Totals]] = {}
        #: What was counted before the last text, and is not any more.
        self.gone: frozenset[Counted] = frozenset()

    def take(self, text: str, owned: Mapping[LoadBalancerKey, frozenset[str]]) -> Mapping[Counted, Totals]:
        """Read what ``show stat`` printed; returns those of ``owned``, their backends, of which something has changed.

        Raises:
            ValueError: it is not what HAProxy prints.
        """
        header, *lines = text.strip().splitlines() or [""]
        if not header.startswith("# pxname,svname,"):
            raise ValueError(header[:80])
        columns = header.removeprefix("# ").split(",")
        changed: set[str] = set()
        counts: dict[str, list[str]] = {}
        for line in lines:
            front = line.split(",", _COUNTS)[:_COUNTS]
            counts[front[0]] = front
            if self._counts.get(front[0]) != front:
                self._take(front[0], _totals(dict(zip(columns, line.split(","), strict=False))))
                changed.add(front[0])
        self._counts = counts
        for gone in self._rows.keys() - counts.keys():
            del self._rows[gone]
        there = {key: backends & self._rows.keys() for key, backends in owned.items()}
        before = {key for key, _ in self._before.values()}
        self._before = {name: self._since(key, name) for key, backends in there.items() for name in backends}
        self.gone = frozenset(map(Counted, before - {key for key, _ in self._before.values()} - {_NO_OWNER}))
        return {Counted(key): self._sum(backends) for key, backends in there.items() if backends & changed}

    def _take(self, backend: str, row: Totals) -> None:
        old = self._rows.get(backend, row)
        if row.connections < old.connections or row.bytes_in < old.bytes_in or row.bytes_out < old.bytes_out:
            # It was reloaded, or its counters were cleared: it counts anew.
            self._before[backend] = self._before.get(backend, (_NO_OWNER, row))[0], Totals()
        self._rows[backend] = row

    def _since(self, key: LoadBalancerKey, backend: str) -> tuple[LoadBalancerKey, Totals]:
        owner, before = self._before.get(backend, (_NO_OWNER, Totals()))
        return (owner, before) if owner == key else (key, self._rows[backend])

    def _sum(self, backends: Iterable[str]) -> Totals:
        return summed(added(self._before[backend][1], self._rows[backend]) for backend in backends)


class HAProxyTraffic:
    """Reads the counts of all HAProxies that have load balancers.

    ``owned`` returns the backends of each load balancer by socket, ``api`` what talks to a socket.
    """

    def __init__(
        self,
        *,
        owned: Callable[[], Mapping[str, Mapping[LoadBalancerKey, frozenset[str]]]],
        api: Callable[[str], RuntimeApi],
    ) -> None:
        self._owned = owned
        self._api = api
        self._counts: dict[str, BackendCounts] = {}

    async def read(self) -> Sequence[Reading]:
        """Return the load balancers whose counts have changed, by HAProxy."""
        owned = self._owned()
        for gone in self._counts.keys() - owned.keys():
            del self._counts[gone]
        return await asyncio.gather(*(self._read(socket, its) for socket, its in owned.items()))

    async def _read(self, socket: str, owned: Mapping[LoadBalancerKey, frozenset[str]]) -> Reading:
        source, api = f"HAProxy at {socket}", self._api(socket)
        # What was before a gap is dropped by its reader: after one everything is read, as the first time.
        counts = self._counts.pop(socket, BackendCounts())
        try:
            async with asyncio.timeout(_ANSWER_S), api.lock:
                text = await api.run([_COMMAND])
            totals = counts.take(text, owned)
            self._counts[socket] = counts
            return Reading(source, totals, gone=counts.gone)
        except TimeoutError:
            return Reading(source, problem=f"{source} does not say what it has counted within {_ANSWER_S:g} s")
        except ValueError:
            return Reading(source, problem=f"{source} prints statistics that cannot be read; is it another version?")
        except Retry as error:
            return Reading(source, problem=error.sentence)


def _totals(row: Mapping[str, str]) -> Totals:
    def count(field: str) -> int:
        return whole_number(row.get(field, "")) or 0

    classes = cast("Classes", tuple(map(count, _CLASSES)))
    return Totals(count("stot"), count("scur"), count("bin"), count("bout"), classes)
