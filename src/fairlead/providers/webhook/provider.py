"""How is a webhook driver a provider?

In: the ``Provider`` protocol, and from the ledger ``recall`` and the facts in each row. Out: calls to drivers, each
with a recordID that stays and a retryID that does not. One instance serves any number of drivers; which one a load
balancer belongs to is in its parameters. In a dry run only drivers that agreed are called, and nothing is remembered.
Never: retries on its own (the worker does, with back-off), and never touches what it has no record of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, TargetChange
from fairlead.model.contract import Capabilities
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey, Protocol
from fairlead.model.observed import Ensured, Observed
from fairlead.providers.webhook.backends import Backends
from fairlead.providers.webhook.batch import Pace, run_batch
from fairlead.providers.webhook.credentials import DEFAULT_DIRECTORY
from fairlead.providers.webhook.drivers import Drivers
from fairlead.providers.webhook.frontends import Frontends
from fairlead.providers.webhook.keyed_lock import Turns
from fairlead.providers.webhook.metrics import WebhookMetrics
from fairlead.providers.webhook.settings import OF_THE_CLASS, DriverSettings, settings_from_parameters
from fairlead.providers.webhook.state import Memory
from fairlead.providers.webhook.validation import Asks
from fairlead.providers.webhook.verify import Verifier
from fairlead.runtime.clock import Clock, SystemClock

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
        memory = Memory()
        self._frontends = Frontends(memory=memory, dry_run=dry_run, changed=self._tell)
        self._known = self._frontends.known
        self._backends = Backends(memory=memory, dry_run=dry_run)
        self._verifier = Verifier(memory=memory, dry_run=dry_run)
        self._turns = Turns()
        self.recall = self._frontends.recall
        self.let_go = self._frontends.let_go
        asks = Asks(drivers=self._drivers, known=self._known, dry_run=dry_run)
        self.validate = asks.validate
        self.validate_backends = asks.validate_backends
        self.judge_pods = asks.judge_pods
        self.healthy = asks.healthy

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Do nothing: drivers are connected to when they are first called."""

    async def close(self) -> None:
        """Close all connections."""
        await self._drivers.close()

    def account(self, spec: FrontendSpec) -> str:
        """Return its driver: each answers, or hangs, on its own."""
        return spec.parameters.get("url", "").rstrip("/")

    # --- the Provider protocol --------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """Say what can be said in the driver protocol; what a driver makes of it is its own business."""
        return Capabilities(
            protocols=frozenset(Protocol),
            ipv6=True,
            host_name_targets=True,
            weights=True,
            generates_addresses=True,
            class_parameters=OF_THE_CLASS,
            max_batch=500,
        )

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Tell ``notify`` of load balancers that were created or deleted; drivers tell us nothing unasked."""
        self._notify.append(notify)

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Have the driver create it, or bring its attributes up to date; ``Retry`` while it says Running or Fail."""
        settings = settings_from_parameters(spec.parameters)
        async with self._turns.of(spec.key):
            known = self._known.get(spec.key)
            created = known is not None and known.created
            if self._skips(settings, "ensure" if created else "create", spec.key):
                return Ensured(message=f"dry run: {settings.name} does not accept dry-run calls and was not asked")
            driver = self._drivers.get(settings)
            if known is None or not known.created:
                return await self._frontends.create(driver, spec)
            return await self._frontends.update(driver, spec, known)

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
        if not known.created:
            return Observed(message="its driver has not said yet that it is created")
        return await self._verifier.observed(known, self._drivers)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Have the driver delete it; ``Retry`` until it says Succ. What this process does not know is gone."""
        async with self._turns.of(key):
            known = self._known.get(key)
            if known is None or self._skips(known.settings, "delete", key):
                return
            await self._frontends.delete(self._drivers.get(known.settings), known)

    # --- inside -----------------------------------------------------------------------------------------------

    async def _apply_one(self, change: TargetChange) -> Outcome:
        known = self._known.get(change.load_balancer)
        removal = change.action in (Action.DEREGISTER, Action.DRAIN)
        if known is None and removal and change.load_balancer in self._frontends.gone:
            return DONE
        if known is None or not (known.created or removal):
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

    def _tell(self, key: LoadBalancerKey) -> None:
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
