"""Checks of the hub's leader, of tenants and their agents, and of classes.

In: facts about the hub. Out: findings about leases, tenants and classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kubernetes import LEASES, NAMESPACES, Lease
from fairlead.api.load_balancers import LOAD_BALANCER_KINDS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.names import AGENT_LEASE, DEFAULT_CLASS, HUB_LEASE, SYSTEM_NAMESPACE, TENANT_NAMESPACE_PREFIX
from fairlead.api.tenant import TENANTS, state_by_age
from fairlead.api.times import parsed_time
from fairlead.doctor.facts import ApiFacts, Facts
from fairlead.doctor.finding import Finding, error, warning
from fairlead.doctor.reading import condition, is_false, meta, name_of, path_of, since, spec, stored_at
from fairlead.doctor.scope import namespaces_of_member
from fairlead.kube.server_clock import NOTICEABLE_S
from fairlead.status.object_ref import ObjectRef
from fairlead.status.problems import of_refused
from fairlead.status.rows import MemberRow, Trouble

_STUCK = timedelta(minutes=10)


def leader(facts: Facts) -> Iterator[Finding]:
    """Say that no hub leads, or not the hub of a region: everything is served on, and nothing changes."""
    if (hub := facts.hub_read) is None or not hub.knows(LEASES):
        return
    of_regions = [lease for lease in hub.list(LEASES) if _is_of_region(lease)]
    yield from filter(None, (_silent_region(hub, lease) for lease in of_regions))
    lease = _lease(hub, SYSTEM_NAMESPACE, HUB_LEASE)
    where = f"Lease/{SYSTEM_NAMESPACE}/{HUB_LEASE}"
    look = f"kubectl -n {SYSTEM_NAMESPACE} logs deployment/fairlead-hub   or start one: fairlead hub"
    if lease is None and of_regions:
        return
    if lease is None or not spec(lease).get("holderIdentity"):
        yield error(where, "no hub leads; what is served stays, and nothing changes", look)
        return
    age_s = _age_s(hub, lease)
    if age_s is not None and age_s > float(spec(lease).get("leaseDurationSeconds") or 15):
        holder = spec(lease)["holderIdentity"]
        yield error(where, f"the hub {holder} last reported {age_s:.0f} s ago; what is served stays", look)


def _is_of_region(lease: JSONObject) -> bool:
    return meta(lease, "namespace") == SYSTEM_NAMESPACE and name_of(lease).startswith(f"{HUB_LEASE}-")


def _silent_region(hub: ApiFacts, lease: JSONObject) -> Finding | None:
    """Return that the hub of a region does not lead, and that no other hub decides about its load balancers."""
    name, age_s = name_of(lease), _age_s(hub, lease)
    if spec(lease).get("holderIdentity") and (age_s or 0.0) <= float(spec(lease).get("leaseDurationSeconds") or 15):
        return None
    fault = "the hub of this region does not lead; what is served stays, and no other hub changes it"
    fix = f"kubectl -n {SYSTEM_NAMESPACE} delete lease {name}   if that hub is gone for good; else start it"
    return error(f"Lease/{SYSTEM_NAMESPACE}/{name}", fault, fix)


def agents(facts: Facts) -> Iterator[Finding]:
    """Name members whose agent has never reported, or not for a while."""
    hub = facts.hub_read
    for tenant in hub.list(TENANTS) if hub is not None and hub.knows(LEASES) else ():
        name, namespace = name_of(tenant), _namespace(tenant)
        lease = _lease(hub, namespace, AGENT_LEASE)
        age_s = _age_s(hub, lease) if lease is not None else None
        state = state_by_age(age_s)
        if state == "Pending":
            fix = f"fairlead tenant add {name} --output kubeconfig   then: fairlead agent --tenant {name}"
            yield warning(path_of("Tenant", tenant), "its agent has never reported", fix)
        elif state != "Engaged":
            fix = f"kubectl -n {SYSTEM_NAMESPACE} logs deployment/fairlead-agent   in member {name}"
            yield error(path_of("Tenant", tenant), f"its agent last reported {age_s:.0f} s ago; its targets stay", fix)


def objects_refused(facts: Facts) -> Iterator[Finding]:
    """Name the objects that a member's agent refuses, in part or as a whole, as ``fairlead status`` does."""
    hub = facts.hub_read
    for tenant in hub.list(TENANTS) if hub is not None and hub.knows(LEASES) else ():
        lease = _lease(hub, _namespace(tenant), AGENT_LEASE) if hub is not None else None
        if lease is None:
            continue
        row = MemberRow(name_of(tenant), "", _namespace(tenant), "Engaged", 0.0, 0)
        looked_at = namespaces_of_member(facts)
        for problem in of_refused([row], {row.namespace: msgspec.convert(lease, Lease)}):
            ref = ObjectRef(problem.kind, problem.namespace, problem.name)
            fix = f"fairlead explain {ref.argument} --kubeconfig FILE   with a kubeconfig of member {row.name}"
            if facts.member is not None and row.namespace in looked_at:
                fix = f"fairlead explain {ref.argument} {facts.member.flags}".strip()
            say = error if problem.trouble is Trouble.NOT_SERVING else warning
            yield say("/".join(filter(None, (problem.kind, problem.namespace, problem.name))), problem.sentence, fix)


