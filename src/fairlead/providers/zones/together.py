"""How do changes of one zone that wait for each other become one update?

    the zone is free     the changes of the one who asks go out
    it is being changed  those who come meanwhile wait, and go out together when it is free
    refused              each is repeated on its own, since any of them may be the cause
    no answer            all fail, and are tried again

In: changes by zone, and what makes them. Out: the outcomes of each, in order. Never: a change of one whose caller has
been cancelled, or two updates of a zone at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from fairlead.errors import FairleadError, Retry
from fairlead.model.change import Outcome
from fairlead.providers.zones.plan import RecordChange
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.keyed_lock import KeyedLock

Run = Callable[[ServerSettings, Sequence[RecordChange]], Awaitable[list[Outcome]]]
_NO_ANSWER = frozenset({"DNSTimeout", "DNSUnreachable"})


class _Ask:
    def __init__(self, rows: Sequence[RecordChange]) -> None:
        self.rows = rows
        self.answer: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()


class Together:
    """The changes that wait, by zone; ``run`` makes them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waiting: dict[ServerSettings, list[_Ask]] = {}
        self.locks = KeyedLock()

    async def change(self, settings: ServerSettings, rows: Sequence[RecordChange]) -> list[Outcome]:
        """Make ``rows``, with those that wait for the same zone."""
        ask = _Ask(rows)
        self._waiting.setdefault(settings, []).append(ask)
        try:
            async with self.locks.hold((settings.name, settings.zone)):
                if not ask.answer.done():
                    await self._run_all(settings, self._waiting.pop(settings, []))
            return await ask.answer
        finally:
            if ask in (left := self._waiting.get(settings, [])):
                left.remove(ask)
            ask.answer.cancel()

    async def _run_all(self, settings: ServerSettings, asks: Sequence[_Ask]) -> None:
        try:
            outcomes = await self._run(settings, [row for ask in asks for row in ask.rows])
        except FairleadError as error:
            if len(asks) == 1 or error.reason in _NO_ANSWER:
                _fail(asks, error)
                return
            for ask in asks:
                await self._run_all(settings, [ask])
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


def _fail(asks: Sequence[_Ask], error: FairleadError) -> None:
    for ask in asks:
        if not ask.answer.done():
            ask.answer.set_exception(error)
            ask.answer.exception()  # who asked may be gone
