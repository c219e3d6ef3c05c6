"""Checks that the member's nodes and Services can be served as they are.

In: facts about the member. Out: findings about nodes, Services, Ingresses and Gateways.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from fairlead.agent.events import missing_endpoints
from fairlead.api.gateway import GATEWAY_CLASSES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kubernetes import (
    ANNOTATION_DEFAULT_CLASS,
    ENDPOINT_SLICES,
    INGRESS_CLASSES,
    INGRESSES,
    LEASES,
    NODES,
    SERVICES,
    EndpointSlice,
    Service,
)
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject, KubeObject
from fairlead.api.names import (
    AGENT_LEADER_LEASE,
    GATEWAY_CONTROLLER,
    GROUP,
    INGRESS_CONTROLLER,
    LABEL_EXCLUDE_NODE,
    LABEL_SERVICE_NAME,
    LOAD_BALANCER_CLASS_PREFIX,
    SERVICE_ANNOTATIONS,
    TAINT_TO_BE_DELETED,
    did_you_mean,
    near_annotation,
)
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.doctor.facts import (
    Facts,
    Finding,
    condition,
    error,
    is_false,
    items,
    label,
    mapping,
    meta,
    name_of,
    namespaces_of_member,
    path_of,
    service_of,
    spec,
    status,
    warning,
)
from fairlead.status.object_ref import ObjectRef

T = TypeVar("T", bound=KubeObject)


def excluded_nodes(facts: Facts) -> Iterator[Finding]:
    """Name nodes that a label keeps out of load balancers; single-node clusters often have it by accident."""
    nodes = _target_nodes(facts)
    excluded = [node for node in nodes if label(node, LABEL_EXCLUDE_NODE) is not None]
    for node in excluded:
        every = len(excluded) == len(nodes)
        fault = f"the label {LABEL_EXCLUDE_NODE} keeps it out of load balancers"
        fix = f"kubectl label node {name_of(node)} {LABEL_EXCLUDE_NODE}-"
        yield (error if every else warning)(
            path_of("Node", node), fault + (", as it does every node" if every else ""), fix
        )


def nodes_not_ready(facts: Facts) -> Iterator[Finding]:
    """Name nodes that are not ready, and take no traffic for that."""
    for node in _target_nodes(facts):
        ready = condition(node, "Ready")
        if ready.get("status") != "True":
            fault = f"not ready, so it takes no traffic: {ready.get('message') or 'the kubelet gives no reason'}"
            yield warning(path_of("Node", node), fault, f"kubectl describe node {name_of(node)}")


def nodes_leaving(facts: Facts) -> Iterator[Finding]:
    """Name nodes that the autoscaler is about to remove."""
    for node in _target_nodes(facts):
        if any(taint.get("key") == TAINT_TO_BE_DELETED for taint in items(spec(node).get("taints"))):
            fix = f"kubectl taint node {name_of(node)} {TAINT_TO_BE_DELETED}-   if the autoscaler has given it up"
            yield warning(path_of("Node", node), "the autoscaler is about to remove it, so it takes no traffic", fix)


def nodes_without_address(facts: Facts) -> Iterator[Finding]:
    """Name nodes without an address that the proxies could use."""
    say = error if "Node" in _targets(facts) else warning
    for node in _target_nodes(facts):
        if not [
            address
            for address in items(status(node).get("addresses"))
            if address.get("type") in ("InternalIP", "ExternalIP")
        ]:
            fix = f"kubectl get node {name_of(node)} -o yaml   its kubelet or cloud provider sets status.addresses"
            yield say(path_of("Node", node), "no internal or external address", fix)


def no_nodes(facts: Facts) -> Iterator[Finding]:
    """Say that the member has no node, which is a fault where the targets of a load balancer are nodes."""
    member = facts.member_read
    if member is None or not member.knows(NODES) or member.list(NODES) or not _load_balancers(facts):
        return
    targets = _targets(facts)
    if targets == {"Pod"}:
        return
    sure = "Node" in targets
    fault = "no nodes, so no backend can take traffic" if sure else "no nodes"
    fix = "kubectl get nodes" if sure else "kubectl get nodes   expected if the agent runs with --target Pod"
    yield (error if sure else warning)(f"member {member.server}", fault, fix)


def _targets(facts: Facts) -> set[str]:
    """Return what the member's load balancers have as targets; empty where that is not known."""
    namespaces, hub = namespaces_of_member(facts), facts.hub
    return {
        str(spec(lb).get("targets") or "Node")
        for kind in (TCP_LOAD_BALANCERS, HTTP_LOAD_BALANCERS)
        for lb in (hub.list(kind) if hub is not None else ())
        if meta(lb, "namespace") in namespaces
    }


