"""BackendGroups: what they select, which load balancers they name, what is excluded and why, and their status.

    labelled do-not-delete      our finalizer is on the group: deleted, it stays with all its backends, and says why
    not labelled                the finalizer is removed; backends are deregistered from their records

Pods, Services and nodes are read only once some group selects from them. In: groups, and the decisions about the load
balancers that they name. Out: wake-ups, selected objects, exclusions with reasons, counts, conditions, Events for
conditions that became bad. Never: a finalizer on a group without the label; a full Pod in memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Literal, TypeVar

import msgspec

from fairlead.api.backendgroup import BACKEND_GROUPS, BackendGroup, ListedBackend
from fairlead.api.kubernetes import NODES, PODS, SERVICES, Node, Pod, Service
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.meta import KubeObject, ObjectKey, only_status_changed, transitions, wire_conditions
from fairlead.api.names import FINALIZER_PROTECTED, LABEL_EXCLUDE_NODE, MANAGER_HUB
from fairlead.api.times import wire_time
from fairlead.hub.intents.intent import Exclusion, IntentContext
from fairlead.hub.inventory import IntentObjects, Inventory, first_broken
from fairlead.hub.providers.runner import ProviderRunner, observed_of
from fairlead.kube.cache import AnyCache, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import CoalescingWriter, Overlay, emit_transitions, hold, release
from fairlead.model.condition import CAPI_CONDITIONS, Condition, ConditionReason, ConditionType
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.queue import KeyedQueue
from fairlead.sync.plan import LoadBalancerState, Registered
from fairlead.translate.loadbalancer import is_node_ready, node_port_of, refuse_group
from fairlead.translate.view import (
    GroupView,
    LoadBalancerDecision,
    LoadBalancerView,
    build_protected,
    is_labelled,
    is_leaving,
)

K = TypeVar("K", bound=KubeObject)

State = Literal["Pending", "Registered", "Draining", "Deregistering"]
_LEAST_FIRST: tuple[State, ...] = ("Deregistering", "Pending", "Draining", "Registered")
#: Delay until a status with unknown backends is compared again, unless a change wakes it earlier.
AGAIN_S = 1.0
_GOOD = frozenset({ConditionType.ACCEPTED, ConditionType.RESOLVED_REFS})

#: Returns the last decision about a load balancer.
LastDecision = Callable[[LoadBalancerKey], LoadBalancerDecision | None]


# --- LoadBalancers with their groups -------------------------------------------------------------------------------


class LoadBalancerObjects(IntentObjects[LoadBalancer]):
    """LoadBalancers with the BackendGroups that name them.

    They are in no region: the hub that serves all regions serves them, so that each has one writer.
    """

    def __init__(self, cluster: Cluster, inventory: Inventory) -> None:
        super().__init__(
            WatchCache(cluster, LOAD_BALANCERS, indexes=self.indexes(), transform=without_capi_side),
            LOAD_BALANCERS,
            # A load balancer with infrastructureRef is served by another provider.
            serves=lambda obj: not inventory.region and obj.spec.infrastructure_ref is None,
            recorded=lambda obj: (
                obj.status.recorded,
                obj.status.allocation,
                obj.status.accepted,
                obj.status.placement,
            ),
        )
        self._inventory = inventory
        self.groups: WatchCache[BackendGroup] = WatchCache(
            cluster,
            BACKEND_GROUPS,
            indexes={"lb": load_balancers_of, "namespace": lambda group: [group.metadata.namespace]},
        )
        self.present_groups: Overlay[BackendGroup] = Overlay(self.groups)
        inventory.register(self, {BACKEND_GROUPS.plural: self.groups})
        self.groups.on_change(self._group_changed)
        inventory.wake_on_readability(BACKEND_GROUPS.kind, self.groups, self._may_name)

    def open_ports(self, obj: LoadBalancer) -> Collection[int]:
        """Return the ports of the accepted version, or else of the present one."""
        return {listener.port for listener in (obj.status.accepted or obj.spec).listeners}

    def groups_of(self, key: LoadBalancerKey) -> tuple[BackendGroup, ...]:
        """Return the groups that name a LoadBalancer, in their last written version, ordered by key."""
        return tuple(self.present_groups.by_index("lb", key))

    def unreadable_groups(self, namespaces: Iterable[str]) -> str:
        """Return the first group in ``namespaces`` (``*``: all) that cannot be decoded; empty if there is none."""
        spaces = set(namespaces)
        broken = sorted(key for key in self.groups.broken if spaces & {"*", key.namespace})
        return first_broken(BACKEND_GROUPS.kind, self.groups, broken)

    def selection_changed(self, namespace: str) -> None:
        """Wake the load balancers of groups in ``namespace`` (empty: all) whose selection changed."""
        groups = self.groups.by_index("namespace", namespace) if namespace else list(self.groups.values())
        keys = {key for group in groups for key in load_balancers_of(group)}
        self._inventory.wake(keys, "the objects that a BackendGroup selects changed")

    def _may_name(self, group: ObjectKey) -> list[LoadBalancerKey]:
        """Return the load balancers that an unreadable group may name."""
        return [
            self.key(obj)
            for obj in self.served()
            if group.namespace == obj.metadata.namespace or {"*", group.namespace} & set(obj.spec.scope or ())
        ]

    def _group_changed(self, old: BackendGroup | None, new: BackendGroup | None) -> None:
        if not (old and new and only_status_changed(old, new)):
            groups = [group for group in (old, new) if group is not None]
            keys = {key for group in groups for key in load_balancers_of(group)}
            self._inventory.wake(keys, f"BackendGroup {groups[0].key} changed")


def load_balancers_of(group: BackendGroup) -> list[LoadBalancerKey]:
    """Return the LoadBalancers that a group names, in the group's order."""
    names = (
        (group.metadata.namespace, name) if "/" not in name else name.split("/", 1)
        for name in group.spec.load_balancers
    )
    return [LoadBalancerKey(LOAD_BALANCERS.kind, namespace, name) for namespace, name in names]


