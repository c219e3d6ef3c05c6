"""Problems of a fleet, one ``Problem`` for each: a sentence that names the object, why, and the next step.

In: the objects of the hub's API, and the rows that were made of them. Out: problems, in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, FailingRoute, HTTPLoadBalancer
from fairlead.api.json_text import read_json
from fairlead.api.kubernetes import Lease
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.names import ANNOTATION_PAUSED, ANNOTATION_REFUSED
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.tenant import Tenant, TenantStatus
from fairlead.model.condition import ConditionReason
from fairlead.status.conditions import Finding, findings_of, findings_of_load_balancer
from fairlead.status.formatting import age_text
from fairlead.status.object_ref import SERVICE, ObjectRef
from fairlead.status.rows import HubRow, LoadBalancerRow, MemberRow, Problem, ProxyStatusRow, RegionRow, Trouble
from fairlead.translate.tcp import NODES

_KINDS = {
    TCPLoadBalancer: TCP_LOAD_BALANCERS.kind,
    HTTPLoadBalancer: HTTP_LOAD_BALANCERS.kind,
    LoadBalancer: LOAD_BALANCERS.kind,
}


def kind_of(lb: TCPLoadBalancer | HTTPLoadBalancer | LoadBalancer) -> str:
    """Return the kind of a load balancer that was read."""
    return _KINDS[type(lb)]


def of_hub(hub: HubRow) -> Iterator[Problem]:
    """Say that no hub leads."""
    if hub.leading:
        return
    sentence = "no hub leads; start one with: fairlead hub"
    if hub.holder:
        sentence = f"the hub {hub.holder} last reported {age_text(hub.age_s)} ago; is it running?"
    yield Problem(Trouble.NOT_KNOWN, "Hub", "", hub.holder, "NoHubLeads", sentence)


def of_members(members: Iterable[MemberRow], tenants: Iterable[Tenant]) -> Iterator[Problem]:
    """Yield the members whose agent does not report, and the other problems of members."""
    statuses = {tenant.metadata.name: tenant.status for tenant in tenants}
    for row in members:
        silent = _silence(row)
        if silent:
            yield _member(row, row.state, silent)
        status = statuses.get(row.name, TenantStatus())
        # Its agent reports again, or for the first time, and the hub has not written that yet.
        behind = row.state == "Engaged" and status.state in ("Pending", "Stale", "Lost")
        for finding in findings_of(status.conditions):
            if not silent and not (behind and finding.type == "Ready"):
                yield _member(row, finding.reason, _why(finding))


def of_refused(members: Iterable[MemberRow], leases: Mapping[str, Lease]) -> Iterator[Problem]:
    """Say which objects their member's agent refuses, in part or as a whole; Events on them say the same."""
    for row in members:
        lease = leases.get(row.namespace)
        if lease is None:
            continue
        # A newer agent may write it otherwise; its Events on the Services say the same.
        refused = read_json(lease.annotation(ANNOTATION_REFUSED) or "{}", dict[str, str]) or {}
        for key, why in refused.items():
            *kinds, namespace, name = ["", "", *key.split("/")][-3:]
            if kinds[0]:
                sentence = f"{kinds[0]} {row.name}/{namespace}/{name}: {why}"
                yield Problem(Trouble.ATTENTION, kinds[0], namespace, name, "Refused", sentence, row.name)
                continue
            service = f"{namespace}/{name}"
            sentence = f"Service {row.name}/{service} is refused by its agent: {why}" if name else f"{row.name}: {why}"
            yield Problem(Trouble.NOT_SERVING, SERVICE, namespace, name, "Refused", sentence, row.name)


def of_load_balancers(
    objects: Iterable[TCPLoadBalancer | HTTPLoadBalancer | LoadBalancer], rows: Iterable[LoadBalancerRow]
) -> Iterator[Problem]:
    """Say of each load balancer everything that is not well."""
    by_key = {(row.kind, row.namespace, row.name): row for row in rows}
    for lb in sorted(objects, key=lambda lb: lb.key):
        row = by_key[kind_of(lb), *lb.key]
        parts = lb.status.refused if isinstance(lb, HTTPLoadBalancer) else ()
        failing = lb.status.failing_routes if isinstance(lb, HTTPLoadBalancer) else ()
        findings = findings_of_load_balancer(lb.status.conditions, row.targets, row.routes)
        if row.reason == "Pending" and not findings:
            findings = [Finding(Trouble.NOT_SERVING, "Programmed", "Pending", "")]
        # A member that is lost or leaves is why its load balancers have no target: its pods are not asked for.
        lost = any(finding.reason == ConditionReason.MEMBER_LOST for finding in findings)
        for finding in findings:
            if finding.trouble is Trouble.IDLE:
                continue
            if parts and (finding.type, finding.reason) == ("Programmed", ConditionReason.ROUTES_REFUSED):
                continue  # each of its routes is named below
            if failing and finding.reason == ConditionReason.SOME_BACKENDS_UNHEALTHY:
                continue  # each of its routes is named below
            message = finding.message.removeprefix(f"LoadBalancer/{row.namespace}/{row.name}: ") or finding.reason
            step = "" if lost else next_step(row, finding.reason)
            sentence = f"load balancer {row.title}: {message}{step}"
            yield Problem(finding.trouble, row.kind, row.namespace, row.name, finding.reason, sentence)
        for part in parts:
            sentence = f"{part.title} of load balancer {row.title} is not served: {part.reason}"
            yield Problem(Trouble.ATTENTION, row.kind, row.namespace, row.name, "Refused", sentence)
        for route in failing:
            yield failing_route(row, route)


