"""Which calls does one row of a plan make, and what came of it?

    REGISTER, UPDATE            no address yet: generateBackendAddr, then RUNNING until the ledger has stored it
                                else:           ensureBackend
    UPDATE draining, DRAIN      deregisterBackend: what is drained, and how long, is the driver's business
    DEREGISTER                  no address:     nothing was ever registered, no call
                                else:           deregisterBackend

In: one row and its load balancer. Out: an ``Outcome``; errors of the driver become outcomes here.
Never: two calls for one record at once, and never a repeated call within one row.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.errors import Retry
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, TargetChange
from fairlead.providers.webhook.client import Driver, invalid
from fairlead.providers.webhook.keyed_lock import Turns
from fairlead.providers.webhook.protocol import (
    Answer,
    Body,
    Hook,
    Malformed,
    Status,
    answer_from_body,
    failure,
    task_body,
)
from fairlead.providers.webhook.state import Backend, KnownLoadBalancer, Memory, place_of


async def task(driver: Driver, hook: Hook, body: Body, *, about: str) -> Answer:
    """Call a hook that is retried; an answer that the protocol does not know is a ``Retry``.

    Not called before the time that the driver named when it was last asked the same.
    """
    if (answer := driver.pauses.stands(body)) is not None:
        return answer
    found = await driver.call(hook, body, about=about)
    try:
        answer = answer_from_body(found)
    except Malformed as error:
        raise invalid(f"{driver.settings.name}: {hook} for {about}", error) from error
    driver.pauses.answered(body, answer)
    if answer.status is Status.FAIL:
        driver.failed(hook)
    return answer


class Backends:
    """Rows about backends, as calls."""

    def __init__(self, *, memory: Memory, dry_run: bool) -> None:
        self._memory = memory
        self._dry_run = dry_run
        self._turns = Turns()

    async def apply(self, driver: Driver, known: KnownLoadBalancer, change: TargetChange) -> Outcome:
        """Do one row; raises only what concerns the driver as a whole."""
        async with self._turns.of(place_of(change)):
            backend = self._memory.backend(change)
            if change.action in (Action.REGISTER, Action.UPDATE) and not change.target.draining:
                if not backend.address:
                    return await self._generate(driver, known, change, backend)
                return await self._ensure(driver, known, change, backend)
            return await self._deregister(driver, known, change, backend)

    async def _generate(
        self, driver: Driver, known: KnownLoadBalancer, change: TargetChange, backend: Backend
    ) -> Outcome:
        hook = Hook.GENERATE_BACKEND_ADDR
        body = task_body(
            hook,
            backend.record_id,
            dry_run=self._dry_run,
            lbInfo=known.info,
            lbAttributes=known.spec.attributes,
            parameters=backend.parameters,
            **backend.origin,
        )
        about = _about(change)
        answer = await task(driver, hook, body, about=about)
        if answer.status is not Status.SUCC:
            return _outcome(driver, hook, about, answer)
        address = answer.body.get("backendaddr")
        if not isinstance(address, str) or not address:
            raise invalid(f"{driver.settings.name}: {hook} for {about}", Malformed("Succ, but no backendAddr"))
        if not self._dry_run:
            self._memory.remember(change, address=address)
        # A crash between this answer and ensureBackend must find the address in the ledger, or the backend leaks.
        return Outcome(
            OutcomeStatus.RUNNING,
            f"{about}: the driver gave it the address {address[:200]}; it is registered next",
            generated_address=address,
        )

    async def _ensure(
        self, driver: Driver, known: KnownLoadBalancer, change: TargetChange, backend: Backend
    ) -> Outcome:
        about = _about(change)
        answer = await task(
            driver, Hook.ENSURE_BACKEND, self._body(Hook.ENSURE_BACKEND, known.info, backend), about=about
        )
        if answer.status is not Status.SUCC:
            return _outcome(driver, Hook.ENSURE_BACKEND, about, answer)
        injected = self._injected(driver, Hook.ENSURE_BACKEND, about, answer)
        if not self._dry_run:
            self._memory.remember(change, address=backend.address, injected_info=injected)
            self._memory.done(change, address=backend.address, draining=False)
        return DONE if injected is None else Outcome(OutcomeStatus.DONE, injected_info=injected)

    async def _deregister(
        self, driver: Driver, known: KnownLoadBalancer, change: TargetChange, backend: Backend
    ) -> Outcome:
        if not backend.address:
            return DONE
        about = _about(change)
        hook = Hook.DEREGISTER_BACKEND
        answer = await task(driver, hook, self._body(hook, known.info, backend), about=about)
        if answer.status is not Status.SUCC:
            return _outcome(driver, hook, about, answer)
        if self._dry_run:
            return DONE
        if change.action is Action.DEREGISTER:
            self._memory.forget(change)
        else:
            self._memory.done(change, address=backend.address, draining=True)
        return DONE

    def _body(self, hook: Hook, info: Mapping[str, str], backend: Backend) -> Body:
        return task_body(
            hook,
            backend.record_id,
            dry_run=self._dry_run,
            lbInfo=info,
            backendAddr=backend.address,
            parameters=backend.parameters,
            injectedInfo=backend.injected_info,
        )

    @staticmethod
    def _injected(driver: Driver, hook: Hook, about: str, answer: Answer) -> Mapping[str, str] | None:
        try:
            return answer.strings("injectedInfo") or None
        except Malformed as error:
            raise invalid(f"{driver.settings.name}: {hook} for {about}", error) from error


def outcome_from_error(error: Retry) -> Outcome:
    """Turn an error about one call into the outcome of its row."""
    return Outcome(OutcomeStatus.RETRY, error.sentence, error.after_s or 0.0)


def _outcome(driver: Driver, hook: Hook, about: str, answer: Answer) -> Outcome:
    status = OutcomeStatus.RUNNING if answer.status is Status.RUNNING else OutcomeStatus.RETRY
    return Outcome(status, failure(driver.settings.name, hook, about, answer).sentence, answer.retry_after_s)


def _about(change: TargetChange) -> str:
    return f"{change.key} on {change.load_balancer} {change.listener}"
