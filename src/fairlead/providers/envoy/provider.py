"""The Envoy provider: implements ``Provider`` with xDS resources.

In: the ``Provider`` protocol. Out: resources in the store, which the xDS server carries to the proxies of a
``Fleet``; and, read back from their acknowledgements, what is really programmed.

At start-up: ``start`` (listen, find or start the proxies), then ``ensure`` and ``apply`` for all that there is, then
``publish`` once. Until then nothing is sent and the proxies keep what they have, so that a restarted hub neither
removes nor repeats anything. It removes only load balancers that ``delete`` names.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog
from msgspec.structs import replace
from prometheus_client.registry import CollectorRegistry

from fairlead.api.names import SYSTEM_NAMESPACE, unknown_parameter
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import shared_key
from fairlead.model.change import Action, Outcome, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import EVERY_FEATURE, Capabilities
from fairlead.model.desired import FrontendSpec
from fairlead.model.in_words import listed
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey, machine_of, node_group
from fairlead.model.machine import DrainState, ProcessTraffic
from fairlead.model.observed import DrainFigures, Ensured, Health, Observed, Seen
from fairlead.providers.envoy.bootstrap import DRAIN_S
from fairlead.providers.envoy.connections import Drains
from fairlead.providers.envoy.envoy_process import explained
from fairlead.providers.envoy.fleet import NOT_CLOSED, Fleet, ServerCertificate
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.frontends import EnvoyFrontend, EnvoyFrontends
from fairlead.providers.envoy.health_board import HealthBoard, Place
from fairlead.providers.envoy.http.route_table import HOLD_S
from fairlead.providers.envoy.resources import ResourceType, is_backend_of, load_balancer_of, packaged_schema
from fairlead.providers.envoy.server import XdsServer
from fairlead.providers.envoy.session import Counters, Session
from fairlead.providers.envoy.settings import ANNOTATION_PARAMETER, SETTINGS, invalid_settings
from fairlead.providers.envoy.store import (
    HOLD_UNKNOWN_S,
    NodeGroup,
    ResourceChange,
    ResourceStore,
    UnknownLoadBalancers,
    shortened,
)
from fairlead.providers.envoy.traffic import ReportedTraffic

#: What changes with the targets of a load balancer, or with how they are checked; removed after its listeners.
_WITH_TARGETS = (ResourceType.CLUSTER, ResourceType.ENDPOINTS)


log = structlog.get_logger(__name__)

SESSION_KEY_SECRET = "fairlead-session-key"  # noqa: S105 (a name)


class EnvoyProvider:
    """Load balancers on Envoy. ``xds_address`` is where the proxies of this fleet find us.

    ``cluster`` has the key of sessions, which all hubs of this API share. Without it, sessions end with this process.
    """

    def __init__(
        self,
        *,
        fleet: Fleet,
        xds_address: str,
        certificate: ServerCertificate | None = None,
        registry: CollectorRegistry | None = None,
        hold_unknown_s: float = HOLD_UNKNOWN_S,
        cluster: Cluster | None = None,
    ) -> None:
        self._cluster = cluster
        schema = packaged_schema()
        self.fleet = fleet
        #: The name of the hub's own Envoys as a proxy machine; empty while they are none.
        self.machine = ""
        self.counters = Counters(registry=registry)
        self._frontends = EnvoyFrontends(schema=schema, fleet=fleet)
        unknown = UnknownLoadBalancers(is_known=lambda key: self._frontends.get(key) is not None, hold_s=hold_unknown_s)
        self.store = ResourceStore(unknown=unknown)
        self._health = HealthBoard(
            schema=schema,
            find=self._frontends.port,
            groups_of=self._frontends.groups_of,
            published=lambda: self.store.published,
            on_change=self._hint,
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
        self._drains = Drains(
            pids=fleet.pids, places_of=self._frontends.places_of, changed=self._notifier.hint, registry=registry
        )
        #: The drains that machines last reported.
        self._machine_drains: dict[str, tuple[DrainState, ...] | None] = {}
        #: The traffic counts of the machines' Envoys.
        self.machine_traffic = ReportedTraffic(self.machines)
        fleet.on_change(self._fleet_changed)

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen for proxies, and find or start them."""
        if self._cluster is not None:
            await self._read_session_key(self._cluster)
        await self.server.start()
        try:
            await self.fleet.start()
        except BaseException:
            await self.server.stop()
            raise

    async def _read_session_key(self, cluster: Cluster) -> None:
        # The hub serves without the shared key; only sessions begin again.
        try:
            key = (await shared_key(cluster, SESSION_KEY_SECRET)).encode()
            problem = (
                ""
                if 32 <= len(key) <= 64
                else (
                    f"Secret {SYSTEM_NAMESPACE}/{SESSION_KEY_SECRET} has no valid key; delete it, and restart the hub"
                )
            )
        except FairleadError as error:
            key, problem = b"", error.sentence
        if problem:
            log.warning("sessions of clients end with this process", sentence=problem)
        else:
            self._frontends.session_key = key

    def publish(self) -> None:
        """Allow sending: everything has been ensured and applied once. Calling it again does nothing."""
        if not self.store.published:
            self.store.unknown.publish(self._clock())
            self.store.publish()
            self._health.publish()

    async def sweep(self) -> None:
        """Delete what was left by load balancers that were deleted while no hub was running.

        Only after ``publish``, and once unknown ones need no longer be kept.
        """
        if self.store.published and self._clock() >= self.store.unknown.until:
            await self.fleet.sweep()

    async def close(self) -> None:
        """Stop listening; the proxies keep serving."""
        self._notifier.close()
        self._drains.close()
        await self.server.stop()
        await self.fleet.close()

    async def stop(self) -> None:
        """Stop listening and end the proxies: for tests, demos and explicit requests only."""
        self._notifier.close()
        self._drains.close()
        await self.server.stop()
        await self.fleet.stop()

    # --- the Provider protocol --------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """Return what Envoy can do."""
        return replace(
            EVERY_FEATURE,
            allocation=self.fleet.allocation,
            on_hub_machine=self.fleet.on_hub_machine,
            serves_whole_state=True,
            l7=True,
        )

    def class_problem(self, parameters: Mapping[str, str]) -> str:
        """Return the wrong parameter of a class; empty if all are valid."""
        problem = next(iter(invalid_settings(parameters)), "")
        names = (name for name in parameters if not name.startswith(ANNOTATION_PARAMETER))
        return unknown_parameter(names, SETTINGS, "provider envoy") or (problem and f"parameters.{problem}")

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` with each load balancer that ``observe`` reports differently."""
        self._notifier.subscribe(notify)

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Serve the frontend; raise ``Terminal`` if it cannot be served, and keep the previous one."""
        before = self._frontends.get(spec.key)
        changes = self._frontends.ensure(spec)
        frontend = self._frontends.get(spec.key)
        if before is not None and frontend is not None and frontend.groups != before.groups:
            self._join(frontend, before, changes)
        self._store(changes)
        if before is None:
            for group, of_group in changes.items():
                names = [resource.name for resource in of_group if resource.kind is ResourceType.ROUTES]
                for session in self.server.sessions:
                    if session.group.name == group:
                        self._progressed(session, names)
        self._notifier.expect_ack(spec.key)
        if frontend is not None and (awaited := frontend.serving.awaited):
            asyncio.get_running_loop().call_later(HOLD_S, self._release, spec.key, awaited)
        return await self.fleet.ensure(spec)

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Serve the changed targets; the proxies have them some milliseconds later (``observe`` says when)."""
        resources, outcomes = self._frontends.apply(changes)
        for change in changes:
            frontend = self._frontends.get(change.load_balancer)
            port = frontend.ports.get(change.listener) if frontend is not None else None
            if frontend is not None and port is not None:
                drains = change.action in (Action.DRAIN, Action.DEREGISTER) or change.target.draining
                place, gone = frontend.place_of(change.listener, change.key), change.action is Action.DEREGISTER
                self._drains.note(place, frontend.groups, port.targets.drain, drains=drains, listed=not gone)
        if not self._knows_all():
            for resource in itertools.chain.from_iterable(resources.values()):
                if resource.kind is ResourceType.ENDPOINTS:
                    self.store.unknown.register(resource.name)
        self._store(resources)
        return outcomes

    def keep(self, key: LoadBalancerKey, *, unread: bool) -> None:
        """Have the proxies keep what they have of ``key`` and this hub has not read since it started, until it has."""
        known, unknown = self._frontends.get(key) is not None, self.store.unknown
        settled = self.store.published and self._clock() >= unknown.until
        if settled and (known if unread else not unknown.is_unread(key)):
            return  # it was read before
        if unknown.keep(key, unread=unread):
            self.store.wake()
            self._notifier.hint((key,))

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Return what the connected proxies have acknowledged."""
        status = self._observe(key)
        self._notifier.read(key, status)
        return status

    def unhealthy(self, key: LoadBalancerKey) -> dict[Place, float | None]:
        """Return the targets that a proxy sees unhealthy, and for how many seconds, as far as that is known."""
        frontend, now_s = self._frontends.get(key), self._clock()
        if frontend is None:
            return {}
        since = self._health.unhealthy(frontend)
        return {place: None if at_s is None else max(0.0, now_s - at_s) for place, at_s in since.items()}

    def machines(self) -> frozenset[str]:
        """Return the proxy machines whose Envoy is connected."""
        return frozenset(filter(None, (self._machine_of(session) for session in self.server.sessions)))

    def machines_with(self, key: LoadBalancerKey) -> frozenset[str]:
        """Return the connected proxy machines that have all of a load balancer."""
        frontend = self._frontends.get(key)
        if frontend is None:
            return frozenset()
        labels = frontend.serving.labels
        answers = [
            (self._machine_of(session), session.has_all(key, labels))
            for session in self.server.sessions
            if session.group.name in frontend.groups
        ]
        return frozenset(name for name, _ in answers if name) - {name for name, has_all in answers if not has_all}

    def note_traffic(self, machine: str, traffic: Sequence[ProcessTraffic]) -> None:
        """Store the traffic counts of a machine's Envoy."""
        self.machine_traffic.note(machine, traffic)

    def note_drains(self, machine: str, drains: tuple[DrainState, ...] | None) -> None:
        """Take in which targets drain at the Envoy of a machine; None: its release closes no connections."""
        if machine in self._machine_drains and self._machine_drains[machine] == drains:
            return
        before = self._machine_drains.get(machine)
        self._machine_drains[machine] = drains
        named = {state.load_balancer for state in (*(before or ()), *(drains or ()))}
        self._notifier.hint(key for key in self._frontends.in_group(node_group(machine)) if str(key) in named)

    def is_here(self, key: LoadBalancerKey) -> bool:
        """Return whether the hub's own Envoys serve a load balancer."""
        frontend = self._frontends.get(key)
        return frontend is not None and any(not machine_of(group) for group in frontend.groups)

    def sessions_here(self) -> list[Session]:
        """Return the streams of the hub's own Envoys."""
        return [session for session in self.server.sessions if not machine_of(session.group.name)]

    def seen_of(self, key: LoadBalancerKey, listener: ListenerKey, target: TargetKey) -> Seen:
        """Return what the proxies see of one target."""
        frontend = self._frontends.get(key)
        return Seen.UNCHECKED if frontend is None else self._health.seen_of(frontend, listener, target)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Close the load balancer's ports, then remove the resources behind them."""
        if not self._knows_all():
            self.store.unknown.delete(key)
            self.store.wake()
        self._store(self._frontends.delete(key))
        self._health.forget(key)
        self._drains.forget(key)
        await self.fleet.delete(key)
        self._notifier.hint((key,))

    # --- for people -------------------------------------------------------------------------------------------

    def proxies(self) -> list[ProxyStatus]:
        """Return the connected proxies, ordered by (group, node id)."""
        # The status of each proxy, ordered by (group, node id).
        statuses = [
            ProxyStatus(
                node_id=session.node_id,
                group=session.group.name,
                synced=session.synced,
                refused=session.refused_now,
                statistics=session.statistics,
            )
            for session in self.server.sessions
        ]
        return sorted(statuses, key=lambda status: (status.group, status.node_id))

    def refusals(self) -> list[str]:
        """Return the messages of proxies about listeners that they cannot open, sorted."""
        return sorted({text for group in self.store.groups() for text in group.refusals(ResourceType.LISTENER)})

    # --- inside -----------------------------------------------------------------------------------------------

    def _join(self, frontend: EnvoyFrontend, before: EnvoyFrontend, changes: dict[str, list[ResourceChange]]) -> None:
        """Add what a load balancer had ``before`` to the changes of groups that have nothing of it."""
        joined = [group for group in frontend.groups if group not in before.groups]
        if joined and before.groups:
            held = self.store.group(before.groups[0]).resources(frontend.serving.labels)
            changes |= {group: [*held, *changes[group]] for group in joined}

    def _machine_of(self, session: Session) -> str:
        """Return the machine of a stream; the hub's own is one only when it announces."""
        return machine_of(session.group.name) or self.machine

    def _knows_all(self) -> bool:
        """Return whether proxies cannot serve what this hub has not read."""
        return self.store.published and self.store.unknown.knows_all(self._clock())

    def _fleet_changed(self, key: LoadBalancerKey) -> None:
        self._store(self._frontends.fleet_changed(key))
        self._notifier.hint((key,))

    def _release(self, key: LoadBalancerKey, backends: frozenset[str]) -> None:
        self._store(self._frontends.release(key, backends))
        self._notifier.hint((key,))

    def _store(self, changes: Mapping[str, Sequence[ResourceChange]]) -> None:
        for group, of_group in changes.items():
            resources, later = split_removals(of_group)
            if later:
                asyncio.get_running_loop().call_later(DRAIN_S, self._drained, group, later)
            if self.store.group(group).apply(resources):
                self._health.touch(group, (resource.name for resource in resources if resource.kind in _WITH_TARGETS))
                for key in _owners(resource.name for resource in resources):
                    self._notifier.expect_ack(key)

    def _drained(self, group: str, removals: Sequence[ResourceChange]) -> None:
        """Remove resources that waited for connections to end, unless they are wanted again."""
        gone = [removal for removal in removals if not self._frontends.wants(group, removal.name)]
        self._store({group: gone})

    def _progressed(self, session: Session, names: Iterable[str]) -> None:
        for name in names:
            if session.group.name not in self._frontends.groups_of(name):
                continue  # the load balancer has left this group
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
        groups = map(self.store.group, self._frontends.groups_of(name))
        refusal = next(filter(None, (group.refusal(ResourceType.ROUTES, name) for group in groups)), "")
        if refusal or session.holds(ResourceType.ROUTES, name, routes.version):
            self._store(self._frontends.answered_by_proxy(name, routes.version, refusal))
        return session.group.wanted(ResourceType.ROUTES, name) is not routes

    def _hint(self, names: Iterable[str]) -> None:
        self._notifier.hint(_owners(names))

    def _proxies_changed(self, group: str) -> None:
        self._notifier.hint(self._frontends.in_group(group))

    def _observe(self, key: LoadBalancerKey) -> Observed | None:
        frontend = self._frontends.get(key)
        if frontend is None:
            return None
        groups = [self.store.group(name) for name in frontend.groups]
        sessions = [session for session in self.server.sessions if session.group in groups]
        health = self._health.health(frontend, expected=any(session.reports_health for session in sessions))
        if health.reason is ConditionReason.NO_TARGETS and self.store.unknown.is_unread(key):
            text = "some targets cannot be read; the proxies keep the targets that they have"
            health = Health(reason=ConditionReason.PENDING, message=text)
        status = observed(frontend, groups, sessions, self.fleet.addresses(key), health)
        problem = self.fleet.http3_problem(frontend.spec)
        if problem:
            problem = f"HTTP/3 is not announced: {problem}"
        if not frontend.limits_drains:
            return replace(status, data_path=problem)
        machines = [name for group in frontend.groups if (name := machine_of(group))]
        earlier = [name for name in machines if self._machine_drains.get(name, ()) is None]
        why = self.fleet.why_not_closed(frontend.groups, resets=frontend.spec.drain_reset)
        if earlier:
            why = f"{NOT_CLOSED}: upgrade Fairlead on machine {listed(earlier, 5)}"
        figures = self._drains.figures().get(key)
        for name in machines:
            for state in self._machine_drains.get(name) or ():
                if state.load_balancer == str(key):
                    added = DrainFigures(state.targets, state.connections, state.since)
                    connections = added.connections + (figures.connections if figures else 0)
                    figures = replace(figures or added, connections=connections)
        return replace(status, draining=figures, data_path="; ".join(filter(None, (why, problem))))


def _owners(names: Iterable[str]) -> set[LoadBalancerKey]:
    return {key for key in map(load_balancer_of, names) if key is not None}


def create(
    *, data_dir: Path, concurrency: int = 0, registry: CollectorRegistry | None = None, binary: Path | None = None
) -> EnvoyProvider:
    """Make the provider for one machine: its Envoy, and the socket on which the two talk, live in ``data_dir``."""
    fleet = LocalFleet(data_dir=data_dir, concurrency=concurrency, binary=binary)
    # The lock comes first: a second hub must not take the socket from the first one.
    fleet.prepare()
    return EnvoyProvider(fleet=fleet, xds_address=f"unix:{fleet.xds_socket}", registry=registry)


def split_removals(changes: Sequence[ResourceChange]) -> tuple[Sequence[ResourceChange], list[ResourceChange]]:
    """Return the changes for now, and the removals that wait until the listeners among the changes have drained."""
    closing = {
        load_balancer_of(change.name)
        for change in changes
        if change.kind is ResourceType.LISTENER and change.resource is None
    }
    if not closing:
        return changes, []
    later = [
        change
        for change in changes
        if change.kind in _WITH_TARGETS
        and change.resource is None
        and (key := load_balancer_of(change.name)) in closing
        and key is not None
        and is_backend_of(key, change.name)
    ]
    waiting = {(change.kind, change.name) for change in later}
    return [change for change in changes if (change.kind, change.name) not in waiting], later


class ProxyStatus(msgspec.Struct, frozen=True):
    """One connected proxy."""

    node_id: str
    group: str
    synced: bool
    #: How many resources it refuses now; of a part that was refused and is left out since, its load balancer says so.
    refused: int
    #: Where it answers for its statistics, "address:port"; empty when it does not say.
    statistics: str = ""

    @property
    def state(self) -> str:
        """Return the state for the table of proxies."""
        return "SYNCED" if self.synced else "STALE"


def observed(
    frontend: EnvoyFrontend, groups: Sequence[NodeGroup], sessions: Sequence[Session], where: Ensured, health: Health
) -> Observed:
    """Return what the proxies of ``groups`` have acknowledged of one load balancer, reached ``where``.

    ``sessions`` are those of the proxies that are connected: one that is not holds nothing back.
    """
    labels = frontend.serving.labels
    reached = {session.group for session in sessions} or groups
    acknowledged = sum(session.has_all(frontend.spec.key, labels) for session in sessions)
    refusals = [
        f"{f'machine {machine}: ' if machine else ''}{label}: {explained(shortened(refusal))}"
        for group in groups
        if group in reached
        for machine in (machine_of(group.name),)
        for kind, name in group.refused_names()
        if (label := labels.get(name)) and (refusal := group.refusal(kind, name))
    ]
    settled = not (refusals or frontend.serving.awaited or frontend.serving.searching)
    return Observed(
        addresses=where.addresses,
        programmed=bool(sessions) and acknowledged == len(sessions) and settled,
        proxies=len(sessions),
        acknowledged=acknowledged,
        rejected="; ".join(refusals),
        refused=frontend.serving.refused,
        message=where.message or ("" if sessions else "no proxy is connected" if groups else _NO_MACHINE),
        health=_without_routes(frontend) or health,
    )


_NO_MACHINE = "no proxy machine is assigned yet"


def _without_routes(frontend: EnvoyFrontend) -> Health | None:
    """Return the observation of a load balancer whose routes are all rejected; None if any is served, or none exist.

    Healthy targets serve no request when no route leads to them.
    """
    l7 = frontend.spec.l7
    refused = {part.name for part in frontend.serving.refused if part.kind == "route"}
    if l7 is None or not l7.routes or any(route.name not in refused for route in l7.routes):
        return None
    return Health(False, ConditionReason.ROUTES_REFUSED, "none of its routes is served; Programmed says why")


LATE_S = 5.0
#: Pushes may follow each other without a pause: after so many times ``late_s`` they are compared all the same.
_LONGEST = 12
#: How long comparisons take before others have their turn, and what is too short for a pause after it, in seconds.
_TURN_S, _SHORT_S = 0.01, 0.002
#: The interval between checks for late statuses.
_LATE_EVERY_S = 0.1


class StatusNotifier:
    """The last status of each load balancer, and the callbacks for changes."""

    def __init__(self, *, observe: Callable[[LoadBalancerKey], Observed | None], late_s: float = LATE_S) -> None:
        self._observe = observe
        self._late_s = late_s
        self._notify: list[Callable[[LoadBalancerKey], None]] = []
        self._last: dict[LoadBalancerKey, Observed | None] = {}
        #: Load balancers whose status, as a caller has read it, is not the last one.
        self._read_otherwise: set[LoadBalancerKey] = set()
        self._hints: set[LoadBalancerKey] = set()
        #: When the first push since the last comparison was, and when the next one is due; in the loop's time.
        self._expecting: dict[LoadBalancerKey, tuple[float, float]] = {}
        self._flush_handle: asyncio.Handle | None = None
        #: When the next comparison may begin, in the loop's time.
        self._flush_at_s = 0.0
        self._late_handle: asyncio.TimerHandle | None = None

    def subscribe(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` with each load balancer whose status changes."""
        self._notify.append(notify)

    def read(self, key: LoadBalancerKey, status: Observed | None) -> None:
        """Note that a caller has read this status.

        If it differs from the last one, the next comparison notifies: the caller may have read it between a push and
        its acknowledgement, and others have not read it at all.
        """
        now = None if status is None else _without_unknown(status)
        if key not in self._last:
            self._store(key, now)
        elif self._last[key] != now:
            self._read_otherwise.add(key)

    def _store(self, key: LoadBalancerKey, status: Observed | None) -> None:
        self._read_otherwise.discard(key)
        if status is None:
            self._last.pop(key, None)
        else:
            self._last[key] = status

    def hint(self, keys: Iterable[LoadBalancerKey]) -> None:
        """Compare these soon: in the next round of the event loop, if comparing has taken no time lately."""
        self._hints.update(keys)
        if self._hints and self._flush_handle is None:
            loop = asyncio.get_running_loop()
            due = self._flush_at_s <= loop.time()
            self._flush_handle = loop.call_soon(self._flush) if due else loop.call_at(self._flush_at_s, self._flush)

    def expect_ack(self, key: LoadBalancerKey) -> None:
        """Compare this one ``late_s`` after its last push, in case no acknowledgement comes."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        first_s, _ = self._expecting.get(key, (now_s, now_s))
        self._expecting[key] = (first_s, min(now_s + self._late_s, first_s + _LONGEST * self._late_s))
        if self._late_handle is None:
            self._late_handle = loop.call_later(self._late_s, self._late)

    def close(self) -> None:
        """Stop calling callbacks."""
        for handle in (self._flush_handle, self._late_handle):
            if handle is not None:
                handle.cancel()
        self._notify.clear()

    def _flush(self) -> None:
        self._flush_handle = None
        # Processor time: other load on the machine does not count.
        started_s, took_s = time.thread_time(), 0.0
        while self._hints and took_s < _TURN_S:
            self._compare(self._hints.pop())
            took_s = time.thread_time() - started_s
        if took_s > _SHORT_S:
            self._flush_at_s = asyncio.get_running_loop().time() + 2 * took_s
        self.hint(())

    def _compare(self, key: LoadBalancerKey) -> None:
        seen = self._observe(key)
        now, last = None if seen is None else _without_unknown(seen), self._last.get(key)
        if now is not None and now is seen and now.programmed:
            self._expecting.pop(key, None)  # all is acknowledged and checked
        if now == last and key not in self._read_otherwise:
            return
        if key in self._expecting and seen is not None and last is not None and _only_pending(seen, last):
            return
        self._store(key, now)
        for notify in self._notify:
            notify(key)

    def _late(self) -> None:
        """Compare statuses that were pushed some time ago, acknowledged or not."""
        loop = asyncio.get_running_loop()
        self._late_handle = None
        late = [key for key, (_, due_s) in self._expecting.items() if due_s <= loop.time()]
        for key in late:
            del self._expecting[key]
        if self._expecting:
            next_s = min(due_s for _, due_s in self._expecting.values())
            # Thousands of pushes have as many times, and each look is at all of them.
            self._late_handle = loop.call_at(max(next_s, loop.time() + min(_LATE_EVERY_S, self._late_s)), self._late)
        self.hint(late)


def _without_unknown(status: Observed) -> Observed:
    """Return a status without the number of unknown targets: the caller that changes targets knows that number.

    It would make each change of targets a change of status, with Programmed False until it is acknowledged.
    """
    if status.health is None or not status.health.unknown:
        return status
    return replace(status, health=replace(status.health, unknown=0))


def _only_pending(now: Observed, last: Observed) -> bool:
    """Return whether ``now`` differs from ``last`` only in what the proxies are about to answer.

    Something newer is on its way to them, or a target awaits its first check and all others are as healthy as before.
    """
    pushed = last.programmed and not now.programmed
    checked = now.health is not None and last.health is not None and bool(now.health.unknown)
    if not (pushed or checked):
        return False
    before = last
    if pushed:
        before = replace(before, programmed=False, acknowledged=now.acknowledged)
    if checked and now.health is not None and last.health is not None:
        counts = {"total": now.health.total, "healthy": now.health.healthy, "unknown": now.health.unknown}
        before = replace(before, health=replace(last.health, **counts))
    return now == before