def owner_name(group: BackendGroup) -> str:
    """Return a group as the owner of its targets and records."""
    return f"BackendGroup/{group.metadata.namespace}/{group.metadata.name}"


def without_capi_side(obj: LoadBalancer) -> LoadBalancer:
    """Return a LoadBalancer without the part of its status that the controller for Cluster API writes."""
    if not obj.spec.cluster_name:
        return obj
    conditions = [condition for condition in obj.status.conditions or () if condition.type not in CAPI_CONDITIONS]
    status = msgspec.structs.replace(
        obj.status,
        endpoint=None,
        targets=0,
        active_targets=0,
        target_kind="",
        target_selector="",
        members=None,
        conditions=conditions or None,
    )
    return msgspec.structs.replace(obj, status=status)


# --- selected objects ----------------------------------------------------------------------------------------------


class BackendSources:
    """The pods, Services and nodes that groups can select.

    ``changed`` is called with the namespace of the affected groups (empty: all).
    """

    def __init__(self, cluster: Cluster, *, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self.pods: WatchCache[Pod] = WatchCache(
            cluster, PODS, transform=_lean, indexes={"namespace": lambda pod: [pod.metadata.namespace]}
        )
        self.services: WatchCache[Service] = WatchCache(cluster, SERVICES, transform=_lean)
        self.nodes: WatchCache[Node] = WatchCache(cluster, NODES, transform=_lean)
        self._needed: dict[str, AnyCache] = {}
        self._running: set[str] = set()
        self._wake = asyncio.Event()
        self.pods.on_object(self._object_changed)
        self.services.on_object(self._object_changed)
        self.nodes.on_object(self._object_changed, part=_selected_by)
        for cache in (self.pods, self.services, self.nodes):
            cache.broken.on_change(lambda obj: self._changed(obj.namespace))

    def need(self, group: BackendGroup) -> str:
        """Start reading the kinds that ``group`` selects from; return why the data is incomplete, empty if complete."""
        caches = self._caches_of(group)
        for name, cache in caches.items():
            if name not in self._needed:
                self._needed[name] = cache
                self._wake.set()
        return "; ".join(
            f"{name}: {cache.problem or 'not read yet'}"
            for name, cache in caches.items()
            if cache.problem or not cache.synced
        )

    def unreadable(self, group: BackendGroup) -> str:
        """Return the first object that ``group`` may select and that cannot be decoded; empty if there is none."""
        for cache in self._caches_of(group).values():
            if bad := sorted(key for key in cache.broken if key.namespace in ("", group.metadata.namespace)):
                return first_broken(cache.resource.kind, cache, bad)
        return ""

    def pods_of(self, group: BackendGroup) -> tuple[Pod, ...]:
        """Return the pods that ``group`` selects, ready or not, ordered by name."""
        spec = group.spec.pods
        if spec is None:
            return ()
        pods = self.pods.by_index("namespace", group.metadata.namespace)
        if spec.by_name is not None:
            return tuple(pod for pod in pods if pod.metadata.name in spec.by_name)
        if spec.by_label is None:
            return ()
        selector, excluded = spec.by_label.selector, set(spec.by_label.except_ or ())
        return tuple(pod for pod in pods if _matches(pod, selector) and pod.metadata.name not in excluded)

    def nodes_of(self, group: BackendGroup) -> tuple[Node, ...]:
        """Return the nodes that may serve a Service's node port, ready or not, ordered by name."""
        if group.spec.service is None:
            return ()
        selector = group.spec.service.node_selector or {}
        nodes = sorted(self.nodes.values(), key=lambda node: node.key)
        return tuple(node for node in nodes if _matches(node, selector) and not node.label(LABEL_EXCLUDE_NODE))

    def service_of(self, group: BackendGroup) -> Service | None:
        """Return the Service that ``group`` names."""
        spec = group.spec.service
        return self.services.get(group.metadata.namespace, spec.name) if spec is not None else None

    async def wait_synced(self, groups: Iterable[BackendGroup], timeout_s: float) -> None:
        """Return once everything that ``groups`` select from has been read; ``run`` must be running."""
        for group in groups:
            self.need(group)
        for cache in list(self._needed.values()):
            await cache.wait_synced(timeout_s)

    async def run(self) -> None:
        """Read each kind as soon as a group needs it."""
        async with asyncio.TaskGroup() as group:
            while True:
                for name, cache in self._needed.items():
                    if name not in self._running:
                        self._running.add(name)
                        group.create_task(cache.run())
                        group.create_task(self._wake_when_synced(cache))
                await self._wake.wait()
                self._wake.clear()

    def _caches_of(self, group: BackendGroup) -> dict[str, AnyCache]:
        caches: dict[str, AnyCache] = {"pods": self.pods} if group.spec.pods is not None else {}
        return caches | ({"services": self.services, "nodes": self.nodes} if group.spec.service is not None else {})

    async def _wake_when_synced(self, cache: AnyCache) -> None:
        await cache.wait_synced()
        self._changed("")

    def _object_changed(self, obj: KubeObject) -> None:
        self._changed(obj.metadata.namespace)


def _selected_by(node: Node) -> tuple[object, ...]:
    """Return the part of an object that groups depend on, without the heartbeat."""
    return (is_node_ready(node), node.metadata.labels, node.status.addresses)


def _matches(obj: KubeObject, selector: dict[str, str]) -> bool:
    return all(obj.label(key, "\0") == value for key, value in selector.items())


def _lean(obj: K) -> K:
    """Return an object without unused metadata."""
    meta = msgspec.structs.replace(obj.metadata, annotations=None, finalizers=None, owner_references=None)
    return msgspec.structs.replace(obj, metadata=meta)


# --- exclusions ----------------------------------------------------------------------------------------------------


def excluded_backends(
    view: LoadBalancerView, desired: DesiredLoadBalancer, sources: BackendSources
) -> tuple[Exclusion, ...]:
    """Return each pod, node and address that is excluded from the load balancer, with the reason, in group order."""
    exclusions: list[Exclusion] = []
    for group_view in sorted(view.groups, key=lambda item: item.group.key):
        rows = _excluded_of(group_view, view, desired, sources)
        exclusions += [Exclusion(what, owner_name(group_view.group), why) for what, why in dict(rows).items()]
    return tuple(exclusions)


def _excluded_of(
    group_view: GroupView, view: LoadBalancerView, desired: DesiredLoadBalancer, sources: BackendSources
) -> Iterator[tuple[str, str]]:
    group, spec = group_view.group, group_view.group.spec
    if group_view.out_of_scope:
        text = f"namespace {group.metadata.namespace} is not in spec.scope of LoadBalancer {view.name}; add it there"
        yield "everything", text
        return
    refused = refuse_group(view, group_view) or group_view.verdict
    if refused is not None and group_view.accepted is None:
        yield "everything", refused.message
        return
    names = {listener.name for listener in desired.spec.listeners}
    if spec.listener and spec.listener not in names:
        yield "everything", f"spec.listener: the load balancer has no listener {spec.listener!r}"
        return
    addresses = {str(key) for by_key in desired.targets.values() for key in by_key}
    used = {target.source for by_key in desired.targets.values() for target in by_key.values()}
    for backend in spec.static or ():
        if backend not in addresses and backend.replace("[", "").replace("]", "") not in addresses:
            yield backend, "spec.static: this may not be a backend; use an address:port that the provider can reach"
    yield from _excluded_pods(group_view, used, sources)
    yield from _excluded_nodes(group_view, used, sources)


def _excluded_pods(group_view: GroupView, used: set[str], sources: BackendSources) -> Iterator[tuple[str, str]]:
    group, spec = group_view.group, group_view.group.spec.pods
    if spec is None:
        return
    for pod in group_view.pods:
        meta = pod.metadata
        if f"Pod/{meta.namespace}/{meta.name}/{meta.uid}" not in used:
            yield _pod(pod), _why_not(pod, group)
    if spec.by_name is not None:
        selected = {pod.metadata.name for pod in group_view.pods}
        for name in sorted(set(spec.by_name) - selected):
            yield f"Pod/{group.metadata.namespace}/{name}", "spec.pods.byName: there is no such pod"
    if spec.by_label is not None:
        excluded = set(spec.by_label.except_ or ())
        for pod in sources.pods.by_index("namespace", group.metadata.namespace):
            if _matches(pod, spec.by_label.selector) and pod.metadata.name in excluded:
                yield _pod(pod), "named in spec.pods.byLabel.except"
        if not group_view.pods:
            labels = ",".join(f"{key}={value}" for key, value in sorted(spec.by_label.selector.items()))
            yield "pods", f"spec.pods.byLabel: no pod in {group.metadata.namespace} has {labels}"


def _why_not(pod: Pod, group: BackendGroup) -> str:
    if pod.deleting:
        return "the pod is being deleted"
    if not pod.status.pod_ip:
        return f"the pod has no address yet (phase {pod.status.phase or 'unknown'})"
    if pod.ready:
        return f"the pod's address {pod.status.pod_ip} may not be a backend, or no port of the pod is for a listener"
    policy = group.spec.deregister_policy
    if policy == "IfNotReady":
        return "the pod is not ready"
    return f"the pod is not ready; deregisterPolicy {policy} keeps registered pods, and registers no new ones"


def _excluded_nodes(group_view: GroupView, used: set[str], sources: BackendSources) -> Iterator[tuple[str, str]]:
    group, spec = group_view.group, group_view.group.spec.service
    if spec is None:
        return
    name = f"Service/{group.metadata.namespace}/{spec.name}"
    if group_view.service is None:
        yield name, "spec.service.name: there is no such Service"
        return
    if not node_port_of(group_view.service, spec.port):
        port = f"{spec.port.protocol}/{spec.port.port}"
        yield name, f"spec.service.port: the Service has no port {port} with a node port"
        return
    for node in sorted(sources.nodes.values(), key=lambda item: item.key):
        if f"Node//{node.metadata.name}/{node.metadata.uid}" not in used:
            yield f"Node/{node.metadata.name}", _why_not_node(node, spec.node_selector or {})


def _why_not_node(node: Node, selector: dict[str, str]) -> str:
    if not _matches(node, selector):
        return "spec.service.nodeSelector does not select this node"
    if node.label(LABEL_EXCLUDE_NODE):
        return f"the node has the label {LABEL_EXCLUDE_NODE}"
    if not is_node_ready(node):
        return "the node is not Ready"
    return "the node has no address that may be a backend"


def _pod(pod: Pod) -> str:
    return f"Pod/{pod.metadata.namespace}/{pod.metadata.name}"


# --- the status of groups ------------------------------------------------------------------------------------------


class GroupStatusWriter:
    """Writes the status of groups, and holds groups that are labelled do-not-delete.

    ``unread`` returns why the objects that a group selects from have not been read yet; empty if they have.
    """

    def __init__(
        self,
        context: IntentContext,
        *,
        objects: LoadBalancerObjects,
        unread: Callable[[BackendGroup], str],
        decision: LastDecision,
    ) -> None:
        self._context = context
        self._unread = unread
        self._objects = objects
        self._decision = decision
        self._lister = BackendLister(context, decision=decision)
        self._writer: CoalescingWriter[BackendGroup] = CoalescingWriter(
            context.cluster,
            BACKEND_GROUPS,
            objects=objects.present_groups,
            clock=context.clock,
            manager=MANAGER_HUB,
            others=("accepted",),
            # Without the field, zero would mean that it was not counted.
            always=("backends", "registeredBackends"),
        )
        self.queue: KeyedQueue[tuple[str, str]] = KeyedQueue(clock=context.clock, group_of=itemgetter(0))

    def add(self, keys: Iterable[tuple[str, str]]) -> None:
        """Queue these groups."""
        for key in keys:
            self.queue.add(key)

    def load_balancer_changed(self, key: LoadBalancerKey) -> None:
        """Queue the groups that name ``key``."""
        self.add(group.key for group in self._objects.groups_of(key))

    def changed(self, old: BackendGroup | None, new: BackendGroup | None) -> None:
        """Queue a group that has changed."""
        if new is not None:
            self.queue.add(new.key)
        elif old is not None:
            self._writer.forget(*old.key)

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        """Write the finalizer or status of ``key`` if it differs; return seconds until the next comparison."""
        group = self._objects.present_groups.get(*key)
        if group is None or self._context.inventory.region or not self._context.leading():
            return None  # the hub of a region serves no LoadBalancers, so it writes nothing about groups
        labelled = is_labelled(group)
        too_late = group.deleting and labelled  # the API server takes no finalizer now
        if group.held_by(FINALIZER_PROTECTED) != labelled and not too_late:
            change = hold if labelled else release
            cluster = self._context.cluster
            answer = await change(cluster, BACKEND_GROUPS, group, FINALIZER_PROTECTED, manager=MANAGER_HUB)
            if answer is not group and not group.deleting:
                self._objects.present_groups.written(answer, before=group)
            return None  # the watch queues the object again
        return await self._write(group) if not is_leaving(group) else None

    async def _write(self, group: BackendGroup) -> float | None:
        owner = owner_name(group)
        counts = Counter(
            record.status.state
            for key in load_balancers_of(group)
            for record in self._context.inventory.records.by_index("lb", key)
            if owner in record.spec.owners
        )
        old = group.status
        # Until each load balancer has decided about this generation, the status is about an earlier one.
        is_decided = all(self._is_decided(group, key) for key in load_balancers_of(group))
        generation = group.metadata.generation if is_decided else old.observed_generation
        conditions = self._conditions(group)
        listed = await self._lister.listed(group) if group.spec.list_backends else None
        if listed is not None:
            # The hub's own proxies have no records.
            counts = Counter(backend.state for backend in listed)
        expected = counts.total() - counts["Deregistering"]
        unread = self._unread(group)
        # The records are those of an earlier generation until the worker has begun.
        total = max(expected, counts["Registered"] + self._awaited(group, owner))
        summary = _programmed(group, conditions, counts["Registered"], total, unread=unread)
        now = wire_time(self._context.clock.now())
        new = msgspec.structs.replace(
            old,
            load_balancers=", ".join(group.spec.load_balancers),
            backends=expected,
            registered_backends=counts["Registered"],
            observed_generation=generation,
            listed=(listed or None) if listed is not None else old.listed,
            listed_generation=group.metadata.generation if listed is not None else old.listed_generation,
            conditions=wire_conditions([*conditions, summary], old.conditions, generation=generation, now=now) or None,
        )
        written, wait_s = await self._writer.write(group, old, new)
        if written is not None:
            emit_transitions(
                self._context.events,
                BACKEND_GROUPS,
                group,
                transitions(old.conditions, new.conditions),
                # Programmed only summarizes the other conditions.
                quiet=lambda change: change.condition.type == ConditionType.PROGRAMMED,
            )
        again_s = AGAIN_S if unread or (group.spec.list_backends and listed is None) else 0.0
        return min(filter(None, (wait_s, again_s)), default=None)

    def _awaited(self, group: BackendGroup, owner: str) -> int:
        """Return the number of backends of ``group`` that are desired but not registered yet."""
        runners = self._context.providers.values()
        states = (runner.tracker.state(key) for key in load_balancers_of(group) for runner in runners)
        return sum(count_awaited(state, owner) for state in states if state is not None)

    def _conditions(self, group: BackendGroup) -> list[Condition]:
        """Return one condition of each type: the first bad one, in the order of ``spec.loadBalancers``."""
        by_type: dict[ConditionType, Condition] = {}
        for key in load_balancers_of(group):
            for condition in self._conditions_at(group, key):
                known = by_type.get(condition.type)
                if known is None or (_is_good(known) and not _is_good(condition)):
                    by_type[condition.type] = condition
        if (protected := build_protected(group)) is not None:
            by_type[protected.type] = protected
        return list(by_type.values())

    def _is_decided(self, group: BackendGroup, key: LoadBalancerKey) -> bool:
        load_balancer, decision = self._objects.cache.get(key.namespace, key.name), self._decision(key)
        if load_balancer is None or is_leaving(load_balancer):
            return True
        return decision is not None and decision.generations.get(group.key) == group.metadata.generation

    def _conditions_at(self, group: BackendGroup, key: LoadBalancerKey) -> Sequence[Condition]:
        load_balancer = self._objects.cache.get(key.namespace, key.name)
        if load_balancer is None or is_leaving(load_balancer):
            gone = "is being deleted" if load_balancer is not None else "does not exist"
            text = f"spec.loadBalancers: LoadBalancer {key.namespace}/{key.name} {gone}; create it, or remove the entry"
            no = Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.NO_SUCH_LOAD_BALANCER, text)
            return (no,)
        decision = self._decision(key)
        return decision.groups.get(group.key, ()) if decision is not None else ()


