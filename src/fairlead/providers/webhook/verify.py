"""Did the driver do what it said?

LBCF has no way to read back, so a driver may answer Succ and do nothing. A class with ``verify: "true"`` promises a
hook of ours, ``listBackends`` ({lbInfo} -> {status, backends: [address]}); then one list for each load balancer and
batch tells which rows had an effect, and drift can be seen. Without it the driver's word is all that there is.
Never: removes or registers anything because of what was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.errors import Retry
from fairlead.model.change import Action, Outcome, OutcomeStatus, TargetChange
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed, ObservedTarget
from fairlead.providers.webhook.backends import outcome_from_error, task
from fairlead.providers.webhook.client import invalid
from fairlead.providers.webhook.drivers import Drivers
from fairlead.providers.webhook.protocol import Hook, Malformed, Status, failure, task_body
from fairlead.providers.webhook.state import KnownLoadBalancer, Memory


class Verifier:
    """Reads back, where a driver can."""

    def __init__(self, *, memory: Memory, dry_run: bool) -> None:
        self._memory = memory
        self._dry_run = dry_run

    async def verified(
        self,
        changes: Sequence[TargetChange],
        outcomes: Sequence[Outcome],
        known: Mapping[LoadBalancerKey, KnownLoadBalancer],
        drivers: Drivers,
    ) -> list[Outcome]:
        """Return ``outcomes`` without the successes that had no effect."""
        checked = list(outcomes)
        for key in {change.load_balancer for change in changes}:
            load_balancer = known.get(key)
            rows = [
                index
                for index, change in enumerate(changes)
                if change.load_balancer == key and outcomes[index].status is OutcomeStatus.DONE
            ]
            if load_balancer is None or not load_balancer.settings.verify or not rows:
                continue
            try:
                there = await self._listed(load_balancer, drivers)
            except Retry as error:
                for index in rows:
                    checked[index] = outcome_from_error(error)
                continue
            for index in rows:
                checked[index] = self._judge(load_balancer, changes[index], outcomes[index], there)
        return checked

    async def observed(self, known: KnownLoadBalancer, drivers: Drivers) -> Observed:
        """Read back one load balancer."""
        key = known.spec.key
        addresses = (known.spec.address,) if known.spec.address else ()
        if not known.settings.verify:
            return Observed(addresses=addresses, programmed=True)
        there = await self._listed(known, drivers)
        if not known.whole:
            # Which of the listed ones are ours is on record, and not known here.
            return Observed(addresses=addresses, programmed=True)
        ours = self._memory.targets(key)
        # What is drained has been deregistered: it is as it should be when it is not listed.
        targets = [
            ObservedTarget(listener, target.key, target.weight, address not in there)
            for address, (listener, target) in ours.items()
            if address in there or target.draining
        ]
        missing = len(ours) - len(targets)
        return Observed(
            addresses=addresses,
            programmed=not missing,
            targets=tuple(sorted(targets, key=lambda target: (target.listener, target.key))),
            foreign=tuple(sorted(there - ours.keys())),
            message=f"{missing} of our backends are missing there" if missing else "",
        )

    def _judge(
        self, known: KnownLoadBalancer, change: TargetChange, outcome: Outcome, there: frozenset[str]
    ) -> Outcome:
        address = self._memory.backend(change).address
        wanted = change.action in (Action.REGISTER, Action.UPDATE) and not change.target.draining
        if not address or (address in there) == wanted:
            return outcome
        hook, word = (Hook.ENSURE_BACKEND, "is not there") if wanted else (Hook.DEREGISTER_BACKEND, "is still there")
        return Outcome(
            OutcomeStatus.RETRY,
            f"{known.settings.name} answered Succ to {hook} for {change.key} on {change.load_balancer}, but it {word}; "
            "it is asked again. Mend the driver",
            generated_address=outcome.generated_address,
            injected_info=outcome.injected_info,
        )

    async def _listed(self, known: KnownLoadBalancer, drivers: Drivers) -> frozenset[str]:
        hook = Hook.LIST_BACKENDS
        driver = drivers.get(known.settings)
        about = str(known.spec.key)
        # To be read is what a class agrees to with ``verify``; the word itself goes to those alone that know it.
        dry_run = self._dry_run and known.settings.accept_dry_run
        body = task_body(hook, known.spec.owner.uid or about, dry_run=dry_run, lbInfo=known.info)
        answer = await task(driver, hook, body, about=about)
        if answer.status is not Status.SUCC:
            raise failure(driver.settings.name, hook, about, answer)
        try:
            return frozenset(answer.texts("backends"))
        except Malformed as error:
            raise invalid(f"{driver.settings.name}: {hook} for {about}", error) from error
