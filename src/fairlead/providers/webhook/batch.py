"""Applies many changes at once, and stops calling a driver that does not answer.

In: changes, in order. Out: their outcomes, in the same order. Changes run in parallel up to the driver's own limit,
whichever load balancer they are about. Once a driver cannot be reached, or ``_MAX_FAILURES`` calls in a row got no
answer, the rest of the batch is not tried; and what could not start in time is left for the next batch, so that what is
done is stored. An answer Fail or Running to one change never stops the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from fairlead.errors import FairleadError, Retry
from fairlead.model.change import Outcome, OutcomeStatus, TargetChange
from fairlead.providers.outcomes import outcome_from_error
from fairlead.providers.webhook.client import DriverDown
from fairlead.runtime.clock import Clock

_MAX_FAILURES = 3
_LATER = Outcome(OutcomeStatus.RUNNING, "queued: the driver is slow, and earlier calls come first")


class BatchLimits(msgspec.Struct, frozen=True, eq=False):
    """The limits of calls to one driver: ``slots`` are shared by all batches; a change starts within ``start_s``."""

    slots: asyncio.Semaphore
    start_s: float


class _DriverHealth:
    """How often in a row one driver has failed to answer within this batch; ``lost`` is why it is given up."""

    def __init__(self) -> None:
        self.failures = 0
        self.lost: Retry | None = None

    def failed(self, error: Retry) -> None:
        self.failures += 1
        if self.lost is None and (isinstance(error, DriverDown) or self.failures >= _MAX_FAILURES):
            self.lost = error


async def run_batch(
    changes: Sequence[TargetChange],
    apply: Callable[[TargetChange], Awaitable[Outcome]],
    *,
    limits_of: Callable[[TargetChange], BatchLimits | None],
    clock: Clock,
) -> list[Outcome]:
    """Apply all changes; what concerns one of them is in its outcome, and never raised."""
    started_s = clock.monotonic()
    health: dict[BatchLimits, _DriverHealth] = {}

    async def limited(change: TargetChange, limits: BatchLimits) -> Outcome:
        driver = health.setdefault(limits, _DriverHealth())
        async with limits.slots:
            if driver.lost is not None:
                after_s = driver.lost.after_s or 0.0
                return Outcome(OutcomeStatus.RETRY, f"not tried, after: {driver.lost.sentence}", after_s)
            if clock.monotonic() - started_s > limits.start_s:
                return _LATER
            try:
                outcome = await apply(change)
            except Retry as error:
                driver.failed(error)
                return outcome_from_error(error)
            except FairleadError as error:
                # A matter of the class, not of this address: nothing to quarantine.
                return Outcome(OutcomeStatus.RETRY, error.sentence)
            driver.failures = 0
            return outcome

    async def run(change: TargetChange) -> Outcome:
        limits = limits_of(change)
        return await apply(change) if limits is None else await limited(change, limits)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(change)) for change in changes]
    return [task.result() for task in tasks]
