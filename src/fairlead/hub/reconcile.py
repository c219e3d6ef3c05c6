"""THE function: one key in, one load balancer on its way.

    view      what is there, from the caches
    build     what should be, and how that is to be told            (pure)
    record    the allocation and the accepted spec, before anything uses them
    put       the wish into the tracker; the worker does the rest
    publish   conditions and addresses, once the provider has answered

A refused object keeps what it had. One that moves to another provider is made there before it goes here (``handover``).
A deleted one is the same path with nothing wished for: its finalizer goes when the provider has let go.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.errors import FairleadError
from fairlead.hub.intents.finalization import Finalization
from fairlead.hub.intents.loadbalancer.intent import LoadBalancerIntent
from fairlead.hub.intents.loadbalancer.status import LoadBalancerStatusWriter
from fairlead.hub.intents.tcp.accepted_status import AcceptedStatus
from fairlead.hub.intents.tcp.status import TCPStatusWriter
from fairlead.hub.intents.tcp.views import Views, with_accepted_spec
from fairlead.hub.providers.migration import LOOK_AGAIN_S, ProviderMigration
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.tcp import translate_tcp
from fairlead.translate.view import TCPView, Translation


class Reconciler:
    """Turns keys into wishes. ``leading`` says whether this replica may write."""

    def __init__(
        self,
        *,
        views: Views,
        handover: ProviderMigration,
        recorder: AcceptedStatus,
        status: TCPStatusWriter,
        shared: LoadBalancerIntent,
        shared_status: LoadBalancerStatusWriter,
        departures: Finalization,
        leading: Callable[[], bool],
    ) -> None:
        self._views = views
        self._handover = handover
        self._recorder = recorder
        self._status = status
        self._shared = shared
        self._shared_status = shared_status
        self._departures = departures
        self._leading = leading

    async def reconcile(self, key: LoadBalancerKey) -> float | None:
        """Bring ``key`` one step further; safe to call at any time, any number of times. Returns when to look again."""
        if key.kind == LOAD_BALANCERS.kind:
            await self._reconcile_shared(key)
            return None
        view = self._views.tcp(key, allocate=self._leading())
        if view is None:
            self._status.forget(key)
            self._handover.forget(key)
            await self._departures.depart(key)
            return None
        self._departures.came_back(key)
        built = translate_tcp(view)
        before = self._handover.before(view, built)
        if not self._leading():
            # Who may not record serves what is on record: the leader's word comes through the cache.
            self._status.publish(key, built)
            return self._serve_recorded(view, built, moving=before is not None)
        try:
            if before is not None and (lacking := await self._bring(view, built, before)):
                self._status.publish(key, built, lacking)
                return LOOK_AGAIN_S
            self._status.publish(key, built)
            await self._recorder.record(view, built, self._handover.allocation(view))
        except FairleadError:
            # The hub's API refuses the record; what was recorded before is safe to serve meanwhile.
            self._status.publish(key, built)
            self._serve_recorded(view, built, moving=before is not None)
            raise
        leaving = self._handover.settle(view, built)
        for provider in self._handover.done_with(view, built):
            await self._recorder.forget_frontend(view.load_balancer, provider)
        return LOOK_AGAIN_S if leaving else None

    async def _bring(self, view: TCPView, built: Translation, before: Translation) -> str:
        """Move one step further to the provider of ``built``; returns who serves until then and why, if any."""
        await self._recorder.record_move(view)
        lacking = await self._handover.bring(view, built, before)
        spec, accepted = view.load_balancer.spec, view.load_balancer.status.accepted
        if not lacking or accepted is None:
            return ""
        return (
            f"LoadBalancerClass {accepted.class_name} serves until LoadBalancerClass {spec.class_name} has all of it "
            f"({lacking})"
        )

    async def _reconcile_shared(self, key: LoadBalancerKey) -> None:
        wished = await self._shared.wish(key, leading=self._leading())
        if wished is None:
            self._shared_status.forget(key)
            await self._departures.depart(key)
            return
        self._departures.came_back(key)
        if wished.asking:
            return  # the answer wakes it, and is told then
        self._shared_status.publish(key, wished.built)
        await self._shared_status.write(key)

    def _serve_recorded(self, view: TCPView, built: Translation, *, moving: bool) -> float | None:
        if (recorded := with_accepted_spec(view)) is None:
            return None
        before = translate_tcp(recorded)
        if not moving:
            return LOOK_AGAIN_S if self._handover.settle(recorded, before) else None
        self._handover.keep(recorded, before)
        self._handover.prepare(view, built)
        return None
