"""All checks in their order, the findings that they give, and the selection of those by object.

In: facts. Out: findings, each with the name of its check; the worst come first, and each fault is reported once. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from fairlead.api.tenant import TENANTS
from fairlead.doctor import checks, checks_installation, checks_member
from fairlead.doctor.facts import (
    Check,
    Facts,
    Finding,
    Severity,
    mapping,
    meta,
    objects_by_path,
    pasteable,
    service_of,
    spec,
)
from fairlead.status.object_ref import CLASS, KINDS, SHARING, ObjectRef

Matches = Callable[[Mapping[str, str] | None], bool]

_KINDS = frozenset({*KINDS.values(), *SHARING.values()})

CHECKS = (
    Check("unreachable", "Do the APIs answer?", checks_installation.unreachable),
    Check("swapped", "Is each kubeconfig for the cluster that it is meant for?", checks_installation.swapped),
    Check("kubernetes-version", "Is Kubernetes new enough?", checks_installation.old_kubernetes),
    Check("clocks", "Do the clocks agree?", checks_installation.clocks),
    Check("endings", "Are tokens and certificates valid for another week?", checks_installation.endings),
    Check("issuers", "Can the issuers of certificates be used?", checks_hub.issuers),
    Check("certificates", "Are the certificates of the hub issued and renewed?", checks_hub.certificates),
    Check("certificate-names", "Are certificates valid for their hosts?", checks_hub.other_names),
    Check("kubeconfig-mode", "Can only their owners read keys?", checks_installation.open_kubeconfigs),
    Check("unread", "Could everything be read?", checks_installation.unread),
    Check("kinds", "Are all kinds installed at the hub?", checks_installation.kinds_missing),
    Check("kinds-version", "Are the kinds of this version?", checks_installation.kinds_of_another_version),
    Check("watch-denied", "May hub and agent watch all that they list?", checks_installation.watch_denied),
    Check("rights", "Do hub and agent have their rights?", checks_installation.rights),
    Check("two-hubs", "Is Fairlead installed once?", checks_installation.second_hub),
    Check("two-agents", "Does each member have one tenant and one agent?", checks_installation.two_agents),
    Check("versions", "Are all parts of one version?", checks_installation.versions),
    Check("replicas", "Are hub and agent available?", checks_installation.replicas),
    Check("proxies-namespace", "Do the proxies of Clusters have a namespace?", checks_installation.proxies_namespace),
    Check("leader", "Does a hub lead?", checks_hub.leader),
    Check("agents", "Do the members' agents report?", checks_hub.agents),
    Check("agents-clocks", "Do the members' clocks agree with the hub's?", checks_hub.agents_clocks),
    Check("refused-objects", "Do the agents serve all that members ask for?", checks_hub.objects_refused),
    Check("namespaces", "Does each tenant have its namespace?", checks_hub.namespaces),
    Check("stuck", "Do deletions finish?", checks_hub.stuck),
    Check("default-class", "Does the default class exist?", checks_hub.default_class),
    Check("classes", "Can the classes be used?", checks_hub.classes),
    Check("unknown-classes", "Do the classes of load balancers exist?", checks_hub.unknown_classes),
    Check("refused", "Is every load balancer accepted?", checks_hub.refused),
    Check("unresolved", "Do all objects that load balancers refer to exist?", checks_hub.unresolved),
    Check("programmed", "Is every load balancer programmed?", checks_hub.not_programmed),
    Check("address", "Does every load balancer have an address?", checks_hub.no_address),
    Check("pools", "Can addresses be given from every AddressPool?", checks_hub.pools_not_usable),
    Check("pools-exhausted", "Do the AddressPools have free addresses?", checks_hub.pools_exhausted),
    Check("pools-nodes", "Do AddressPools exclude the addresses of nodes?", checks_hub.pools_with_nodes),
    Check("zones", "Can the DNSZones be used?", checks_hub.zones_not_usable),
    Check("zones-server", "Do the servers of the DNSZones accept changes?", checks_hub.zones_not_answering),
    Check("names", "Are the Hostnames published?", checks_hub.names_not_published),
    Check("names-refused", "Does every object have the names that it asks for?", checks_hub.names_refused),
    Check("serving", "Does every load balancer have a healthy target?", checks_hub.not_serving),
    Check("unhealthy-targets", "Do the proxies reach all targets?", checks_hub.unhealthy_targets),
    Check("reach", "Does this machine reach the targets (--connect)?", checks_hub.unreachable_from_here),
    Check("held", "Are changes held?", checks_hub.held),
    Check("drift", "Has another client changed our entries?", checks_hub.drifted),
    Check("proxies", "Are the proxies available?", checks_hub.proxies_missing),
    Check("proxies-stale", "Do the proxies have the newest state?", checks_hub.proxies_stale),
    Check("proxies-address", "Do the proxies' Services have addresses?", checks_hub.services_without_address),
    Check("agent-missing", "Does an agent run in the member?", checks_member.agent_missing, side="member"),
    Check("no-nodes", "Does the member have nodes?", checks_member.no_nodes, side="member"),
    Check("excluded-nodes", "Does a label exclude nodes?", checks_member.excluded_nodes, side="member"),
    Check("nodes-ready", "Are the nodes ready?", checks_member.nodes_not_ready, side="member"),
    Check("nodes-leaving", "Does the autoscaler remove nodes?", checks_member.nodes_leaving, side="member"),
    Check("nodes-address", "Do the nodes have addresses?", checks_member.nodes_without_address, side="member"),
    Check("service-class", "Do the classes of Services exist?", checks_member.classes_of_services),
    Check("annotations", "Are annotations spelled correctly?", checks_member.misspelt_annotations, side="member"),
    Check("service-pods", "Do Services have ready pods?", checks_member.services_without_pods, side="member"),
    Check(
        "node-ports",
        "Do Services have node ports where nodes are targets?",
        checks_member.services_without_node_ports,
        side="member",
    ),
    Check("service-address", "Do Services have addresses?", checks_member.services_pending, side="member"),
    Check("ingress-class", "Do the classes of Ingresses exist?", checks_member.ingress_classes, side="member"),
    Check("gateway-class", "Are our GatewayClasses accepted?", checks_member.gateway_classes, side="member"),
    Check("envoy", "Is there an Envoy on this machine?", checks_installation.envoy),
    Check("low-ports", "May it open ports below 1024?", checks_installation.low_ports),
    Check("files", "May it open enough files?", checks_installation.files),
    Check("outgoing-ports", "Are there ports for connections to targets?", checks_installation.outgoing_ports),
    Check("data-dir", "Can the data directory be used?", checks_installation.directory),
    Check("lost-envoys", "Does each Envoy here belong to a hub?", checks_installation.lost_envoys),
)

#: By check those whose findings about the same object are the cause of its own: one fault is reported once.
CAUSES_OF = {
    "unknown-classes": ("service-class",),
    "refused-objects": ("ingress-class",),
    "refused": ("unknown-classes", "service-class"),
    "unresolved": ("refused", "unknown-classes", "service-pods"),
    "address": ("refused", "unknown-classes"),
    "programmed": ("refused", "unresolved", "unknown-classes", "address"),
    "serving": ("refused", "unresolved", "unknown-classes", "address", "programmed", "service-pods"),
    "unhealthy-targets": ("serving",),
    "names-refused": ("refused",),
    "service-address": (
        "service-class", "node-ports", "refused", "unresolved", "unknown-classes", "address", "programmed",
    ),
}  # fmt: skip

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.UNKNOWN: 2}


def examine(facts: Facts) -> list[Finding]:
    """Run every check; errors come first, and within them the order of the table counts."""
    sides = {side.name: side.undecoded for side in (facts.hub, facts.member) if side is not None}
    facts = replace(facts, hub=sides.get("hub"), member=sides.get("member"))
    flags = {side.name: side.flags for side in facts.sides}
    every = [
        replace(finding, check=check.name, fix=pasteable(finding.fix, flags.get(check.side, "")))
        for check in CHECKS
        for finding in check.run(facts)
    ]
    findings = without_consequences(facts, every, CAUSES_OF)
    return sorted(findings, key=lambda finding: _ORDER[finding.severity])


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
