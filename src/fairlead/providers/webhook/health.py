"""The health of our backends as the driver sees it.

LBCF has no way to ask, so a class with ``backendHealth: "true"`` promises a hook of ours of that name ({lbInfo} ->
{status, backends: [{backendAddr, healthy}]}). A backend that the answer leaves out, or calls null, is not checked.

    backend at the driver   answer      health of our target
    10.0.0.7:8080           true        healthy
    web-1:80                false       unhealthy
    10.0.0.9:8080           (missing)   not checked

In: a load balancer, and the names of its backends. Out: its ``Health``; a driver that cannot be asked makes it unknown,
and says why. Never: an error, since what the driver has done for us is known without it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.errors import Retry
from fairlead.model.condition import ConditionReason
from fairlead.model.health import health_of_targets
from fairlead.model.observed import Health, ObservedTarget
from fairlead.providers.webhook.drivers import Drivers
from fairlead.providers.webhook.protocol import Hook, health_from_body, task_body
from fairlead.providers.webhook.state import BackendCache, DriverLoadBalancer
from fairlead.providers.webhook.tasks import checking_answer, run_task_to_success

_NOT_KNOWN = Health(reason=ConditionReason.PENDING, message="its backends are not known to this process yet")


class HealthReader:
    """Asks drivers for health, where a class says that they know."""

    def __init__(self, *, drivers: Drivers, cache: BackendCache, dry_run: bool) -> None:
        self._drivers = drivers
        self._cache = cache
        self._dry_run = dry_run

    async def read(self, known: DriverLoadBalancer) -> tuple[Health, Mapping[str, bool | None]]:
        """Return the health of one load balancer, and of its backends by their names at the driver."""
        try:
            seen = await self._ask(known)
        except Retry as error:
            return Health(reason=ConditionReason.PROVIDER_FAILED, message=error.sentence), {}
        if not known.complete:
            return _NOT_KNOWN, seen
        targets = (
            ObservedTarget(
                backend.listener, backend.target.key, backend.target.weight, backend.target.draining, healthy
            )
            for backend in self._cache.backends(known.spec.key)
            for healthy in (seen.get(backend.address),)
        )
        health = health_of_targets(targets, (listener.key for listener in known.spec.listeners))
        if health.reason is ConditionReason.NOT_CHECKED:
            text = f"{known.settings.name} reports no health for any backend"
            health = msgspec.structs.replace(health, message=text)
        return health, seen

    async def _ask(self, known: DriverLoadBalancer) -> Mapping[str, bool | None]:
        hook, about = Hook.BACKEND_HEALTH, str(known.spec.key)
        driver = self._drivers.get(known.settings)
        # A class agrees to being read with ``backendHealth``; ``dryRun`` is set only for drivers that know it.
        dry_run = self._dry_run and known.settings.accept_dry_run
        body = task_body(hook, known.spec.owner.uid or about, dry_run=dry_run, lbInfo=known.info)
        answer = await run_task_to_success(driver, hook, body, about=about)
        with checking_answer(driver, hook, about):
            return health_from_body(answer.body)
