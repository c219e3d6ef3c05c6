"""LoadBalancer: a load balancer as an object, which BackendGroups share.

view       the object, its class, the groups that name it, the objects that they select, the records; and the answers of
           its provider about a spec, parameters, and pods that are not ready (``validation``)
record     the finalizer, and for each group the parameters with which it was accepted
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec

from fairlead.api.backendgroup import BACKEND_GROUPS, AcceptedBackends, BackendGroup, BackendRecord, RecordOrigin
from fairlead.api.intent import Allocation
from fairlead.api.kubernetes import LoadBalancerStatus as IngressStatus
from fairlead.api.loadbalancer import (
    LOAD_BALANCERS,
    AcceptedFrontend,
    LoadBalancer,
    LoadBalancerListener,
    LoadBalancerObjectStatus,
)
from fairlead.api.meta import JSONObject, Transition, WireCondition
from fairlead.api.names import FINALIZER_CLEANUP, MANAGER_HUB, MANAGER_RECORD
from fairlead.errors import FairleadError, NotFound, Retry
from fairlead.hub.intents.backend_groups import (
    BackendSources,
    GroupStatusWriter,
    LoadBalancerObjects,
    excluded_backends,
    owner_name,
)
from fairlead.hub.intents.intent import Controller, Exclusion, Intent, IntentContext, RecordResult, RemainsHolder
from fairlead.hub.intents.status import StatusRules
from fairlead.hub.inventory import UNTIL_READ
from fairlead.hub.providers.registry import Placement
from fairlead.hub.validation import ProviderValidation, ValidationCache, as_recorded_verdicts
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import check_leads
from fairlead.kube.writes import hold, write_status
from fairlead.ledger.records import listener_of, load_balancer_of, target_of
from fairlead.model.change import TargetChange
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.desired import FrontendSpec
from fairlead.model.in_words import counted
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol
from fairlead.model.observed import Observed
from fairlead.sync.history import Report
from fairlead.translate.loadbalancer import accepted_frontend, decide_loadbalancer, merged_parameters
from fairlead.translate.view import Allocated, GroupView, LoadBalancerDecision, LoadBalancerView, is_leaving


class LoadBalancerIntent(Intent[LoadBalancerView, LoadBalancerDecision]):
    """LoadBalancers with their BackendGroups."""

    def __init__(self, context: IntentContext) -> None:
        self._objects = objects = LoadBalancerObjects(context.cluster, context.inventory)
        self._context = context
        self.sources = BackendSources(context.cluster, changed=objects.selection_changed)
        self._last_accepted = LastAccepted(context.cluster, objects, context.leading)
        self._allocations = Allocations(context, objects)
        self._cache = ValidationCache(clock=context.clock, leading=context.leading, wake=self._verdict_changed)
        self._validation = ProviderValidation(
            inventory=context.inventory, providers=context.providers, cache=self._cache
        )
        self._group_status = GroupStatusWriter(
            context, objects=objects, unread=self.sources.need, decision=self._last_decision
        )
        rules = LoadBalancerStatusRules(context, composed=self._group_status.load_balancer_changed)
        super().__init__(context, objects=objects, rules=rules)

    def watch(self) -> None:
        """Subscribe to groups, and to records, which the status counts."""
        self._context.inventory.records.on_object(self._record_changed)
        self._objects.groups.on_change(self._group_status.changed)
        self._objects.groups.on_change(self._validation.group_changed)

    def view(self, key: LoadBalancerKey) -> LoadBalancerView | None:
        """Return the view of ``key``; None when its object does not exist or is being deleted."""
        obj = self._objects.get(key)
        if obj is None or is_leaving(obj):
            return None
        inventory, at_proxies = self._context.inventory, obj.status.accepted
        groups = [group for group in self._objects.groups_of(key) if not is_leaving(group)]
        unreadable = self._objects.unreadable_groups((key.namespace, *(obj.spec.scope or ())))
        unreadable = unreadable or next(filter(None, map(self.sources.unreadable, groups)), "")
        problems = [inventory.problem_for(key), unreadable, *(self.sources.need(group) for group in groups)]
        records = inventory.records.by_index("lb", key)
        return LoadBalancerView(
            key=key,
            load_balancer=obj,
            load_balancer_class=inventory.load_balancer_class(obj.spec.class_name),
            providers=self._context.providers.capabilities,
            groups=tuple(self._group_view(group, obj, key, records) for group in groups),
            recorded=frozenset(
                (listener_of(record), target_of(record).key) for record in records if not record.deleting
            ),
            conflict=self._conflict(obj),
            stale="; ".join(dict.fromkeys(filter(None, problems))),
            unreadable=f"{unreadable}; {UNTIL_READ}" if unreadable else "",
            loopback_targets=self._context.loopback_targets,
            living=self._last_accepted.is_living(obj),
            accepted=self._last_accepted.spec_of(obj),
            provider=obj.status.serving_provider or (at_proxies.provider if at_proxies is not None else ""),
            allocation=obj.status.allocation,
        )

    def decide(self, view: LoadBalancerView) -> LoadBalancerDecision:
        """Return the decision about ``view``; its provider is asked only while this replica leads."""
        if self._context.read_only:
            return decide_loadbalancer(view, validated=lambda viewed, _refusal: as_recorded_verdicts(viewed))
        if not self._context.leading():
            self._allocations.hold(view)
            return decide_loadbalancer(view)
        return decide_loadbalancer(view, self._allocations.allocate, self._validation.validated)

    async def record(self, view: LoadBalancerView, decision: LoadBalancerDecision) -> RecordResult:
        """Record what is accepted; a group that cannot be recorded is left out, and the others are placed."""
        if decision.desired is None or decision.serving_last_accepted:
            # The allocation of a version that was never recorded serves nothing, and others may wait for it.
            self._allocations.hold(view)
        view = decision.view or view
        if decision.desired is None:
            return RecordResult(decision=None if view.pending else decision)
        load_balancer = await self._last_accepted.hold(view.load_balancer)
        if view.needs_allocation:
            accepted = accepted_frontend(view, decision)
            await self._last_accepted.accept(load_balancer, view.allocation, accepted)
        gone, failure = False, None
        groups: list[GroupView] = []
        for group_view in view.groups:
            parameters = decision.taken.get(group_view.group.key)
            try:
                if parameters is not None:
                    await self._last_accepted.record(group_view.group, view.load_balancer, view.key, parameters)
                groups.append(group_view)
                continue
            except NotFound as error:
                gone, text = True, error.sentence
            except FairleadError as error:
                failure, text = failure or error, error.sentence
            pending = Condition(ConditionType.ACCEPTED, False, ConditionReason.PENDING, text)
            groups.append(msgspec.structs.replace(group_view, verdict=pending))
        if gone or failure is not None:
            decision = decide_loadbalancer(msgspec.structs.replace(view, groups=tuple(groups)))
        return RecordResult(decision=None if view.pending else decision, placement=Placement(decision), failure=failure)

    def placement_from_record(self, view: LoadBalancerView, decision: LoadBalancerDecision) -> RecordResult:
        """Place what is on record at proxies of this hub; only the leader calls other providers."""
        if view.needs_allocation and decision.desired is not None:
            return RecordResult(decision=decision, placement=Placement(decision))
        return RecordResult(decision=decision)

    def restore(self) -> None:
        """Hold every recorded address and port, so that none of them is allocated to another load balancer."""
        self._allocations.hold_recorded()

    def lead(self) -> None:
        """Repeat unanswered questions to providers, and compare the status of every group."""
        self._cache.again()
        self._group_status.add(group.key for group in self._objects.groups.values())

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop the state of ``key``, and compare the status of its groups."""
        super().forget(key)
        self._validation.forget(key)
        self._group_status.load_balancer_changed(key)

    def exclusions(self, view: LoadBalancerView, decision: LoadBalancerDecision) -> tuple[Exclusion, ...]:
        """Return the pods, nodes and addresses of its groups that are not on the load balancer."""
        if decision.desired is None:
            return ()
        return excluded_backends(decision.view or view, decision.desired, self.sources)

    def target_ref(self, change: TargetChange) -> RecordOrigin | None:
        """Return the pod or Service behind the target of ``change``.

        Raises:
            Retry: no group names the Service any longer.
        """
        kind, *rest = change.target.source.split("/")
        if kind == "Pod" and len(rest) == 3:
            return self._pod_origin(*rest)
        if kind == "Node" and len(rest) == 3:
            node = rest[1]
            for owner in change.target.owners:
                _, namespace, name = owner.split("/")
                group = self._objects.groups.get(namespace, name)
                service = self.sources.service_of(group) if group is not None else None
                if group is None or group.spec.service is None or service is None:
                    continue
                node_object = self.sources.nodes.get("", node)
                return RecordOrigin(
                    "Service",
                    *service.key,
                    service.metadata.uid,
                    labels=service.metadata.labels or {},
                    node_name=node,
                    service_port=group.spec.service.port.port,
                    node_addresses=list(node_object.status.addresses or ()) if node_object is not None else [],
                )
            raise Retry(f"{change.key}: its Service is gone; the hub retries automatically", reason="Gone")
        return None

    def controllers(self) -> Sequence[Controller]:
        """Return the controllers of validation and of the groups' status."""
        return (
            Controller("opinion", self._cache.queue, self._cache.ask, 8),
            Controller("backendgroup", self._group_status.queue, self._group_status.reconcile, 2),
        )

    async def wait_synced(self, timeout_s: float) -> None:
        """Return once everything that some group selects from has been read."""
        await self.sources.wait_synced(self._objects.groups.values(), timeout_s)

    def tasks(self) -> Sequence[Coroutine[None, None, None]]:
        """Return the caches that groups select from, which run once a group needs them."""
        return (self.sources.run(),)

    def _group_view(
        self, group: BackendGroup, obj: LoadBalancer, key: LoadBalancerKey, records: Sequence[BackendRecord]
    ) -> GroupView:
        namespace = group.metadata.namespace
        pods = self.sources.pods_of(group)
        return GroupView(
            group,
            pods=pods,
            service=self.sources.service_of(group),
            nodes=self.sources.nodes_of(group),
            # All pods are kept until a driver has answered which ones are.
            kept=frozenset(pod.key for pod in pods),
            out_of_scope=namespace != obj.metadata.namespace and not {"*", namespace} & set(obj.spec.scope or ()),
            accepted=self._last_accepted.parameters_of(group, obj, key, records),
        )

    def _conflict(self, obj: LoadBalancer) -> str:
        """Return the namespace/name of an older LoadBalancer with the same ``existing``, empty when there is none."""
        if not obj.spec.existing:
            return ""
        identity = self._identity(obj)
        same = (
            other for other in self._objects.cache.values() if other.spec.existing and self._identity(other) == identity
        )
        oldest = min(same, key=attrgetter("age_order"))
        return "" if oldest.key == obj.key else "/".join(oldest.key)

    def _identity(self, obj: LoadBalancer) -> tuple[object, ...]:
        load_balancer_class = self._context.inventory.load_balancer_class(obj.spec.class_name)
        provider = load_balancer_class.spec.provider if load_balancer_class is not None else ""
        return (provider, tuple(merged_parameters(obj, load_balancer_class).items()))

    def _pod_origin(self, namespace: str, name: str, uid: str) -> RecordOrigin:
        pod = self.sources.pods.get(namespace, name)
        if pod is None or pod.metadata.uid != uid:
            return RecordOrigin("Pod", namespace, name, uid)
        return RecordOrigin(
            "Pod",
            namespace,
            name,
            uid,
            labels=pod.metadata.labels or {},
            phase=pod.status.phase or "",
            node_name=pod.spec.node_name or "",
        )

    def _last_decision(self, key: LoadBalancerKey) -> LoadBalancerDecision | None:
        return self.status.decision(key)

    def _verdict_changed(self, keys: Iterable[LoadBalancerKey]) -> None:
        self._context.inventory.wake(keys, "the provider answered a validation")

    def _record_changed(self, record: BackendRecord) -> None:
        if (key := load_balancer_of(record)).kind == self.objects.resource.kind:
            self.status.refresh(key)