def _target_nodes(facts: Facts) -> list[JSONObject]:
    """Return the nodes of the member; none where all of its load balancers send traffic to pods."""
    return [] if _targets(facts) == {"Pod"} else _nodes(facts)


def agent_missing(facts: Facts) -> Iterator[Finding]:
    """Say that no agent works in the member."""
    member = facts.member_read
    if member is None or not member.knows(LEASES):
        return
    if not [lease for lease in member.list(LEASES) if name_of(lease) == AGENT_LEADER_LEASE]:
        fix = "helm install fairlead-agent deploy/charts/fairlead-agent -n fairlead-system   or: fairlead agent"
        yield error(f"member {member.server}", "no agent has ever run there", fix)


def classes_of_services(facts: Facts) -> Iterator[Finding]:
    """Name Services that ask for a class that the hub does not have."""
    hub = facts.hub
    if hub is None or not hub.knows(LOAD_BALANCER_CLASSES):
        return
    there = {name_of(cls) for cls in hub.list(LOAD_BALANCER_CLASSES)}
    for service in _load_balancers(facts):
        asked = str(spec(service).get("loadBalancerClass") or "")
        name = asked.removeprefix(LOAD_BALANCER_CLASS_PREFIX)
        if asked.startswith(LOAD_BALANCER_CLASS_PREFIX) and name not in there:
            hint = did_you_mean(name, tuple(sorted(there)))
            fault = f"loadBalancerClass is {asked}, which the hub does not have.{hint}"
            fix = "kubectl get loadbalancerclasses   at the hub; the field cannot be changed: create the Service again"
            yield error(path_of("Service", service), fault, fix)


def misspelt_annotations(facts: Facts) -> Iterator[Finding]:
    """Name annotations of ours on Services that mean nothing."""
    member = facts.member_read
    for service in member.list(SERVICES) if member is not None else ():
        for key in sorted(mapping(meta(service, "annotations"))):
            if key.startswith(f"{GROUP}/") and key not in SERVICE_ANNOTATIONS:
                near = near_annotation(key)
                fix = f"kubectl -n {meta(service, 'namespace')} annotate service {name_of(service)} {key}-"
                yield warning(path_of("Service", service), f"annotation {key} has no meaning.{near}", fix)


def services_without_pods(facts: Facts) -> Iterator[Finding]:
    """Name Services of type LoadBalancer with a port that has no ready endpoint."""
    member = facts.member_read
    if member is None or not member.knows(ENDPOINT_SLICES):
        return
    slices: dict[tuple[str, str | None], list[EndpointSlice]] = defaultdict(list)
    for endpoints in _decoded(member.list(ENDPOINT_SLICES), EndpointSlice):
        slices[endpoints.metadata.namespace, endpoints.label(LABEL_SERVICE_NAME)].append(endpoints)
    for service in _decoded(_load_balancers(facts), Service):
        if missing := missing_endpoints(service, slices[service.key]):
            namespace, name = service.key
            yield warning(f"Service/{namespace}/{name}", missing.why, missing.command)


