"""The Envoy provider: implements ``Provider`` with xDS resources.

In: the ``Provider`` protocol. Out: resources in the store, which the xDS server carries to the proxies of a
``Fleet``; and, read back from their acknowledgements, what is really programmed.

At start-up: ``start`` (listen, find or start the proxies), then ``ensure`` and ``apply`` for all that there is, then
``publish`` once. Until then nothing is sent and the proxies go on with what they have, so that a restarted hub neither
removes nor repeats anything. It removes only load balancers that ``delete`` names.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from prometheus_client.registry import CollectorRegistry

from fairlead.model.change import Outcome, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import EVERY_FEATURE, Capabilities
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured, Health, Observed
from fairlead.providers.envoy.bootstrap import DRAIN_S
from fairlead.providers.envoy.counters import Counters
from fairlead.providers.envoy.draining import split_removals
from fairlead.providers.envoy.fleet import Fleet
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.frontends import EnvoyFrontends
from fairlead.providers.envoy.health_board import HealthBoard, Place
from fairlead.providers.envoy.http.held_routes import HOLD_S
from fairlead.providers.envoy.identity import ServerCertificate
from fairlead.providers.envoy.names import load_balancer_of
from fairlead.providers.envoy.proxy_status import ProxyStatus, observed, proxy_statuses
from fairlead.providers.envoy.resources import ResourceType
from fairlead.providers.envoy.schema import packaged_schema
from fairlead.providers.envoy.server import XdsServer
from fairlead.providers.envoy.session import Session
from fairlead.providers.envoy.status_notifier import StatusNotifier
from fairlead.providers.envoy.store import ResourceChange, ResourceStore
from fairlead.providers.envoy.unknown import HOLD_UNKNOWN_S, UnknownLoadBalancers

#: What changes with the targets of a load balancer, or with how they are checked.
_WITH_TARGETS = (ResourceType.CLUSTER, ResourceType.ENDPOINTS)


class EnvoyProvider:
    """Load balancers on Envoy. ``xds_address`` is where the proxies of this fleet find us."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        xds_address: str,
        certificate: ServerCertificate | None = None,
        registry: CollectorRegistry | None = None,
        hold_unknown_s: float = HOLD_UNKNOWN_S,
    ) -> None:
        schema = packaged_schema()
        self.fleet = fleet
        self.counters = Counters(registry=registry)
        self._frontends = EnvoyFrontends(schema=schema, fleet=fleet)
        unknown = UnknownLoadBalancers(is_known=lambda key: self._frontends.get(key) is not None, hold_s=hold_unknown_s)
        self.store = ResourceStore(unknown=unknown)
        self._health = HealthBoard(
            schema=schema, find=self._frontends.port, published=lambda: self.store.published, on_change=self._hint
        )
        self.server = XdsServer(
            store=self.store,
            health=self._health,
            schema=schema,
            address=xds_address,
            certificate=certificate,
            counters=self.counters,
            on_progress=self._progressed,
            on_proxies=self._proxies_changed,
        )
        self._clock = time.monotonic
        self._notifier = StatusNotifier(observe=self._observe)
        fleet.on_change(lambda key: self._notifier.hint((key,)))

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen for proxies, and find or start them."""
        await self.server.start()
        try:
            await self.fleet.start()
        except BaseException:
            await self.server.stop()
            raise

    def publish(self) -> None:
        """Allow sending: everything has been ensured and applied once. Calling it again does nothing."""
        if not self.store.published:
            self.store.unknown.publish(self._clock())
            self.store.publish()
            self._health.publish()

    async def sweep(self) -> None:
        """Delete what was left by load balancers that were deleted while no hub was running.

        Only after ``publish``, and once those that are unknown need not be kept any more.
        """
        if self.store.published and self._clock() >= self.store.unknown.until:
            await self.fleet.sweep()

    async def close(self) -> None:
        """Stop listening; the proxies go on serving."""
        self._notifier.close()
        await self.server.stop()
        await self.fleet.close()

    async def stop(self) -> None:
        """Stop listening and end the proxies: for tests, demos and explicit requests only."""
        self._notifier.close()
        await self.server.stop()
        await self.fleet.stop()

    # --- the Provider protocol --------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """Return what Envoy can do."""
        return msgspec.structs.replace(
            EVERY_FEATURE,
            allocation=self.fleet.allocation,
            on_hub_machine=self.fleet.on_hub_machine,
            serves_whole_state=True,
            l7=True,
        )

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` with each load balancer that ``observe`` reports differently."""
        self._notifier.subscribe(notify)

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Serve the frontend; ``Terminal`` when it cannot be, and then the one served before stays."""
        known = self._frontends.get(spec.key) is not None
        changes = self._frontends.ensure(spec)
        self._store(changes)
        if not known:
            for group, listed in changes.items():
                self._resume(group, [each.name for each in listed if each.kind is ResourceType.ROUTES])
        self._notifier.expect_ack(spec.key)
        frontend = self._frontends.get(spec.key)
        if frontend is not None and (awaited := frontend.serving.awaited):
            asyncio.get_running_loop().call_later(HOLD_S, self._release, spec.key, awaited)
        return await self.fleet.ensure(spec)

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Serve the changed targets; the proxies have them some milliseconds later (``observe`` says when)."""
        resources, outcomes = self._frontends.apply(changes)
        if not self._knows_all():
            for each in itertools.chain.from_iterable(resources.values()):
                if each.kind is ResourceType.ENDPOINTS:
                    self.store.unknown.register(each.name)
        self._store(resources)
        return outcomes

    def keep(self, key: LoadBalancerKey, *, unread: bool) -> None:
        """Have the proxies keep what they have of ``key`` and this hub has not read since it started, until it has."""
        known = self._frontends.get(key) is not None
        if unread and known and self.store.published and self._clock() >= self.store.unknown.until:
            return  # it was read before
        if self.store.unknown.keep(key, unread=unread):
            self.store.wake()
            self._notifier.hint((key,))

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Return what the connected proxies have acknowledged."""
        status = self._observe(key)
        # Between a push and its acknowledgement: when that comes, it differs from what was reported here.
        self._notifier.reported(key, status)
        return status

    def unhealthy(self, key: LoadBalancerKey) -> dict[Place, float | None]:
        """Return the targets that a proxy sees unhealthy, and for how many seconds, as far as that is known."""
        frontend, now_s = self._frontends.get(key), self._clock()
        if frontend is None:
            return {}
        since = self._health.unhealthy(frontend)
        return {place: None if at_s is None else max(0.0, now_s - at_s) for place, at_s in since.items()}

    async def delete(self, key: LoadBalancerKey) -> None:
        """Close its ports, then take away what led to them."""
        if not self._knows_all():
            self.store.unknown.delete(key)
            self.store.wake()
        self._store(self._frontends.delete(key))
        await self.fleet.delete(key)
        self._notifier.hint((key,))

    # --- for people -------------------------------------------------------------------------------------------

    def proxies(self) -> list[ProxyStatus]:
        """Return the connected proxies, ordered by (group, node id)."""
        return proxy_statuses(self.server.sessions)

    def refusals(self) -> list[str]:
        """Return the messages of proxies about listeners that they cannot open, sorted."""
        return sorted({text for group in self.store.groups() for text in group.refusals(ResourceType.LISTENER)})

    # --- inside -----------------------------------------------------------------------------------------------

    def _knows_all(self) -> bool:
        """Return whether proxies cannot serve what this hub has not read."""
        return self.store.published and self.store.unknown.knows_all(self._clock())

    def _release(self, key: LoadBalancerKey, backends: frozenset[str]) -> None:
        self._store(self._frontends.release(key, backends))
        self._notifier.hint((key,))

    def _store(self, changes: Mapping[str, Sequence[ResourceChange]]) -> None:
        for group, listed in changes.items():
            resources, later = split_removals(listed)
            if later:
                asyncio.get_running_loop().call_later(DRAIN_S, self._drained, group, later)
            if self.store.group(group).apply(resources):
                self._health.touch(group, (each.name for each in resources if each.kind in _WITH_TARGETS))
                for key in _owners(resource.name for resource in resources):
                    self._notifier.expect_ack(key)

    def _drained(self, group: str, removals: Sequence[ResourceChange]) -> None:
        """Remove what has waited for connections to end, unless it is wanted again."""
        gone = [each for each in removals if not self._frontends.wants(group, each.name)]
        self._store({group: gone})

    def _progressed(self, session: Session, names: Iterable[str]) -> None:
        for name in names:
            self._store(self._frontends.resumed_from_proxy(name, session.held(ResourceType.ROUTES, name)))
            # One bad route must not hold up the others of its port. What is to be served next may be what the proxy
            # has already: then no answer comes.
            while self._answered(session, name):
                pass
        self._hint(names)

    def _answered(self, session: Session, name: str) -> bool:
        """Take in what a proxy says of the wanted version of a route configuration; return whether that changed it."""
        routes = session.group.wanted(ResourceType.ROUTES, name)
        if routes is None:
            return False
        refusal = session.group.refusal(ResourceType.ROUTES, name)
        if refusal or session.holds(ResourceType.ROUTES, name, routes.version):
            self._store(self._frontends.answered_by_proxy(name, routes.version, refusal))
        return session.group.wanted(ResourceType.ROUTES, name) is not routes

    def _resume(self, group: str, names: Sequence[str]) -> None:
        """Go on with what the proxies that are connected have of these route configurations."""
        for session in self.server.sessions:
            if session.group.name == group:
                self._progressed(session, names)

    def _hint(self, names: Iterable[str]) -> None:
        self._notifier.hint(_owners(names))

    def _proxies_changed(self, group: str) -> None:
        self._notifier.hint(self._frontends.in_group(group))

    def _observe(self, key: LoadBalancerKey) -> Observed | None:
        frontend = self._frontends.get(key)
        if frontend is None:
            return None
        group = self.store.group(frontend.group)
        sessions = [session for session in self.server.sessions if session.group is group]
        health = self._health.health(frontend, expected=any(session.reports_health for session in sessions))
        if health.reason is ConditionReason.NO_TARGETS and self.store.unknown.is_unread(key):
            text = "its targets cannot all be read; its proxies keep those that they have"
            health = Health(reason=ConditionReason.PENDING, message=text)
        return observed(frontend, group, sessions, self.fleet.addresses(key), health)


def _owners(names: Iterable[str]) -> set[LoadBalancerKey]:
    return {key for key in map(load_balancer_of, names) if key is not None}


def create(
    *,
    data_dir: Path,
    concurrency: int = 0,
    registry: CollectorRegistry | None = None,
    binary: Path | None = None,
) -> EnvoyProvider:
    """Make the provider for one machine: its Envoy, and the socket on which the two talk, live in ``data_dir``."""
    fleet = LocalFleet(data_dir=data_dir, concurrency=concurrency, binary=binary)
    # The lock comes first: a second hub must not take the socket from the first one.
    fleet.prepare()
    return EnvoyProvider(fleet=fleet, xds_address=f"unix:{fleet.xds_socket}", registry=registry)
