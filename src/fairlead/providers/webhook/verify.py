"""Verifies that the driver did what it answered.

LBCF has no way to read back, so a driver may answer Succ and do nothing. A class with ``verify: "true"`` promises a
hook of ours, ``listBackends`` ({lbInfo} -> {status, backends: [address]}); then one list for each load balancer and
batch shows which changes had an effect, and drift can be seen. Without it the driver's answer is all that there is.
Never: removes or registers anything because of what was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.errors import Retry
from fairlead.model.change import Action, Outcome, OutcomeStatus, TargetChange
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed, ObservedTarget
from fairlead.providers.outcomes import outcome_from_error
from fairlead.providers.webhook.drivers import Drivers
from fairlead.providers.webhook.protocol import Hook, task_body
from fairlead.providers.webhook.state import BackendCache, DriverLoadBalancer
from fairlead.providers.webhook.tasks import checking_answer, run_task_to_success


class Verifier:
    """Reads back, where a driver can."""

    def __init__(self, *, drivers: Drivers, cache: BackendCache, dry_run: bool) -> None:
        self._drivers = drivers
        self._cache = cache
        self._dry_run = dry_run

    async def verified(
        self,
        changes: Sequence[TargetChange],
        outcomes: Sequence[Outcome],
        known: Mapping[LoadBalancerKey, DriverLoadBalancer],
    ) -> list[Outcome]:
        """Return ``outcomes`` without the successes that had no effect."""
        checked = list(outcomes)
        for key in {change.load_balancer for change in changes}:
            load_balancer = known.get(key)
            done = [
                index
                for index, change in enumerate(changes)
                if change.load_balancer == key and outcomes[index].status is OutcomeStatus.DONE
            ]
            if load_balancer is None or not load_balancer.settings.verify or not done:
                continue
            try:
                listed = await self._list(load_balancer)
            except Retry as error:
                for index in done:
                    checked[index] = outcome_from_error(error)
                continue
            for index in done:
                checked[index] = self._checked(load_balancer, changes[index], outcomes[index], listed)
        return checked

    async def observe(self, known: DriverLoadBalancer, health: Mapping[str, bool | None]) -> Observed:
        """Read back one load balancer; ``health`` is what its driver says of backends, by their addresses."""
        addresses = known.spec.addresses
        if not known.settings.verify:
            return Observed(addresses=addresses, programmed=True)
        listed = await self._list(known)
        if not known.complete:
            # Which of the listed ones are ours is in the ledger, and not known here.
            return Observed(addresses=addresses, programmed=True)
        ours = self._cache.backends(known.spec.key)
        # What is drained has been deregistered: it is as it should be when it is not listed.
        targets = [
            ObservedTarget(
                backend.listener,
                backend.target.key,
                backend.target.weight,
                backend.address not in listed,
                health.get(backend.address),
            )
            for backend in ours
            if backend.address in listed or backend.target.draining
        ]
        missing = len(ours) - len(targets)
        return Observed(
            addresses=addresses,
            programmed=not missing,
            targets=tuple(sorted(targets, key=lambda target: (target.listener, target.key))),
            foreign=tuple(sorted(listed - {backend.address for backend in ours})),
            message=f"{missing} of our backends are missing there" if missing else "",
        )

    def _checked(
        self, known: DriverLoadBalancer, change: TargetChange, outcome: Outcome, listed: frozenset[str]
    ) -> Outcome:
        address = self._cache.fields(change).address
        wanted = change.action in (Action.REGISTER, Action.UPDATE) and not change.target.draining
        if not address or (address in listed) == wanted:
            return outcome
        hook, effect = (Hook.ENSURE_BACKEND, "is not there") if wanted else (Hook.DEREGISTER_BACKEND, "is still there")
        return Outcome(
            OutcomeStatus.RETRY,
            f"{known.settings.name} answered Succ to {hook} for {change.key} on {change.load_balancer}, but it "
            f"{effect}; the call is retried. Fix the driver",
            generated_address=outcome.generated_address,
            injected_info=outcome.injected_info,
        )

    async def _list(self, known: DriverLoadBalancer) -> frozenset[str]:
        hook, about = Hook.LIST_BACKENDS, str(known.spec.key)
        driver = self._drivers.get(known.settings)
        # A class agrees to being read with ``verify``; ``dryRun`` is set only for drivers that know it.
        dry_run = self._dry_run and known.settings.accept_dry_run
        body = task_body(hook, known.spec.owner.uid or about, dry_run=dry_run, lbInfo=known.info)
        answer = await run_task_to_success(driver, hook, body, about=about)
        with checking_answer(driver, hook, about):
            return frozenset(answer.texts("backends"))
