"""Tests that a provider keeps the promises of ``model.contract``.

In: a ``Subject``: a provider over something real, and a way to read that thing without the provider. Out: tests.
Subclass ``ProviderContract`` in a test module and give it an async fixture ``subject``; no more is needed:
    class TestMyProvider(ProviderContract):
        @pytest.fixture
        async def subject(self): ...

The tests are plain coroutines: run pytest-asyncio with ``asyncio_mode = "auto"``. Never: reaches inside a provider.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from fairlead.errors import FairleadError, Retry
from fairlead.model.change import Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.contract import Provider
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import ListenerKey, TargetKey, backend_key
from fairlead.model.observed import Ensured, Observed

#: How long effects may take to show, and how long a provider may say RUNNING, in seconds.
PATIENCE_S = 10.0

Place = tuple[ListenerKey, TargetKey]
Answer = TypeVar("Answer")


class Subject(ABC):
    """A provider under test, and the load balancer behind it."""

    provider: Provider
    #: False for a provider that serves its whole state itself: no other owner can be on its load balancers.
    foreign_possible = True
    #: True when a load balancer is deleted with everything on it, other people's members too.
    deletes_everything = False
    #: False when it can never be unreachable.
    breakable = True
    #: False when what it has outlives no process, so that there is nothing to give back to the next one.
    restartable = True

    @abstractmethod
    def spec(self, name: str) -> FrontendSpec:
        """Return a load balancer that can be made, the same for the same name; with at least one listener."""

    @abstractmethod
    def targets(self, count: int) -> Sequence[TargetKey]:
        """Return different targets that this provider takes, the same on every call."""

    @abstractmethod
    async def present(self, spec: FrontendSpec) -> dict[Place, bool]:
        """Read the real thing: our targets there, and whether each gets new connections."""

    def refused(self) -> TargetKey | None:
        """Return a target that this provider refuses for good, if there is any such thing."""
        return None

    async def add_foreign(self, spec: FrontendSpec) -> None:
        """Put a member there that is not ours, at the address of one of ``targets``."""
        raise NotImplementedError

    async def foreign(self, spec: FrontendSpec) -> object:
        """Return all there is to know of the foreign members, to be compared."""
        raise NotImplementedError

    async def break_it(self) -> None:
        """Make the real thing unreachable."""
        raise NotImplementedError

    async def mend_it(self) -> None:
        """Make it reachable again, as it was."""
        raise NotImplementedError

    async def restart(self) -> None:
        """Replace ``provider`` by a new one over the same real thing, as a new process would have it."""
        raise NotImplementedError


class ProviderContract:
    """Every promise, one test each."""

    # --- frontends --------------------------------------------------------------------------------------------

    async def test_ensure_twice_is_the_same_as_once(self, subject: Subject) -> None:
        """Repeat what succeeded."""
        spec = subject.spec("one")
        first = await ensure(subject, spec)
        assert await ensure(subject, spec) == first

    async def test_ensure_keeps_the_targets(self, subject: Subject) -> None:
        """A frontend that is ensured again, changed or not, loses no target."""
        spec, targets = await self._filled(subject, 2)
        await ensure(subject, spec)
        await shows(subject, spec, targets)

    async def test_nothing_is_observed_before_ensure(self, subject: Subject) -> None:
        """None means none."""
        assert await subject.provider.observe(subject.spec("never").key) is None

    async def test_delete_of_nothing_is_success(self, subject: Subject) -> None:
        """Also twice."""
        spec = subject.spec("never")
        await delete(subject, spec)
        await delete(subject, spec)

    async def test_delete_takes_all_that_is_ours_and_is_repeatable(self, subject: Subject) -> None:
        """Delete with targets, delete again, and deregister from what is no longer there."""
        spec, targets = await self._filled(subject, 2)
        await delete(subject, spec)
        await shows(subject, spec, ())
        await delete(subject, spec)
        assert statuses(await subject.provider.apply(removals(spec, targets))) == [OutcomeStatus.DONE] * 2
        assert await subject.provider.observe(spec.key) is None

    async def test_what_was_deleted_can_be_made_again(self, subject: Subject) -> None:
        """A name is not used up."""
        spec, targets = await self._filled(subject, 1)
        await delete(subject, spec)
        await ensure(subject, spec)
        await shows(subject, spec, ())
        await done(subject, additions(spec, targets))
        await shows(subject, spec, targets)

    # --- targets ----------------------------------------------------------------------------------------------

    async def test_register_is_repeatable(self, subject: Subject) -> None:
        """Twice is once, and the second time nothing moves."""
        spec, targets = await self._filled(subject, 3)
        before = await subject.provider.observe(spec.key)
        await done(subject, additions(spec, targets))
        await shows(subject, spec, targets)
        assert canonical(await subject.provider.observe(spec.key)) == canonical(before)

    async def test_deregister_is_repeatable(self, subject: Subject) -> None:
        """A target that is gone, or was never there, is success."""
        spec, targets = await self._filled(subject, 3)
        await done(subject, removals(spec, targets[:1]))
        await shows(subject, spec, targets[1:])
        await done(subject, removals(spec, targets[:1]))
        await done(subject, removals(spec, subject.targets(4)[3:]))
        await shows(subject, spec, targets[1:])

    async def test_nothing_to_apply_is_nothing(self, subject: Subject) -> None:
        """An empty batch has no outcomes."""
        await ensure(subject, subject.spec("one"))
        assert list(await subject.provider.apply(())) == []

    async def test_a_drained_target_gets_no_new_connections_and_may_come_back(self, subject: Subject) -> None:
        """Drain, drain again, undrain, and drain to the end."""
        spec, targets = await self._filled(subject, 2)
        drain = changes(spec, targets[:1], Action.DRAIN, Reason.ABSENT, draining=True)
        for _ in range(2):
            await done(subject, drain)
            await shows(subject, spec, targets[1:], only_ready=True)
        await done(subject, changes(spec, targets[:1], Action.UPDATE, Reason.CHANGED))
        await shows(subject, spec, targets, only_ready=True)
        await done(subject, drain)
        await done(subject, changes(spec, targets[:1], Action.DEREGISTER, Reason.DRAINED, draining=True))
        await shows(subject, spec, targets[1:])

    async def test_two_load_balancers_do_not_meet(self, subject: Subject) -> None:
        """The same target on two of them is two registrations."""
        spec, targets = await self._filled(subject, 2)
        other, _ = await self._filled(subject, 2, name="two")
        await done(subject, removals(spec, targets))
        await shows(subject, other, targets)
        await delete(subject, spec)
        await shows(subject, other, targets)

    async def test_outcomes_are_in_the_order_of_the_changes(self, subject: Subject) -> None:
        """One answer for each row, and a refused one among good ones stops none of them."""
        spec = subject.spec("one")
        await ensure(subject, spec)
        good = list(subject.targets(4))
        refused = subject.refused()
        rows = additions(spec, good)
        expected = [OutcomeStatus.DONE] * 4
        if refused is not None:
            rows = [*rows[:2], *additions(spec, [refused]), *rows[2:]]
            expected.insert(2, OutcomeStatus.REJECTED)
        outcomes = await settled(subject, rows)
        assert statuses(outcomes) == expected
        assert all(outcome.message for outcome in outcomes if outcome.status is not OutcomeStatus.DONE)
        await shows(subject, spec, good)

    async def test_a_batch_may_be_about_several_load_balancers(self, subject: Subject) -> None:
        """Where a provider says so: one call, an answer for each row in its place, and no row of one on another."""
        if not subject.provider.capabilities.batches_span_load_balancers:
            return
        spec, targets = await self._filled(subject, 2)
        other, _ = await self._filled(subject, 2, name="two")
        more = subject.targets(4)[2:]
        refused = subject.refused()
        rows = [*additions(spec, more[:1]), *removals(other, targets[:1]), *additions(other, more)]
        expected = [OutcomeStatus.DONE] * 4
        if refused is not None:
            rows.insert(1, *additions(spec, [refused]))
            expected.insert(1, OutcomeStatus.REJECTED)
        assert statuses(await settled(subject, rows)) == expected
        await shows(subject, spec, [*targets, *more[:1]])
        await shows(subject, other, [*targets[1:], *more])

    async def test_the_order_of_changes_does_not_matter(self, subject: Subject) -> None:
        """What is observed has one form, whatever the way there (else it is repaired for ever)."""
        spec, targets = await self._filled(subject, 4)
        first = canonical(await subject.provider.observe(spec.key))
        await done(subject, removals(spec, targets))
        for target in (targets[2], targets[0], targets[3], targets[1]):
            await done(subject, additions(spec, [target]))
        assert canonical(await subject.provider.observe(spec.key)) == first

    # --- others -----------------------------------------------------------------------------------------------

    async def test_foreign_members_are_never_touched(self, subject: Subject) -> None:
        """Whatever we do, they stay as they were: also one at an address of ours."""
        if not subject.foreign_possible:
            return
        spec = subject.spec("one")
        await ensure(subject, spec)
        await subject.add_foreign(spec)
        before = await subject.foreign(spec)
        targets = list(subject.targets(3))
        for rows in (additions(spec, targets), additions(spec, targets), removals(spec, targets)):
            await done(subject, rows)
            assert await subject.foreign(spec) == before
        await ensure(subject, spec)
        await done(subject, additions(spec, targets))
        assert await subject.foreign(spec) == before
        await delete(subject, spec)
        assert subject.deletes_everything or await subject.foreign(spec) == before

    async def test_another_process_can_take_over(self, subject: Subject) -> None:
        """What one process has registered the next can deregister, with what was stored and nothing else."""
        if not subject.restartable:
            return
        spec, targets = await self._filled(subject, 3)
        info = (await ensure(subject, spec)).info
        await subject.restart()
        restore = getattr(subject.provider, "restore", None)
        if restore is not None:
            restore(spec, info or {})
        await done(subject, removals(spec, targets[:1]))
        await shows(subject, spec, targets[1:])
        await delete(subject, spec)
        await shows(subject, spec, ())

    # --- failure ----------------------------------------------------------------------------------------------

    async def test_unreachable_is_a_retry_and_passes(self, subject: Subject) -> None:
        """Never Terminal, never a success, one sentence that says what is wrong; afterwards all is as before."""
        if not subject.breakable:
            return
        spec, targets = await self._filled(subject, 2)
        more = subject.targets(4)[2:]
        await subject.break_it()
        try:
            failure = await _failure(subject.provider.ensure(spec))
            assert isinstance(failure, Retry)
            assert failure.sentence
            outcomes = await _failure(subject.provider.apply([*additions(spec, more), *removals(spec, targets)]))
            if isinstance(outcomes, FairleadError):
                assert isinstance(outcomes, Retry)
                assert outcomes.sentence
            else:
                assert statuses(outcomes) == [OutcomeStatus.RETRY] * 4
                assert all(outcome.message for outcome in outcomes)
        finally:
            await subject.mend_it()
        await ensure(subject, spec)
        await done(subject, [*additions(spec, more), *removals(spec, targets)])
        await shows(subject, spec, more)

    async def test_targets_of_a_load_balancer_that_was_not_ensured_are_not_lost(self, subject: Subject) -> None:
        """Not knowing it is no success, and no reason to give up either."""
        rows = additions(subject.spec("never"), subject.targets(1))
        outcomes = await _failure(subject.provider.apply(rows))
        if isinstance(outcomes, FairleadError):
            assert outcomes.sentence
        else:
            assert statuses(outcomes)[0] is not OutcomeStatus.DONE

    async def _filled(self, subject: Subject, count: int, *, name: str = "one") -> tuple[FrontendSpec, list[TargetKey]]:
        spec = subject.spec(name)
        await ensure(subject, spec)
        targets = list(subject.targets(count))
        await done(subject, additions(spec, targets))
        await shows(subject, spec, targets)
        return spec, targets


# --- builders of the tests ---------------------------------------------------------------------------------------


def changes(
    spec: FrontendSpec, targets: Iterable[TargetKey], action: Action, reason: Reason, *, draining: bool = False
) -> list[TargetChange]:
    """Return one row for each target on the first listener, or of the first backend."""
    listener = place_of_targets(spec)
    return [TargetChange(spec.key, listener, Target(at, draining=draining), action, reason) for at in targets]


def place_of_targets(spec: FrontendSpec) -> ListenerKey:
    """Return where targets of the tests are registered: the first listener or backend, or the A records of a name."""
    if not spec.listeners or spec.l7 is not None:
        return backend_key(spec.l7.backends[0].name if spec.l7 is not None else "A")
    return spec.listeners[0].key


def additions(spec: FrontendSpec, targets: Iterable[TargetKey]) -> list[TargetChange]:
    """Return rows that register ``targets``."""
    return changes(spec, targets, Action.REGISTER, Reason.NEW)


def removals(spec: FrontendSpec, targets: Iterable[TargetKey]) -> list[TargetChange]:
    """Return rows that deregister ``targets``."""
    return changes(spec, targets, Action.DEREGISTER, Reason.OWNER_DELETED)


def statuses(outcomes: Iterable[Outcome]) -> list[OutcomeStatus]:
    """Return the words alone."""
    return [outcome.status for outcome in outcomes]


async def settled(subject: Subject, rows: Sequence[TargetChange]) -> list[Outcome]:
    """Apply ``rows``, again as long as some are RUNNING; returns the last outcome of each."""
    outcomes = list(await subject.provider.apply(rows))
    assert len(outcomes) == len(rows)
    until_s = time.monotonic() + PATIENCE_S
    while running := [index for index, outcome in enumerate(outcomes) if outcome.status is OutcomeStatus.RUNNING]:
        assert time.monotonic() < until_s, outcomes[running[0]].message
        await asyncio.sleep(min(0.05, outcomes[running[0]].retry_after_s))
        for index, outcome in zip(running, await subject.provider.apply([rows[i] for i in running]), strict=True):
            outcomes[index] = outcome
    return outcomes


async def done(subject: Subject, rows: Sequence[TargetChange]) -> None:
    """Apply ``rows`` and expect success of each."""
    for outcome in await settled(subject, rows):
        assert outcome.status is OutcomeStatus.DONE, outcome.message


async def ensure(subject: Subject, spec: FrontendSpec) -> Ensured:
    """Ensure ``spec``, again as long as the provider is at it."""
    return await _patiently(lambda: subject.provider.ensure(spec))


async def delete(subject: Subject, spec: FrontendSpec) -> None:
    """Delete it, again as long as the provider is at it."""
    await _patiently(lambda: subject.provider.delete(spec.key))


async def shows(
    subject: Subject, spec: FrontendSpec, targets: Iterable[TargetKey], *, only_ready: bool = False
) -> None:
    """Wait until the real thing has exactly ``targets`` (all that get new connections, with ``only_ready``)."""
    wanted = {(place_of_targets(spec), at) for at in targets}
    until_s = time.monotonic() + PATIENCE_S
    while True:
        there = await subject.present(spec)
        present = {place for place, ready in there.items() if ready or not only_ready}
        if present == wanted:
            return
        assert time.monotonic() < until_s, f"there are {sorted(present)} instead of {sorted(wanted)}"
        await asyncio.sleep(0.02)


async def _patiently(call: Callable[[], Awaitable[Answer]]) -> Answer:
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await call()
        except Retry as error:
            if time.monotonic() > until_s:
                raise
            await asyncio.sleep(min(0.05, error.after_s or 0.05))


async def _failure(call: Awaitable[Answer]) -> Answer | FairleadError:
    """Return what was answered, or raised on purpose; anything else is the provider's bug and comes through."""
    try:
        return await call
    except FairleadError as error:
        return error


def canonical(observed: Observed | None) -> object:
    """Return what must not depend on the way there; health takes its own time."""
    if observed is None or observed.targets is None:
        return None if observed is None else (observed.addresses, observed.rejected)
    targets = [msgspec.structs.replace(target, healthy=None) for target in observed.targets]
    assert targets == sorted(targets, key=lambda target: (target.listener, target.key))
    return (observed.addresses, observed.rejected, targets, observed.foreign)
