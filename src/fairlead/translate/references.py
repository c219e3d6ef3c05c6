"""Whether everything that a BackendGroup refers to is there: conditions ResolvedRefs and Stale of the group.

In: a ``GroupView``, the load balancer's listeners, and the addresses that were refused. Out: conditions, of which the
first reason by urgency is the only one shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api.backendgroup import BackendGroup, BackendPort
from fairlead.api.loadbalancer import LoadBalancerListener
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.translate.backendgroup import is_node_ready, listeners_named, node_port_of
from fairlead.translate.conditions import first_three, resolved, unresolved
from fairlead.translate.view import GroupView


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
    if view.judge:
        policy = spec.deregister_webhook.failure_policy if spec.deregister_webhook is not None else "DoNothing"
        text = f"{view.judge}; until it answers, spec.deregisterWebhook.failurePolicy {policy} counts"
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
    """Return the message that names the addresses left out, and the form that an address must have."""
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
