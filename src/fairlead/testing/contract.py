"""The tests that every provider has to pass, for the contract in ``model.contract``.

In: a ``Subject``: a provider with a real load balancer, and a way to read that without the provider. Out: tests.
Subclass ``ProviderContract`` in a test module and define an async fixture ``subject``:
    class TestMyProvider(ProviderContract):
        @pytest.fixture
        async def subject(self): ...

The tests are coroutines: use pytest-asyncio with ``asyncio_mode = "auto"``. They call only public methods.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from fairlead.errors import Retry
from fairlead.model.change import Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.contract import Provider
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import ListenerKey, TargetKey, backend_key
from fairlead.model.observed import Ensured, Observed

#: Seconds until an effect must be visible, and for which a provider may answer RUNNING.
PATIENCE_S = 10.0

Place = tuple[ListenerKey, TargetKey]
Answer = TypeVar("Answer")


class Subject(ABC):
    """The provider under test, and access to its load balancer that does not use the provider."""

    provider: Provider
    #: False for a provider whose load balancers cannot have targets of other owners.
    foreign_possible = True
    #: True when deleting a load balancer also deletes the targets of other owners.
    deletes_everything = False
    #: False when the load balancer cannot become unreachable.
    breakable = True
    #: False when its state does not outlive the process, so that there is nothing to restore.
    restartable = True

    @abstractmethod
    def spec(self, name: str) -> FrontendSpec:
        """Return a valid load balancer with at least one listener; equal for equal names."""

    @abstractmethod
    def targets(self, count: int) -> Sequence[TargetKey]:
        """Return ``count`` distinct valid targets, the same on every call."""

    @abstractmethod
    async def present(self, spec: FrontendSpec) -> dict[Place, bool]:
        """Return the provider's own targets on the real load balancer, and whether each gets new connections."""

    def refused(self) -> TargetKey | None:
        """Return a target that this provider rejects permanently, None when there is none."""
        return None

    async def add_foreign(self, spec: FrontendSpec) -> None:
        """Add a target of another owner to the real load balancer, at the address of one of ``targets``."""
        raise NotImplementedError

    async def foreign(self, spec: FrontendSpec) -> object:
        """Return the complete state of the targets of other owners, for comparison."""
        raise NotImplementedError

    async def make_unreachable(self) -> None:
        """Make the real load balancer unreachable."""
        raise NotImplementedError

    async def make_reachable(self) -> None:
        """Make the real load balancer reachable again, with its state."""
        raise NotImplementedError

    async def restart(self) -> None:
        """Replace ``provider`` by a new instance with the same load balancer, as after a restart of the process."""
        raise NotImplementedError


