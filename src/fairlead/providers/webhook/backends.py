"""The calls for one change of a backend, and its outcome.

    REGISTER, UPDATE            no address yet: generateBackendAddr, then RUNNING until the ledger has stored it
                                else:           ensureBackend
    UPDATE draining, DRAIN      deregisterBackend: what is drained, and how long, is the driver's business
    DEREGISTER                  no address:     nothing was ever registered, no call
                                else:           deregisterBackend

In: one change and its load balancer. Out: an ``Outcome``; answers Fail and Running become outcomes here.
Never: two calls for one record at once, and never a repeated call within one change.
"""

from __future__ import annotations

from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, TargetChange
from fairlead.providers.webhook.client import Driver, checking_answer, invalid, run_task
from fairlead.providers.webhook.protocol import Answer, Body, DriverStatus, Hook, Malformed, failure, task_body
from fairlead.providers.webhook.state import BackendCache, BackendFields, DriverLoadBalancer
from fairlead.runtime.queue import KeyedLock


class BackendHooks:
    """The hooks about backends, called for changes."""

    def __init__(self, *, cache: BackendCache, dry_run: bool) -> None:
        self._cache = cache
        self._dry_run = dry_run
        self._locks = KeyedLock()

    async def apply(self, driver: Driver, load_balancer: DriverLoadBalancer, change: TargetChange) -> Outcome:
        """Apply one change; raises only what concerns the driver as a whole."""
        async with self._locks.hold(change.backend_key):
            backend = self._cache.fields(change)
            if change.action in (Action.REGISTER, Action.UPDATE) and not change.target.draining:
                if not backend.address:
                    return await self._generate(driver, load_balancer, change, backend)
                return await self._ensure(driver, load_balancer, change, backend)
            return await self._deregister(driver, load_balancer, change, backend)

    async def _generate(
        self, driver: Driver, load_balancer: DriverLoadBalancer, change: TargetChange, backend: BackendFields
    ) -> Outcome:
        hook, about = Hook.GENERATE_BACKEND_ADDR, _about(change)
        body = task_body(
            hook,
            backend.record_id,
            dry_run=self._dry_run,
            lbInfo=load_balancer.info,
            lbAttributes=load_balancer.spec.attributes,
            parameters=backend.parameters,
            **backend.origin,
        )
        answer = await run_task(driver, hook, body, about=about)
        if answer.status is not DriverStatus.SUCC:
            return _outcome(driver, hook, about, answer)
        address = answer.body.get("backendaddr")
        if not isinstance(address, str) or not address:
            raise invalid(f"{driver.settings.name}: {hook} for {about}", Malformed("Succ, but no backendAddr"))
        if not self._dry_run:
            self._cache.store_address(change, address)
        # A crash between this answer and ensureBackend must find the address in the ledger, or the backend leaks.
        return Outcome(
            OutcomeStatus.RUNNING,
            f"{about}: the driver gave it the address {address[:200]}; it is registered next",
            generated_address=address,
        )

    async def _ensure(
        self, driver: Driver, load_balancer: DriverLoadBalancer, change: TargetChange, backend: BackendFields
    ) -> Outcome:
        hook, about = Hook.ENSURE_BACKEND, _about(change)
        answer = await run_task(driver, hook, self._body(hook, load_balancer, backend), about=about)
        if answer.status is not DriverStatus.SUCC:
            return _outcome(driver, hook, about, answer)
        with checking_answer(driver, hook, about):
            injected = answer.strings("injectedInfo") or None
        if not self._dry_run:
            self._cache.store_target(change, address=backend.address, draining=False, injected_info=injected)
        return DONE if injected is None else Outcome(OutcomeStatus.DONE, injected_info=injected)

    async def _deregister(
        self, driver: Driver, load_balancer: DriverLoadBalancer, change: TargetChange, backend: BackendFields
    ) -> Outcome:
        if not backend.address:
            return DONE
        hook, about = Hook.DEREGISTER_BACKEND, _about(change)
        answer = await run_task(driver, hook, self._body(hook, load_balancer, backend), about=about)
        if answer.status is not DriverStatus.SUCC:
            return _outcome(driver, hook, about, answer)
        if self._dry_run:
            return DONE
        if change.action is Action.DEREGISTER:
            self._cache.forget(change)
        else:
            self._cache.store_target(change, address=backend.address, draining=True)
        return DONE

    def _body(self, hook: Hook, load_balancer: DriverLoadBalancer, backend: BackendFields) -> Body:
        return task_body(
            hook,
            backend.record_id,
            dry_run=self._dry_run,
            lbInfo=load_balancer.info,
            backendAddr=backend.address,
            parameters=backend.parameters,
            injectedInfo=backend.injected_info,
        )


def _outcome(driver: Driver, hook: Hook, about: str, answer: Answer) -> Outcome:
    status = OutcomeStatus.RUNNING if answer.status is DriverStatus.RUNNING else OutcomeStatus.RETRY
    return Outcome(status, failure(driver.settings.name, hook, about, answer).sentence, answer.retry_after_s)


def _about(change: TargetChange) -> str:
    return f"{change.key} on {change.load_balancer} {change.listener}"
