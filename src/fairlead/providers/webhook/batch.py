"""How are many rows done at once without asking a dead driver five hundred times?

In: rows, in order. Out: their outcomes, in the same order. Rows run in parallel up to the driver's own limit, whichever
load balancer they are about. Once a driver does not answer at all, or has failed ``_PATIENCE`` calls in a row without
any answer, the rest of the batch is not tried; and what could not begin in time is left for the next batch, so that
what is done is stored. What a driver *says* (Fail, Running) about one row never stops the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from fairlead.errors import FairleadError, Retry
from fairlead.model.change import Outcome, OutcomeStatus
from fairlead.providers.webhook.backends import outcome_from_error
from fairlead.providers.webhook.client import DriverDown
from fairlead.runtime.clock import Clock

_PATIENCE = 3
_LATER = Outcome(OutcomeStatus.RUNNING, "waits: its driver is slow, and others came first")

Row = TypeVar("Row")


class Pace(msgspec.Struct, frozen=True, eq=False):
    """How fast one driver may be asked: ``turns`` are shared by all batches; rows begin within ``begin_s``."""

    turns: asyncio.Semaphore
    begin_s: float


class _Patience:
    """How often in a row one driver has failed to answer within this batch."""

    def __init__(self) -> None:
        self.failures = 0
        self.lost: Retry | None = None

    def heard(self) -> None:
        self.failures = 0

    def failed(self, error: Retry) -> None:
        self.failures += 1
        if self.lost is None and (isinstance(error, DriverDown) or self.failures >= _PATIENCE):
            self.lost = error


async def run_batch(
    rows: Sequence[Row],
    do: Callable[[Row], Awaitable[Outcome]],
    *,
    pace_of: Callable[[Row], Pace | None],
    clock: Clock,
) -> list[Outcome]:
    """Do all rows; never raises for what concerns one of them."""
    began_s = clock.monotonic()
    patience: dict[Pace, _Patience] = {}

    async def paced(row: Row, pace: Pace) -> Outcome:
        mine = patience.setdefault(pace, _Patience())
        async with pace.turns:
            if mine.lost is not None:
                after_s = mine.lost.after_s or 0.0
                return Outcome(OutcomeStatus.RETRY, f"not tried, after: {mine.lost.sentence}", after_s)
            if clock.monotonic() - began_s > pace.begin_s:
                return _LATER
            try:
                outcome = await do(row)
            except Retry as error:
                mine.failed(error)
                return outcome_from_error(error)
            except FairleadError as error:
                # A matter of the class, not of this address: nothing to quarantine.
                return Outcome(OutcomeStatus.RETRY, error.sentence)
            mine.heard()
            return outcome

    async def one(row: Row) -> Outcome:
        pace = pace_of(row)
        return await do(row) if pace is None else await paced(row, pace)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(row)) for row in rows]
    return [task.result() for task in tasks]
