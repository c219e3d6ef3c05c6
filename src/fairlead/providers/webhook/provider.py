"""How is a webhook driver a provider?

In: the ``Provider`` protocol, and from the ledger ``recall`` and the facts in each row. Out: calls to drivers, each
with a recordID that stays and a retryID that does not. One instance serves any number of drivers; which one a load
balancer belongs to is in its parameters. In a dry run only drivers that agreed are called, and nothing is remembered.
Never: retries on its own (the worker does, with back-off), and never touches what it has no record of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from fairlead.errors import Terminal
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, TargetChange
from fairlead.model.contract import Capabilities
from fairlead.model.desired import LoadBalancerSpec
from fairlead.model.keys import LoadBalancerKey, Protocol
from fairlead.model.observed import Ensured, Observed
from fairlead.providers.webhook.asks import Asks
from fairlead.providers.webhook.backends import Backends, task
from fairlead.providers.webhook.batch import Pace, run_batch
from fairlead.providers.webhook.client import Driver, invalid
from fairlead.providers.webhook.credentials import DEFAULT_DIRECTORY
from fairlead.providers.webhook.drivers import Drivers
from fairlead.providers.webhook.known import KnownLoadBalancer, Memory
from fairlead.providers.webhook.metrics import WebhookMetrics
from fairlead.providers.webhook.protocol import Answer, Hook, Malformed, Status, failure, task_body
from fairlead.providers.webhook.settings import DriverSettings, lb_spec, settings_from_parameters
from fairlead.providers.webhook.turns import Turns
from fairlead.providers.webhook.verify import Verifier
from fairlead.runtime.clock import Clock, SystemClock

_MOST_GONE = 4096

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
        metrics = WebhookMetrics(registry)
        self._clock: Clock = clock or SystemClock()
        self._drivers = Drivers(directory=credentials_dir, metrics=metrics, clock=self._clock)
        self._dry_run = dry_run
        self._known: dict[LoadBalancerKey, KnownLoadBalancer] = {}
        self._gone: dict[LoadBalancerKey, None] = {}
        self._memory = Memory()
        self._backends = Backends(memory=self._memory, dry_run=dry_run)
        self._verifier = Verifier(memory=self._memory)
        self._turns = Turns()
        self._notify: list[Callable[[LoadBalancerKey], None]] = []
        self._asks = Asks(drivers=self._drivers, known=self._known, dry_run=dry_run)
        self.validate = self._asks.validate
        self.validate_backends = self._asks.validate_backends
        self.judge_pods = self._asks.judge_pods
        self.healthy = self._asks.healthy

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Do nothing: drivers are connected to when they are first called."""

    async def close(self) -> None:
        """Close all connections."""
        await self._drivers.close()

    def recall(self, spec: LoadBalancerSpec, info: Mapping[str, str]) -> None:
        """Take back what an earlier process had created; no driver is called."""
        try:
            settings = settings_from_parameters(spec.parameters)
        except Terminal as error:
            # One bad object must not keep the others from being taken back; this one waits for a good ensure.
            log.warning("not taken back", load_balancer=str(spec.key), why=error.sentence)
            return
        self._known[spec.key] = KnownLoadBalancer(spec, settings, info or lb_spec(spec.parameters))

    # --- the Provider protocol --------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """Say what can be said in the driver protocol; what a driver makes of it is its own business."""
        return Capabilities(
            protocols=frozenset(Protocol), ipv6=True, host_name_targets=True, weights=True, max_batch=500
        )

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Tell ``notify`` of load balancers that were ensured or deleted; drivers tell us nothing unasked."""
        self._notify.append(notify)

    async def ensure(self, spec: LoadBalancerSpec) -> Ensured:
        """Have the driver create it, or bring its attributes up to date; ``Retry`` while it says Running or Fail."""
        settings = settings_from_parameters(spec.parameters)
        async with self._turns.of(spec.key):
            known = self._known.get(spec.key)
            if known is None and settings.draining:
                raise Terminal(
                    f"{settings.name} is draining and takes no new load balancers; choose another class for {spec.key}",
                    reason="DriverDraining",
                )
            if self._skips(settings, "create" if known is None else "ensure", spec.key):
                return Ensured(message=f"dry run: {settings.name} does not accept dry-run calls and was not asked")
            driver = self._drivers.get(settings)
            if known is None:
                return await self._create(driver, spec)
            return await self._update(driver, spec, known)

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Make the calls for all rows, in parallel up to each driver's limit."""
        outcomes = await run_batch(changes, self._apply_one, pace_of=self._pace, clock=self._clock)
        if self._dry_run:
            return outcomes
        return await self._verifier.verified(changes, outcomes, self._known, self._drivers)

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Say what is known; with ``verify`` the driver's own list is read back."""
        known = self._known.get(key)
        if known is None:
            return None
        return await self._verifier.observed(known, self._drivers)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Have the driver delete it; ``Retry`` until it says Succ. What this process does not know is gone."""
        async with self._turns.of(key):
            known = self._known.get(key)
            if known is None or self._skips(known.settings, "delete", key):
                return
            if known.spec.existing:
                # Somebody else made it and keeps it.
                if not self._dry_run:
                    self._forget(key)
                return
            hook = Hook.DELETE_LOAD_BALANCER
            body = task_body(
                hook, _subject(known.spec), dry_run=self._dry_run, lbInfo=known.info, attributes=known.spec.attributes
            )
            answer = await task(self._drivers.get(known.settings), hook, body, about=str(key))
            if answer.status is not Status.SUCC:
                raise failure(known.settings.name, hook, str(key), answer)
            if not self._dry_run:
                self._forget(key)

    # --- inside -----------------------------------------------------------------------------------------------

    async def _create(self, driver: Driver, spec: LoadBalancerSpec) -> Ensured:
        hook = Hook.CREATE_LOAD_BALANCER
        wanted = lb_spec(spec.parameters)
        body = task_body(hook, _subject(spec), dry_run=self._dry_run, lbSpec=wanted, attributes=spec.attributes)
        answer = await self._asked(driver, hook, body, spec.key)
        info, addresses = self._read(driver, hook, spec, answer)
        info = info or wanted
        if not self._dry_run:
            self._known[spec.key] = KnownLoadBalancer(spec, driver.settings, info, whole=True)
            self._gone.pop(spec.key, None)
            self._tell(spec.key)
        return Ensured(addresses, answer.message, info=None if self._dry_run else info)

    async def _update(self, driver: Driver, spec: LoadBalancerSpec, known: KnownLoadBalancer) -> Ensured:
        hook = Hook.ENSURE_LOAD_BALANCER
        body = task_body(hook, _subject(spec), dry_run=self._dry_run, lbInfo=known.info, attributes=spec.attributes)
        answer = await self._asked(driver, hook, body, spec.key)
        _, addresses = self._read(driver, hook, spec, answer)
        if not self._dry_run:
            self._known[spec.key] = KnownLoadBalancer(spec, driver.settings, known.info, whole=known.whole)
        return Ensured(addresses, answer.message, info=known.info)

    async def _asked(self, driver: Driver, hook: Hook, body: dict[str, object], key: LoadBalancerKey) -> Answer:
        answer = await task(driver, hook, body, about=str(key))
        if answer.status is not Status.SUCC:
            raise failure(driver.settings.name, hook, str(key), answer)
        return answer

    @staticmethod
    def _read(
        driver: Driver, hook: Hook, spec: LoadBalancerSpec, answer: Answer
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return lbInfo and (an extension of ours) addresses of the load balancer."""
        try:
            addresses = answer.texts("addresses") or ((spec.address,) if spec.address else ())
            return answer.strings("lbInfo"), addresses
        except Malformed as error:
            raise invalid(f"{driver.settings.name}: {hook} for {spec.key}", error) from error

    async def _apply_one(self, change: TargetChange) -> Outcome:
        known = self._known.get(change.load_balancer)
        if known is None:
            removal = change.action in (Action.DEREGISTER, Action.DRAIN)
            if removal and change.load_balancer in self._gone:
                return DONE
            # Nothing may be called removed that another process may have registered.
            return Outcome(
                OutcomeStatus.RETRY,
                f"{change.key}: {change.load_balancer} has not been created at its driver yet; it is tried again",
            )
        if self._skips(known.settings, change.action.value, f"{change.key} on {change.load_balancer}"):
            return Outcome(OutcomeStatus.DONE, f"dry run: {known.settings.name} was not asked")
        return await self._backends.apply(self._drivers.get(known.settings), known, change)

    def _pace(self, change: TargetChange) -> Pace | None:
        known = self._known.get(change.load_balancer)
        return self._drivers.pace(known.settings) if known else None

    def _skips(self, settings: DriverSettings, action: str, about: object) -> bool:
        """Say whether the driver must not be called; in a dry run, log what would have been done."""
        if self._dry_run:
            asked = settings.accept_dry_run
            log.info("dry run", would=action, about=str(about), driver=settings.url, driver_is_asked=asked)
        return self._dry_run and not settings.accept_dry_run

    def _forget(self, key: LoadBalancerKey) -> None:
        self._known.pop(key, None)
        self._memory.forget_all(key)
        self._gone[key] = None
        while len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]
        self._tell(key)

    def _tell(self, key: LoadBalancerKey) -> None:
        for notify in self._notify:
            notify(key)


def _subject(spec: LoadBalancerSpec) -> str:
    return spec.owner.uid or str(spec.key)


def create(
    *,
    credentials_dir: Path = DEFAULT_DIRECTORY,
    registry: CollectorRegistry | None = None,
    dry_run: bool = False,
) -> WebhookProvider:
    """Make the provider (entry point ``webhook``)."""
    return WebhookProvider(credentials_dir=credentials_dir, registry=registry, dry_run=dry_run)
