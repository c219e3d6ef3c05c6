"""All checks, in the order in which they are run and read: what keeps everything from working comes first.

In: facts. Out: findings, each with the name of its check; the worst come first.
"""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.doctor import (
    checks_certificates,
    checks_connection,
    checks_fleet,
    checks_installation,
    checks_load_balancers,
    checks_machine,
    checks_member,
    checks_names,
)
from fairlead.doctor.facts import Facts
from fairlead.doctor.finding import Check, Finding, Severity, pasteable
from fairlead.doctor.scope import without_consequences

CHECKS = (
    Check("unreachable", "Do the APIs answer?", checks_connection.unreachable),
    Check("swapped", "Is each kubeconfig for the cluster that it is meant for?", checks_connection.swapped),
    Check("kubernetes-version", "Is Kubernetes new enough?", checks_connection.old_kubernetes),
    Check("clocks", "Do the clocks agree?", checks_connection.clocks),
    Check("endings", "Do tokens and certificates last?", checks_connection.endings),
    Check("issuers", "Can the issuers of certificates be used?", checks_certificates.issuers),
    Check("certificates", "Do the certificates that the hub gets last?", checks_certificates.certificates),
    Check("certificate-names", "Are certificates valid for their hosts?", checks_certificates.other_names),
    Check("kubeconfig-mode", "Can only their owners read keys?", checks_connection.open_kubeconfigs),
    Check("unread", "Could everything be read?", checks_connection.unread),
    Check("kinds", "Are all kinds installed at the hub?", checks_installation.kinds_missing),
    Check("kinds-version", "Are the kinds of this version?", checks_installation.kinds_of_another_version),
    Check("watch-denied", "May hub and agent watch all that they list?", checks_installation.watch_denied),
    Check("rights", "Do hub and agent have their rights?", checks_installation.rights),
    Check("two-hubs", "Is it installed once?", checks_installation.second_hub),
    Check("two-agents", "Does each member have one tenant and one agent?", checks_installation.two_agents),
    Check("versions", "Are all parts of one version?", checks_installation.versions),
    Check("replicas", "Are hub and agent available?", checks_installation.replicas),
    Check("proxies-namespace", "Do the proxies of Clusters have a namespace?", checks_installation.proxies_namespace),
    Check("leader", "Does a hub lead?", checks_fleet.leader),
    Check("agents", "Do the members' agents report?", checks_fleet.agents),
    Check("agents-clocks", "Do the members' clocks agree with the hub's?", checks_fleet.agents_clocks),
    Check("refused-objects", "Do the agents serve all that members ask for?", checks_fleet.objects_refused),
    Check("namespaces", "Does each tenant have its namespace?", checks_fleet.namespaces),
    Check("stuck", "Do deletions finish?", checks_fleet.stuck),
    Check("default-class", "Does the default class exist?", checks_fleet.default_class),
    Check("classes", "Can the classes be used?", checks_fleet.classes),
    Check("unknown-classes", "Do the classes of load balancers exist?", checks_fleet.unknown_classes),
    Check("refused", "Is every load balancer accepted?", checks_load_balancers.refused),
    Check("unresolved", "Do all objects that load balancers refer to exist?", checks_load_balancers.unresolved),
    Check("programmed", "Is every load balancer programmed?", checks_load_balancers.not_programmed),
    Check("address", "Does every load balancer have an address?", checks_load_balancers.no_address),
    Check("pools", "Can addresses be given from every AddressPool?", checks_names.pools_not_usable),
    Check("pools-exhausted", "Do the AddressPools have free addresses?", checks_names.pools_exhausted),
    Check("pools-nodes", "Is no address of an AddressPool a node's?", checks_names.pools_with_nodes),
    Check("zones", "Can the DNSZones be used?", checks_names.zones_not_usable),
    Check("zones-server", "Do the servers of the DNSZones accept changes?", checks_names.zones_not_answering),
    Check("names", "Are the Hostnames published?", checks_names.names_not_published),
    Check("names-refused", "Does every object have the names that it asks for?", checks_names.names_refused),
    Check("serving", "Does every load balancer have a healthy target?", checks_load_balancers.not_serving),
    Check("unhealthy-targets", "Do the proxies reach all targets?", checks_load_balancers.unhealthy_targets),
    Check("reach", "Does this machine reach the targets (--connect)?", checks_load_balancers.unreachable_from_here),
    Check("held", "Are changes held?", checks_load_balancers.held),
    Check("drift", "Has another client changed our entries?", checks_load_balancers.drifted),
    Check("proxies", "Are the proxies available?", checks_load_balancers.proxies_missing),
    Check("proxies-stale", "Do the proxies have the newest state?", checks_load_balancers.proxies_stale),
    Check(
        "proxies-address", "Do the proxies' Services have addresses?", checks_load_balancers.services_without_address
    ),
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
    Check("envoy", "Is there an Envoy on this machine?", checks_machine.envoy),
    Check("low-ports", "May it open ports below 1024?", checks_machine.low_ports),
    Check("files", "May it open enough files?", checks_machine.files),
    Check("outgoing-ports", "Are there ports for connections to targets?", checks_machine.outgoing_ports),
    Check("data-dir", "Can the data directory be used?", checks_machine.directory),
    Check("lost-envoys", "Does each Envoy here belong to a hub?", checks_machine.lost_envoys),
)

#: By check those whose findings about the same object are the cause of its own: one fault is said once.
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
    flags = {side.name: side.flags for side in facts.sides}
    every = [
        replace(finding, check=check.name, fix=pasteable(finding.fix, flags.get(check.side, "")))
        for check in CHECKS
        for finding in check.run(facts)
    ]
    findings = without_consequences(facts, every, CAUSES_OF)
    return sorted(findings, key=lambda finding: _ORDER[finding.severity])