class ProviderContract:
    """One test for each requirement of the contract."""

    # --- frontends --------------------------------------------------------------------------------------------

    async def test_ensure_twice_is_the_same_as_once(self, subject: Subject) -> None:
        """``ensure`` is idempotent."""
        spec = subject.spec("one")
        first = await ensure(subject, spec)
        assert await ensure(subject, spec) == first

    async def test_ensure_keeps_the_targets(self, subject: Subject) -> None:
        """``ensure`` of an existing frontend, changed or not, keeps its targets."""
        spec, targets = await self._filled(subject, 2)
        await ensure(subject, spec)
        await shows(subject, spec, targets)

    async def test_nothing_is_observed_before_ensure(self, subject: Subject) -> None:
        """``observe`` returns None for a load balancer that does not exist."""
        assert await subject.provider.observe(subject.spec("never").key) is None

    async def test_delete_of_nothing_is_success(self, subject: Subject) -> None:
        """``delete`` of a load balancer that does not exist succeeds, repeatedly."""
        spec = subject.spec("never")
        await delete(subject, spec)
        await delete(subject, spec)

    async def test_delete_takes_all_that_is_ours_and_is_repeatable(self, subject: Subject) -> None:
        """``delete`` removes all own targets, and ``delete`` and deregistration succeed afterwards."""
        spec, targets = await self._filled(subject, 2)
        await delete(subject, spec)
        await shows(subject, spec, ())
        await delete(subject, spec)
        assert statuses(await subject.provider.apply(removals(spec, targets))) == [OutcomeStatus.DONE] * 2
        assert await subject.provider.observe(spec.key) is None

    async def test_what_was_deleted_can_be_made_again(self, subject: Subject) -> None:
        """A load balancer of the same name can be created after ``delete``."""
        spec, targets = await self._filled(subject, 1)
        await delete(subject, spec)
        await ensure(subject, spec)
        await shows(subject, spec, ())
        await done(subject, additions(spec, targets))
        await shows(subject, spec, targets)

    # --- targets ----------------------------------------------------------------------------------------------

    async def test_register_is_repeatable(self, subject: Subject) -> None:
        """Registering a registered target succeeds and changes nothing."""
        spec, targets = await self._filled(subject, 3)
        before = await subject.provider.observe(spec.key)
        await done(subject, additions(spec, targets))
        await shows(subject, spec, targets)
        assert canonical(await subject.provider.observe(spec.key)) == canonical(before)

    async def test_deregister_is_repeatable(self, subject: Subject) -> None:
        """Deregistering a target that is not registered succeeds."""
        spec, targets = await self._filled(subject, 3)
        await done(subject, removals(spec, targets[:1]))
        await shows(subject, spec, targets[1:])
        await done(subject, removals(spec, targets[:1]))
        await done(subject, removals(spec, subject.targets(4)[3:]))
        await shows(subject, spec, targets[1:])

    async def test_nothing_to_apply_is_nothing(self, subject: Subject) -> None:
        """``apply`` of no changes returns no outcomes."""
        await ensure(subject, subject.spec("one"))
        assert list(await subject.provider.apply(())) == []

    async def test_a_drained_target_gets_no_new_connections_and_may_come_back(self, subject: Subject) -> None:
        """A target can be drained, drained again, registered again, and drained until it is deregistered."""
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
        """The same target on two load balancers is registered independently on each."""
        spec, targets = await self._filled(subject, 2)
        other, _ = await self._filled(subject, 2, name="two")
        await done(subject, removals(spec, targets))
        await shows(subject, other, targets)
        await delete(subject, spec)
        await shows(subject, other, targets)

    async def test_outcomes_are_in_the_order_of_the_changes(self, subject: Subject) -> None:
        """Outcomes are in the order of the changes, and a rejected change does not affect others."""
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
        """With the capability for mixed batches, a call may have changes of several load balancers."""
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
        """``observe`` does not depend on the order of earlier changes (else drift would be repaired forever)."""
        spec, targets = await self._filled(subject, 4)
        first = canonical(await subject.provider.observe(spec.key))
        await done(subject, removals(spec, targets))
        for target in (targets[2], targets[0], targets[3], targets[1]):
            await done(subject, additions(spec, [target]))
        assert canonical(await subject.provider.observe(spec.key)) == first

    # --- others -----------------------------------------------------------------------------------------------

    async def test_foreign_targets_are_never_touched(self, subject: Subject) -> None:
        """Targets of other owners are never changed, even one at the address of a target of ours."""
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
        """A new process can deregister the targets of the previous one, from stored data alone."""
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
        """Calls to an unreachable load balancer raise ``Retry`` with a sentence; afterwards all is as before."""
        if not subject.breakable:
            return
        spec, targets = await self._filled(subject, 2)
        more = subject.targets(4)[2:]
        await subject.make_unreachable()
        try:
            sentence = ""
            try:
                await subject.provider.ensure(spec)
            except Retry as error:
                sentence = error.sentence
            assert sentence, "ensure succeeded"
            outcomes = await _attempted(subject, [*additions(spec, more), *removals(spec, targets)])
            assert statuses(outcomes) == [OutcomeStatus.RETRY] * 4
            assert all(outcome.message for outcome in outcomes)
        finally:
            await subject.make_reachable()
        await ensure(subject, spec)
        await done(subject, [*additions(spec, more), *removals(spec, targets)])
        await shows(subject, spec, more)

    async def test_targets_of_a_load_balancer_that_was_not_ensured_are_not_lost(self, subject: Subject) -> None:
        """Targets of an unknown load balancer are neither a success nor a permanent failure."""
        (outcome,) = await _attempted(subject, additions(subject.spec("never"), subject.targets(1)))
        assert outcome.status is not OutcomeStatus.DONE
        assert outcome.message

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
    """Return one change for each target, on the first listener or backend."""
    listener = place_of_targets(spec)
    return [TargetChange(spec.key, listener, Target(at, draining=draining), action, reason) for at in targets]