def agents_clocks(facts: Facts) -> Iterator[Finding]:
    """Name members whose clock differs from the hub's."""
    for lease in facts.hub.list(LEASES) if facts.hub else ():
        stored, renewed = stored_at(lease), parsed_time(str(spec(lease).get("renewTime") or ""))
        if name_of(lease) != AGENT_LEASE or stored is None or renewed is None:
            continue
        ahead_s = (renewed - stored).total_seconds()
        if abs(ahead_s) >= NOTICEABLE_S:
            fault = (
                f"the clock of its agent is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the hub's"
            )
            yield warning(path_of("Lease", lease), fault, "timedatectl set-ntp true   where the agent runs")


def namespaces(facts: Facts) -> Iterator[Finding]:
    """Name tenants whose namespace is missing."""
    if (hub := facts.hub_read) is None or not hub.knows(NAMESPACES):
        return
    there = {name_of(namespace) for namespace in hub.list(NAMESPACES)}
    for tenant in hub.list(TENANTS):
        if _namespace(tenant) not in there and not meta(tenant, "deletionTimestamp"):
            fault = f"its namespace {_namespace(tenant)} does not exist, so its agent has nowhere to write"
            fix = f"fairlead status   a hub that leads makes it; or: kubectl create namespace {_namespace(tenant)}"
            yield error(path_of("Tenant", tenant), fault, fix)


def stuck(facts: Facts) -> Iterator[Finding]:
    """Name what has been deleted for more than ten minutes and is still there."""
    for side in facts.sides:
        for resource in (*LOAD_BALANCER_KINDS, TENANTS, LOAD_BALANCER_CLASSES, NAMESPACES):
            for obj in side.list(resource):
                asked = since(meta(obj, "deletionTimestamp"))
                if asked is None or side.now - asked < _STUCK:
                    continue
                holds = ", ".join(meta(obj, "finalizers") or ["its content"])
                path = path_of(resource.kind, obj)
                fix = f"kubectl describe {resource.plural} {name_of(obj)} {_in(obj)}".strip()
                yield warning(path, f"it was deleted {_minutes(side, asked)} minutes ago and is held by {holds}", fix)


def default_class(facts: Facts) -> Iterator[Finding]:
    """Say that the default class is missing, which every Service without a class asks for."""
    hub = facts.hub_read
    if hub is None or not hub.knows(LOAD_BALANCER_CLASSES):
        return
    if DEFAULT_CLASS not in {name_of(each) for each in hub.list(LOAD_BALANCER_CLASSES)}:
        fault = "it is missing; a Service that names no class asks for it"
        yield error(f"LoadBalancerClass/{DEFAULT_CLASS}", fault, "fairlead hub   makes it when it begins to lead")


def classes(facts: Facts) -> Iterator[Finding]:
    """Name classes that cannot be used, or accept nothing new."""
    for each in facts.hub.list(LOAD_BALANCER_CLASSES) if facts.hub else ():
        path, name = path_of("LoadBalancerClass", each), name_of(each)
        if is_false(each, "Accepted"):
            yield error(path, str(condition(each, "Accepted").get("message")), f"kubectl edit loadbalancerclass {name}")
        if meta(each, "deletionTimestamp"):
            fault = "it is being deleted and accepts nothing new"
            yield warning(
                path, fault, f"kubectl get loadbalancerclass {name} -o yaml > class.yaml   and create it again"
            )
        elif spec(each).get("draining"):
            fix = f'kubectl patch loadbalancerclass {name} --type merge -p \'{{"spec":{{"draining":false}}}}\''
            yield warning(path, "it is draining and accepts nothing new", fix)


def unknown_classes(facts: Facts) -> Iterator[Finding]:
    """Name load balancers that ask for a class that does not exist."""
    hub = facts.hub_read
    if hub is None or not hub.knows(LOAD_BALANCER_CLASSES):
        return
    there = {name_of(each) for each in hub.list(LOAD_BALANCER_CLASSES)}
    for resource in LOAD_BALANCER_KINDS:
        for lb in hub.list(resource):
            asked = str(spec(lb).get("className") or DEFAULT_CLASS)
            if asked not in there and asked != DEFAULT_CLASS:
                fault = f"it asks for class {asked}, and there is {', '.join(sorted(there)) or 'none'}"
                field = "set loadBalancerClass: fairlead.dev/NAME on its Service"
                if resource is HTTP_LOAD_BALANCERS:
                    field = "name one in the parameters of its IngressClass or GatewayClass, in the member"
                if resource is LOAD_BALANCERS:
                    field = f"kubectl edit lb -n {meta(lb, 'namespace')} {name_of(lb)}   and set spec.className"
                fix = f"kubectl get loadbalancerclasses   then {field}"
                yield error(path_of(resource.kind, lb), fault, fix)


def _lease(side: ApiFacts | None, namespace: str, name: str) -> JSONObject | None:
    leases = side.list(LEASES) if side is not None else []
    return next((each for each in leases if (meta(each, "namespace"), name_of(each)) == (namespace, name)), None)


def _age_s(side: ApiFacts | None, lease: JSONObject) -> float | None:
    stored = stored_at(lease)
    return (side.now - stored).total_seconds() if side is not None and stored is not None else None


def _namespace(tenant: JSONObject) -> str:
    return str(spec(tenant).get("namespace") or TENANT_NAMESPACE_PREFIX + name_of(tenant))


def _in(obj: JSONObject) -> str:
    return f"-n {meta(obj, 'namespace')}" if meta(obj, "namespace") else ""


def _minutes(side: ApiFacts, asked: datetime) -> int:
    return int((side.now - asked).total_seconds() // 60)
