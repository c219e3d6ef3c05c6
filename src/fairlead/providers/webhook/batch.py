"""How are many rows done at once without asking a dead driver five hundred times?

In: rows, in order. Out: their outcomes, in the same order. Rows run in parallel up to the driver's own limit; once a
driver does not answer at all, or has failed ``_PATIENCE`` calls in a row without any answer, the rest of the
batch is not tried. What a driver *says* (Fail, Running) about one row never stops the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from fairlead.errors import FairleadError, Retry
from fairlead.model.change import Outcome, OutcomeStatus
from fairlead.providers.webhook.backends import outcome_from_error
from fairlead.providers.webhook.client import DriverDown

_PATIENCE = 3

Row = TypeVar("Row")


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
    driver_of: Callable[[Row], str],
    parallel_of: Callable[[Row], int],
) -> list[Outcome]:
    """Do all rows; never raises for what concerns one of them."""
    turns: dict[str, asyncio.Semaphore] = {}
    patience: dict[str, _Patience] = {}

    async def one(row: Row) -> Outcome:
        name = driver_of(row)
        mine = patience.setdefault(name, _Patience())
        async with turns.setdefault(name, asyncio.Semaphore(parallel_of(row))):
            if mine.lost is not None:
                return Outcome(OutcomeStatus.RETRY, f"not tried, after: {mine.lost.sentence}", mine.lost.after_s or 0.0)
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

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(row)) for row in rows]
    return [task.result() for task in tasks]
