"""GlobalService: one load balancer for equal Services of several members.

The Services are published as TCPLoadBalancers, each with its endpoints in the namespace of its member. A GlobalService
has their targets, regardless of the state of their own load balancers. Every change of such a load balancer, of its
endpoints or of its member wakes the GlobalServices that include it. The proxies' health reports decide which members
are down.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import msgspec

from fairlead.api.drill import DRILL_SCHEDULES, DRILLS
from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalService, GlobalServiceSpec, GlobalServiceStatus
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.intent import IntentStatus
from fairlead.api.kubernetes import EndpointSlice, Ingress, PortStatus
from fairlead.api.meta import JSONMapping, ObjectKey, Resource, WireCondition
from fairlead.api.names import hub_name
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.tenant import TENANTS, Tenant
from fairlead.api.times import seconds_from_duration
from fairlead.errors import FairleadError
from fairlead.hub.intents.drill import DrillObjects, Drills
from fairlead.hub.intents.intent import Controller, Exclusion, IntentContext, RecordResult
from fairlead.hub.intents.member_intent import MemberIntent, MemberObjects, MemberViews, excluded_nodes
from fairlead.hub.intents.shift import Shifts, why_paused
from fairlead.hub.intents.status import StatusRules, ingress_of, programmed_by, shown_targets
from fairlead.hub.inventory import UNTIL_READ, first_broken, slice_labels
from fairlead.hub.providers.runner import observed_of
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import UNNAMED
from fairlead.kube.events import EventRecorder
from fairlead.model.condition import ConditionReason
from fairlead.model.desired import Shares
from fairlead.model.health import check_with
from fairlead.model.in_words import counted
from fairlead.model.keys import IPV4, ListenerKey, LoadBalancerKey, Protocol, TargetKey, backend_key
from fairlead.model.observed import Counted, Health, MemberSeen, Observed
from fairlead.runtime.queue import KeyedQueue
from fairlead.sync.plan import LoadBalancerState
from fairlead.translate.global_service import (
    decide_global,
    member_statuses,
    open_ports,
    recorded_global,
    shared_backends,
    shares_in_line,
)
from fairlead.translate.returning import MemberReturn
from fairlead.translate.shift import in_words
from fairlead.translate.view import Decision, GlobalDecision, GlobalView, MemberState, Returning, TCPView

#: The states of members whose remaining connections are counted.
_IDLE = frozenset({"Draining", "Drilled"})
#: How often the connections of drained members are counted.
_COUNT_S = 5.0
#: The members with too few healthy endpoints, and all others that are down or returning.
_Judged = tuple[frozenset[str], dict[str, Returning]]


class GlobalIntent(MemberIntent[GlobalView]):
    """GlobalServices."""

    def __init__(self, context: IntentContext) -> None:
        self._global_objects = GlobalObjects(context)
        self._global_views = GlobalViews(context, self._global_objects)
        rules = GlobalStatus(events=context.events, resource=GLOBAL_SERVICES)
        super().__init__(context, views=self._global_views, rules=rules)
        #: The targets of members that are drained, and how many connections they still have.
        self._drained: dict[LoadBalancerKey, dict[str, frozenset[TargetKey]]] = {}
        self._open = rules.open
        self._drains: KeyedQueue[LoadBalancerKey] = KeyedQueue(clock=context.clock)
        #: GlobalServices with members whose health may have changed.
        self._health: KeyedQueue[LoadBalancerKey] = KeyedQueue(clock=context.clock)
        self._shifts = Shifts(context, self._global_objects, context.shared.backends, self._unapplied)
        self._drills = Drills(
            context,
            self._global_objects,
            self._global_objects.drills,
            targets=self._targets_of,
            routes=context.shared.backends,
            judge=self._health.add,
        )
        self._shared = context.shared
        self._shared.on_ask(self._share_with_routes)
        self._shared.unread = self._global_objects.unread_of_member

    def watch(self) -> None:
        """Subscribe to slices, to load balancers of members, and to health reports of proxies."""
        super().watch()
        self._global_objects.watch_parts()
        self._global_objects.cache.on_change(self._note_changed)
        self._drills.watch()
        self._inventory.wake_on_readability(
            GLOBAL_SERVICES.kind, self._global_objects.cache, lambda _obj: self._served_by_routes()
        )
        for runner in self._context.providers.served.values():
            runner.provider.on_change(self._note_health)

    def controllers(self) -> Sequence[Controller]:
        """Return the controllers that detect down members, move weights, and count connections of drained members."""
        return (
            Controller("global-health", self._health, self._judge),
            Controller("global-drain", self._drains, self._count),
            self._shifts.controller(),
            *self._drills.controllers(),
        )

    def lead(self) -> None:
        """Continue all shifts and drills."""
        self._drills.lead()
        self._shifts.lead()

    async def record(self, view: GlobalView, decision: Decision) -> RecordResult:
        """Record the accepted version, after the starting point of a shift to its weights."""
        if not decision.serving_last_accepted:
            try:
                obj = await self._shifts.begin(view.load_balancer)
            except FairleadError as error:
                return msgspec.structs.replace(self.placement_from_record(view, decision), failure=error)
            self._shifts.note(obj)
            status = msgspec.structs.replace(view.load_balancer.status, shift=obj.status.shift)
            load_balancer = msgspec.structs.replace(view.load_balancer, metadata=obj.metadata, status=status)
            view = msgspec.structs.replace(view, load_balancer=load_balancer)
        return await super().record(view, decision)

    def decide(self, view: GlobalView) -> Decision:
        """Return the decision about ``view``; routes to its Services get the same members."""
        if self._shared.is_asked(tenant.namespace for tenant in view.tenants.values()):
            self._shared.put(view.key, shared_backends(view))
        decision = decide_global(view, self.allocation_of(view))
        self._note_drained(view.key, decision)
        if self._global_views.note_empty(view, decision):
            self._health.add(view.key)
        return decision

    def _note_drained(self, key: LoadBalancerKey, decision: GlobalDecision) -> None:
        names = {member.tenant for member in decision.members if member.state in _IDLE}
        targets: dict[str, set[TargetKey]] = {name: set() for name in names}
        for by_key in decision.desired.targets.values() if decision.desired is not None and names else ():
            for at, target in by_key.items():
                if target.locality in names:
                    targets[target.locality].add(at)
        # Of endpoints that are gone, or that a provider does not count one by one, connections are unknown.
        if countable := {name: frozenset(of_member) for name, of_member in targets.items() if of_member}:
            self._drained[key] = countable
            self._drains.add(key)
        elif self._drained.pop(key, None) is not None:
            self._open.pop(key, None)

    async def _count(self, key: LoadBalancerKey) -> float | None:
        """Count the connections that drained members of ``key`` still have; return seconds until the next count."""
        drained = self._drained.get(key)
        watched = self._context.watched
        if drained is None or not self._context.may_write(key):
            watched.forget((key, "drain"))
            return None
        subjects = (Counted(key), *self._shared.backends(key))
        by_member = {
            name: [subject._replace(target=target) for subject in subjects for target in targets]
            for name, targets in drained.items()
        }
        if watched.of((key, "drain"), itertools.chain.from_iterable(by_member.values())) is not None:
            # A proxy that does not answer may still have some.
            unknown = watched.problem()
            counts = {} if unknown else {name: sum(map(watched.active, listed)) for name, listed in by_member.items()}
            if counts != self._open.get(key, {}):
                self._open[key] = counts
                self.status.refresh(key)
        return _COUNT_S

    def _targets_of(self, key: LoadBalancerKey) -> dict[str, frozenset[TargetKey]]:
        """Return the targets of each member that a provider counts one by one."""
        view = self.view(key)
        decision = recorded_global(view) if view is not None else None
        targets: dict[str, set[TargetKey]] = {}
        for by_key in decision.desired.targets.values() if decision is not None and decision.desired else ():
            for at, target in by_key.items():
                if target.locality:
                    targets.setdefault(target.locality, set()).add(at)
        return {name: frozenset(of_member) for name, of_member in targets.items()}

    async def _unapplied(self, key: LoadBalancerKey) -> str:
        """Return why not all connected proxies have the recorded weights; empty if they have.

        Routes to the Services of its members have these weights as well.
        """
        view = self.view(key)
        decision = recorded_global(view) if view is not None else None
        if view is None or decision is None or (desired := decision.desired) is None:
            return "nothing is served"

        def has_weights(state: LoadBalancerState) -> bool:
            return state.has_weights_of(desired, desired.targets)

        if why := await self._unprogrammed(key, view.load_balancer.status, has_weights):
            return why
        services = shared_backends(view)
        # A hub that has just started may not have looked at the routes yet.
        self._shared.put(key, services)
        shares = {shared.shares for ports in services.values() for shared in ports.values()}
        routes: dict[LoadBalancerKey, list[ListenerKey]] = {}
        for backend in self._shared.backends(key):
            routes.setdefault(backend.load_balancer, []).append(backend_key(backend.backend))
        for load_balancer, backends in sorted(routes.items()):
            if why := await self._unapplied_by_routes(load_balancer, backends, shares):
                return f"routes of {load_balancer}: {why}"
        return ""

    async def _unapplied_by_routes(
        self, key: LoadBalancerKey, backends: Iterable[ListenerKey], shares: Collection[Shares]
    ) -> str:
        """Return why not all proxies of an HTTP load balancer split ``backends`` by ``shares``; empty if they do."""
        obj = self._inventory.intent(key)
        if obj is None or obj.deleting or not obj.status.serving_provider:
            return ""

        def has_shares(state: LoadBalancerState) -> bool:
            if (desired := state.desired) is None:
                return False
            # A route that is not served has no backend there, and a class may not support splitting one.
            shared = [backend for backend in backends if desired.spec.shares_of(backend) is not None]
            up_to_date = all(desired.spec.shares_of(backend) in shares for backend in shared)
            return up_to_date and state.has_weights_of(desired, shared)

        return why_paused(obj) or await self._unprogrammed(key, obj.status, has_shares)

    async def _unprogrammed(
        self, key: LoadBalancerKey, status: IntentStatus, has_weights: Callable[[LoadBalancerState], bool]
    ) -> str:
        """Return why not all connected proxies satisfy ``has_weights``; empty if they do."""
        runner = self._context.providers.get(status.serving_provider)
        state = runner.tracker.state(key) if runner is not None else None
        if runner is None or state is None or not has_weights(state):
            return "waiting for the provider"
        observed = await observed_of(runner, key, status.frontend_of(status.serving_provider))
        programmed = programmed_by(None, observed, None, needs_address=False)
        # Routes that no proxy can serve receive no traffic.
        applied = programmed.status or programmed.reason is ConditionReason.ROUTES_REFUSED
        return "" if applied else programmed.message

    def decision_on_record(self, view: GlobalView) -> Decision | None:
        """Return the decision about the accepted version."""
        return recorded_global(view)

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop the state of a load balancer that is to be removed."""
        super().forget(key)
        self._global_views.forget_down(key)
        self._health.forget(key)
        self._shifts.forget(key)
        self._shared.put(key, {})
        for known in (self._drained, self._open):
            known.pop(key, None)

    def _share_with_routes(self, namespace: str) -> None:
        """Publish the shared Services of the member with this namespace before its first route is served."""
        tenant = self._inventory.tenant_of(namespace)
        for key in self._global_objects.keys_by_index("tenant", tenant.metadata.name) if tenant is not None else ():
            if (view := self.view(key)) is not None:
                self._shared.put(key, shared_backends(view))

    def _served_by_routes(self) -> Collection[LoadBalancerKey]:
        """Return the load balancers whose routes may name a shared Service."""
        keys = self._inventory.all_keys()
        return [key for key in keys if key.kind == HTTP_LOAD_BALANCERS.kind and self._shared.is_asked([key.namespace])]

    def exclusions(self, view: GlobalView, decision: Decision) -> tuple[Exclusion, ...]:
        """Return the members without a share, and the nodes of members that get no traffic."""
        if not isinstance(decision, GlobalDecision):
            return ()
        without = (Exclusion(f"member {member.tenant}", member.service, member.why) for member in decision.members)
        nodes = (
            excluded_nodes(self._inventory.node_slices_of(part.key.namespace), part.nodes)
            for part in view.parts.values()
            if part.load_balancer.spec.targets == "Node"
        )
        return (*(exclusion for exclusion in without if exclusion.why), *itertools.chain.from_iterable(nodes))

    def _note_changed(self, _old: GlobalService | None, new: GlobalService | None) -> None:
        # Another minHealthyPercent may apply.
        if new is not None and self._global_objects.serves(new):
            self._health.add(self._global_objects.key(new))
            self._shifts.note(new)

    def _note_health(self, key: LoadBalancerKey) -> None:
        if key.kind == GLOBAL_SERVICES.kind:
            self._health.add(key)

    async def _judge(self, key: LoadBalancerKey) -> float | None:
        """Evaluate the health of the members of ``key``, and reconcile the key if it changed."""
        obj = self._global_objects.get(key)
        runner = self._context.providers.served.get(obj.status.serving_provider) if obj is not None else None
        if obj is None or runner is None:
            return None
        observed = await observed_of(runner, key, None)
        if observed is not None and observed.health is not None:
            self._global_views.note_checks(key, observed.health)
        changed, due_s = self._global_views.judge(obj, healthy_members(observed))
        if changed:
            self._inventory.wake([key], "the health of a member has changed")
        return due_s


