"""Checks that each load balancer is accepted, programmed and serving, with the cause where it is not.

In: facts about the hub. Out: findings about load balancers, the proxies that serve them, and how these reach targets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.httploadbalancer import FailingRoute
from fairlead.api.kubernetes import CONFIG_MAPS, DEPLOYMENTS, SERVICES
from fairlead.api.load_balancers import LOAD_BALANCER_KINDS
from fairlead.api.meta import JSONObject
from fairlead.api.names import (
    ANNOTATION_PAUSED,
    COMMAND_NAMES,
    LABEL_MANAGED_BY,
    LABEL_TENANT,
    MANAGED_BY,
    SYSTEM_NAMESPACE,
)
from fairlead.api.tenant import TENANTS
from fairlead.doctor.facts import Facts
from fairlead.doctor.finding import Finding, error, warning
from fairlead.doctor.reading import (
    annotation,
    condition,
    is_false,
    items,
    label,
    mapping,
    message_of,
    meta,
    name_of,
    path_of,
    spec,
    status,
)
from fairlead.model.condition import ConditionReason
from fairlead.model.in_words import counted, listed, split_host_port
from fairlead.standalone.proxy_report import NAME as PROXY_REPORTS
from fairlead.standalone.proxy_report import decode_reports
from fairlead.standalone.right_cluster import OWN_TENANT

_NO_ADDRESS = {
    ConditionReason.ADDRESS_NOT_ASSIGNED.value,
    ConditionReason.ADDRESS_NOT_USABLE.value,
    ConditionReason.ADDRESS_POOL_EXHAUSTED.value,
}


def refused(facts: Facts) -> Iterator[Finding]:
    """Name load balancers whose spec was refused; the version that was accepted last is served on."""
    for path, ref, lb in _load_balancers(facts):
        if is_false(lb, "Accepted"):
            yield error(path, message_of(lb, "Accepted"), f"fairlead explain {ref}")


def unresolved(facts: Facts) -> Iterator[Finding]:
    """Name load balancers that refer to something that is not there."""
    for path, ref, lb in _load_balancers(facts):
        if is_false(lb, "ResolvedRefs"):
            yield error(path, message_of(lb, "ResolvedRefs"), f"fairlead explain {ref}")


def not_programmed(facts: Facts) -> Iterator[Finding]:
    """Name load balancers that no proxy or provider has, and those without any status."""
    for path, ref, lb in _load_balancers(facts):
        if is_false(lb, "Programmed"):
            partly = condition(lb, "Programmed").get("reason") == ConditionReason.ROUTES_REFUSED
            yield (warning if partly else error)(
                path, message_of(lb, "Programmed"), f"fairlead explain {ref} --history"
            )
        elif not condition(lb, "Programmed") and not meta(lb, "deletionTimestamp"):
            yield warning(path, "no hub has written its status yet", "fairlead status   does a hub lead?")


def no_address(facts: Facts) -> Iterator[Finding]:
    """Say that no pool has an address for it, or that the one that it asks for may not be had."""
    for path, ref, lb in _load_balancers(facts):
        if is_false(lb, "Accepted") and not is_false(lb, "Programmed"):
            continue  # it keeps the address that it had before the refused edit
        failed = [each for each in items(status(lb).get("conditions")) if each.get("status") == "False"]
        cause = next((each for each in failed if each.get("reason") in _NO_ADDRESS), None)
        if cause is not None:
            fault = f"it has no address: {cause.get('message') or cause['reason']}"
            yield error(path, fault, _address_fix(facts, ref, str(cause["reason"])))


def _address_fix(facts: Facts, ref: str, reason: str) -> str:
    """Return where addresses come from here: AddressPools where there are any, else the flag of what runs here."""
    if reason == ConditionReason.ADDRESS_NOT_USABLE:
        return f"fairlead explain {ref}   then ask for another address, or for none"
    pools = [name_of(pool) for pool in facts.hub.list(ADDRESS_POOLS)] if facts.hub else []
    if len(pools) == 1:
        return f"kubectl edit addresspool {pools[0]}   add ranges to spec.addresses"
    if pools:
        return f"kubectl get addresspools   then add ranges to one that serves it: {listed(sorted(pools), 3)}"
    tenants = {name_of(tenant) for tenant in facts.hub.list(TENANTS)} if facts.hub else set[str]()
    command = "run" if OWN_TENANT in tenants else "hub"
    also = "" if OWN_TENANT in tenants else " (or fairlead standalone; with Helm: --set addressPool=CIDR)"
    return f"fairlead {command} --address-pool CIDR,CIDR   with a larger range{also}; or kubectl apply an AddressPool"


def not_serving(facts: Facts) -> Iterator[Finding]:
    """Name load balancers without a healthy target: connections to them fail."""
    for path, ref, lb in _load_balancers(facts):
        if is_false(lb, "Serving"):
            targets = [str(target) for target in items(status(lb).get("unhealthyTargets"))]
            fix = f"{_nc(targets[0])}   from where a proxy runs; and: " if targets else ""
            yield error(path, message_of(lb, "Serving"), f"{fix}fairlead explain {ref}")


def unhealthy_targets(facts: Facts) -> Iterator[Finding]:
    """Name routes whose requests fail, and targets, such as nodes' node ports, whose health checks fail."""
    for path, ref, lb in _load_balancers(facts):
        for part in items(status(lb).get("failingRoutes")):
            route = msgspec.convert(part, FailingRoute)
            of = f"{route.kind} {route.namespace}/{route.object}"
            yield error(path, f"{of}: {route.sentence}", f"fairlead explain {ref}")
        targets = [str(target) for target in items(status(lb).get("unhealthyTargets"))]
        if targets:
            fix = f"{_nc(targets[0])}   from where a proxy runs; does anything listen there?"
            yield warning(path, f"health checks of its proxies fail for {listed(targets, 3)}", fix)


