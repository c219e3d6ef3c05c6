"""The webhook provider: implements ``Provider`` with calls to HTTP drivers.

In: the ``Provider`` protocol, and from the ledger ``restore`` and the facts in each change. Out: calls to drivers, each
with a recordID that stays and a retryID that does not. One instance serves any number of drivers; which one a load
balancer belongs to is in its parameters. In a dry run only drivers that accept it are called, and nothing is stored.
Never: retries on its own (the worker does, with back-off), and never touches what it has no record of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from fairlead.errors import FairleadError, Retry, Terminal
from fairlead.model.change import Action, Outcome, OutcomeStatus, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import Capabilities
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey, Protocol
from fairlead.model.observed import Ensured, Health, Observed, ObservedTarget, health_of_targets
from fairlead.providers.readback_watch import ReadbackWatch, outcome_from_error
from fairlead.providers.webhook.client import (
    DEFAULT_DIRECTORY,
    Driver,
    DriverDown,
    WebhookMetrics,
    checking_answer,
    run_task_to_success,
)
from fairlead.providers.webhook.load_balancers import (
    BackendCache,
    BackendHooks,
    DriverLoadBalancer,
    LoadBalancerHooks,
    RegisteredBackend,
)
from fairlead.providers.webhook.protocol import (
    Body,
    Hook,
    WebhookAnswer,
    health_from_body,
    kept_from_body,
    message_of,
    task_body,
    verdict_from_body,
)
from fairlead.providers.webhook.settings import (
    CLASS_PARAMETERS,
    DriverSettings,
    class_problem,
    lb_spec,
    settings_from_parameters,
)
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.runtime.queue import KeyedLock

#: How often a driver is asked for the health of backends, one load balancer after the other.
HEALTH_EVERY_S = 5.0

T = TypeVar("T")

log = structlog.get_logger(__name__)


class WebhookProvider:
    """Load balancers behind webhook drivers."""

    def __init__(
        self,
        *,
        credentials_dir: Path = DEFAULT_DIRECTORY,
        registry: CollectorRegistry | None = None,
        clock: Clock | None = None,
        dry_run: bool = False,
    ) -> None:
        self._clock: Clock = clock or SystemClock()
        metrics = WebhookMetrics(registry)
        self._drivers = Drivers(directory=credentials_dir, metrics=metrics, clock=self._clock)
        self._dry_run = dry_run
        self._notify: list[Callable[[LoadBalancerKey], None]] = []
        cache = BackendCache()
        self._load_balancers = LoadBalancerHooks(cache=cache, dry_run=dry_run, changed=self._changed)
        self._states = self._load_balancers.states
        self._backends = BackendHooks(cache=cache, dry_run=dry_run)
        self._readback = DriverReadback(drivers=self._drivers, cache=cache, dry_run=dry_run)
        self._watch = ReadbackWatch(
            observe=self._health_of, keys=self._watched, clock=self._clock, interval_s=HEALTH_EVERY_S
        )
        self._watch.subscribe(self._changed)
        self._locks = KeyedLock()
        self.restore = self._load_balancers.restore
        self.restore_backends = self._load_balancers.restore_backends
        self.release = self._load_balancers.release
        validation = ValidationHooks(drivers=self._drivers, states=self._states, dry_run=dry_run)
        self.validate = validation.validate
        self.validate_backends = validation.validate_backends
        self.judge_pods = validation.judge_pods
        self.healthy = validation.healthy

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to ask drivers for health, where the class sets ``backendHealth``."""
        self._watch.start()

    async def close(self) -> None:
        """Close all connections."""
        await self._watch.close()
        await self._drivers.close()

    def failure_domain(self, spec: FrontendSpec) -> str:
        """Return the driver's URL: each driver answers, or hangs, on its own."""
        return spec.parameters.get("url", "").rstrip("/")

    # --- the Provider protocol --------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """Return what the driver protocol can express."""
        return Capabilities(
            protocols=frozenset(Protocol),
            ipv6=True,
            host_name_targets=True,
            weights=True,
            generates_addresses=True,
            class_parameters=CLASS_PARAMETERS,
            max_batch=500,
        )

    def class_problem(self, parameters: Mapping[str, str]) -> str:
        """Return what is wrong with the parameters of a class, empty when nothing is."""
        return class_problem(parameters)

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` when a load balancer was created or deleted, or its health changed; a driver never calls."""
        self._notify.append(notify)

    async def reach(self, spec: FrontendSpec) -> None:
        """Return once its driver has taken a connection; ``Retry`` when it does not. A dry run needs none."""
        settings = settings_from_parameters(spec.parameters)
        if not self._dry_run:
            await self._drivers.get(settings).reach(Hook.CREATE_LOAD_BALANCER, about=str(spec.key))

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Have the driver create it, or update its attributes; ``Retry`` while the driver answers Running or Fail."""
        settings = settings_from_parameters(spec.parameters)
        async with self._locks.hold(spec.key):
            load_balancer = self._states.get(spec.key)
            created = load_balancer is not None and load_balancer.created
            if self._skips(settings, "ensure" if created else "create", spec.key):
                return Ensured(message=f"dry run: {settings.name} does not accept dry-run calls and was not asked")
            driver = self._drivers.get(settings)
            if load_balancer is not None and load_balancer.created:
                return await self._load_balancers.update(driver, spec, load_balancer)
            return await self._load_balancers.create(driver, spec)

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Make the calls for all changes, in parallel up to each driver's limit."""
        outcomes = await run_batch(changes, self._apply_change, limits_of=self._limits_of, clock=self._clock)
        if self._dry_run:
            return outcomes
        return await self._readback.verified(changes, outcomes, self._states)

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Return what is known; with ``verify`` and ``backendHealth`` the driver is asked."""
        load_balancer = self._states.get(key)
        if load_balancer is None:
            return None
        if not load_balancer.created:
            return Observed(message="the driver has not reported the load balancer as created yet")
        return await self._readback.observe(load_balancer)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Have the driver delete it; ``Retry`` until it answers Succ. An unknown load balancer counts as deleted."""
        async with self._locks.hold(key):
            load_balancer = self._states.get(key)
            if load_balancer is None or self._skips(load_balancer.settings, "delete", key):
                return
            await self._load_balancers.delete(self._drivers.get(load_balancer.settings), load_balancer)

    # --- inside -----------------------------------------------------------------------------------------------

    async def _apply_change(self, change: TargetChange) -> Outcome:
        load_balancer = self._states.get(change.load_balancer)
        if load_balancer is None or not (load_balancer.created or change.is_removal):
            return self._states.outcome_without(change, "has not been created at its driver yet")
        if self._skips(load_balancer.settings, change.action.value, f"{change.key} on {change.load_balancer}"):
            return Outcome(OutcomeStatus.DONE, f"dry run: {load_balancer.settings.name} was not asked")
        return await self._backends.apply(self._drivers.get(load_balancer.settings), load_balancer, change)

    def _limits_of(self, change: TargetChange) -> BatchLimits | None:
        load_balancer = self._states.get(change.load_balancer)
        return self._drivers.batch_limits(load_balancer.settings) if load_balancer else None

    def _skips(self, settings: DriverSettings, action: str, about: object) -> bool:
        """Return whether the driver must not be called; in a dry run, log what would have been done."""
        if self._dry_run:
            asked = settings.accept_dry_run
            log.info("dry run", would=action, about=str(about), driver=settings.url, driver_is_asked=asked)
        return self._dry_run and not settings.accept_dry_run

    def _watched(self) -> Mapping[str, Sequence[LoadBalancerKey]]:
        """Return the load balancers whose health is asked for, by driver."""
        by_driver: dict[str, list[LoadBalancerKey]] = {}
        for key, load_balancer in self._states.items():
            if load_balancer.created and load_balancer.settings.health:
                by_driver.setdefault(load_balancer.settings.url, []).append(key)
        return by_driver

    async def _health_of(self, key: LoadBalancerKey) -> Health | None:
        load_balancer = self._states.get(key)
        return (await self._readback.health(load_balancer))[0] if load_balancer is not None else None

    def _changed(self, key: LoadBalancerKey) -> None:
        for notify in self._notify:
            notify(key)


def create(
    *, credentials_dir: Path = DEFAULT_DIRECTORY, registry: CollectorRegistry | None = None, dry_run: bool = False
) -> WebhookProvider:
    """Make the provider (entry point ``webhook``)."""
    return WebhookProvider(credentials_dir=credentials_dir, registry=registry, dry_run=dry_run)


_NOT_KNOWN = Health(reason=ConditionReason.PENDING, message="the backends are not known to this process yet")


class DriverReadback:
    """Asks drivers for the backends and their health, where a class says that they report them."""

    def __init__(self, *, drivers: Drivers, cache: BackendCache, dry_run: bool) -> None:
        self._drivers = drivers
        self._cache = cache
        self._dry_run = dry_run

    async def verified(
        self,
        changes: Sequence[TargetChange],
        outcomes: Sequence[Outcome],
        states: Mapping[LoadBalancerKey, DriverLoadBalancer],
    ) -> list[Outcome]:
        """Return ``outcomes`` without the successes that had no effect."""
        checked = list(outcomes)
        for key in {change.load_balancer for change in changes}:
            load_balancer = states.get(key)
            done = [
                index
                for index, change in enumerate(changes)
                if change.load_balancer == key and outcomes[index].status is OutcomeStatus.DONE
            ]
            if load_balancer is None or not load_balancer.settings.verify or not done:
                continue
            try:
                present = await self._registered(load_balancer)
            except Retry as error:
                for index in done:
                    checked[index] = outcome_from_error(error)
                continue
            for index in done:
                checked[index] = self._checked(load_balancer, changes[index], outcomes[index], present)
        return checked

    async def observe(self, load_balancer: DriverLoadBalancer) -> Observed:
        """Read back one load balancer."""
        health, by_address = await self.health(load_balancer) if load_balancer.settings.health else (None, {})
        observed = Observed(addresses=load_balancer.spec.addresses, programmed=True, health=health)
        if not load_balancer.settings.verify:
            return observed
        present = await self._registered(load_balancer)
        if not load_balancer.complete:
            # Which of the registered ones are ours is in the ledger, and not known here.
            return observed
        ours = self._cache.backends(load_balancer.spec.key)
        # What is drained has been deregistered: it is as it should be when it is not there.
        targets = [
            _observed(backend, backend.address not in present, by_address)
            for backend in ours
            if backend.address in present or backend.target.draining
        ]
        missing = len(ours) - len(targets)
        return replace(
            observed,
            programmed=not missing,
            targets=tuple(sorted(targets, key=lambda target: (target.listener, target.key))),
            foreign=tuple(sorted(present - {backend.address for backend in ours})),
            message=f"{missing} of our backends are not registered at the driver" if missing else "",
        )

    async def health(self, load_balancer: DriverLoadBalancer) -> tuple[Health, Mapping[str, bool | None]]:
        """Return the health of one load balancer, and of its backends by their names at the driver."""
        try:
            by_address = await self._ask(
                load_balancer, Hook.BACKEND_HEALTH, lambda answer: health_from_body(answer.body)
            )
        except Retry as error:
            return Health(reason=ConditionReason.PROVIDER_FAILED, message=error.sentence), {}
        if not load_balancer.complete:
            return _NOT_KNOWN, by_address
        targets = (
            _observed(backend, backend.target.draining, by_address)
            for backend in self._cache.backends(load_balancer.spec.key)
        )
        health = health_of_targets(targets, (listener.key for listener in load_balancer.spec.listeners))
        if health.reason is ConditionReason.NOT_CHECKED:
            text = f"{load_balancer.settings.name} reports no health for any backend"
            health = replace(health, message=text)
        return health, by_address

    def _checked(
        self, load_balancer: DriverLoadBalancer, change: TargetChange, outcome: Outcome, present: frozenset[str]
    ) -> Outcome:
        address = self._cache.fields(change).address
        wanted = change.action in (Action.REGISTER, Action.UPDATE) and not change.target.draining
        if not address or (address in present) == wanted:
            return outcome
        hook, effect = (Hook.ENSURE_BACKEND, "is not there") if wanted else (Hook.DEREGISTER_BACKEND, "is still there")
        return replace(
            outcome,
            status=OutcomeStatus.RETRY,
            message=f"{load_balancer.settings.name} answered Succ to {hook} for {change.key} on "
            f"{change.load_balancer}, but it {effect}; the call is retried. Fix the driver",
        )

    async def _registered(self, load_balancer: DriverLoadBalancer) -> frozenset[str]:
        return await self._ask(load_balancer, Hook.LIST_BACKENDS, lambda answer: frozenset(answer.texts("backends")))

    async def _ask(self, load_balancer: DriverLoadBalancer, hook: Hook, read: Callable[[WebhookAnswer], T]) -> T:
        about, driver = str(load_balancer.spec.key), self._drivers.get(load_balancer.settings)
        # A class agrees to these hooks by a parameter; ``dryRun`` is set only for drivers that know it.
        dry_run = self._dry_run and load_balancer.settings.accept_dry_run
        subject = load_balancer.spec.owner.uid or about
        body = task_body(hook, subject, dry_run=dry_run, lbInfo=load_balancer.info)
        answer = await run_task_to_success(driver, hook, body, about=about)
        with checking_answer(driver, hook, about):
            return read(answer)


def _observed(backend: RegisteredBackend, draining: bool, by_address: Mapping[str, bool | None]) -> ObservedTarget:
    target = backend.target
    return ObservedTarget(backend.listener, target.key, target.weight, draining, by_address.get(backend.address))


class ValidationHooks:
    """The hooks that are not retried."""

    def __init__(
        self, *, drivers: Drivers, states: Mapping[LoadBalancerKey, DriverLoadBalancer], dry_run: bool
    ) -> None:
        self._drivers = drivers
        self._states = states
        self._dry_run = dry_run

    async def validate(self, spec: FrontendSpec, *, old: FrontendSpec | None = None) -> None:
        """Raise ``Terminal`` when the driver refuses the load balancer, or its new attributes."""
        body: Body = {
            "lbSpec": lb_spec(spec.parameters),
            "operation": "Create" if old is None else "Update",
            "attributes": spec.attributes,
        }
        if old is not None:
            body["oldAttributes"] = old.attributes
        await self._require_consent(Hook.VALIDATE_LOAD_BALANCER, body, spec)

    async def validate_backends(
        self,
        spec: FrontendSpec,
        *,
        backend_type: str,
        parameters: Mapping[str, str],
        old_parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Raise ``Terminal`` when the driver refuses backends with these parameters."""
        load_balancer = self._states.get(spec.key)
        body: Body = {
            "backendType": backend_type,
            "lbInfo": load_balancer.info if load_balancer else lb_spec(spec.parameters),
            "operation": "Create" if old_parameters is None else "Update",
            "parameters": parameters,
        }
        if old_parameters is not None:
            body["oldParameters"] = old_parameters
        await self._require_consent(Hook.VALIDATE_BACKEND, body, spec)

    async def judge_pods(
        self, parameters: Mapping[str, str], pods: Sequence[Mapping[str, object]]
    ) -> frozenset[tuple[str, str]]:
        """Return (namespace, name) of the pods that keep their place though they are not ready.

        Raises:
            Retry: it could not be called, or said ``succ: false``; ``failurePolicy`` decides.
        """
        settings = settings_from_parameters(parameters)
        if not pods:
            return frozenset()
        if self._skips(settings):
            raise Retry(f"dry run: {settings.name} does not accept dry-run calls", reason="DryRun")
        hook, about = Hook.JUDGE_POD_DEREGISTER, f"{len(pods)} pods that are not ready"
        driver = self._drivers.get(settings)
        response = await driver.call(hook, {"dryRun": self._dry_run, "notReadyPods": list(pods)}, about=about)
        with checking_answer(driver, hook, about):
            if refusal := verdict_from_body(response):
                raise Retry(f"{settings.name} could not validate {about}: {refusal}", reason="DriverFail")
            return kept_from_body(response)

    async def healthy(self, parameters: Mapping[str, str]) -> None:
        """Return when the driver says that it is healthy; ``Retry`` says what is wrong."""
        settings = settings_from_parameters(parameters)
        response = await self._drivers.get(settings).call(Hook.HEALTHZ, {}, about="itself")
        if response.get("healthy") is not True:
            message = message_of(response)
            raise Retry(
                f"{settings.name} reports that it is not healthy{': ' + message if message else ''}; check its log",
                reason="DriverUnhealthy",
            )

    async def _require_consent(self, hook: Hook, body: Body, spec: FrontendSpec) -> None:
        settings = settings_from_parameters(spec.parameters)
        if self._skips(settings):
            return
        about, driver = str(spec.key), self._drivers.get(settings)
        response = await driver.call(hook, {"dryRun": self._dry_run, **body}, about=about)
        with checking_answer(driver, hook, about):
            refusal = verdict_from_body(response)
        if refusal:
            raise Terminal(f"{settings.name} refuses {about}: {refusal}", reason="RefusedByDriver")

    def _skips(self, settings: DriverSettings) -> bool:
        return self._dry_run and not settings.accept_dry_run


#: One batch takes no longer than this, since the core gives up a call that takes much longer.
_BATCH_S = 100.0


class Drivers:
    """All drivers of one provider."""

    def __init__(self, *, directory: Path, metrics: WebhookMetrics, clock: Clock) -> None:
        self._directory = directory
        self._metrics = metrics
        self._clock = clock
        self._drivers: dict[DriverSettings, Driver] = {}
        self._limits: dict[DriverSettings, BatchLimits] = {}

    def get(self, settings: DriverSettings) -> Driver:
        """Return the driver of these settings; ``BadConfiguration`` when its credentials cannot be used."""
        driver = self._drivers.get(settings)
        if driver is None:
            driver = self._drivers[settings] = Driver(
                settings=settings, directory=self._directory, metrics=self._metrics, clock=self._clock
            )
        return driver

    def batch_limits(self, settings: DriverSettings) -> BatchLimits:
        """Return the limits that all batches at the driver of these settings share."""
        limits = self._limits.get(settings)
        if limits is None:
            longest_s = max(settings.timeout_of(hook) for hook in Hook)
            calls = 2 if settings.verify else 1
            slots = asyncio.Semaphore(settings.parallel)
            limits = self._limits[settings] = BatchLimits(slots, max(0.0, _BATCH_S - calls * longest_s))
        return limits

    async def close(self) -> None:
        """Close all connections."""
        drivers, self._drivers = self._drivers, {}
        for driver in drivers.values():
            await driver.close()


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
    """Apply all changes; an error of one change is its outcome, and never raised."""
    started_s = clock.monotonic()
    health: dict[BatchLimits, _DriverHealth] = {}

    async def limited(change: TargetChange, limits: BatchLimits) -> Outcome:
        driver = health.setdefault(limits, _DriverHealth())
        async with limits.slots:
            if driver.lost is not None:
                after_s = driver.lost.after_s or 0.0
                return Outcome(OutcomeStatus.RETRY, f"skipped after: {driver.lost.sentence}", after_s)
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
