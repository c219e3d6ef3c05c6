"""The backends of the groups that are not on their load balancer, with the reasons.

    excluded by name, not ready, without an address, of a refused address, of an unknown listener, out of scope

In: a view, what is desired, and the pods and nodes of the groups' namespaces. Out: one ``Exclusion`` for each pod, node
or address, with the field that excludes it. Never: one about a backend that is desired.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.kubernetes import Node, Pod
from fairlead.api.names import LABEL_EXCLUDE_NODE
from fairlead.hub.intents.intent import Exclusion
from fairlead.hub.intents.loadbalancer.backend_sources import BackendSources
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.translate.loadbalancer import is_node_ready, node_port_of, refuse_group
from fairlead.translate.view import GroupView, LoadBalancerView


def excluded_backends(
    view: LoadBalancerView, desired: DesiredLoadBalancer, sources: BackendSources
) -> tuple[Exclusion, ...]:
    """Return what the groups of ``view`` exclude, in the order of the groups."""
    exclusions: list[Exclusion] = []
    for group in sorted(view.groups, key=lambda each: each.group.key):
        owner = f"BackendGroup/{group.group.key}"
        rows = _of_group(group, view, desired, sources)
        exclusions += [Exclusion(what, owner, why) for what, why in dict(rows).items()]
    return tuple(exclusions)


def _of_group(
    group_view: GroupView, view: LoadBalancerView, desired: DesiredLoadBalancer, sources: BackendSources
) -> Iterator[tuple[str, str]]:
    group, spec = group_view.group, group_view.group.spec
    namespace = group.metadata.namespace
    if group_view.out_of_scope:
        yield (
            "everything",
            f"namespace {namespace} is not in spec.scope of LoadBalancer {'/'.join(view.key[1:])}; add it there",
        )
        return
    refused = refuse_group(view, group_view) or group_view.verdict
    if refused is not None and group_view.accepted is None:
        yield "everything", refused.message
        return
    wanted = {(source.source, str(key)) for targets in desired.targets.values() for key, source in targets.items()}
    names = {listener.name for listener in desired.spec.listeners}
    if spec.listener and spec.listener not in names:
        yield "everything", f"spec.listener: the load balancer has no listener {spec.listener!r}"
        return
    addresses = {at for _, at in wanted}
    for backend in spec.static or ():
        if backend not in addresses and backend.replace("[", "").replace("]", "") not in addresses:
            yield backend, "spec.static: this may not be a backend; use an address:port that the provider can reach"
    if spec.pods is not None:
        yield from _pods(group_view, {source for source, _ in wanted}, sources)
    if spec.service is not None:
        yield from _service(group_view, {source for source, _ in wanted}, sources)


def _pods(group_view: GroupView, wanted: set[str], sources: BackendSources) -> Iterator[tuple[str, str]]:
    group, spec = group_view.group, group_view.group.spec.pods
    if spec is None:
        return
    for pod in group_view.pods:
        meta = pod.metadata
        if f"Pod/{meta.namespace}/{meta.name}/{meta.uid}" not in wanted:
            yield _pod(pod), _why_not(pod, group)
    if spec.by_name is not None:
        there = {pod.metadata.name for pod in group_view.pods}
        for name in sorted(set(spec.by_name) - there):
            yield f"Pod/{group.metadata.namespace}/{name}", "spec.pods.byName: there is no such pod"
    if spec.by_label is not None:
        excluded = set(spec.by_label.except_ or ())
        pods = sources.pods.by_index("namespace", group.metadata.namespace)
        for pod in pods:
            chosen = all(pod.label(key, "\0") == value for key, value in spec.by_label.selector.items())
            if chosen and pod.metadata.name in excluded:
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
        return f"its address {pod.status.pod_ip} may not be a backend, or none of its ports is for a listener"
    policy = group.spec.deregister_policy
    if policy == "IfNotReady":
        return "the pod is not ready"
    return f"the pod is not ready; deregisterPolicy {policy} keeps what is registered, and registers nothing new"


def _service(group_view: GroupView, wanted: set[str], sources: BackendSources) -> Iterator[tuple[str, str]]:
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
    for node in sorted(sources.nodes.values(), key=lambda each: each.key):
        if f"Node//{node.metadata.name}/{node.metadata.uid}" not in wanted:
            yield f"Node/{node.metadata.name}", _why_not_node(node, spec.node_selector or {})


def _why_not_node(node: Node, selector: dict[str, str]) -> str:
    if any(node.label(key, "\0") != value for key, value in selector.items()):
        return "spec.service.nodeSelector does not choose this node"
    if node.label(LABEL_EXCLUDE_NODE):
        return f"the node has the label {LABEL_EXCLUDE_NODE}"
    if not is_node_ready(node):
        return "the node is not Ready"
    return "the node has no address that may be a backend"


def _pod(pod: Pod) -> str:
    return f"Pod/{pod.metadata.namespace}/{pod.metadata.name}"