def _is_good(condition: Condition) -> bool:
    return condition.status == (condition.type in _GOOD)


def _programmed(
    group: BackendGroup, conditions: Sequence[Condition], registered: int, expected: int, *, unread: str = ""
) -> Condition:
    """Return whether every expected backend is registered, and no other condition is bad."""

    def no(reason: ConditionReason, text: str) -> Condition:
        return Condition(ConditionType.PROGRAMMED, False, reason, text)

    wrong = next((condition for condition in conditions if condition.type in _GOOD and not condition.status), None)
    if wrong is not None:
        return no(wrong.reason, wrong.message)
    if registered < expected or not conditions:
        return no(ConditionReason.PENDING, f"{registered} of {expected} backends are registered")
    if not expected and unread:
        return no(ConditionReason.PENDING, f"the hub has not read what the group selects from ({unread})")
    if not expected:
        key = load_balancers_of(group)[0]
        command = f"fairlead explain lb/{key.namespace}/{key.name}"
        text = f"no selected backend exists and is ready; the reason for each is shown by: {command}"
        return no(ConditionReason.BACKEND_NOT_FOUND, text)
    return Condition(ConditionType.PROGRAMMED, True, ConditionReason.PROGRAMMED, "")


class BackendLister:
    """Lists the backends of groups by state."""

    def __init__(self, context: IntentContext, *, decision: LastDecision) -> None:
        self._providers = context.providers
        self._decision = decision

    async def listed(self, group: BackendGroup) -> list[ListedBackend] | None:
        """Return the backends of ``group``, ordered; None until they are known for the present generation."""
        states: dict[str, State] = {}
        for key in load_balancers_of(group):
            rows = await self._at(key, group)
            if rows is None:
                return None
            for backend, state in rows:
                known: State = states.get(backend, state)
                states[backend] = known if _LEAST_FIRST.index(known) <= _LEAST_FIRST.index(state) else state
        return [ListedBackend(backend, state) for backend, state in sorted(states.items())]

    async def _at(self, key: LoadBalancerKey, group: BackendGroup) -> list[tuple[str, State]] | None:
        decision = self._decision(key)
        if decision is None or decision.generations.get(group.key) != group.metadata.generation:
            return None
        if all(runner.loaded and key not in runner.tracker for runner in self._providers.values()):
            return []  # the load balancer was never accepted, so nothing of it is registered anywhere
        runner = self._providers.get(decision.provider)
        state = runner.tracker.state(key) if runner is not None and runner.loaded else None
        if runner is None or state is None or state.desired is None:
            return None
        if not runner.durable and not await _has_taken_effect(runner, key):
            return None
        return list(_rows(state, owner_name(group)))