def healthy_members(observed: Observed | None) -> dict[str, MemberSeen]:
    """Return the health that proxies report for each checked member, by name."""
    health = observed.health if observed is not None else None
    return {member.name: member for member in health.members} if health is not None else {}


class GlobalViews(MemberViews[GlobalService, GlobalView]):
    """Gathers the views of GlobalServices, and tracks which members have too few healthy endpoints."""

    default_families = (IPV4,)

    limited = False

    def __init__(self, context: IntentContext, objects: GlobalObjects) -> None:
        super().__init__(context, objects)
        self._global_objects = objects
        self._returns: dict[LoadBalancerKey, dict[str, MemberReturn]] = {}
        #: The last result: the share of a returning member also grows with time alone.
        self._last: dict[LoadBalancerKey, _Judged] = {}
        #: The members that have no endpoint.
        self._empty: dict[LoadBalancerKey, frozenset[str]] = {}

    def note_empty(self, view: GlobalView, decision: GlobalDecision) -> bool:
        """Note which members have no endpoint, if all can be read; return whether they changed."""
        names = frozenset(member.tenant for member in decision.members if member.state == "NoEndpoints")
        before = self._empty.get(view.key, frozenset())
        self._empty[view.key] = names = before & names if view.unreadable else names
        return names != before

    def note_checks(self, key: LoadBalancerKey, health: Health) -> None:
        """Forget which members were down once nothing checks endpoints, since no report would clear that state."""
        if health.reason is ConditionReason.NOT_CHECKED:
            self._returns[key] = {}

    def judge(self, obj: GlobalService, seen: Mapping[str, MemberSeen]) -> tuple[bool, float | None]:
        """Process health reports; return whether a member changed, and in how many seconds one may change."""
        spec, now_s = obj.status.accepted or obj.spec, self._context.clock.monotonic()
        key, known = self._global_objects.key(obj), self._returns_of(obj)
        before = self._last.get(key) or self._judged(obj)
        delay_s, ramp_s = seconds_from_duration(spec.return_delay), seconds_from_duration(spec.return_ramp)
        drill, left_s = self._global_objects.drills.of(obj)
        due: list[float | None] = [left_s]
        for member in spec.members:
            history = known.setdefault(member.tenant, MemberReturn())
            health = seen.get(member.tenant)
            if drill is not None and drill.spec.mode == "Dark" and drill.spec.member == member.tenant and health:
                health = health._replace(healthy=0)
            if health is None and member.tenant in self._empty.get(key, ()):
                history.lose_endpoints(now_s)
            due.append(history.see(member, health, now_s=now_s, delay_s=delay_s, ramp_s=ramp_s))
        for name in known.keys() - {member.tenant for member in spec.members}:
            del known[name]
        self._last[key] = self._judged(obj)
        return self._last[key] != before, min((at_s for at_s in due if at_s is not None), default=None)

    def _returns_of(self, obj: GlobalService) -> dict[str, MemberReturn]:
        """Return the health of the members over time; after a restart that of the status, until proxies report."""
        key = self._global_objects.key(obj)
        if (known := self._returns.get(key)) is None:
            now_s = self._context.clock.monotonic()
            recorded = {member.tenant: member for member in obj.status.members or ()}
            known = self._returns[key] = {
                member.tenant: MemberReturn.recorded(recorded[member.tenant], member, now_s=now_s)
                for member in (obj.status.accepted or obj.spec).members
                if member.tenant in recorded
            }
        return known

    def _judged(self, obj: GlobalService) -> _Judged:
        """Return the members with too few healthy endpoints, and all others that are down or returning."""
        spec, now_s = obj.status.accepted or obj.spec, self._context.clock.monotonic()
        down, returning = set[str](), dict[str, Returning]()
        for name, history in self._returns_of(obj).items():
            part = history.returning(now_s=now_s, ramp_s=seconds_from_duration(spec.return_ramp))
            if history.limited:
                down.add(name)
            elif part is not None:
                returning[name] = part
        return frozenset(down), returning

    def forget_down(self, key: LoadBalancerKey) -> None:
        """Drop the health state of a load balancer that is to be removed."""
        for by_key in (self._returns, self._last, self._empty):
            by_key.pop(key, None)

    def make(self, obj: GlobalService, common: JSONMapping) -> GlobalView:
        """Return the view of ``obj`` with the views of its parts."""
        specs = [spec for spec in (obj.spec, obj.status.accepted) if spec is not None]
        tenants: dict[str, Tenant] = {}
        parts: dict[tuple[str, str], TCPView] = {}
        agents: dict[tuple[str, str, str], MemberState] = {}
        messages: list[str] = []
        health = self._context.member_health
        for spec in specs:
            for member in spec.members:
                tenant = self.inventory.tenant(member.tenant)
                if tenant is None or tenant.refused:
                    continue
                tenants[member.tenant] = tenant
                part = self._global_objects.part_of(obj, spec, tenant)
                if part is None:
                    continue
                parts[member.tenant, spec.service] = self._part(part, tenant, common)
                drain, drop = spec.drain_when_lost, spec.drop_when_lost
                agent = health.view(tenant, tenant.namespace, drain=drain, drop=drop)
                agents[member.tenant, drain, drop] = agent
                if agent.message and spec is obj.spec:
                    messages.append(f"member {member.tenant}: {agent.message}")
        names = {member.tenant for spec in specs for member in spec.members}
        problems = [*map(self._global_objects.unread, sorted(names))]
        problems += [(self.inventory.unreadable_slices(part.key.namespace), False) for part in parts.values()]
        unread = next((text for text, recorded in problems if text and not recorded), "")
        unreadable = f"{unread}; {UNTIL_READ}" if unread else next((text for text, _ in problems if text), "")
        present = [parts[name, obj.spec.service] for name in tenants if (name, obj.spec.service) in parts]
        spec = msgspec.structs.replace(obj.spec, ports=open_ports(obj.spec, present))
        fields: JSONMapping = {
            **common,
            "member": MemberState("; ".join(messages)),
            "stale": common["stale"] or unread,
            "unreadable": common["unreadable"] or unreadable,
        }
        drill, left_s = self._global_objects.drills.of(obj)
        view = GlobalView(
            load_balancer=msgspec.structs.replace(obj, spec=spec),
            tenants=tenants,
            parts=parts,
            agents=agents,
            drill=drill,
            due_s=left_s,
            **fields,
        )
        if not _checks_members(view):
            # No report would clear the state that an earlier process recorded.
            recorded = self._returns_of(obj)
            self._returns[view.key] = {name: history for name, history in recorded.items() if history.checked}
        down, returning = self._judged(obj)
        return msgspec.structs.replace(view, down=down, returning=returning)

    def listeners(self, spec: GlobalServiceSpec) -> Sequence[ListenerKey]:
        """Return the ports that ``spec`` opens, in spec order."""
        return [ListenerKey(Protocol(port.protocol), port.port) for port in spec.ports]

    def _part(self, obj: TCPLoadBalancer, tenant: Tenant, common: JSONMapping) -> TCPView:
        """Return the view of the load balancer of a member."""
        key = LoadBalancerKey(TCP_LOAD_BALANCERS.kind, *obj.key)
        fields: JSONMapping = {
            **common,
            "key": key,
            "load_balancer": obj,
            "tenant": tenant,
            "nodes": self._nodes_of(key.namespace),
            "member": self._context.member_health.view(tenant, key.namespace),
            "accepted_class": None,
            "over_quota": "",
            "slices": self.inventory.slices_of(key),
        }
        return TCPView(**fields)