def failing_route(row: LoadBalancerRow, route: FailingRoute) -> Problem:
    """Return the problem of one route of a load balancer whose requests fail."""
    member = row.origin.partition("/")[0]
    ref = ObjectRef(route.kind, route.namespace, route.object, member)
    sentence = f"{ref.title} on load balancer {row.title}: {route.sentence}; does a pod listen there? {_explain(row)}"
    return Problem(Trouble.ATTENTION, row.kind, row.namespace, row.name, "NoHealthyTargets", sentence)


def next_step(row: LoadBalancerRow, reason: str) -> str:
    """Return what to look at next where the condition cannot know it, with "; " before it; empty for other reasons."""
    member, _, service = row.origin.partition("/")
    namespace, _, name = service.partition("/")
    explain = _explain(row)
    if reason == "NoTargets" and row.targets == NODES:
        local = "and with externalTrafficPolicy Local a pod on it"
        return f"; is a node of member {member} ready, {local}? kubectl get nodes"
    if reason in ("NoTargets", "NoBackend") and name and row.origin_kind == SERVICE:
        slices = f"kubectl get endpointslices -n {namespace} -l kubernetes.io/service-name={name}"
        return f"; has its selector a ready pod in member {member}? {slices}"
    if reason in ("NoTargets", "NoBackend", "NoBackendReady"):
        return f"; what is left out, and why, says: {explain}"
    if reason == "NoHealthyTargets":
        tries = "Which they are: " + explain + "; to connect to each, on the hub's machine: fairlead doctor --connect"
        return f"; does anything listen at its port, and may the hub's proxies reach it? {tries}"
    return ""


def _explain(row: LoadBalancerRow) -> str:
    return f"fairlead explain {ObjectRef(row.kind, row.namespace, row.name).path}"


def of_regions(regions: Iterable[RegionRow]) -> Iterator[Problem]:
    """Say which regions of which Services are not well."""
    for row in regions:
        if row.state not in (Trouble.NONE, Trouble.IDLE):
            sentence = f"region {row.region} of {row.namespace}/{row.service}: {row.message or row.reason}"
            yield Problem(row.state, "PoolService", row.namespace, row.service, row.reason, sentence)


def of_classes(classes: Iterable[LoadBalancerClass]) -> Iterator[Problem]:
    """Say which classes take nothing new, or are paused."""
    for cls in sorted(classes, key=lambda cls: cls.metadata.name):
        name = cls.metadata.name
        findings = [(finding.reason, _why(finding)) for finding in findings_of(cls.status.conditions)]
        if cls.deleting:
            in_use = next((c.message for c in cls.status.conditions or () if c.type == "InUse"), "")
            findings.insert(0, ("Deleting", in_use or "it was deleted, and accepts nothing new"))
        if cls.annotation(ANNOTATION_PAUSED, "false") != "false":
            findings.append(("PausedByUser", f"it is paused; end that with: fairlead resume class/{name}"))
        for reason, why in findings:
            yield Problem(Trouble.ATTENTION, "LoadBalancerClass", "", name, reason, f"class {name}: {why}")


def of_groups(groups: Iterable[BackendGroup]) -> Iterator[Problem]:
    """Say which groups do not have their backends where they should be."""
    for group in sorted(groups, key=lambda group: group.key):
        for finding in findings_of(group.status.conditions)[:1]:
            sentence = f"group {group.key}: {_why(finding)}"
            yield Problem(Trouble.ATTENTION, "BackendGroup", *group.key, finding.reason, sentence)


def of_proxies(proxies: Sequence[ProxyStatusRow]) -> Iterator[Problem]:
    """Say which proxies do not have the newest state."""
    for row in proxies:
        if row.state != "SYNCED":
            sentence = f"proxy {row.name} ({row.group}) is {row.state}"
            yield Problem(Trouble.ATTENTION, "Proxy", row.group, row.name, row.state, sentence)


def _silence(row: MemberRow) -> str:
    if row.state == "Pending":
        return "its agent has never reported; start it with: fairlead agent"
    if row.state == "Engaged":
        return ""
    key = f"an expired key is replaced with: fairlead tenant rotate {row.name}"
    return f"its agent last reported {age_text(row.last_sync_age_s)} ago; look at its log; {key}"


def _member(row: MemberRow, reason: str, why: str) -> Problem:
    return Problem(Trouble.ATTENTION, "Tenant", "", row.name, reason, f"member {row.name}: {why}")


def _why(finding: Finding) -> str:
    return finding.message or finding.reason
