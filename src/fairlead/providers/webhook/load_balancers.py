"""The calls for load balancers and for their backends, and the outcomes of these calls.

    not known                    createLoadBalancer: Succ makes it known; Fail leaves nothing
    perhaps created              createLoadBalancer again, with the same recordID (an answer was lost, or Running)
    created                      ensureLoadBalancer
    deleted while perhaps there  deleteLoadBalancer with lbSpec for lbInfo: nothing leaks for want of an answer

    REGISTER, UPDATE             no address yet: generateBackendAddr, then RUNNING until the ledger has stored it
                                 else:           ensureBackend
    UPDATE draining, DRAIN       deregisterBackend: the driver decides what is drained, and for how long
    DEREGISTER                   no address:     nothing was ever registered, no call
                                 else:           deregisterBackend

In: specs, and changes of backends. Out: the state of load balancers and backends at drivers, and an ``Outcome`` for
each change. The ledger is the durable memory; the state here only bridges the time until it has stored an ``Outcome``.
Never: two calls for one record at once, a repeated call within one change, or a stored result of a dry run.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog
from msgspec.structs import replace

from fairlead.errors import Terminal
from fairlead.model.change import DONE, Action, BackendFacts, Outcome, OutcomeStatus, TargetChange
from fairlead.model.contract import RestoredBackend
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import BackendKey, ListenerKey, LoadBalancerKey
from fairlead.model.observed import Ensured
from fairlead.providers.readback_watch import LoadBalancerStates
from fairlead.providers.webhook.client import Driver, DriverDown, checking_answer, run_task, run_task_to_success
from fairlead.providers.webhook.protocol import Body, DriverStatus, Hook, Malformed, WebhookAnswer, failure, task_body
from fairlead.providers.webhook.settings import DriverSettings, lb_spec, readable_settings, settings_from_parameters
from fairlead.runtime.queue import KeyedLock

log = structlog.get_logger(__name__)


#: The namespace of the recordIDs that we generate for backends to which no ledger has given one.
_NAMESPACE = uuid.UUID("6c7b1d3a-1f43-5a5e-9a53-6f2a55f6a3f1")


class DriverLoadBalancer(msgspec.Struct, frozen=True):
    """One load balancer that a driver has created, or may have created.

    ``info`` is its lbInfo. ``created``: the driver answered Succ. ``complete``: this process knows all of its
    backends, since it has created it, or was given what is on record.
    """

    spec: FrontendSpec
    settings: DriverSettings
    info: Mapping[str, str]
    created: bool = False
    complete: bool = False


class BackendFields(msgspec.Struct, frozen=True):
    """The fields of one backend in a request; ``address`` is empty until the driver has generated it."""

    record_id: str
    address: str
    injected_info: Mapping[str, str]
    parameters: Mapping[str, str]
    origin: Mapping[str, object]


class RegisteredBackend(NamedTuple):
    """One backend that this process has registered or drained, or an earlier one had; ``address`` is the driver's."""

    address: str
    listener: ListenerKey
    target: Target


class _CachedBackend(msgspec.Struct):
    address: str = ""
    injected_info: Mapping[str, str] = {}
    target: Target | None = None


