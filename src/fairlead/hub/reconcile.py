"""One key in, one load balancer on its way. This page explains the system.

    intent      a kind that asks for load balancers: TCPLoadBalancer, LoadBalancer
    view        all that the decision about one key depends on, from the caches
    translation what is desired, and the conditions that users read                  (pure)
    recorded    what may be used: it is in the object's status before anything uses it
    placement   what is desired of which provider; the provider's worker does the rest

A refused object keeps what was accepted before. A load balancer that moves to another provider is made there before
the old one releases it. A deleted one goes the same way with nothing desired: its finalizer leaves once every
provider has released it.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.hub.intents.conditions import decision
from fairlead.hub.intents.finalization import Finalization
from fairlead.hub.intents.kinds import Intents
from fairlead.hub.providers.migration import AGAIN_S, ProviderMigration
from fairlead.model.history import HistoryKind
from fairlead.model.keys import LoadBalancerKey
from fairlead.sync.history import History


class Reconciler:
    """Reconciles load balancers. ``leading`` says whether this replica may write."""

    def __init__(
        self,
        *,
        intents: Intents,
        migration: ProviderMigration,
        finalization: Finalization,
        history: History,
        leading: Callable[[], bool],
    ) -> None:
        self._intents = intents
        self._migration = migration
        self._finalization = finalization
        self._history = history
        self._leading = leading

    async def reconcile(self, key: LoadBalancerKey) -> float | None:
        """Bring ``key`` one step further; may be repeated at any time. Returns seconds until it is due again."""
        due_s = await self._step(key)
        await self._intents[key.kind].unreadable.write(key)
        return due_s

    async def _step(self, key: LoadBalancerKey) -> float | None:
        intent = self._intents[key.kind]
        view = intent.view(key)
        if view is None:
            intent.forget(key)
            self._migration.forget(key)
            if await self._finalization.finalize(key):
                intent.status.leave(key)
            return None
        self._finalization.cancel(key)
        translation = intent.translate(view)
        if self._leading():
            recorded = await intent.record(view, translation)
        else:
            recorded = intent.on_record(view, translation)
        moving = bool(recorded.waiting_for)
        if recorded.placement is not None:
            moving = self._migration.place(key, view.load_balancer, recorded.placement) or moving
        if recorded.translation is not None and intent.status.publish(key, recorded.translation, recorded.waiting_for):
            self._history.note(key, HistoryKind.DECIDED, decision(recorded.translation, recorded.waiting_for))
        if recorded.failure is not None:
            raise recorded.failure
        return AGAIN_S if moving else None
