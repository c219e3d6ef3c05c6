"""A LoadBalancer and the BackendGroups that use it become one desired load balancer.

    nothing wrong                        -> as its spec says
    its provider refuses the change      -> listeners and attributes as they were accepted, all else as it is now
    refused otherwise, accepted before   -> as it was accepted
    never accepted                       -> nothing

In: a ``LoadBalancerView``. Out: ``LoadBalancerTranslation``. Two groups that want one address own it
together: it goes with the last of them. Groups are accepted one by one: a refused one brings what
it brought before, with the parameters of then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.api.durations import seconds_from_duration
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.loadbalancerclass import LoadBalancerClass, LoadBalancerClassSpec
from fairlead.api.names import ANNOTATION_PAUSED
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind, Capabilities
from fairlead.model.desired import (
    DesiredLoadBalancer,
    FrontendSpec,
    GuardPolicy,
    HealthCheck,
    Listener,
    Owner,
    Target,
    Targets,
)
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.translate.backendgroup import (
    HEAVIEST,
    GroupView,
    Recorded,
    owner_of,
    refused_addresses,
    resolve_group,
    targets_of_group,
    weight_of,
)
from fairlead.translate.endpoints import TargetPolicy
from fairlead.translate.protection import build_protected
from fairlead.translate.tcp import repair_s
from fairlead.translate.view import Translation

__all__ = ["GroupView", "LoadBalancerTranslation", "LoadBalancerView", "translate_loadbalancer"]

GroupKey = tuple[str, str]


class LoadBalancerView(msgspec.Struct, frozen=True):
    """The view of one LoadBalancer; ``recorded`` is what the ledger holds, ``conflict`` who has the same identity.

    ``living``: it was accepted before. ``accepted`` is what its provider was last asked for, and ``provider`` who that
    was. ``verdict`` is what the provider says of the present spec, when that is not yes.
    """

    key: LoadBalancerKey
    load_balancer: LoadBalancer
    load_balancer_class: LoadBalancerClass | None
    providers: Mapping[str, Capabilities]
    groups: tuple[GroupView, ...] = ()
    recorded: Recorded = frozenset()
    conflict: str = ""
    stale: str = ""
    loopback_targets: bool = False
    living: bool = False
    accepted: FrontendSpec | None = None
    provider: str = ""
    verdict: Condition | None = None

    @property
    def class_spec(self) -> LoadBalancerClassSpec:
        """Return how it behaves; when its class is gone, as one does that says nothing."""
        found = self.load_balancer_class
        return found.spec if found is not None else LoadBalancerClassSpec(provider=self.provider)


class LoadBalancerTranslation(Translation, frozen=True):
    """What a view comes to; ``groups`` is what each group is told of it, ``taken`` with which parameters it is in."""

    groups: Mapping[GroupKey, tuple[Condition, ...]] = msgspec.field(
        default_factory=dict[GroupKey, tuple[Condition, ...]]
    )
    taken: Mapping[GroupKey, Mapping[str, str]] = msgspec.field(default_factory=dict[GroupKey, Mapping[str, str]])


def translate_loadbalancer(view: LoadBalancerView) -> LoadBalancerTranslation:
    """Decide what ``view`` should be."""
    refusal = refuse(view) or view.verdict
    provider = view.class_spec.provider
    capabilities = view.providers.get(provider)
    spec = _served(view, refusal)
    if spec is None or capabilities is None:
        unprogrammed = msgspec.structs.replace(refusal, type=ConditionType.PROGRAMMED) if refusal else None
        nothing = tuple(filter(None, (refusal, unprogrammed, build_protected(view.load_balancer))))
        return LoadBalancerTranslation(None, nothing, provider=provider, groups=_waiting(view))
    refused: dict[GroupKey, set[str]] = {one.group.key: set() for one in view.groups}
    merged = _Merged(view, spec.listeners, capabilities)
    conditions: dict[GroupKey, tuple[Condition, ...]] = {}
    taken: dict[GroupKey, Mapping[str, str]] = {}
    for one in sorted(view.groups, key=lambda each: each.group.key):
        no = refuse_group(view, one) or one.verdict
        parameters = (one.group.spec.parameters or {}) if no is None else one.accepted
        if parameters is not None and not one.out_of_scope:
            merged.add(one, parameters, refused[one.group.key])
            if no is None:
                taken[one.group.key] = parameters
        lives = one.accepted is not None
        conditions[one.group.key] = (
            _accepted(no, lives=lives),
            *resolve_group(one, view.load_balancer.spec.listeners, _name(view), refused[one.group.key]),
        )
    for key, condition in merged.conflicts.items():
        conditions[key] = (*conditions[key], condition)
    desired = _desired(view, spec, merged.targets())
    # One of each type: the first by name of its group.
    stale = (one for told in conditions.values() for one in told if one.type is ConditionType.STALE)
    others = (next(iter(merged.conflicts.values()), None), next(stale, None), build_protected(view.load_balancer))
    said = [_accepted(refusal, lives=True), _resolved(view, set().union(*refused.values())), *filter(None, others)]
    if desired.paused:
        text = f"annotation {ANNOTATION_PAUSED} is set; nothing is changed or removed until it is taken away"
        said.append(Condition(ConditionType.PAUSED, True, ConditionReason.PAUSED_BY_USER, text))
    expected = sum(len(found) for found in desired.targets.values())
    return LoadBalancerTranslation(
        desired,
        tuple(said),
        targets=str(expected),
        provider=provider,
        serving_last_accepted=refusal is not None,
        groups=conditions,
        taken=taken,
    )


def refuse(view: LoadBalancerView) -> Condition | None:
    """Return why the load balancer cannot be served as it stands, whatever its provider would say."""

    def no(reason: ConditionReason, text: str) -> Condition:
        return Condition(ConditionType.ACCEPTED, False, reason, text)

    name, found = view.load_balancer.spec.class_name, view.load_balancer_class
    if found is None:
        text = f"spec.className: there is no LoadBalancerClass {name!r} at the hub; see kubectl get lbc"
        return no(ConditionReason.NO_SUCH_CLASS, text)
    capabilities = view.providers.get(found.spec.provider)
    if capabilities is None:
        provider = found.spec.provider
        text = (
            f"spec.className: LoadBalancerClass {name!r} names provider {provider!r}, which this hub does not run; "
            "create another LoadBalancer, of a class whose provider it runs"
        )
        return no(ConditionReason.NO_SUCH_CLASS, text)
    if capabilities.allocation is not AllocationKind.NONE:
        text = (
            f"spec.className: LoadBalancerClass {name!r} is for Services, which the hub's own proxies serve; create "
            "another LoadBalancer, of a class for a load balancer that you have already"
        )
        return no(ConditionReason.INVALID, text)
    if not view.living and (closed := found.closed):
        return no(ConditionReason.CLASS_DRAINING, f"spec.className: {closed}")
    if text := _of_the_class(view, found, capabilities):
        return no(ConditionReason.INVALID, text)
    for one in view.load_balancer.spec.listeners:
        if Protocol(one.protocol) not in capabilities.protocols:
            text = f"spec.listeners: {one.protocol}/{one.port}: this class has no {one.protocol}"
            return no(ConditionReason.UNSUPPORTED_PROTOCOL, text)
    if view.conflict:
        text = (
            f"spec.existing: LoadBalancer {view.conflict} has this one already; name {view.conflict} in "
            "spec.loadBalancers of the BackendGroups instead, or correct spec.existing"
        )
        return no(ConditionReason.INVALID, text)
    return None


def refuse_group(view: LoadBalancerView, one: GroupView) -> Condition | None:
    """Return why the load balancer does not take on a group as it stands, whatever its provider would say."""

    def no(reason: ConditionReason, text: str) -> Condition:
        return Condition(ConditionType.ACCEPTED, False, reason, text)

    found = view.load_balancer_class
    if one.accepted is None and found is not None and (closed := found.closed):
        return no(ConditionReason.CLASS_DRAINING, f"spec.loadBalancers: {_name(view)}: {closed}")
    parameters = one.group.spec.parameters or {}
    weight = weight_of(parameters)
    if weight is None:
        text = f"spec.parameters.weight: {parameters['weight'][:20]!r} is not a whole number from 0 to {HEAVIEST}"
        return no(ConditionReason.INVALID, text)
    capabilities = view.providers.get(view.class_spec.provider)
    if weight != 1 and capabilities is not None and not capabilities.weights:
        text = f"spec.parameters.weight: the class of {_name(view)} knows no weights; leave it out"
        return no(ConditionReason.INVALID, text)
    return None


def frontend_of(view: LoadBalancerView) -> FrontendSpec:
    """Return the load balancer as its spec and its class ask for it."""
    meta, spec, check = view.load_balancer.metadata, view.load_balancer.spec, view.class_spec.health_check
    listeners = sorted(
        (Listener(each.port, Protocol(each.protocol), each.name) for each in spec.listeners),
        key=lambda each: (each.port, each.protocol),
    )
    return FrontendSpec(
        key=view.key,
        group=view.key.namespace,
        listeners=tuple(listeners),
        health_check=None
        if check.disabled
        else HealthCheck(
            interval_s=seconds_from_duration(check.interval),
            timeout_s=seconds_from_duration(check.timeout),
            unhealthy_threshold=check.unhealthy_threshold,
            healthy_threshold=check.healthy_threshold,
        ),
        parameters=merged_parameters(view.load_balancer, view.load_balancer_class),
        attributes=dict(sorted((spec.attributes or {}).items())),
        owner=Owner("", view.key.kind, meta.namespace, meta.name, meta.uid),
        existing=bool(spec.existing),
    )


def merged_parameters(load_balancer: LoadBalancer, found: LoadBalancerClass | None) -> dict[str, str]:
    """Return the parameters of a load balancer, ordered; what its class says counts first."""
    spec = load_balancer.spec
    of_class = (found.spec.parameters or {}) if found is not None else {}
    return dict(sorted({**(spec.parameters or {}), **(spec.existing or {}), **of_class}.items()))


class _Merged:
    """The backends of all groups, by listener; the first group by name says with which parameters."""

    def __init__(self, view: LoadBalancerView, listeners: Sequence[Listener], capabilities: Capabilities) -> None:
        self._policy = TargetPolicy(
            loopback=view.loopback_targets, host_names=capabilities.host_name_targets, ipv6=capabilities.ipv6
        )
        self._recorded = view.recorded
        self._listeners = listeners
        self._name = _name(view)
        self._found: dict[ListenerKey, dict[TargetKey, Target]] = {one.key: {} for one in listeners}
        self.conflicts: dict[GroupKey, Condition] = {}

    def add(self, one: GroupView, parameters: Mapping[str, str], refused: set[str]) -> None:
        """Take over what a group brings."""
        for listener, target in targets_of_group(
            one, parameters, self._listeners, self._policy, self._recorded, refused
        ):
            known = self._found[listener].get(target.key)
            self._found[listener][target.key] = target if known is None else self._together(one, known, target)

    def targets(self) -> dict[ListenerKey, Targets]:
        """Return everything, ordered."""
        return {listener: dict(sorted(found.items())) for listener, found in self._found.items()}

    def _together(self, one: GroupView, known: Target, other: Target) -> Target:
        if known.parameters != other.parameters:
            first = known.owners[0].removeprefix("BackendGroup/")
            text = (
                f"{known.key} on LoadBalancer {self._name} has other parameters in BackendGroup {first} than in "
                f"{'/'.join(one.group.key)}: those of the first by name count, {first}; make them equal"
            )
            self.conflicts.setdefault(
                one.group.key, Condition(ConditionType.CONFLICTED, True, ConditionReason.PARAMETERS_DIFFER, text)
            )
        # The first owner says with which parameters, so owners stay in the order of their names.
        owners = tuple(sorted({*known.owners, *other.owners}))
        return msgspec.structs.replace(
            known, owners=owners, draining=known.draining and other.draining, source=known.source or other.source
        )


def _served(view: LoadBalancerView, refusal: Condition | None) -> FrontendSpec | None:
    """Return what is to be served; None when there is nothing that ever was accepted."""
    if refusal is None:
        return frontend_of(view)
    if view.accepted is None or refusal is not view.verdict:
        return view.accepted
    # Its provider refuses what is asked of it, not who it is: new credentials of the class count at once.
    was = view.accepted
    return msgspec.structs.replace(frontend_of(view), listeners=was.listeners, attributes=was.attributes)


def _desired(view: LoadBalancerView, spec: FrontendSpec, targets: Mapping[ListenerKey, Targets]) -> DesiredLoadBalancer:
    one, class_spec = view.load_balancer, view.class_spec
    class_paused = view.load_balancer_class is not None and _paused(view.load_balancer_class)
    return DesiredLoadBalancer(
        spec=spec,
        targets=targets,
        drain_s=seconds_from_duration(class_spec.drain),
        guard=GuardPolicy(class_spec.guard.max_removal_percent, class_spec.guard.min_backends),
        stale=view.stale,
        # What belonged to groups that are gone goes without a guard: somebody took them away on purpose.
        owners=None if view.stale else frozenset(owner_of(each) for each in view.groups if not each.out_of_scope),
        paused=_paused(one) or class_paused,
        repair_s=repair_s(one.spec.ensure_policy or class_spec.ensure_policy),
    )


def _paused(one: LoadBalancer | LoadBalancerClass) -> bool:
    return one.annotation(ANNOTATION_PAUSED, "false") != "false"


def _of_the_class(view: LoadBalancerView, found: LoadBalancerClass, capabilities: Capabilities) -> str:
    """Say which parameter is not the load balancer's to set, empty when there is none."""
    spec, name = view.load_balancer.spec, found.metadata.name
    theirs = found.spec.parameters or {}
    for field, mine in (("parameters", spec.parameters or {}), ("existing", spec.existing or {})):
        for key, value in sorted(mine.items()):
            if key in theirs and theirs[key] != value:
                return (
                    f"spec.{field}.{key}: LoadBalancerClass {name!r} sets this, and the class counts; create another "
                    "LoadBalancer without it, or of another class"
                )
            if key not in theirs and is_of_the_class(key, capabilities):
                return (
                    f"spec.{field}.{key}: only a LoadBalancerClass may set this; create another LoadBalancer without "
                    f"it, or ask the operator for a class that has it"
                )
    return ""


