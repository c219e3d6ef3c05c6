"""THE function: one key in, one load balancer on its way.

    view      what is there, from the caches
    build     what should be, and how that is to be told            (pure)
    record    the allocation and the accepted spec, before anything uses them
    put       the wish into the tracker; the worker does the rest
    publish   conditions and addresses, once the provider has answered

A refused object keeps what it had. A deleted one is the same path with nothing wished for: its finalizer goes
when the provider has let go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.build.tcp import build_tcp
from fairlead.build.view import Built, TCPView
from fairlead.errors import FairleadError
from fairlead.hub.departures import Departures
from fairlead.hub.engine import Engine
from fairlead.hub.record import Recorder
from fairlead.hub.shared import SharedLoadBalancers
from fairlead.hub.shared_status import SharedStatus
from fairlead.hub.status import StatusWriter
from fairlead.hub.views import Views, with_accepted_spec
from fairlead.model.keys import LoadBalancerKey


class Reconciler:
    """Turns keys into wishes. ``leading`` says whether this replica may write."""

    def __init__(
        self,
        *,
        views: Views,
        engines: Mapping[str, Engine],
        recorder: Recorder,
        status: StatusWriter,
        shared: SharedLoadBalancers,
        shared_status: SharedStatus,
        departures: Departures,
        leading: Callable[[], bool],
    ) -> None:
        self._views = views
        self._engines = engines
        self._recorder = recorder
        self._status = status
        self._shared = shared
        self._shared_status = shared_status
        self._departures = departures
        self._leading = leading

    async def reconcile(self, key: LoadBalancerKey) -> None:
        """Bring ``key`` one step further; safe to call at any time, any number of times."""
        if key.kind == LOAD_BALANCERS.kind:
            await self._reconcile_shared(key)
            return
        view = self._views.tcp(key, allocate=self._leading())
        if view is None:
            self._status.forget(key)
            await self._departures.depart(key)
            return
        self._departures.came_back(key)
        built = build_tcp(view)
        self._status.publish(key, built)
        if not self._leading():
            # Who may not record serves what is on record: the leader's word comes through the cache.
            self._wish_recorded(key, view)
            return
        try:
            await self._recorder.record(view, built)
        except FairleadError:
            # The hub's API refuses the record; what was recorded before is safe to serve meanwhile.
            self._wish_recorded(key, view)
            raise
        self._wish(key, built)

    async def _reconcile_shared(self, key: LoadBalancerKey) -> None:
        built = await self._shared.wish(key, leading=self._leading())
        if built is None:
            self._shared_status.forget(key)
            await self._departures.depart(key)
            return
        self._departures.came_back(key)
        self._shared_status.publish(key, built)
        await self._shared_status.write(key)

    def _wish_recorded(self, key: LoadBalancerKey, view: TCPView) -> None:
        if (before := with_accepted_spec(view)) is not None:
            self._wish(key, build_tcp(before))

    def _wish(self, key: LoadBalancerKey, built: Built) -> None:
        if built.desired is None:
            return
        for name, engine in self._engines.items():
            changed = engine.tracker.put(built.desired) if name == built.provider else engine.tracker.remove(key)
            if changed:
                engine.worker.trigger()