class Allocations:
    """The allocations of LoadBalancers of Clusters."""

    def __init__(self, context: IntentContext, objects: LoadBalancerObjects) -> None:
        self._allocator = context.allocator
        self._objects = objects
        self._remains = RemainsHolder(objects, context.allocator, lambda spec: _keys(spec.listeners))

    def hold_recorded(self) -> None:
        """Hold every recorded address and port, so that none of them is allocated to another load balancer."""
        for obj in self._objects.served():
            if obj.spec.cluster_name:
                self._allocator.hold(_key(obj), obj.status.allocation, _served(obj))
        self._remains.hold()

    def hold(self, view: LoadBalancerView) -> None:
        """Hold the leader's allocations, in case this replica becomes the leader."""
        if view.needs_allocation and view.load_balancer.spec.cluster_name:
            self._allocator.hold(view.key, view.allocation, _served(view.load_balancer))

    def allocate(self, view: LoadBalancerView) -> Allocated:
        """Return the allocation for ``view``; the recorded one when its provider needs none."""
        obj, capabilities = view.load_balancer, view.capabilities
        if capabilities is None or not view.needs_allocation or not obj.spec.cluster_name:
            return view.allocation, None
        host = obj.spec.endpoint.host
        return self._allocator.allocate(
            view.key,
            capabilities.allocation,
            # An endpoint outside the pools is a name, or an address elsewhere that leads to the allocated one.
            requested=host if host in self._allocator.pools else "",
            recorded=obj.status.allocation,
            listeners=_keys(obj.spec.listeners),
            served=_served(obj),
            class_name=obj.class_name,
        )