def _checks_members(view: GlobalView) -> bool:
    """Return whether proxies check the endpoints of each member, and report them."""
    spec = view.load_balancer.status.accepted or view.load_balancer.spec
    check = check_with(view.behaviour.health_check, spec.health_check)
    localities = view.capabilities is None or view.capabilities.localities
    return check is not None and localities and any(port.protocol == "TCP" for port in spec.ports)


class GlobalStatus(StatusRules[GlobalService, GlobalDecision]):
    """The status of GlobalServices; the record (``AcceptedStatus``) has its own field managers."""

    owned_elsewhere = (*StatusRules.owned_elsewhere, "accepted", "names", "shift")

    def __init__(self, *, events: EventRecorder, resource: Resource[GlobalService]) -> None:
        super().__init__(events=events, resource=resource)
        #: How many connections drained members still have.
        self.open: dict[LoadBalancerKey, dict[str, int]] = {}

    def compose(
        self, obj: GlobalService, decision: GlobalDecision, conditions: list[WireCondition], observed: Observed | None
    ) -> GlobalServiceStatus:
        """Return the status with the members and their shares."""
        status = super().compose(obj, decision, conditions, observed)
        healthy = healthy_members(observed)
        members = member_statuses(decision.members, decision.spillover, healthy, served=obj.status.served)
        left = self.open.get(LoadBalancerKey(GLOBAL_SERVICES.kind, *obj.key), {})
        for number, member in enumerate(members):
            if member.state in _IDLE and member.tenant in left:
                message = f"{member.message}; {counted(left[member.tenant], 'connection')} open"
                members[number] = msgspec.structs.replace(member, message=message)
        return msgspec.structs.replace(
            status,
            targets=shown_targets(decision.targets, observed),
            members=members or None,
            shares="; ".join(filter(None, (shares_in_line(members), in_words(obj.status.shift)))),
        )

    def ingress(self, obj: GlobalService, addresses: Sequence[str]) -> list[Ingress]:
        """Return ``addresses`` with the ports that are served."""
        ports = [PortStatus(port.port, port.protocol) for port in (obj.status.accepted or obj.spec).ports]
        return [ingress_of(address, ports) for address in addresses]


