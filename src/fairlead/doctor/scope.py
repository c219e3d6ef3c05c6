"""The object that a finding is about: its namespaces, its labels, its name for verbs, and the Service that it is for.

In: facts, findings. Out: the findings of a namespace or with labels, names, and each fault once.
Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import msgspec

from fairlead.api.heartbeat import ANNOTATION_MEMBER_UID
from fairlead.api.kubernetes import LEASES
from fairlead.api.meta import JSONObject
from fairlead.api.names import AGENT_LEASE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.doctor.facts import Facts
from fairlead.doctor.finding import Finding, Severity
from fairlead.doctor.reading import annotation, mapping, meta, name_of, path_of, spec
from fairlead.status.object_ref import CLASS, KINDS, SHARING, ObjectRef

Matches = Callable[[Mapping[str, str] | None], bool]

_KINDS = frozenset({*KINDS.values(), *SHARING.values()})


def objects_by_path(facts: Facts) -> dict[str, JSONObject]:
    """Return every object that was read, by KIND/NAMESPACE/NAME."""
    return {
        path_of(str(obj.get("kind", "")), obj): obj
        for side in facts.sides
        for objects in side.objects.values()
        for obj in objects
    }


def scoped(facts: Facts, findings: Iterable[Finding], *, namespace: str, matches: Matches | None) -> list[Finding]:
    """Return the findings about objects in a namespace, at the hub or in a member, and with labels that match."""
    objects = objects_by_path(facts)

    def is_meant(finding: Finding) -> bool:
        obj = objects.get(finding.object)
        if obj is None:
            return False
        origin = (meta(obj, "namespace"), mapping(spec(obj).get("origin")).get("namespace"))
        labels = msgspec.convert(mapping(meta(obj, "labels")), dict[str, str])
        return namespace in ("", *origin) and (matches is None or matches(labels))

    return [finding for finding in findings if is_meant(finding)]


def verb_names(findings: Iterable[Finding]) -> list[str]:
    """Return the objects that verbs take, as they take them, each once: what a finding is about besides has no name."""
    names = [_verb_name(finding.object) for finding in findings]
    return list(dict.fromkeys(filter(None, names)))


def _verb_name(path: str) -> str:
    kind, _, rest = path.partition("/")
    namespace, _, name = rest.rpartition("/")
    if kind == TENANTS.kind:
        return f"tenant/{name}"
    return ObjectRef(kind, namespace, name).path if kind in _KINDS and (namespace or kind == CLASS) else ""


def namespaces_of_member(facts: Facts) -> set[str]:
    """Return the namespace of the member that was read at the hub that was read; empty where that is not known."""
    hub, member = facts.hub, facts.member
    if hub is None or member is None or not member.uid:
        return set()
    return {
        str(meta(lease, "namespace"))
        for lease in hub.list(LEASES)
        if name_of(lease) == AGENT_LEASE and annotation(lease, ANNOTATION_MEMBER_UID) == member.uid
    }


def service_of(facts: Facts) -> dict[str, str]:
    """Return the Service of the member that was read by the path of its load balancer at the hub that was read."""
    namespaces, hub = namespaces_of_member(facts), facts.hub
    return {
        path_of(TCP_LOAD_BALANCERS.kind, lb): f"Service/{origin['namespace']}/{origin.get('name')}"
        for lb in (hub.list(TCP_LOAD_BALANCERS) if hub is not None else ())
        if meta(lb, "namespace") in namespaces and (origin := mapping(spec(lb).get("origin"))).get("namespace")
    }


def without_consequences(
    facts: Facts, findings: Iterable[Finding], causes_of: Mapping[str, tuple[str, ...]]
) -> list[Finding]:
    """Return the findings without those that another one of the same object explains: each fault is reported once.

    ``causes_of``: by the name of a check those whose findings are the cause of its own. A load balancer and its
    Service are one object here.
    """
    present = list(findings)
    services = service_of(facts)
    by_check: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in present:
        by_check[finding.check, services.get(finding.object, finding.object)].append(finding)
    kept: list[Finding] = []
    worst: dict[int, Severity] = {}
    for finding in present:
        subject = services.get(finding.object, finding.object)
        causes = [cause for check in causes_of.get(finding.check, ()) for cause in by_check.get((check, subject), ())]
        if not causes:
            kept.append(finding)
        elif finding.severity is Severity.ERROR:
            # What it causes says how bad the cause is.
            worst |= {id(cause): Severity.ERROR for cause in causes}
    return [msgspec.structs.replace(each, severity=worst.get(id(each), each.severity)) for each in kept]
