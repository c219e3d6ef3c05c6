"""Why is something that a person might expect on a load balancer not on it?

    excluded by name, not ready, without an address, of a refused address, of an unknown listener, out of scope

In: a view, what was built from it, and the pods and nodes of the groups' namespaces. Out: one row for each thing that
was left out, with the field that did it. Never: a row about something that is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.kubernetes import EndpointSlice, Node
from fairlead.api.names import LABEL_EXCLUDE_NODE
from fairlead.api.pods import Pod
from fairlead.hub.intents.loadbalancer.backend_sources import BackendSources
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.translate.backendgroup import is_node_ready
from fairlead.translate.validate_loadbalancer import refuse_group
from fairlead.translate.view import GroupView, LoadBalancerView


class LeftOut(msgspec.Struct, frozen=True):
    """One thing that is not on the load balancer: a pod, node or address; who asked for it; and why not."""

    what: str
    owner: str
    why: str


def left_out(view: LoadBalancerView, desired: DesiredLoadBalancer, selected: BackendSources) -> tuple[LeftOut, ...]:
    """Return what the groups of ``view`` leave out, in the order of the groups."""
    found: list[LeftOut] = []
    for group in sorted(view.groups, key=lambda one: one.group.key):
        owner = f"BackendGroup/{'/'.join(group.group.key)}"
        rows = _of_group(group, view, desired, selected)
        found += [LeftOut(what, owner, why) for what, why in dict(rows).items()]
    return tuple(found)


def nodes_left_out(slices: Iterable[EndpointSlice], ready: frozenset[str]) -> tuple[LeftOut, ...]:
    """Return the nodes of a member that take no traffic."""
    addresses = {each.addresses[0] for one in slices for each in one.endpoints or () if each.addresses}
    return tuple(LeftOut(one, "its member", "this node is not ready") for one in sorted(addresses - ready))


def _of_group(
    one: GroupView, view: LoadBalancerView, desired: DesiredLoadBalancer, selected: BackendSources
) -> Iterator[tuple[str, str]]:
    group, spec = one.group, one.group.spec
    namespace = group.metadata.namespace
    if one.out_of_scope:
        yield (
            "everything",
            f"namespace {namespace} is not in spec.scope of LoadBalancer {'/'.join(view.key[1:])}; add it there",
        )
        return
    refused = refuse_group(view, one) or one.verdict
    if refused is not None and one.accepted is None:
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
        yield from _pods(one, {source for source, _ in wanted}, selected)
    if spec.service is not None:
        yield from _service(one, {source for source, _ in wanted}, selected)


def _pods(one: GroupView, wanted: set[str], selected: BackendSources) -> Iterator[tuple[str, str]]:
    group, spec = one.group, one.group.spec.pods
    if spec is None:
        return
    for pod in one.pods:
        meta = pod.metadata
        if f"Pod/{meta.namespace}/{meta.name}/{meta.uid}" not in wanted:
            yield _pod(pod), _why_not(pod, group)
    if spec.by_name is not None:
        there = {pod.metadata.name for pod in one.pods}
        for name in sorted(set(spec.by_name) - there):
            yield f"Pod/{group.metadata.namespace}/{name}", "spec.pods.byName: there is no such pod"
    if spec.by_label is not None:
        excluded = set(spec.by_label.except_ or ())
        everybody = selected.pods.by_index("namespace", group.metadata.namespace)
        for pod in everybody:
            chosen = all(pod.label(key, "\0") == value for key, value in spec.by_label.selector.items())
            if chosen and pod.metadata.name in excluded:
                yield _pod(pod), "named in spec.pods.byLabel.except"
        if not one.pods:
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


def _service(one: GroupView, wanted: set[str], selected: BackendSources) -> Iterator[tuple[str, str]]:
    group, spec = one.group, one.group.spec.service
    if spec is None:
        return
    name = f"Service/{group.metadata.namespace}/{spec.name}"
    if one.service is None:
        yield name, "spec.service.name: there is no such Service"
        return
    port = next((each for each in one.service.spec.ports or () if each.port == spec.port.port), None)
    if port is None or not port.node_port:
        yield name, f"spec.service.port: the Service has no port {spec.port.port} with a node port"
        return
    for node in sorted(selected.nodes.values(), key=lambda each: each.key):
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