class BackendCache:
    """The answers of drivers about backends, until they are in the ledger."""

    def __init__(self) -> None:
        self._backends: dict[LoadBalancerKey, dict[BackendKey, _CachedBackend]] = {}

    def fields(self, change: TargetChange) -> BackendFields:
        """Merge what the ledger and this process know of a backend; the ledger's facts come first."""
        key = change.backend_key
        facts = change.facts or BackendFacts()
        cached = self._backends.get(key.load_balancer, {}).get(key) or _CachedBackend()
        target_address = "" if facts.origin else str(change.key)
        parameters = dict(change.target.parameters) | dict(facts.parameters)
        if change.target.weight != 1:
            parameters.setdefault("weight", str(change.target.weight))
        return BackendFields(
            record_id=facts.record_id or str(uuid.uuid5(_NAMESPACE, repr(tuple(key)))),
            address=facts.generated_address or cached.address or target_address,
            injected_info=facts.injected_info or cached.injected_info,
            parameters=parameters,
            origin=facts.origin,
        )

    def store_address(self, change: TargetChange, address: str) -> None:
        """Store the address that the driver generated."""
        self._entry(change.backend_key).address = address

    def store_target(
        self, change: TargetChange, *, address: str, draining: bool, injected_info: Mapping[str, str] | None = None
    ) -> None:
        """Store that the backend is registered, or drained."""
        entry = self._entry(change.backend_key)
        entry.address = address
        entry.injected_info = injected_info or entry.injected_info
        entry.target = replace(change.target, draining=draining)

    def forget(self, change: TargetChange) -> None:
        """Drop a backend that is deregistered."""
        self._backends.get(change.load_balancer, {}).pop(change.backend_key, None)

    def forget_all(self, load_balancer: LoadBalancerKey) -> None:
        """Drop the backends of a load balancer that is deleted."""
        self._backends.pop(load_balancer, None)

    def restore(self, load_balancer: LoadBalancerKey, backends: Iterable[RestoredBackend]) -> None:
        """Take over what is on record as registered or drained."""
        for listener, target, facts in backends:
            entry = self._entry(BackendKey(load_balancer, listener, target.key))
            entry.address = facts.generated_address or ("" if facts.origin else str(target.key))
            entry.injected_info = facts.injected_info or entry.injected_info
            entry.target = target

    def backends(self, load_balancer: LoadBalancerKey) -> list[RegisteredBackend]:
        """Return what is registered or drained on one load balancer.

        Two of a listener with one address are one backend there: the last one counts.
        """
        entries = {
            (entry.address, key.listener): entry.target
            for key, entry in self._backends.get(load_balancer, {}).items()
            if entry.target is not None
        }
        return [RegisteredBackend(address, listener, target) for (address, listener), target in entries.items()]

    def _entry(self, key: BackendKey) -> _CachedBackend:
        return self._backends.setdefault(key.load_balancer, {}).setdefault(key, _CachedBackend())


class LoadBalancerHooks:
    """The hooks about load balancers; other parts of the provider read ``states``."""

    def __init__(self, *, cache: BackendCache, dry_run: bool, changed: Callable[[LoadBalancerKey], None]) -> None:
        self.states: LoadBalancerStates[DriverLoadBalancer] = LoadBalancerStates()
        self._cache = cache
        self._dry_run = dry_run
        self._changed = changed

    def restore(self, spec: FrontendSpec, info: Mapping[str, str]) -> None:
        """Restore a load balancer of an earlier process; without ``info`` it may or may not have been created."""
        try:
            settings = settings_from_parameters(spec.parameters)
        except Terminal as error:
            # The parameters of its class became invalid; the valid ones are enough to remove what was created.
            log.warning("parameters cannot be read", load_balancer=str(spec.key), why=error.sentence)
            settings = readable_settings(spec.parameters)
        if settings is None:
            if not info:
                # The URL of a driver never changes: none was ever called.
                self.states.release(spec.key)
            return
        restored = DriverLoadBalancer(spec, settings, info or lb_spec(spec.parameters), created=bool(info))
        self.states.put(spec.key, restored)

    def restore_backends(self, key: LoadBalancerKey, backends: Sequence[RestoredBackend]) -> None:
        """Restore its recorded backends: all of them at first, and later additional ones."""
        load_balancer = self.states.get(key)
        if load_balancer is None:
            return
        self._cache.restore(key, backends)
        self.states.put(key, replace(load_balancer, complete=True))

    async def create(self, driver: Driver, spec: FrontendSpec) -> Ensured:
        """Call createLoadBalancer; ``Retry`` when the driver answers anything but Succ."""
        hook, about = Hook.CREATE_LOAD_BALANCER, str(spec.key)
        wanted = lb_spec(spec.parameters)
        content = {"attributes": spec.attributes, **_families(driver, spec)}
        body = task_body(hook, _subject(spec), dry_run=self._dry_run, lbSpec=wanted, **content)
        perhaps = DriverLoadBalancer(spec, driver.settings, wanted)
        try:
            answer = await run_task(driver, hook, body, about=about)
        except DriverDown:
            # The call never arrived.
            raise
        except BaseException:
            # Also when we are cancelled: the driver may have gone on.
            self._store(perhaps)
            raise
        if answer.status is DriverStatus.RUNNING:
            self._store(perhaps)
        if answer.status is not DriverStatus.SUCC:
            raise failure(driver.settings.name, hook, about, answer)
        info, addresses = _info_and_addresses(driver, hook, spec, answer)
        info = info or wanted
        self._store(replace(perhaps, info=info, created=True, complete=True))
        self._changed(spec.key)
        return Ensured(addresses, answer.message, info=None if self._dry_run else info)

    async def update(self, driver: Driver, spec: FrontendSpec, load_balancer: DriverLoadBalancer) -> Ensured:
        """Call ensureLoadBalancer with the attributes of ``spec``, and its families."""
        hook = Hook.ENSURE_LOAD_BALANCER
        content = {"attributes": spec.attributes, **_families(driver, spec)}
        body = task_body(hook, _subject(spec), dry_run=self._dry_run, lbInfo=load_balancer.info, **content)
        answer = await run_task_to_success(driver, hook, body, about=str(spec.key))
        _, addresses = _info_and_addresses(driver, hook, spec, answer)
        self._store(replace(load_balancer, spec=spec, settings=driver.settings))
        return Ensured(addresses, answer.message, info=load_balancer.info)

    async def delete(self, driver: Driver, load_balancer: DriverLoadBalancer) -> None:
        """Call deleteLoadBalancer, unless the load balancer existed before us, and release it."""
        spec = load_balancer.spec
        if not spec.existing:
            hook = Hook.DELETE_LOAD_BALANCER
            body = task_body(
                hook, _subject(spec), dry_run=self._dry_run, lbInfo=load_balancer.info, attributes=spec.attributes
            )
            await run_task_to_success(driver, hook, body, about=str(spec.key))
        if not self._dry_run:
            self.release(spec.key)

    def release(self, key: LoadBalancerKey) -> None:
        """Drop all that is known of it: the next load balancer of that name is created, whatever this one was."""
        self.states.release(key)
        self._cache.forget_all(key)
        self._changed(key)

    def _store(self, load_balancer: DriverLoadBalancer) -> None:
        if not self._dry_run:
            self.states.put(load_balancer.spec.key, load_balancer)