async def _has_taken_effect(runner: ProviderRunner, key: LoadBalancerKey) -> bool:
    """Return whether every proxy has acknowledged all changes."""
    if runner.tracker.is_dirty(key):
        return False
    observed = await observed_of(runner, key, None)
    return observed is not None and observed.programmed and bool(observed.proxies)


def _rows(state: LoadBalancerState, owner: str) -> Iterator[tuple[str, State]]:
    desired = state.desired.targets if state.desired is not None else {}
    for listener, targets in desired.items():
        done = state.recorded.get(listener, {})
        for key, target in targets.items():
            if owner in target.owners and key not in done and not target.draining:
                yield str(key), "Pending"
    for listener, registered in state.recorded.items():
        targets = desired.get(listener, {})
        for key, entry in registered.items():
            if owner in entry.target.owners:
                yield str(key), _state(entry, desired=key in targets)


def count_awaited(state: LoadBalancerState, owner: str) -> int:
    """Return the number of desired targets of ``owner`` that are not registered, or are being deregistered."""
    desired = state.desired.targets if state.desired is not None else {}
    return sum(
        owner in target.owners
        and not target.draining
        and ((entry := state.recorded.get(listener, {}).get(key)) is None or entry.unknown or entry.deregistering)
        for listener, targets in desired.items()
        for key, target in targets.items()
    )


def _state(registered: Registered, *, desired: bool) -> State:
    if registered.deregistering or not desired:
        return "Deregistering"
    if registered.unknown:
        return "Pending"
    return "Draining" if registered.target.draining else "Registered"