def services_without_node_ports(facts: Facts) -> Iterator[Finding]:
    """Name Services that the nodes cannot take traffic for, as they have no node ports."""
    to_pods = {
        service
        for path, service in service_of(facts).items()
        for lb in (facts.hub.list(TCP_LOAD_BALANCERS) if facts.hub is not None else ())
        if path_of(TCP_LOAD_BALANCERS.kind, lb) == path and spec(lb).get("targets") == "Pod"
    }
    for service in _load_balancers(facts):
        asked = str(mapping(meta(service, "annotations")).get(f"{GROUP}/target", ""))
        pods = asked == "Pod" or path_of("Service", service) in to_pods
        ports = items(spec(service).get("ports"))
        if (
            spec(service).get("allocateLoadBalancerNodePorts") is False
            and not pods
            and not all(port.get("nodePort") for port in ports)
        ):
            fix = f"kubectl -n {meta(service, 'namespace')} annotate --overwrite service {name_of(service)} "
            fault = "allocateLoadBalancerNodePorts is false, so its nodes cannot take its traffic"
            yield error(path_of("Service", service), fault, f"{fix}{GROUP}/target=Pod")


def services_pending(facts: Facts) -> Iterator[Finding]:
    """Name Services of ours that have no address."""
    for service in _load_balancers(facts):
        if not items(mapping(status(service).get("loadBalancer")).get("ingress")):
            member = facts.member_read
            ref = ObjectRef("Service", str(meta(service, "namespace")), name_of(service)).argument
            fix = " ".join(filter(None, ("fairlead explain", ref, member.flags if member is not None else "")))
            yield warning(path_of("Service", service), "no address", fix)


def ingress_classes(facts: Facts) -> Iterator[Finding]:
    """Name two default IngressClasses, and Ingresses of a class that does not exist."""
    member = facts.member_read
    if member is None or not member.knows(INGRESS_CLASSES):
        return
    there = {name_of(ingress_class): ingress_class for ingress_class in member.list(INGRESS_CLASSES)}
    default = sorted(
        name
        for name, each in there.items()
        if mapping(meta(each, "annotations")).get(ANNOTATION_DEFAULT_CLASS) == "true"
    )
    if len(default) > 1:
        fault = f"two IngressClasses are the default, {' and '.join(default)}: an Ingress without a class is refused"
        fix = f"kubectl annotate ingressclass {default[0]} {ANNOTATION_DEFAULT_CLASS}-"
        yield warning(f"IngressClass/{default[0]}", fault, fix)
    if not [each for each in there.values() if spec(each).get("controller") == INGRESS_CONTROLLER]:
        return  # no Ingress here is meant for us
    for ingress in member.list(INGRESSES):
        asked = spec(ingress).get("ingressClassName")
        if asked and asked not in there:
            hint = did_you_mean(str(asked), tuple(sorted(there)))
            place = f"-n {meta(ingress, 'namespace')} {name_of(ingress)}"
            yield error(
                path_of("Ingress", ingress),
                f"ingressClassName is {asked}, which does not exist.{hint}",
                f"kubectl edit ingress {place}",
            )


def gateway_classes(facts: Facts) -> Iterator[Finding]:
    """Name GatewayClasses of ours that are not accepted."""
    member = facts.member_read
    for gateway_class in member.list(GATEWAY_CLASSES) if member is not None else ():
        if spec(gateway_class).get("controllerName") == GATEWAY_CONTROLLER and is_false(gateway_class, "Accepted"):
            fault = str(condition(gateway_class, "Accepted").get("message") or "not accepted")
            yield error(
                path_of("GatewayClass", gateway_class), fault, f"kubectl describe gatewayclass {name_of(gateway_class)}"
            )


def _decoded(objects: Iterable[JSONObject], kind: type[T]) -> Iterator[T]:
    """Yield the objects that can be decoded; others were written by another version."""
    for obj in objects:
        try:
            yield msgspec.convert(obj, kind)
        except msgspec.ValidationError:
            continue


def _nodes(facts: Facts) -> list[JSONObject]:
    member = facts.member_read
    return member.list(NODES) if member is not None else []


def _load_balancers(facts: Facts) -> list[JSONObject]:
    """Return the Services that are ours to serve: of type LoadBalancer, of no class or one of ours."""
    member = facts.member_read
    services = member.list(SERVICES) if member is not None else []
    return [service for service in services if spec(service).get("type") == "LoadBalancer" and _may_be_ours(service)]


def _may_be_ours(service: JSONObject) -> bool:
    asked = str(spec(service).get("loadBalancerClass") or "")
    return not asked or asked.startswith(LOAD_BALANCER_CLASS_PREFIX)