def place_of_targets(spec: FrontendSpec) -> ListenerKey:
    """Return where targets of the tests are registered: the first listener or backend, or the A records of a name."""
    if not spec.listeners or spec.l7 is not None:
        return backend_key(spec.l7.backends[0].name if spec.l7 is not None else "A")
    return spec.listeners[0].key


def additions(spec: FrontendSpec, targets: Iterable[TargetKey]) -> list[TargetChange]:
    """Return the changes that register ``targets``."""
    return changes(spec, targets, Action.REGISTER, Reason.NEW)


def removals(spec: FrontendSpec, targets: Iterable[TargetKey]) -> list[TargetChange]:
    """Return the changes that deregister ``targets``."""
    return changes(spec, targets, Action.DEREGISTER, Reason.OWNER_DELETED)


def statuses(outcomes: Iterable[Outcome]) -> list[OutcomeStatus]:
    """Return the status of each outcome."""
    return [outcome.status for outcome in outcomes]


async def settled(subject: Subject, rows: Sequence[TargetChange]) -> list[Outcome]:
    """Apply ``rows``, repeating those that are RUNNING; return the last outcome of each."""
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
    """Apply ``rows`` and assert that each succeeds."""
    for outcome in await settled(subject, rows):
        assert outcome.status is OutcomeStatus.DONE, outcome.message


async def ensure(subject: Subject, spec: FrontendSpec) -> Ensured:
    """Ensure ``spec``, retrying while the provider is busy."""
    return await _patiently(lambda: subject.provider.ensure(spec))


async def delete(subject: Subject, spec: FrontendSpec) -> None:
    """Delete the load balancer, retrying while the provider is busy."""
    await _patiently(lambda: subject.provider.delete(spec.key))


async def shows(
    subject: Subject, spec: FrontendSpec, targets: Iterable[TargetKey], *, only_ready: bool = False
) -> None:
    """Wait until the real load balancer has exactly ``targets`` (``only_ready``: without draining ones)."""
    wanted = {(place_of_targets(spec), at) for at in targets}
    until_s = time.monotonic() + PATIENCE_S
    while True:
        registered = await subject.present(spec)
        present = {place for place, ready in registered.items() if ready or not only_ready}
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


async def _attempted(subject: Subject, rows: Sequence[TargetChange]) -> Sequence[Outcome]:
    """Apply ``rows`` once; a ``Retry`` of the whole call counts for each, any other error propagates."""
    try:
        return await subject.provider.apply(rows)
    except Retry as error:
        return [Outcome(OutcomeStatus.RETRY, error.sentence)] * len(rows)


def canonical(observed: Observed | None) -> object:
    """Return the parts of an observation that must not depend on earlier calls: all but health."""
    if observed is None or observed.targets is None:
        return None if observed is None else (observed.addresses, observed.rejected)
    targets = [replace(target, healthy=None) for target in observed.targets]
    assert targets == sorted(targets, key=lambda target: (target.listener, target.key))
    return (observed.addresses, observed.rejected, targets, observed.foreign)