def unreachable_from_here(facts: Facts) -> Iterator[Finding]:
    """Name targets that did not answer when this machine connected to them, as a proxy on it would."""
    by_target: dict[tuple[str, str], list[str]] = defaultdict(list)
    for reach in facts.reach:
        if reach.problem:
            by_target[reach.target, reach.problem].append(reach.load_balancer)
    for (target, problem), load_balancers in sorted(by_target.items()):
        fault = f"this machine cannot connect to it ({problem}); it is a target of {listed(load_balancers, 1)}"
        yield error(f"target {target}", fault, f"{_nc(target)}   then look at routes and firewalls between")


def held(facts: Facts) -> Iterator[Finding]:
    """Name load balancers whose changes are held, by the guard or by a pause."""
    for path, ref, lb in _load_balancers(facts):
        if condition(lb, "Guarded").get("status") == "True":
            yield warning(path, message_of(lb, "Guarded"), f"fairlead plan {ref}")
        paused = annotation(lb, ANNOTATION_PAUSED)
        if paused and paused != "false":
            yield warning(path, "it is paused: nothing of it changes", f"fairlead resume {ref}")


def drifted(facts: Facts) -> Iterator[Finding]:
    """Name load balancers that others have changed at their provider."""
    for path, ref, lb in _load_balancers(facts):
        if condition(lb, "Drifted").get("status") == "True":
            yield warning(path, message_of(lb, "Drifted"), f"fairlead repair {ref}")


def proxies_missing(facts: Facts) -> Iterator[Finding]:
    """Name tenants' Deployments of Envoy that lack replicas."""
    for obj in facts.hub.list(DEPLOYMENTS) if facts.hub else ():
        if label(obj, LABEL_MANAGED_BY) != MANAGED_BY or label(obj, LABEL_TENANT) is None:
            continue
        desired, available = int(spec(obj).get("replicas", 1)), int(status(obj).get("availableReplicas") or 0)
        if available < desired:
            fix = f"kubectl -n {meta(obj, 'namespace')} describe pods"
            say = error if available == 0 else warning
            yield say(path_of("Deployment", obj), f"{available} of {desired} proxies are available", fix)


def proxies_stale(facts: Facts) -> Iterator[Finding]:
    """Name proxies that do not have the newest state."""
    for config_map in facts.hub.list(CONFIG_MAPS) if facts.hub else ():
        if (meta(config_map, "namespace"), name_of(config_map)) != (SYSTEM_NAMESPACE, PROXY_REPORTS):
            continue
        for report in decode_reports(mapping(config_map.get("data"))).values():
            for row in report.proxies:
                if row.state == "STALE":
                    fault = f"it does not have the newest state; it refuses {counted(row.refused, 'resource')} now"
                    fix = f"kubectl -n {SYSTEM_NAMESPACE} logs deployment/fairlead-hub | grep -i refused"
                    yield warning(f"proxy {row.node}", fault, fix)


def services_without_address(facts: Facts) -> Iterator[Finding]:
    """Name Services before proxies that the hub's own cluster gives no address."""
    for service in facts.hub.list(SERVICES) if facts.hub else ():
        ours = label(service, LABEL_MANAGED_BY) == MANAGED_BY and label(service, LABEL_TENANT) is not None
        if not ours or spec(service).get("type") != "LoadBalancer":
            continue
        if not items(mapping(status(service).get("loadBalancer")).get("ingress")):
            fault = "the hub's cluster gives it no address; something there has to implement type LoadBalancer"
            fix = f"kubectl -n {meta(service, 'namespace')} describe service {name_of(service)}"
            yield error(path_of("Service", service), fault, fix)


def _load_balancers(facts: Facts) -> Iterator[tuple[str, str, JSONObject]]:
    """Yield each as (path, what the verbs call it, object)."""
    for resource in LOAD_BALANCER_KINDS:
        for lb in facts.hub.list(resource) if facts.hub else ():
            yield path_of(resource.kind, lb), path_of(COMMAND_NAMES[resource.kind], lb), lb


def _nc(target: str) -> str:
    """Return the command that connects to a target, which may have its listener after it."""
    host, port = split_host_port(target.partition(" ")[0])
    return f"nc -vz {host} {port or 'PORT'}"