def _served(obj: LoadBalancer) -> list[ListenerKey]:
    """Return the listeners that were accepted last: those of a refused spec are not served."""
    return _keys((obj.status.accepted or obj.spec).listeners)


def _keys(listeners: Iterable[LoadBalancerListener]) -> list[ListenerKey]:
    return [ListenerKey(Protocol(listener.protocol), listener.port) for listener in listeners]


class LoadBalancerStatusRules(StatusRules[LoadBalancer, LoadBalancerDecision]):
    """The status of LoadBalancers; ``composed`` is called with each key whose status was composed."""

    needs_address = False
    owned_elsewhere = (*StatusRules.owned_elsewhere, "accepted", "names")

    def __init__(self, context: IntentContext, *, composed: Callable[[LoadBalancerKey], None]) -> None:
        super().__init__(events=context.events, resource=LOAD_BALANCERS)
        self._inventory = context.inventory
        self._providers = context.providers
        self._composed = composed

    def compose(
        self,
        obj: LoadBalancer,
        decision: LoadBalancerDecision,
        conditions: list[WireCondition],
        observed: Observed | None,
    ) -> LoadBalancerObjectStatus:
        """Return the status; without an observed address, with the recorded one."""
        self._composed(_key(obj))
        frontend = next(iter(obj.status.recorded), None)
        addresses = observed.addresses if observed is not None else ()
        if not addresses and frontend is not None:
            addresses = tuple(frontend.addresses or ())
        status = super().compose(obj, decision, conditions, None)
        health = observed.health if observed is not None else None
        healthy = f", {health.healthy} healthy" if health is not None and health.checked else ""
        return msgspec.structs.replace(
            status,
            address=addresses[0] if addresses else "",
            backends=f"{self._registered(obj, decision.provider)}/{decision.targets or 0}{healthy}",
            unhealthy_targets=(list(health.unhealthy) or None) if health is not None else None,
            load_balancer=IngressStatus(ingress=self.ingress(obj, addresses) or None),
        )

    def programmed(self, obj: LoadBalancer, status: LoadBalancerObjectStatus) -> str:
        """Return the number of backends in use."""
        del status
        load_balancer_class = self._inventory.load_balancer_class(obj.class_name)
        of_class = load_balancer_class.spec.provider if load_balancer_class is not None else ""
        registered = self._registered(obj, of_class or obj.status.serving_provider)
        return f"in use, with {counted(registered, 'backend')} registered"

    def quiet(self, change: Transition, report: Report | None) -> bool:
        """Return whether ``reported`` has emitted the Event, with the provider's own reason."""
        failed = report is not None and report.failure != "" and change.condition.message == report.failure
        return failed or change.condition.reason == ConditionReason.QUARANTINED

    def reported(self, obj: LoadBalancer, report: Report) -> None:
        """Emit every removal with its reason, the quarantined backends, and a failure."""
        if report.done:
            self._composed(_key(obj))
        removed: dict[tuple[str, str], list[str]] = {}
        for change in report.done:
            if change.is_removal:
                removed.setdefault((change.action, change.reason), []).append(str(change.key))
        for (action, reason), keys in removed.items():
            some = ", ".join(sorted(keys)[:5]) + (" and more" if len(keys) > 5 else "")
            self._emit(obj, action, f"{counted(len(keys), 'backend')}, {reason}: {some}", warning=False)
        if report.quarantined:
            first = report.quarantined[0]
            self._emit(obj, "Quarantined", f"{first.change.key}: {first.message}")
        if report.failure:
            self._emit(obj, report.failure_reason or "ProviderFailed", report.failure)

    def _emit(self, obj: LoadBalancer, reason: str, message: str, *, warning: bool = True) -> None:
        self._events.emit_about(self.resource, obj, warning=warning, reason=reason, message=message)

    def _registered(self, obj: LoadBalancer, provider: str) -> int:
        runner = self._providers.get(provider)
        if runner is not None and not runner.durable:
            # The hub's own proxies have no records.
            state = runner.tracker.state(_key(obj))
            rows = state.recorded.values() if state is not None else ()
            return sum(not entry.target.draining for targets in rows for entry in targets.values())
        records = self._inventory.records.by_index("lb", _key(obj))
        return sum(record.status.state == "Registered" for record in records)


