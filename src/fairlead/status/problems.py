"""The verdicts on a fleet: what conditions and counts mean for traffic, and one ``Problem`` for each fault.

    Programmed, Serving False                               does not serve
    Programmed False: routes rejected, or being deleted     needs attention
    no backend, or none that is ready                       does not serve, unless Serving is True
    no route attached, where there are routes               idle, not a problem
    Accepted, ResolvedRefs, Ready False                     needs attention
    Conflicted, ClockSkewed, Stale, Paused, Drifted,        need attention while they are True
    Guarded, Protected
    Serving: some backends have no healthy target           needs attention: requests to these fail
    Serving Unknown, NotChecked                             shown, not a problem: health is not checked
    Serving Unknown                                         not known yet, unless another condition is worse
    Serving Unknown, ProviderFailed                         not known yet, even if Programmed is False: the provider
                                                            cannot be asked whether it still serves
    Unknown of other types                                  shown, not a problem

In: objects of the hub's API and their rows, the time. Out: findings of one object, the worst first, and problems in the
order of their objects: a sentence that names the object, the reason and the next step. Condition types that are not in
the table are not a problem. Neither is a name that no zone holds: its records may be kept by hand. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from fairlead.api.addresspool import ADDRESS_POOLS, COUNTED, AddressPool
from fairlead.api.backendgroup import BackendGroup
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES, DNSZone, Hostname
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, FailingRoute, HTTPLoadBalancer
from fairlead.api.json_text import read_json
from fairlead.api.kubernetes import Lease
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.api.meta import KubeObject, WireCondition, is_taken_over
from fairlead.api.names import ANNOTATION_PAUSED, ANNOTATION_REFUSED
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.tenant import Tenant, TenantStatus
from fairlead.errors import BadConfiguration
from fairlead.model.condition import ConditionReason
from fairlead.model.keys import family_of
from fairlead.status.formatting import age_text
from fairlead.status.object_ref import SERVICE, ObjectRef
from fairlead.status.rows import (
    HubRow,
    LoadBalancerRow,
    MemberRow,
    PoolRow,
    Problem,
    ProxyStatusRow,
    RegionRow,
    Trouble,
)
from fairlead.translate.address_pools import OWN_POOL
from fairlead.translate.address_ranges import AddressRanges
from fairlead.translate.certificates import ending
from fairlead.translate.conditions import says_no_ready
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
            findings = [ConditionFault(Trouble.NOT_SERVING, "Programmed", "Pending", "")]
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


def _why(finding: ConditionFault) -> str:
    return finding.message or finding.reason


def pool_rows(pools: Iterable[AddressPool], own: str, given: Iterable[str]) -> list[PoolRow]:
    """Return the use of ``--address-pool`` (``own``, empty for none) and of each AddressPool.

    ``given`` are the addresses of all load balancers.
    """
    rows = [pool_row(pool) for pool in sorted(pools, key=lambda pool: pool.metadata.name)]
    if not own:
        return rows
    try:
        ranges = AddressRanges.parse(own)
    except BadConfiguration:
        return rows  # written by a hub of a version that has other ranges
    used = Counter(family_of(address) for address in set(given) if address in ranges)
    fullest = max(used[family] / ranges.of(family).size for family in ranges.families)
    size, note = min(ranges.size, COUNTED), _note(fullest)
    return [PoolRow(name=OWN_POOL, addresses=own, size=size, used=used.total(), note=note), *rows]


def pool_row(pool: AddressPool) -> PoolRow:
    """Return the use of one AddressPool, as its hub counted it."""
    status = pool.status
    taken = status.used + status.reserved
    exhausted = bool(status.size) and 0 in (status.free, status.free_ipv4, status.free_ipv6)
    return PoolRow(
        name=pool.metadata.name,
        addresses=", ".join(pool.spec.addresses),
        size=status.size,
        used=status.used,
        reserved=status.reserved,
        note=_note(1.0 if exhausted else taken / status.size if status.size else 0.0),
    )


def _note(part: float) -> str:
    return "Full" if part >= 1 else "AlmostFull" if part >= _ALMOST_FULL else ""


#: From this part of a pool on, ``fairlead status`` and the page point at it.
_ALMOST_FULL = 0.8


def of_pools(pools: Iterable[AddressPool], rows: Iterable[PoolRow], *, waiting: bool) -> Iterator[Problem]:
    """Yield the pools that give no addresses: invalid ones, and full ones while a load balancer waits for an address.

    A pool may be full on purpose: as long as nothing waits, that is no problem.
    """
    yield from _first_findings("pool", ((pool, pool.status.conditions) for pool in pools), ADDRESS_POOLS.kind)
    for row in rows:
        if waiting and row.note == "Full":
            step = "start the hub with a larger one" if row.name == OWN_POOL else "add to spec.addresses"
            sentence = f"pool {row.name}: {pool_use(row)}, and a load balancer waits for one; {step}"
            yield Problem(Trouble.ATTENTION, ADDRESS_POOLS.kind, "", row.name, "AddressPoolExhausted", sentence)


def pool_use(row: PoolRow) -> str:
    """Return how many addresses of a pool are used, in words."""
    reserved = f" and {row.reserved} reserved" if row.reserved else ""
    return f"{row.used} of {row.size} addresses are used{reserved}"


def of_zones(zones: Iterable[DNSZone]) -> Iterator[Problem]:
    """Say which zones cannot be written, or are written to on paper only."""
    return _first_findings("zone", ((zone, zone.status.conditions) for zone in zones), DNS_ZONES.kind)


def _first_findings(
    fault: str, objects: Iterable[tuple[KubeObject, list[WireCondition] | None]], kind: str
) -> Iterator[Problem]:
    """Yield the first finding of each cluster-scoped object, by name."""
    for obj, conditions in sorted(objects, key=lambda each: each[0].metadata.name):
        name = obj.metadata.name
        for finding in findings_of(conditions)[:1]:
            why = finding.message or finding.reason
            yield Problem(Trouble.ATTENTION, kind, "", name, finding.reason, f"{fault} {name}: {why}")


def of_names(hostnames: Iterable[Hostname]) -> Iterator[Problem]:
    """Say which names are not published by the zone that holds them."""
    for obj in sorted(hostnames, key=lambda obj: obj.spec.host):
        for finding in findings_of(obj.status.conditions if obj.status.zone else ())[:1]:
            sentence = f"name {obj.spec.host} in zone {obj.status.zone}: {finding.message or finding.reason}"
            yield Problem(Trouble.ATTENTION, HOSTNAMES.kind, *obj.key, finding.reason, sentence)


def of_certificates(certificates: Iterable[ManagedCertificate], now: datetime) -> Iterator[Problem]:
    """Say which certificates have ended, end soon though they should have been renewed, or could not be had."""
    for row in ending(certificates, now):
        hosts = ", ".join(row.hosts)
        if row.ends is None:
            reason, fault = "NotIssued", f"there is no certificate for {hosts} yet"
        elif row.ends <= now:
            reason, fault = "Ended", f"the certificate for {hosts} has ended at {row.ends:%Y-%m-%d %H:%M} UTC"
        else:
            reason, fault = "EndsSoon", f"the certificate for {hosts} ends at {row.ends:%Y-%m-%d %H:%M} UTC"
        trouble = Trouble.NOT_SERVING if reason == "Ended" else Trouble.ATTENTION
        yield Problem(trouble, MANAGED_CERTIFICATES.kind, row.namespace, row.name, reason, f"{fault}: {row.why}")


SERVING, PROGRAMMED, ACCEPTED = "Serving", "Programmed", "Accepted"
#: Types that name a problem while they are False, and what that means for traffic.
_GOOD_WHEN_TRUE = {
    PROGRAMMED: Trouble.NOT_SERVING,
    SERVING: Trouble.NOT_SERVING,
    ACCEPTED: Trouble.ATTENTION,
    "ResolvedRefs": Trouble.ATTENTION,
    "Ready": Trouble.ATTENTION,
}
_BAD_WHEN_TRUE = ("ClockSkewed", "Conflicted", "Drifted", "Guarded", "Paused", "Protected", "Stale")
#: Reasons of Serving that have the same cause as references without a ready endpoint.
_WITHOUT_TARGETS = (ConditionReason.NO_TARGETS, ConditionReason.SOME_BACKENDS_UNHEALTHY)
#: Reasons for which Serving stays Unknown: nothing looks at all, or the other, backends.
_UNCHECKED = (ConditionReason.NOT_CHECKED, ConditionReason.SOME_BACKENDS_UNHEALTHY)
_COUNTS = re.compile(r"(\d+)/(\d+)")
_RANK = list(Trouble)


class ConditionFault(NamedTuple):
    """One thing that is not well about one object."""

    trouble: Trouble
    type: str
    reason: str
    message: str


def findings_of(conditions: Iterable[WireCondition] | None) -> list[ConditionFault]:
    """Return what the conditions say that is not well, the worst first, then in the order of the conditions.

    What two conditions say in the same words is said once: a refusal is the reason of Accepted and of Programmed.
    """
    findings = [finding for condition in conditions or () for finding in _finding(condition)]
    by_words: dict[tuple[str, str], ConditionFault] = {}
    for finding in sorted(findings, key=lambda finding: _RANK.index(finding.trouble)):
        by_words.setdefault((finding.reason, finding.message), finding)
    return list(by_words.values())


def findings_of_load_balancer(
    conditions: Sequence[WireCondition] | None, targets: str, routes: int | None = None
) -> list[ConditionFault]:
    """Return the same for what is to serve traffic; ``targets`` is ready/total, with more words or none after it.

    ``routes`` counts those that are attached, None where there are no routes.
    """
    findings = findings_of(conditions)
    by_type = {condition.type: condition for condition in conditions or ()}
    if ACCEPTED in (finding.type for finding in findings) and not _is_true(by_type.get(PROGRAMMED)):
        # Refused, and nothing was accepted before: there is nothing that could serve.
        findings = [
            finding._replace(trouble=Trouble.NOT_SERVING) if finding.type == ACCEPTED else finding
            for finding in findings
        ]
    if routes == 0:
        # Nothing could be sent anywhere, and nothing is missing either: it was not asked to.
        findings.append(
            ConditionFault(Trouble.IDLE, PROGRAMMED, "NoRoute", "no Ingress or route is attached to it yet")
        )
        return findings
    serving = by_type.get(SERVING)
    if serving is not None and (serving.status, serving.reason) == ("Unknown", ConditionReason.PROVIDER_FAILED):
        findings = [
            finding._replace(trouble=Trouble.UNCONFIRMED) if finding.type == PROGRAMMED else finding
            for finding in findings
        ]
    without = _without_backend(targets, by_type)
    if any(finding.reason in _WITHOUT_TARGETS for finding in findings):
        # One cause: that references have no endpoint is why it, or one of its backends, has no target.
        findings = [finding for finding in findings if not says_no_ready(finding.reason, finding.message)]
    if any(finding.trouble in (Trouble.NOT_SERVING, Trouble.UNCONFIRMED) for finding in findings):
        return findings
    if without is not None:
        findings.insert(0, without)
    elif serving is not None and serving.status == "Unknown" and serving.reason not in _UNCHECKED:
        findings.insert(0, ConditionFault(Trouble.UNCONFIRMED, SERVING, serving.reason, serving.message))
    return findings


def counted_of(targets: str) -> tuple[int, int] | None:
    """Return how many backends are ready, of how many; None when ``targets`` has no such counts."""
    counts = _COUNTS.match(targets)
    return (int(counts[1]), int(counts[2])) if counts is not None else None


def worst_of(troubles: Iterable[Trouble]) -> Trouble:
    """Return the worst of several; ``NONE`` of none."""
    return min(troubles, key=_RANK.index, default=Trouble.NONE)


def _finding(condition: WireCondition) -> Iterator[ConditionFault]:
    trouble = _GOOD_WHEN_TRUE.get(condition.type) if condition.status == "False" else None
    if condition.status == "True" and condition.type in _BAD_WHEN_TRUE:
        trouble = Trouble.ATTENTION
    if condition.type == PROGRAMMED and condition.reason == ConditionReason.ROUTES_REFUSED:
        trouble = Trouble.ATTENTION  # all other routes are served, unless Serving says otherwise
    if condition.type == PROGRAMMED and condition.reason == ConditionReason.DELETING:
        trouble = Trouble.ATTENTION  # it is not to serve any more
    if condition.reason == ConditionReason.SOME_BACKENDS_UNHEALTHY:
        trouble = Trouble.ATTENTION  # whatever its status: requests to some of its backends fail
    if trouble is not None:
        yield ConditionFault(trouble, condition.type, condition.reason, condition.message)


def _without_backend(targets: str, by_type: dict[str, WireCondition]) -> ConditionFault | None:
    counts = counted_of(targets)
    serving = by_type.get(SERVING)
    if counts is None or counts[0] or not is_taken_over(by_type.get(PROGRAMMED)) or _is_true(serving):
        return None
    guarded = _is_true(by_type.get("Guarded"))
    if guarded or (counts[1] and _is_true(by_type.get("Stale"))):
        # The backends that were ready last are still in use.
        return None
    if not counts[1] and serving is not None and serving.reason == ConditionReason.PENDING:
        return None  # which ones there are is not known
    if not counts[1]:
        return ConditionFault(Trouble.NOT_SERVING, PROGRAMMED, "NoBackend", "it has no backend yet")
    return ConditionFault(
        Trouble.NOT_SERVING, PROGRAMMED, "NoBackendReady", f"none of its {counts[1]} backends is ready"
    )


def _is_true(condition: WireCondition | None) -> bool:
    return condition is not None and condition.status == "True"
