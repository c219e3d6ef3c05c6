"""Group concurrent changes of one zone into one DNS update.

    the zone is free     the caller's changes are sent at once
    it is being changed  later changes wait, and are sent together when it is free
    many come            an update of several is followed by a pause, in which the next ones gather
    refused              the changes are bisected to the names that cause it; the others are made
    no answer            all fail, and are tried again

In: changes by zone, and what makes them. Out: the outcomes of each, in order. Never: a change of one whose caller has
been cancelled, or two updates of a zone at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from fairlead.errors import FairleadError, Retry
from fairlead.model.change import Outcome
from fairlead.providers.load_balancer_states import outcome_from_error
from fairlead.providers.zones.plan import RecordChange
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedLock

Run = Callable[[ServerSettings, Sequence[RecordChange]], Awaitable[list[Outcome]]]
_NO_ANSWER = frozenset({"DNSTimeout", "DNSUnreachable"})
#: While many names change, the least time between two updates of a zone; one name alone never waits for it.
PAUSE_S = 1.0
_MANY = 3
#: After so many names that are refused on their own, the rest is taken to be refused for the same reason.
_MOST_CULPRITS = 8


class _Ask:
    def __init__(self, rows: Sequence[RecordChange]) -> None:
        self.rows = rows
        self.answer: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()


class Together:
    """The changes that wait, by zone; ``run`` makes them."""

    def __init__(self, run: Run, *, clock: Clock) -> None:
        self._run = run
        self._clock = clock
        #: When the next update of a zone may begin, after one of many (monotonic seconds).
        self._next_s: dict[ServerSettings, float] = {}
        self._waiting: dict[ServerSettings, list[_Ask]] = {}
        self.locks = KeyedLock()

    async def change(self, settings: ServerSettings, rows: Sequence[RecordChange]) -> list[Outcome]:
        """Make ``rows``, with those that wait for the same zone."""
        ask = _Ask(rows)
        self._waiting.setdefault(settings, []).append(ask)
        try:
            async with self.locks.hold((settings.name, settings.zone)):
                if not ask.answer.done():
                    await self._pause(settings)
                    asks = self._waiting.pop(settings, [])
                    if sum(len(each.rows) for each in asks) >= _MANY:
                        self._next_s[settings] = self._clock.monotonic() + PAUSE_S
                    await self._run_all(settings, asks)
            return await ask.answer
        finally:
            if ask in (left := self._waiting.get(settings, [])):
                left.remove(ask)
            ask.answer.cancel()

    async def _pause(self, settings: ServerSettings) -> None:
        wait_s = self._next_s.pop(settings, 0.0) - self._clock.monotonic()
        if wait_s > 0:
            await self._clock.sleep(wait_s)

    async def _run_all(self, settings: ServerSettings, asks: Sequence[_Ask]) -> None:
        try:
            outcomes = await self._outcomes(settings, [row for ask in asks for row in ask.rows], [_MOST_CULPRITS])
        except FairleadError as error:
            _fail(asks, error)
            return
        except BaseException:
            _fail(asks, Retry(f"an update of zone {settings.zone} was interrupted; it is tried again"))
            raise
        start = 0
        for ask in asks:
            end = start + len(ask.rows)
            if not ask.answer.done():
                ask.answer.set_result(outcomes[start:end])
            start = end

    async def _outcomes(
        self, settings: ServerSettings, rows: Sequence[RecordChange], culprits_left: list[int]
    ) -> list[Outcome]:
        """Make ``rows``; when they are refused together, only the names that cause it fail."""
        try:
            return await self._run(settings, rows)
        except Retry as error:
            hosts = sorted({row.host for row in rows})
            if error.reason in _NO_ANSWER or len(hosts) == 1 or culprits_left[0] <= 0:
                raise
        half = set(hosts[: len(hosts) // 2])
        outcomes: dict[int, Outcome] = {}
        for part in (half, {*hosts} - half):
            at = [index for index, row in enumerate(rows) if row.host in part]
            try:
                done = await self._outcomes(settings, [rows[index] for index in at], culprits_left)
            except Retry as error:
                if error.reason in _NO_ANSWER:
                    raise
                culprits_left[0] -= 1
                done = [outcome_from_error(error)] * len(at)
            outcomes |= dict(zip(at, done, strict=True))
        return [outcomes[index] for index in range(len(rows))]


def _fail(asks: Sequence[_Ask], error: FairleadError) -> None:
    for ask in asks:
        if not ask.answer.done():
            ask.answer.set_exception(error)
            ask.answer.exception()  # who asked may be gone
