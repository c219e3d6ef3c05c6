"""A LoadBalancer and the BackendGroups that use it become one desired load balancer.

    nothing wrong                        -> as its spec says
    its provider refuses the change      -> listeners and attributes as they were accepted, all else as it is now
    refused otherwise, accepted before   -> as it was accepted
    never accepted                       -> nothing

Groups are accepted one by one: a refused group keeps its backends, with the parameters with which it was accepted. The
backends that one group contributes:

    static                                 -> target; draining target when it is in spec.draining too
    pod ready                              -> target
    pod deleting, and not ready            -> draining target
    pod deleting, and still ready          -> draining target; stays a target while no other of its listener is ready
    pod not ready, but kept by policy      -> target, if it is on record: a policy never registers
    pod not ready otherwise, or gone       -> no target
    node ready                             -> target at the Service's node port
    node not ready                         -> no target; but when none of them is ready: those that are on record

In: a ``LoadBalancerView``. Out: ``LoadBalancerDecision``; refusals are in the order in which a person would check, and
the provider is asked only about what passes them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from fairlead.api.backendgroup import BackendGroup, BackendPort
from fairlead.api.capiside import RequestCheck
from fairlead.api.intent import Allocation
from fairlead.api.kubernetes import Node, Pod, Service
from fairlead.api.loadbalancer import AcceptedFrontend, LoadBalancer, LoadBalancerListener, LoadBalancerSpec
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.times import seconds_from_duration
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind, Capabilities
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec, GuardPolicy, Listener, Owner, Target, Targets
from fairlead.model.health import HealthCheck, HealthRequest, check_with
from fairlead.model.in_words import whole_number
from fairlead.model.key_pair import readable_authorities
from fairlead.model.keys import ListenerKey, Protocol, TargetKey
from fairlead.translate.endpoints import EndpointState, TargetPolicy, admit, in_service
from fairlead.translate.view import (
    Allocated,
    GroupKey,
    GroupView,
    LoadBalancerDecision,
    LoadBalancerView,
    Recorded,
    build_accepted,
    build_paused,
    build_protected,
    build_unprogrammed,
    check_refusals,
    first_three,
    refused,
    repair_asked,
    repair_s,
    resolved,
    unresolved,
)


def decide_loadbalancer(
    view: LoadBalancerView,
    allocate: Callable[[LoadBalancerView], Allocated] | None = None,
    validated: Callable[[LoadBalancerView, Condition | None], LoadBalancerView] | None = None,
) -> LoadBalancerDecision:
    """Return the desired load balancer of ``view``, with its conditions.

    ``allocate`` is called once the spec is valid. ``validated`` adds the provider's verdict; its second argument is why
    the spec is refused, in which case no provider is asked.
    """
    refusal, problem = refuse(view), None
    if refusal is None and allocate is not None:
        allocation, problem = allocate(view)
        view = replace(view, allocation=allocation)
    if validated is not None:
        view = validated(view, refusal)
    refusal = refusal or view.verdict
    frontend, capabilities = _frontend_to_serve(view, refusal), view.capabilities
    problem = _unallocated(view, problem)
    if frontend is None or capabilities is None or problem is not None:
        unprogrammed = build_unprogrammed(refusal) if refusal else problem
        first = refusal or (build_accepted(None) if problem is not None else None)
        conditions = (first, unprogrammed, build_protected(view.load_balancer))
        return LoadBalancerDecision(
            None,
            tuple(filter(None, conditions)),
            provider=view.class_provider,
            allocation=view.allocation,
            groups=_waiting(view),
            generations=_generations(view),
            view=view,
        )
    groups = _Groups(view, frontend, capabilities)
    targets = groups.merged.targets()
    paused = build_paused(view.load_balancer, view.load_balancer_class)
    conditions = (
        build_accepted(refusal),
        _resolved(view, groups.refused),
        next(iter(groups.merged.conflicts.values()), None),
        groups.stale(),
        build_protected(view.load_balancer),
        paused,
    )
    return LoadBalancerDecision(
        _desired(view, frontend, targets, paused=paused is not None),
        tuple(filter(None, conditions)),
        targets=str(sum(map(len, targets.values()))),
        provider=view.class_provider,
        serving_last_accepted=refusal is not None,
        allocation=view.allocation,
        groups=groups.conditions,
        taken=groups.taken,
        generations=_generations(view),
        view=view,
    )


def frontend_of(view: LoadBalancerView) -> FrontendSpec:
    """Return the frontend of its spec and class."""
    meta, spec = view.load_balancer.metadata, view.load_balancer.spec
    given = view.allocation if view.needs_allocation else Allocation()
    ports = {(port.protocol, port.port): port.proxy_port for port in given.ports or ()}
    listeners = (
        Listener(
            listener.port, Protocol(listener.protocol), listener.name, ports.get((listener.protocol, listener.port), 0)
        )
        for listener in spec.listeners
    )
    return FrontendSpec(
        key=view.key,
        group=view.key.namespace,
        listeners=tuple(sorted(listeners, key=lambda listener: (listener.port, listener.protocol))),
        address=given.address,
        limits_connections=given.limits_connections,
        machines=view.load_balancer.status.serving_machines if view.needs_allocation else (),
        health_check=health_check_of(spec, view.behaviour.health_check),
        outlier_detection=spec.outlier_detection,
        parameters=merged_parameters(view.load_balancer, view.load_balancer_class),
        attributes=dict(sorted(spec.attributes.items())),
        owner=Owner("", view.key.kind, meta.namespace, meta.name, meta.uid),
        existing=bool(spec.existing),
    )


def accepted_frontend(view: LoadBalancerView, decision: LoadBalancerDecision) -> AcceptedFrontend | None:
    """Return the frontend to record for proxies of the hub; the recorded one while the spec is refused."""
    if decision.desired is None or decision.serving_last_accepted:
        return view.load_balancer.status.accepted
    spec, served = view.load_balancer.spec, decision.desired.spec
    return AcceptedFrontend(
        provider=view.class_provider,
        listeners=spec.listeners,
        parameters=dict(served.parameters),
        attributes=spec.attributes,
    )


def merged_parameters(load_balancer: LoadBalancer, load_balancer_class: LoadBalancerClass | None) -> dict[str, str]:
    """Return the parameters of a load balancer ordered by key; those of its class override."""
    spec = load_balancer.spec
    of_class = load_balancer_class.spec.parameters if load_balancer_class is not None else {}
    return dict(sorted({**spec.parameters, **spec.existing, **of_class}.items()))


class _Groups:
    """All groups of one load balancer, by (namespace, name): conditions, parameters in force and merged targets."""

    def __init__(self, view: LoadBalancerView, frontend: FrontendSpec, capabilities: Capabilities) -> None:
        policy = TargetPolicy(
            loopback=view.loopback_targets, host_names=capabilities.host_name_targets, ipv6=capabilities.ipv6
        )
        self.merged = MergedTargets(view, frontend.listeners, policy)
        self.refused: set[str] = set()
        self.conditions: dict[GroupKey, tuple[Condition, ...]] = {}
        self.taken: dict[GroupKey, Mapping[str, str]] = {}
        for group_view in sorted(view.groups, key=lambda item: item.group.key):
            key = group_view.group.key
            refusal = refuse_group(view, group_view) or group_view.verdict
            parameters = group_view.group.spec.parameters if refusal is None else group_view.accepted
            refused: set[str] = set()
            if parameters is not None and not group_view.out_of_scope:
                refused = self.merged.add(group_view, parameters)
                if refusal is None:
                    self.taken[key] = parameters
            self.refused |= refused
            conditions = (
                build_accepted(refusal, served=group_view.accepted is not None),
                *resolve_group(group_view, view.load_balancer.spec.listeners, view.name, refused),
                self.merged.conflicts.get(key),
            )
            self.conditions[key] = tuple(filter(None, conditions))

    def stale(self) -> Condition | None:
        """Return condition Stale of the first group that has it."""
        every = (condition for conditions in self.conditions.values() for condition in conditions)
        return next((condition for condition in every if condition.type is ConditionType.STALE), None)


def _generations(view: LoadBalancerView) -> dict[GroupKey, int]:
    return {item.group.key: item.group.metadata.generation for item in view.groups}


def _unallocated(view: LoadBalancerView, problem: Condition | None) -> Condition | None:
    """Return why no address is allocated, ``problem`` if known; None if there is one, or none is needed."""
    if not view.needs_allocation or view.allocation != Allocation():
        return None
    waiting = Condition(ConditionType.PROGRAMMED, False, ConditionReason.PENDING, "waiting for an address")
    return problem or waiting


def _frontend_to_serve(view: LoadBalancerView, refusal: Condition | None) -> FrontendSpec | None:
    """Return the frontend to serve; None if none was ever accepted."""
    if refusal is None:
        return frontend_of(view)
    if view.needs_allocation:
        # The frontend that proxies of the hub serve while the present spec is refused; None for none before.
        was = view.load_balancer.status.accepted
        if was is None:
            return None
        spec = replace(view.load_balancer.spec, listeners=was.listeners, attributes=was.attributes)
        before = replace(view.load_balancer, spec=spec)
        frontend = frontend_of(replace(view, load_balancer=before))
        return replace(frontend, parameters=was.parameters)
    accepted = view.accepted
    if accepted is None or refusal is not view.verdict:
        return accepted
    # The provider refuses the change, not the load balancer: new credentials of the class are in force at once.
    return replace(frontend_of(view), listeners=accepted.listeners, attributes=accepted.attributes)


def _desired(
    view: LoadBalancerView, frontend: FrontendSpec, targets: Mapping[ListenerKey, Targets], *, paused: bool
) -> DesiredLoadBalancer:
    behaviour, ensure_policy = view.behaviour, view.load_balancer.spec.ensure_policy
    owners = frozenset(owner_of(item) for item in view.groups if not item.out_of_scope)
    return DesiredLoadBalancer(
        spec=frontend,
        targets=targets,
        drain_s=behaviour.drain_s,
        # The machines of a Cluster leave one by one, each deleted or disabled, including the last one.
        guard=GuardPolicy(100, 0) if view.load_balancer.spec.cluster_name else behaviour.guard,
        stale=view.stale,
        # Targets of groups that are gone are removed without the guard: deleting a group is a user's intention.
        owners={} if view.stale else dict.fromkeys(targets, owners),
        paused=paused,
        repair_s=repair_s(ensure_policy) if ensure_policy else behaviour.repair_s,
        repair=repair_asked(view.load_balancer),
    )


def _waiting(view: LoadBalancerView) -> dict[GroupKey, tuple[Condition, ...]]:
    """Return the conditions of the groups of a load balancer that was never accepted."""
    text = f"LoadBalancer {view.name} is not accepted; its own conditions say why"
    return {item.group.key: (unresolved(ConditionReason.NO_SUCH_LOAD_BALANCER, text),) for item in view.groups}


def _resolved(view: LoadBalancerView, refused: set[str]) -> Condition:
    if view.unreadable:
        return unresolved(ConditionReason.INVALID, view.unreadable)
    out = sorted("/".join(item.group.key) for item in view.groups if item.out_of_scope)
    if out:
        text = f"BackendGroup {out[0]} is not in spec.scope; add its namespace there to let it in"
        return unresolved(ConditionReason.OUT_OF_SCOPE, text)
    return unresolved(ConditionReason.INVALID, refused_addresses(refused)) if refused else resolved()


def health_check_of(spec: LoadBalancerSpec, check: HealthCheck | None) -> HealthCheck | None:
    """Return the health check of a load balancer; ``check`` is that of its class."""
    request = spec.health_check
    if request is None or request.disabled:
        return check
    if request.type:
        typed = check_with(check, request.settings)
        if typed is None or typed.request is None or not typed.request.tls:
            return typed
        return replace(typed, request=replace(typed.request, ca_bundle=readable_authorities(request.ca_bundle)[0]))
    return _with_request(check or HealthCheck(), request)


def _with_request(check: HealthCheck, request: RequestCheck) -> HealthCheck:
    return replace(
        check,
        interval_s=seconds_from_duration(request.interval) if request.interval else check.interval_s,
        timeout_s=seconds_from_duration(request.timeout) if request.timeout else check.timeout_s,
        unhealthy_threshold=request.unhealthy or request.unhealthy_threshold or check.unhealthy_threshold,
        healthy_threshold=request.healthy or request.healthy_threshold or check.healthy_threshold,
        request=HealthRequest(
            path=request.path, host=request.host, ca_bundle=readable_authorities(request.ca_bundle)[0]
        ),
    )


class MergedTargets:
    """Targets by listener; the first group by name sets the parameters, and a target stays while it has an owner."""

    def __init__(self, view: LoadBalancerView, listeners: Sequence[Listener], policy: TargetPolicy) -> None:
        self._policy = policy
        self._recorded = view.recorded
        self._listeners = listeners
        self._name = view.name
        self._targets: dict[ListenerKey, dict[TargetKey, Target]] = {listener.key: {} for listener in listeners}
        self._states: dict[ListenerKey, dict[TargetKey, EndpointState]] = {listener.key: {} for listener in listeners}
        self.conflicts: dict[GroupKey, Condition] = {}

    def add(self, view: GroupView, parameters: Mapping[str, str]) -> set[str]:
        """Add the targets of a group with ``parameters``; return the addresses that may not be targets."""
        refused: set[str] = set()
        offered = targets_of_group(view, parameters, self._listeners, self._policy, self._recorded, refused)
        for listener, target, state in offered:
            by_key, states = self._targets[listener], self._states[listener]
            present = by_key.get(target.key)
            by_key[target.key] = target if present is None else self._together(view, present, target)
            states[target.key] = max(state, states.get(target.key, state))
        return refused

    def targets(self) -> dict[ListenerKey, Targets]:
        """Return all targets, ordered by key within each listener."""
        return {listener: self._by_state(listener, by_key) for listener, by_key in self._targets.items()}

    def _by_state(self, listener: ListenerKey, by_key: Mapping[TargetKey, Target]) -> Targets:
        states = self._states[listener]
        serving = in_service(states)
        return {
            key: replace(target, draining=key not in serving, terminating=key in serving and states[key].is_terminating)
            for key, target in sorted(by_key.items())
        }

    def _together(self, view: GroupView, present: Target, other: Target) -> Target:
        if present.parameters != other.parameters:
            first = present.owners[0].removeprefix("BackendGroup/")
            text = (
                f"{present.key} on LoadBalancer {self._name} has other parameters in BackendGroup {first} than in "
                f"{'/'.join(view.group.key)}: those of the first by name count, {first}; make them equal"
            )
            conflict = Condition(ConditionType.CONFLICTED, True, ConditionReason.PARAMETERS_DIFFER, text)
            self.conflicts.setdefault(view.group.key, conflict)
        return replace(
            present,
            # Ordered by name, as the groups are added: the first owner is the one whose parameters are in force.
            owners=tuple(sorted({*present.owners, *other.owners})),
            source=present.source or other.source,
        )


def resolve_group(
    view: GroupView, listeners: Sequence[LoadBalancerListener], load_balancer: str, refused: set[str]
) -> list[Condition]:
    """Return ResolvedRefs of the group for LoadBalancer ``load_balancer``, and Stale when no node is ready."""
    spec = view.group.spec
    if view.out_of_scope:
        text = (
            f"LoadBalancer {load_balancer} does not admit namespace {view.group.metadata.namespace}; "
            "its owner adds the namespace to its spec.scope"
        )
        return [unresolved(ConditionReason.OUT_OF_SCOPE, text)]
    if text := _missing_listener(view.group, listeners, load_balancer):
        return [unresolved(ConditionReason.BACKEND_NOT_FOUND, text)]
    if view.retention_error:
        policy = spec.deregister_webhook.failure_policy if spec.deregister_webhook is not None else "DoNothing"
        text = f"{view.retention_error}; until it answers, spec.deregisterWebhook.failurePolicy {policy} counts"
        return [unresolved(ConditionReason.PROVIDER_FAILED, text)]
    if text := _unusable_service(view):
        return [unresolved(ConditionReason.BACKEND_NOT_FOUND, text)]
    if refused:
        return [unresolved(ConditionReason.INVALID, refused_addresses(refused, "spec.static: " if spec.static else ""))]
    if spec.service is not None and view.nodes and not any(map(is_node_ready, view.nodes)):
        text = f"none of {len(view.nodes)} nodes that spec.service chooses is Ready; those that are registered stay"
        return [resolved(), Condition(ConditionType.STALE, True, ConditionReason.ALL_NODES_NOT_READY, text)]
    return [resolved()]


def refused_addresses(refused: set[str], field: str = "") -> str:
    """Return the message that names the excluded addresses, and the valid form of an address."""
    first_refused = first_three(refused)
    return (
        f"{field}no backend can be at {first_refused}; write address:port, with an address that the provider can reach"
    )


def _missing_listener(group: BackendGroup, listeners: Sequence[LoadBalancerListener], load_balancer: str) -> str:
    for port in _ports(group):
        name = port.listener or group.spec.listener
        if not listeners_named(listeners, name, port.protocol):
            description = f"listener {name!r} of protocol {port.protocol}" if name else f"{port.protocol} listener"
            return f"LoadBalancer {load_balancer} has no {description}; its spec.listeners are what there is"
    return ""


def _ports(group: BackendGroup) -> Sequence[BackendPort]:
    spec = group.spec
    if spec.pods is not None:
        return spec.pods.ports
    return [spec.service.port] if spec.service is not None else [BackendPort(0)]


def _unusable_service(view: GroupView) -> str:
    wanted = view.group.spec.service
    if wanted is None:
        return ""
    name = f"{view.group.metadata.namespace}/{wanted.name}"
    if view.service is None:
        return f"spec.service.name: there is no Service {name}"
    if not node_port_of(view.service, wanted.port):
        port = f"{wanted.port.protocol}/{wanted.port.port}"
        return (
            f"spec.service.port: Service {name} has no node port for {port}; make it of type NodePort, with that port"
        )
    if not view.nodes:
        return "spec.service.nodeSelector: no node has these labels"
    return ""


def refuse(view: LoadBalancerView) -> Condition | None:
    """Return why the load balancer cannot be served, before its provider is asked; None if it can."""
    return next(_refusals(view), None)


def refuse_group(view: LoadBalancerView, group_view: GroupView) -> Condition | None:
    """Return why the load balancer does not accept a group in its current form, before its provider is asked."""
    closed = view.load_balancer_class.closed if view.load_balancer_class else ""
    if closed and group_view.accepted is None:
        return refused(ConditionReason.CLASS_DRAINING, f"spec.loadBalancers: {view.name}: {closed}")
    parameters = group_view.group.spec.parameters
    weight = weight_of(parameters)
    if weight is None:
        text = f"spec.parameters.weight: {parameters['weight'][:20]!r} is not a whole number from 0 to {HEAVIEST}"
        return refused(ConditionReason.INVALID, text)
    if weight != 1 and view.capabilities is not None and not view.capabilities.weights:
        text = f"spec.parameters.weight: the class of {view.name} knows no weights; leave it out"
        return refused(ConditionReason.INVALID, text)
    return None


def is_of_the_class(parameter: str, capabilities: Capabilities) -> bool:
    """Return whether only a LoadBalancerClass may set ``parameter``."""
    reserved = capabilities.class_parameters
    return parameter in reserved or any(name.endswith(".") and parameter.startswith(name) for name in reserved)


def _refusals(view: LoadBalancerView) -> Iterator[Condition]:
    spec, load_balancer_class, capabilities = view.load_balancer.spec, view.load_balancer_class, view.capabilities
    if load_balancer_class is None:
        text = f"there is no LoadBalancerClass {spec.class_name!r} at the hub; kubectl get lbc lists those there"
        yield refused(ConditionReason.NO_SUCH_CLASS, f"spec.className: {text}")
        return
    if capabilities is None:
        text = (
            f"LoadBalancerClass {spec.class_name!r} names provider {view.class_provider!r}, which this hub does "
            "not run; create another LoadBalancer, of a class whose provider it runs"
        )
        yield refused(ConditionReason.NO_SUCH_CLASS, f"spec.className: {text}")
        return
    if capabilities.allocation is not AllocationKind.NONE and not spec.cluster_name:
        text = (
            f"LoadBalancerClass {spec.class_name!r} is for Services, which the hub's own proxies serve; create "
            "another LoadBalancer, of a class for a load balancer that you have already"
        )
        yield refused(ConditionReason.INVALID, f"spec.className: {text}")
    if not view.living and load_balancer_class.closed:
        yield refused(ConditionReason.CLASS_DRAINING, f"spec.className: {load_balancer_class.closed}")
    yield from _parameters_of_the_class(view, capabilities)
    for listener in spec.listeners:
        if Protocol(listener.protocol) not in capabilities.protocols:
            text = f"spec.listeners: {listener.protocol}/{listener.port}: this class has no {listener.protocol}"
            yield refused(ConditionReason.UNSUPPORTED_PROTOCOL, text)
    settings = spec.health_check.settings if spec.health_check is not None else None
    if spec.health_check is not None and (field := spec.health_check.field_without_type):
        text = f"spec.healthCheck: {field} needs a type; set spec.healthCheck.type to tcp, http or grpc"
        yield refused(ConditionReason.INVALID, text)
    if spec.health_check is not None and (problem := readable_authorities(spec.health_check.ca_bundle)[1]):
        text = f"spec.healthCheck.caBundle: {problem}; write the authorities of the members' certificates"
        yield refused(ConditionReason.INVALID, text)
    for text in check_refusals(settings, spec.outlier_detection, capabilities):
        yield refused(ConditionReason.INVALID, text)
    if view.conflict:
        yield refused(ConditionReason.INVALID, f"spec.existing: {_conflict(view)}, or correct spec.existing")


def _conflict(view: LoadBalancerView) -> str:
    """Return the other LoadBalancer with the same identity; names in other namespaces are not disclosed."""
    if view.conflict.partition("/")[0] != view.key.namespace:
        return "a LoadBalancer in another namespace uses this load balancer; ask its owner to share it with spec.scope"
    return (
        f"LoadBalancer {view.conflict} uses it already; name {view.conflict} in spec.loadBalancers of the "
        "BackendGroups instead"
    )


def _parameters_of_the_class(view: LoadBalancerView, capabilities: Capabilities) -> Iterator[Condition]:
    spec, of_class = view.load_balancer.spec, view.behaviour.parameters
    for field, parameters in (("parameters", spec.parameters), ("existing", spec.existing)):
        for key, value in sorted(parameters.items()):
            if key in of_class and of_class[key] != value:
                text = (
                    f"LoadBalancerClass {spec.class_name!r} sets this, and the class counts; create another "
                    "LoadBalancer without it, or of another class"
                )
                yield refused(ConditionReason.INVALID, f"spec.{field}.{key}: {text}")
            elif key not in of_class and is_of_the_class(key, capabilities):
                text = (
                    "only a LoadBalancerClass may set this; create another LoadBalancer without it, or ask the "
                    "operator for a class that has it"
                )
                yield refused(ConditionReason.INVALID, f"spec.{field}.{key}: {text}")


#: The highest weight that every provider with weights accepts.
HEAVIEST = 256


def owner_of(view: GroupView) -> str:
    """Return the name under which the ledger records the group."""
    return f"BackendGroup/{'/'.join(view.group.key)}"


def is_node_ready(node: Node) -> bool:
    """Return whether a node may be registered."""
    return node.ready and not node.deleting


def weight_of(parameters: Mapping[str, str]) -> int | None:
    """Return the weight in ``parameters``, 1 when they have none; None when it is not a weight."""
    return whole_number(parameters.get("weight", "1"), most=HEAVIEST)


class _SelectedAddress(msgspec.Struct, frozen=True):
    """One address that the group selects; ``new``: it may be registered, otherwise it is kept only if recorded."""

    raw: str
    port: int
    source: str = ""
    listener: str = ""
    protocol: str = "TCP"
    state: EndpointState = EndpointState.READY
    new: bool = True
    #: As the user wrote it, when it is more than the address.
    written: str = ""


def targets_of_group(
    view: GroupView,
    parameters: Mapping[str, str],
    listeners: Sequence[Listener],
    policy: TargetPolicy,
    recorded: Recorded,
    refused: set[str],
) -> Iterator[tuple[ListenerKey, Target, EndpointState]]:
    """Yield the targets of the group with ``parameters`` and their states; add refused ones to ``refused``."""
    ordered = tuple(sorted(parameters.items()))
    weight = weight_of(parameters)
    if weight is None:
        weight = 1  # accepted before weights were validated
    for offer in (*_static(view), *_pods(view), *_nodes(view)):
        address = admit(offer.raw, policy)
        if address is None or not 0 < offer.port < 65536:
            refused.add(offer.written or offer.raw)
            continue
        key = TargetKey(address, offer.port)
        target = Target(key, weight, owners=(owner_of(view),), parameters=ordered, source=offer.source)
        for listener in listeners_named(listeners, offer.listener, offer.protocol):
            if offer.new or (listener, key) in recorded:
                yield listener, target, offer.state


def listeners_named(
    listeners: Iterable[Listener] | Iterable[LoadBalancerListener], name: str, protocol: str
) -> list[ListenerKey]:
    """Return the listener called ``name`` of ``protocol``; without a name all of that protocol."""
    return [
        ListenerKey(Protocol(listener.protocol), listener.port)
        for listener in listeners
        if listener.protocol == protocol and (not name or listener.name == name)
    ]


def node_port_of(service: Service, wanted: BackendPort) -> int:
    """Return the node port of ``wanted``, 0 when the Service has none."""
    for port in service.spec.ports or ():
        if port.port == wanted.port and (port.protocol or "TCP") == wanted.protocol:
            return port.node_port or 0
    return 0


def _static(view: GroupView) -> Iterator[_SelectedAddress]:
    spec = view.group.spec
    for backend in spec.static or ():
        raw, _, port = backend.rpartition(":")
        number = whole_number(port) or 0
        state = EndpointState.UNREADY if backend in (spec.draining or ()) else EndpointState.READY
        yield _SelectedAddress(raw.strip("[]"), number, listener=spec.listener, state=state, written=backend)


def _pods(view: GroupView) -> Iterator[_SelectedAddress]:
    spec = view.group.spec
    for pod in view.pods:
        if not pod.status.pod_ip or not (pod.ready or _keeps_place(pod, view)):
            continue
        meta = pod.metadata
        source = f"Pod/{meta.namespace}/{meta.name}/{meta.uid}"
        state = EndpointState.READY
        if pod.deleting:
            state = EndpointState.SERVING if pod.serving else EndpointState.GONE
        for port in spec.pods.ports if spec.pods is not None else ():
            name = port.listener or spec.listener
            yield _SelectedAddress(pod.status.pod_ip, port.port, source, name, port.protocol, state, pod.ready)


def _keeps_place(pod: Pod, view: GroupView) -> bool:
    """Return whether a recorded pod that is not ready stays registered (one that is being deleted drains)."""
    policy = view.group.spec.deregister_policy
    if pod.deleting:
        return True
    if policy == "IfNotRunning":
        return pod.status.phase == "Running"
    return policy == "Webhook" and pod.key in view.kept


def _nodes(view: GroupView) -> Iterator[_SelectedAddress]:
    wanted = view.group.spec.service
    if wanted is None or view.service is None or not (number := node_port_of(view.service, wanted.port)):
        return
    none_ready = not any(map(is_node_ready, view.nodes))
    name = wanted.port.listener or view.group.spec.listener
    for node in view.nodes:
        ready = is_node_ready(node)
        addresses = (item.address for item in node.status.addresses or () if item.type == "InternalIP")
        if (raw := next(addresses, "")) and (ready or none_ready):
            source = f"Node//{node.metadata.name}/{node.metadata.uid}"
            yield _SelectedAddress(raw, number, source, name, wanted.port.protocol, new=ready)
