"""The first state that is served after a start of the hub, where a guard or a pause held changes before it.

Providers whose whole state we serve have no records: a hub that starts would serve what is desired, without the targets
whose removal was held. So such a load balancer is put as it was, with them and without what was held back from being
added; once the worker has done that, what is desired is put, and plan and guard judge it again as before.

In: what is desired, the status that the last hub wrote. Out: what is put. Never: a target that the status does not
list (of more than 1,000 held changes it lists the first), or one of a listener that is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlead.api.intent import IntentStatus
from fairlead.ledger.held import held_before
from fairlead.model.change import Action, Held
from fairlead.model.desired import DesiredLoadBalancer, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.sync.guard import DRY_RUN


class HeldTargets:
    """Remembers which load balancers are being put as they were."""

    def __init__(self) -> None:
        self._waiting: set[LoadBalancerKey] = set()

    def first(self, desired: DesiredLoadBalancer, status: IntentStatus, *, is_new: bool) -> DesiredLoadBalancer:
        """Return what is put instead of ``desired``; ``is_new``: this process has not put this load balancer before."""
        key = desired.key
        if not is_new and key not in self._waiting:
            return desired
        before = as_held(desired, held_before(key, status).rows)
        if before == desired:
            self._waiting.discard(key)
            return desired
        self._waiting.add(key)
        return before

    def reported(self, key: LoadBalancerKey) -> bool:
        """Note that the worker has looked at ``key``; returns whether it was put as it was."""
        if key not in self._waiting:
            return False
        self._waiting.remove(key)
        return True

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget a load balancer that is gone."""
        self._waiting.discard(key)


def as_held(desired: DesiredLoadBalancer, held: Sequence[Held]) -> DesiredLoadBalancer:
    """Return ``desired`` with the targets whose removal ``held`` lists, and without those whose addition it lists."""
    targets: dict[ListenerKey, dict[TargetKey, Target]] = {}
    for row in held:
        change = row.change
        if row.reason == DRY_RUN or change.listener not in desired.targets:
            continue
        of_listener = targets.setdefault(change.listener, dict(desired.targets[change.listener]))
        wanted = of_listener.get(change.key)
        if change.action is Action.REGISTER:
            of_listener.pop(change.key, None)
        elif change.is_removal and wanted is None:
            of_listener[change.key] = change.target
        elif change.action is Action.UPDATE and wanted is not None:
            # Which of its fields would change is not listed; that it takes connections is what matters.
            of_listener[change.key] = msgspec.structs.replace(wanted, draining=False)
    if not targets:
        return desired
    return msgspec.structs.replace(desired, targets={**desired.targets, **targets})
