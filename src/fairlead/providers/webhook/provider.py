"""The webhook provider: implements ``Provider`` with calls to HTTP drivers.

In: the ``Provider`` protocol, and from the ledger ``restore`` and the facts in each change. Out: calls to drivers, each
with a recordID that stays and a retryID that does not. One instance serves any number of drivers; which one a load
balancer belongs to is in its parameters. In a dry run only drivers that accept it are called, and nothing is stored.
Never: retries on its own (the worker does, with back-off), and never touches what it has no record of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from fairlead.model.change import Outcome, OutcomeStatus, TargetChange
from fairlead.model.contract import Capabilities
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey, Protocol
from fairlead.model.observed import Ensured, Health, Observed
from fairlead.providers.readback_watch import ReadbackWatch
from fairlead.providers.webhook.backends import BackendHooks
from fairlead.providers.webhook.batch import BatchLimits, run_batch
from fairlead.providers.webhook.credentials import DEFAULT_DIRECTORY
from fairlead.providers.webhook.drivers import Drivers
from fairlead.providers.webhook.health import HealthReader
from fairlead.providers.webhook.load_balancers import LoadBalancerHooks
from fairlead.providers.webhook.metrics import WebhookMetrics
from fairlead.providers.webhook.protocol import Hook
from fairlead.providers.webhook.settings import (
    CLASS_PARAMETERS,
    DriverSettings,
    class_problem,
    settings_from_parameters,
)
from fairlead.providers.webhook.state import BackendCache
from fairlead.providers.webhook.validation import ValidationHooks
from fairlead.providers.webhook.verify import Verifier
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.runtime.keyed_lock import KeyedLock

#: How often a driver is asked for the health of backends, one load balancer after the other.
HEALTH_EVERY_S = 5.0

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
        self._verifier = Verifier(drivers=self._drivers, cache=cache, dry_run=dry_run)
        self._health = HealthReader(drivers=self._drivers, cache=cache, dry_run=dry_run)
        self._watch = ReadbackWatch(
            observe=self._health_of, keys=self._watched, clock=self._clock, interval_s=HEALTH_EVERY_S
        )
        self._watch.subscribe(self._changed)
        self._locks = KeyedLock()
        self.restore = self._load_balancers.restore
        self.restore_backends = self._load_balancers.restore_backends
        self.release = self._load_balancers.release
        validation = ValidationHooks(drivers=self._drivers, known=self._states, dry_run=dry_run)
        self.validate = validation.validate
        self.validate_backends = validation.validate_backends
        self.judge_pods = validation.judge_pods
        self.healthy = validation.healthy

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to ask drivers for health, those whose class says that they know."""
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
        """Return what the driver protocol can express; what a driver makes of it is its own business."""
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
            known = self._states.get(spec.key)
            created = known is not None and known.created
            if self._skips(settings, "ensure" if created else "create", spec.key):
                return Ensured(message=f"dry run: {settings.name} does not accept dry-run calls and was not asked")
            driver = self._drivers.get(settings)
            if known is not None and known.created:
                return await self._load_balancers.update(driver, spec, known)
            return await self._load_balancers.create(driver, spec)

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Make the calls for all changes, in parallel up to each driver's limit."""
        outcomes = await run_batch(changes, self._apply_change, limits_of=self._limits_of, clock=self._clock)
        if self._dry_run:
            return outcomes
        return await self._verifier.verified(changes, outcomes, self._states)

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Return what is known; with ``verify`` and ``backendHealth`` the driver is asked."""
        known = self._states.get(key)
        if known is None:
            return None
        if not known.created:
            return Observed(message="its driver has not said yet that it is created")
        if not known.settings.health:
            return await self._verifier.observe(known, {})
        health, seen = await self._health.read(known)
        return msgspec.structs.replace(await self._verifier.observe(known, seen), health=health)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Have the driver delete it; ``Retry`` until it answers Succ. What this process does not know is gone."""
        async with self._locks.hold(key):
            known = self._states.get(key)
            if known is None or self._skips(known.settings, "delete", key):
                return
            await self._load_balancers.delete(self._drivers.get(known.settings), known)

    # --- inside -----------------------------------------------------------------------------------------------

    async def _apply_change(self, change: TargetChange) -> Outcome:
        known = self._states.get(change.load_balancer)
        if known is None or not (known.created or change.is_removal):
            return self._states.outcome_without(change, "has not been created at its driver yet")
        if self._skips(known.settings, change.action.value, f"{change.key} on {change.load_balancer}"):
            return Outcome(OutcomeStatus.DONE, f"dry run: {known.settings.name} was not asked")
        return await self._backends.apply(self._drivers.get(known.settings), known, change)

    def _limits_of(self, change: TargetChange) -> BatchLimits | None:
        known = self._states.get(change.load_balancer)
        return self._drivers.batch_limits(known.settings) if known else None

    def _skips(self, settings: DriverSettings, action: str, about: object) -> bool:
        """Return whether the driver must not be called; in a dry run, log what would have been done."""
        if self._dry_run:
            asked = settings.accept_dry_run
            log.info("dry run", would=action, about=str(about), driver=settings.url, driver_is_asked=asked)
        return self._dry_run and not settings.accept_dry_run

    def _watched(self) -> Mapping[str, Sequence[LoadBalancerKey]]:
        """Return the load balancers whose health is asked for, by driver."""
        by_driver: dict[str, list[LoadBalancerKey]] = {}
        for key, known in self._states.items():
            if known.created and known.settings.health:
                by_driver.setdefault(known.settings.url, []).append(key)
        return by_driver

    async def _health_of(self, key: LoadBalancerKey) -> Health | None:
        known = self._states.get(key)
        return (await self._health.read(known))[0] if known is not None else None

    def _changed(self, key: LoadBalancerKey) -> None:
        for notify in self._notify:
            notify(key)


def create(
    *,
    credentials_dir: Path = DEFAULT_DIRECTORY,
    registry: CollectorRegistry | None = None,
    dry_run: bool = False,
) -> WebhookProvider:
    """Make the provider (entry point ``webhook``)."""
    return WebhookProvider(credentials_dir=credentials_dir, registry=registry, dry_run=dry_run)