def _families(driver: Driver, spec: FrontendSpec) -> dict[str, object]:
    """Return the desired address families, for a driver that reads them; empty if none is named."""
    if not (driver.settings.families and spec.families.families):
        return {}
    policy = "RequireDualStack" if spec.families.all_required else "PreferDualStack"
    policy = policy if len(spec.families.families) > 1 else "SingleStack"
    return {"ipFamilies": list(spec.families.families), "ipFamilyPolicy": policy}


def _info_and_addresses(
    driver: Driver, hook: Hook, spec: FrontendSpec, answer: WebhookAnswer
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return lbInfo and (an extension of ours) the addresses of the load balancer."""
    with checking_answer(driver, hook, str(spec.key)):
        addresses = answer.texts("addresses") or spec.addresses
        return answer.strings("lbInfo"), addresses


def _subject(spec: FrontendSpec) -> str:
    return spec.owner.uid or str(spec.key)


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
                hook, about = Hook.ENSURE_BACKEND, _about(change)
                answer = await run_task(driver, hook, self._body(hook, load_balancer, backend), about=about)
                if answer.status is not DriverStatus.SUCC:
                    return _outcome(driver, hook, about, answer)
                with checking_answer(driver, hook, about):
                    injected = answer.strings("injectedInfo") or None
                if not self._dry_run:
                    self._cache.store_target(change, address=backend.address, draining=False, injected_info=injected)
                return DONE if injected is None else Outcome(OutcomeStatus.DONE, injected_info=injected)
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
        with checking_answer(driver, hook, about):
            if not (address := answer.text("backendAddr")):
                raise Malformed("Succ, but no backendAddr")
        if not self._dry_run:
            self._cache.store_address(change, address)
        # A crash between this answer and ensureBackend must find the address in the ledger, or the backend leaks.
        return Outcome(
            OutcomeStatus.RUNNING,
            f"{about}: the driver generated address {address[:200]}; it is registered next",
            generated_address=address,
        )

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


def _outcome(driver: Driver, hook: Hook, about: str, answer: WebhookAnswer) -> Outcome:
    status = OutcomeStatus.RUNNING if answer.status is DriverStatus.RUNNING else OutcomeStatus.RETRY
    return Outcome(status, failure(driver.settings.name, hook, about, answer).sentence, answer.retry_after_s)


def _about(change: TargetChange) -> str:
    return f"{change.key} on {change.load_balancer} {change.listener}"