def _key(obj: LoadBalancer) -> LoadBalancerKey:
    return LoadBalancerKey(LOAD_BALANCERS.kind, *obj.key)


class LastAccepted:
    """Reads and writes the record of what was accepted."""

    def __init__(self, cluster: Cluster, objects: LoadBalancerObjects, leading: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._objects = objects
        self._leading = leading

    @staticmethod
    def is_living(load_balancer: LoadBalancer) -> bool:
        """Return whether the load balancer was accepted before: the finalizer is written first."""
        return load_balancer.held_by(FINALIZER_CLEANUP)

    @staticmethod
    def spec_of(load_balancer: LoadBalancer) -> FrontendSpec | None:
        """Return the frontend that the provider was last asked for, None when there is none."""
        entry = next(iter(load_balancer.status.recorded), None)
        return entry.spec(_key(load_balancer)) if entry is not None else None

    def parameters_of(
        self, group: BackendGroup, load_balancer: LoadBalancer, key: LoadBalancerKey, records: Iterable[BackendRecord]
    ) -> Mapping[str, str] | None:
        """Return the parameters with which ``load_balancer`` accepted ``group``, None if it never did."""
        accepted = _accepted(group, key)
        if accepted is not None and accepted.uid == load_balancer.metadata.uid:
            return accepted.parameters or {}
        owner = owner_name(group)
        of_group = (record for record in records if owner in (record.spec.owners or ()) and not record.deleting)
        record = next(of_group, None)
        return record.spec.parameters or {} if record is not None else None

    async def hold(self, load_balancer: LoadBalancer) -> LoadBalancer:
        """Add our finalizer to a load balancer; return the load balancer with it."""
        check_leads(self._leading, f"{LOAD_BALANCERS.kind} {load_balancer.key}")
        held = await hold(self._cluster, LOAD_BALANCERS, load_balancer, FINALIZER_CLEANUP, manager=MANAGER_HUB)
        return held if held is load_balancer else self._objects.present.written(held, before=load_balancer)

    async def accept(
        self, load_balancer: LoadBalancer, allocation: Allocation, accepted: AcceptedFrontend | None
    ) -> None:
        """Record the frontend and addresses of the hub's proxies before anything uses them, when they differ."""
        status = load_balancer.status
        old = LoadBalancerObjectStatus(allocation=status.allocation, accepted=status.accepted)
        new = LoadBalancerObjectStatus(allocation=allocation, accepted=accepted)
        check_leads(self._leading, f"{LOAD_BALANCERS.kind} {load_balancer.key}")
        answer = await write_status(self._cluster, LOAD_BALANCERS, load_balancer, old, new, manager=MANAGER_RECORD)
        if answer is not None:
            self._objects.present.written(answer, before=load_balancer)

    async def record(
        self, group: BackendGroup, load_balancer: LoadBalancer, key: LoadBalancerKey, parameters: Mapping[str, str]
    ) -> None:
        """Record that ``load_balancer`` accepts ``group`` with ``parameters``; no write without a change."""
        meta = group.metadata
        accepted = AcceptedBackends(load_balancer.metadata.uid, dict(parameters))
        known = _accepted(group, key)
        names = {name if "/" in name else f"{meta.namespace}/{name}" for name in group.spec.load_balancers}
        removed: JSONObject = {name: None for name in group.status.accepted or () if name not in names}
        if known == accepted and not removed:
            return
        # A merge patch adds to maps, so removed keys must be named.
        value = {
            "uid": accepted.uid,
            "parameters": {**dict.fromkeys(known.parameters or () if known is not None else ()), **parameters},
        }
        patch = {
            "metadata": {"uid": meta.uid},
            "status": {"accepted": {**removed, f"{key.namespace}/{key.name}": value}},
        }
        check_leads(self._leading, f"{BACKEND_GROUPS.kind} {group.key}")
        answer = await self._cluster.merge_patch(
            BACKEND_GROUPS, meta.namespace, meta.name, patch, subresource="status", manager=MANAGER_RECORD
        )
        self._objects.present_groups.written(answer, before=group)


def _accepted(group: BackendGroup, key: LoadBalancerKey) -> AcceptedBackends | None:
    """Return the record of the load balancer ``key`` in a group, None when it never accepted the group."""
    return (group.status.accepted or {}).get(f"{key.namespace}/{key.name}")
