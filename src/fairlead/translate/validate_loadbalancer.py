"""Whether a LoadBalancer, and each of its BackendGroups, can be served in its current form.

In: the view. Out: the first refusal in the order in which a person would check, or None. What the provider itself
says comes later: it is asked only about what passes here.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.model.condition import Condition, ConditionReason
from fairlead.model.contract import AllocationKind, Capabilities
from fairlead.model.keys import Protocol
from fairlead.translate.backendgroup import HEAVIEST, weight_of
from fairlead.translate.conditions import refused
from fairlead.translate.view import GroupView, LoadBalancerView


def refuse(view: LoadBalancerView) -> Condition | None:
    """Return why the load balancer cannot be served, before its provider is asked; None when it can."""
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
            f"LoadBalancerClass {spec.class_name!r} names provider {view.class_spec.provider!r}, which this hub does "
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
    if view.conflict:
        yield refused(ConditionReason.INVALID, f"spec.existing: {_conflict(view)}, or correct spec.existing")


def _conflict(view: LoadBalancerView) -> str:
    """Return which other LoadBalancer has the same identity; names of other namespaces are not disclosed."""
    if view.conflict.partition("/")[0] != view.key.namespace:
        return "a LoadBalancer in another namespace uses this load balancer; ask its owner to share it with spec.scope"
    return (
        f"LoadBalancer {view.conflict} uses it already; name {view.conflict} in spec.loadBalancers of the "
        "BackendGroups instead"
    )


def _parameters_of_the_class(view: LoadBalancerView, capabilities: Capabilities) -> Iterator[Condition]:
    spec, of_class = view.load_balancer.spec, view.class_spec.parameters
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