def is_of_the_class(parameter: str, capabilities: Capabilities) -> bool:
    """Say whether only a class may set ``parameter``."""
    reserved = capabilities.class_parameters
    return parameter in reserved or any(one.endswith(".") and parameter.startswith(one) for one in reserved)


def _accepted(refusal: Condition | None, *, lives: bool) -> Condition:
    if refusal is None:
        return Condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, "")
    message = f"{refusal.message}; the last accepted version is served until then" if lives else refusal.message
    return msgspec.structs.replace(refusal, message=message)


def _waiting(view: LoadBalancerView) -> dict[GroupKey, tuple[Condition, ...]]:
    """Tell the groups of a load balancer that does not exist yet."""
    text = f"LoadBalancer {_name(view)} is not accepted; its own conditions say why"
    no = Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.NO_SUCH_LOAD_BALANCER, text)
    return {one.group.key: (no,) for one in view.groups}


def _resolved(view: LoadBalancerView, refused: set[str]) -> Condition:
    out = sorted("/".join(one.group.key) for one in view.groups if one.out_of_scope)
    if out:
        text = f"BackendGroup {out[0]} is not in spec.scope; add its namespace there to let it in"
        return Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.OUT_OF_SCOPE, text)
    if refused:
        return Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.INVALID, refused_addresses(refused))
    return Condition(ConditionType.RESOLVED_REFS, True, ConditionReason.RESOLVED_REFS, "")


def _name(view: LoadBalancerView) -> str:
    return f"{view.key.namespace}/{view.key.name}"