class GlobalObjects(MemberObjects[GlobalService]):
    """GlobalServices, and the load balancers of members that are parts of them."""

    def __init__(self, context: IntentContext) -> None:
        inventory = context.inventory
        cache: WatchCache[GlobalService] = WatchCache(
            context.cluster,
            GLOBAL_SERVICES,
            indexes={
                **self.indexes(),
                "tenant": _tenants_of,
                "part": _parts_of,
                "name": lambda obj: [obj.metadata.name],
            },
        )
        super().__init__(cache, GLOBAL_SERVICES, inventory)
        self.drills = DrillObjects(context)
        caches = {DRILLS.plural: self.drills.drills, DRILL_SCHEDULES.plural: self.drills.schedules}
        inventory.register(self, caches)

    def _same(self, old: GlobalService, new: GlobalService) -> bool:
        # Other replicas serve each step of a shift as well.
        return super()._same(old, new) and old.status.shift == new.status.shift

    @property
    def _parts(self) -> WatchCache[TCPLoadBalancer]:
        return self._inventory.intents[TCP_LOAD_BALANCERS.kind].cache

    def watch_parts(self) -> None:
        """Wake GlobalServices when a member's load balancer changes that is, or was, included in them."""

        def changed(old: TCPLoadBalancer | None, new: TCPLoadBalancer | None) -> None:
            if old is None or new is None or old.spec != new.spec:
                keys = {key for part in (old, new) if part is not None for key in self._keys_with(part)}
                self._inventory.wake(keys, "the Service of a member changed")

        self._parts.on_change(changed)
        wake_on_readability, tenants = self._inventory.wake_on_readability, self._inventory.tenants

        def concerned(obj: ObjectKey, keys: Collection[LoadBalancerKey]) -> Collection[LoadBalancerKey]:
            # An object whose name cannot be read may belong to any member.
            return keys if obj.name else [self.key(each) for each in self.served()]

        wake_on_readability(
            TCP_LOAD_BALANCERS.kind, self._parts, lambda obj: concerned(obj, self.keys_of_nodes(obj.namespace))
        )
        wake_on_readability(TENANTS.kind, tenants, lambda obj: concerned(obj, self.keys_by_index("tenant", obj.name)))

        def tenant_changed(old: Tenant | None, new: Tenant | None) -> None:
            # A deleted Tenant is in no index, so its namespace leads to no GlobalService.
            if old is not None and new is None:
                self._inventory.wake(self.keys_by_index("tenant", old.metadata.name), "a member was deleted")

        tenants.on_change(tenant_changed)

    def unread(self, name: str) -> tuple[str, bool]:
        """Return the unread object of this Tenant's member, empty for none; and True if its record can serve.

        Without a record, it is unknown whether the member has joined.
        """
        tenants = self._inventory.tenants
        tenant = self._inventory.tenant(name)
        if tenant is None:
            unread = [key for key in tenants.broken if key == UNNAMED or key.name == name]
            return first_broken(TENANTS.kind, tenants, unread), False
        parts = self._unread_parts().items()
        of_member = {key: part for key, part in parts if key == UNNAMED or key.namespace == tenant.namespace}
        lost = sorted(key for key, part in of_member.items() if part is None)
        if lost:
            return first_broken(TCP_LOAD_BALANCERS.kind, self._parts, lost), False
        if of_member:
            text = first_broken(TCP_LOAD_BALANCERS.kind, self._parts, sorted(of_member))
            return f"{text}; its last accepted version serves until the object is corrected", True
        if tenants.get("", name) is None:
            text = first_broken(TENANTS.kind, tenants, [tenant.key])
            return f"{text}; what can be read of it applies until the object is corrected", True
        return "", True

    def unread_of_member(self, namespace: str) -> str:
        """Return the first unread GlobalService that may list the member with this namespace; empty for none."""
        tenant = self._inventory.tenant_of(namespace)
        lost = [
            key
            for key, remains in self.cache.remains().items()
            if remains.obj is None
            or not remains.has("spec.members")
            or (tenant is not None and tenant.metadata.name in _tenants_of(remains.obj))
        ]
        return first_broken(GLOBAL_SERVICES.kind, self.cache, sorted(lost))

    def _unread_parts(self) -> dict[ObjectKey, TCPLoadBalancer | None]:
        """Return the accepted versions of the unread load balancers; None without such a record."""
        parts: dict[ObjectKey, TCPLoadBalancer | None] = {}
        for key, remains in self._parts.remains().items():
            obj = remains.obj
            accepted = obj.status.accepted if obj is not None and remains.has("status.accepted") else None
            if obj is not None and accepted is not None:
                parts[key] = msgspec.structs.replace(obj, spec=accepted)
            else:
                parts[key] = obj if remains.has("spec") else None
        return parts

    def part_of(self, obj: GlobalService, spec: GlobalServiceSpec, tenant: Tenant) -> TCPLoadBalancer | None:
        """Return the load balancer of the member's Service, None if there is none; one that joins comes first."""
        unread = [
            part for key, part in self._unread_parts().items() if part is not None and key.namespace == tenant.namespace
        ]
        joined = [
            part
            for part in (
                *self._parts.by_index("global", (tenant.namespace, obj.metadata.name)),
                *(part for part in unread if part.spec.global_service == obj.metadata.name),
            )
            if not part.deleting
        ]
        if joined:
            return min(joined, key=attrgetter("age_order"))
        name = hub_name(*spec.service.split("/")) if spec.service else ""
        part = self._parts.get(tenant.namespace, name)
        part = part or next((part for part in unread if part.metadata.name == name), None)
        return part if part is not None and not part.deleting else None

    def open_ports(self, obj: GlobalService) -> Collection[int]:
        """Return the ports of the accepted spec, or else of the present one."""
        return {port.port for port in (obj.status.accepted or obj.spec).ports}

    def with_targets(self, address: str, ports: Collection[int]) -> Collection[LoadBalancerKey]:
        """Return the GlobalServices that include a load balancer with such an endpoint."""
        parts = self._inventory.intents[TCP_LOAD_BALANCERS.kind].with_targets(address, ports)
        load_balancers = (self._parts.get(key.namespace, key.name) for key in parts)
        return {key for part in load_balancers if part is not None for key in self._keys_with(part)}

    def keys_of_slice(self, endpoint_slice: EndpointSlice) -> Collection[LoadBalancerKey]:
        """Return the GlobalServices that include the load balancer of the slice."""
        labelled = (self._parts.by_index("label", label) for label in slice_labels(endpoint_slice))
        return {key for part in itertools.chain.from_iterable(labelled) for key in self._keys_with(part)}

    def keys_of_nodes(self, namespace: str) -> Collection[LoadBalancerKey]:
        """Return the GlobalServices that may include the member with this namespace."""
        tenant = self._inventory.tenant_of(namespace)
        return self.keys_by_index("tenant", tenant.metadata.name) if tenant is not None else ()

    def keys_of_member(self, namespace: str) -> Collection[LoadBalancerKey]:
        """Return the GlobalServices in this namespace, and those that name its Tenant."""
        names = {tenant.metadata.name for tenant in self._inventory.tenants.by_index("namespace", namespace)}
        return {
            *self.keys_by_index("namespace", namespace),
            *(key for name in names for key in self.keys_by_index("tenant", name)),
            # Also of a Tenant that cannot be decoded.
            *self.keys_of_nodes(namespace),
        }

    def _keys_with(self, part: TCPLoadBalancer) -> Iterator[LoadBalancerKey]:
        yield from self.keys_by_index("part", part.metadata.name)
        if part.spec.global_service:
            yield from self.keys_by_index("name", part.spec.global_service)


def _tenants_of(obj: GlobalService) -> set[str]:
    specs = filter(None, (obj.spec, obj.status.accepted))
    return {member.tenant for spec in specs for member in spec.members}


def _parts_of(obj: GlobalService) -> set[str]:
    """Return the names at the hub of the load balancers of its Services."""
    specs = filter(None, (obj.spec, obj.status.accepted))
    return {hub_name(*spec.service.split("/")) for spec in specs if spec.service}
