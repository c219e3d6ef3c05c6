"""Checks of the hub's objects: leader, tenants, classes, load balancers, pools, names and certificates.

In: facts about the hub. Out: findings about objects that are rejected, not programmed, not serving, held or changed by
others; proxies and their targets; agents that do not report; pools, zones and names; certificates and their issuers.
What a condition or a row means is decided in ``status/``; the checks add severity and the command that fixes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES, Hostname
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, HTTPLoadBalancer
from fairlead.api.intent import IntentObject
from fairlead.api.kinds import LOAD_BALANCER_KINDS
from fairlead.api.kubernetes import CONFIG_MAPS, DEPLOYMENTS, ENDPOINT_SLICES, LEASES, NAMESPACES, SERVICES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS, MANAGED_CERTIFICATES
from fairlead.api.meta import condition_of
from fairlead.api.names import (
    AGENT_LEASE,
    ANNOTATION_PAUSED,
    COMMAND_NAMES,
    DEFAULT_CLASS,
    HUB_LEASE,
    LABEL_MANAGED_BY,
    LABEL_NODES,
    LABEL_NODES_IPV6,
    LABEL_TENANT,
    MANAGED_BY,
    SYSTEM_NAMESPACE,
)
from fairlead.api.tenant import STAMPED_LEASES, TENANTS, StampedLease, Tenant
from fairlead.api.times import parsed_time
from fairlead.doctor.facts import (
    ApiFacts,
    Facts,
    Finding,
    error,
    items,
    label,
    mapping,
    meta,
    name_of,
    namespaces_of_member,
    path_of,
    path_to,
    spec,
    status,
    warning,
)
from fairlead.errors import BadConfiguration
from fairlead.kube.transport import NOTICEABLE_S
from fairlead.model.condition import ConditionReason
from fairlead.model.in_words import listed, split_host_port
from fairlead.model.key_pair import covers
from fairlead.model.keys import canonical_address
from fairlead.standalone.proxy_report import NAME as PROXY_REPORTS
from fairlead.standalone.proxy_report import decode_reports
from fairlead.standalone.right_cluster import OWN_TENANT
from fairlead.status import problems
from fairlead.status.fleet import hub_row, member_row
from fairlead.status.object_ref import ObjectRef
from fairlead.status.problems import ConditionFault, condition_faults
from fairlead.status.rows import ProxyStatusRow, ReplicaReport, Trouble
from fairlead.translate.addresses import AddressRanges

_NO_ADDRESS = (
    ConditionReason.ADDRESS_NOT_ASSIGNED,
    ConditionReason.ADDRESS_NOT_USABLE,
    ConditionReason.ADDRESS_POOL_EXHAUSTED,
)
_STUCK = timedelta(minutes=10)
#: Kinds whose objects may request names.
_WITH_NAMES = (*LOAD_BALANCER_KINDS, LOAD_BALANCER_ROUTES)
#: Reasons that concern the zone's server, and so every name in the zone.
_OF_THE_SERVER = (ConditionReason.PROVIDER_FAILED, ConditionReason.QUARANTINED)


# --- load balancers ---------------------------------------------------------------------------------------------


def refused(facts: Facts) -> Iterator[Finding]:
    """Name load balancers whose spec is rejected; the last accepted version is still served."""
    for path, ref, fault in _condition_faults(facts, "Accepted"):
        yield error(path, fault.text, f"fairlead explain {ref}")


def unresolved(facts: Facts) -> Iterator[Finding]:
    """Name load balancers that refer to an object that does not exist."""
    for path, ref, fault in _condition_faults(facts, "ResolvedRefs"):
        yield error(path, fault.text, f"fairlead explain {ref}")


def not_programmed(facts: Facts) -> Iterator[Finding]:
    """Name load balancers that no proxy or provider has, and those without any status."""
    for path, ref, fault in _condition_faults(facts, "Programmed"):
        report = warning if fault.trouble is Trouble.ATTENTION else error
        yield report(path, fault.text, f"fairlead explain {ref} --history")
    for path, _, lb in _load_balancers(facts):
        if condition_of(lb.status.conditions, "Programmed") is None and not lb.deleting:
            yield warning(path, "no hub has written a status yet", "fairlead status   does a hub lead?")


def no_address(facts: Facts) -> Iterator[Finding]:
    """Name load balancers without an address: pools are exhausted, or the requested address is not available."""
    for path, ref, lb in _load_balancers(facts):
        faults = condition_faults(lb.status.conditions)
        types = {fault.type for fault in faults}
        if "Accepted" in types and "Programmed" not in types:
            continue  # the address from before the rejected change is kept
        cause = next((fault for fault in faults if fault.reason in _NO_ADDRESS), None)
        if cause is not None:
            yield error(path, f"no address: {cause.text}", _address_fix(facts, ref, cause.reason))


def _address_fix(facts: Facts, ref: str, reason: str) -> str:
    """Return where addresses come from here: AddressPools if there are any, else the flag of the running command."""
    if reason == ConditionReason.ADDRESS_NOT_USABLE:
        return f"fairlead explain {ref}   then request another address, or none"
    pools = sorted(pool.metadata.name for pool in facts.hub.read(ADDRESS_POOLS)) if facts.hub else []
    if len(pools) == 1:
        return f"kubectl edit addresspool {pools[0]}   add ranges to spec.addresses"
    if pools:
        return f"kubectl get addresspools   then add ranges to one that serves it: {listed(pools, 3)}"
    return _larger_pool(facts)


def _larger_pool(facts: Facts) -> str:
    """Return how the hub of this installation gets a larger ``--address-pool``."""
    own = OWN_TENANT in {tenant.metadata.name for tenant in facts.hub.read(TENANTS)} if facts.hub else False
    also = "" if own else " (or fairlead standalone; with Helm: --set addressPool=CIDR)"
    command = "run" if own else "hub"
    return f"fairlead {command} --address-pool CIDR,CIDR   with a larger range{also}; or kubectl apply an AddressPool"


def not_serving(facts: Facts) -> Iterator[Finding]:
    """Name load balancers without a healthy target: connections to them fail."""
    for path, ref, lb in _load_balancers(facts):
        serving = condition_of(lb.status.conditions, "Serving")
        if serving is not None and serving.status == "False":
            targets = lb.status.unhealthy_targets or ()
            fix = f"{_nc(targets[0])}   from where a proxy runs; and: " if targets else ""
            yield error(path, serving.message or serving.reason, f"{fix}fairlead explain {ref}")


def unhealthy_targets(facts: Facts) -> Iterator[Finding]:
    """Name routes whose requests fail, and targets, such as nodes' node ports, whose health checks fail."""
    for path, ref, lb in _load_balancers(facts):
        for route in lb.status.failing_routes if isinstance(lb, HTTPLoadBalancer) else ():
            title = f"{route.kind} {route.namespace}/{route.object}"
            yield error(path, f"{title}: {route.sentence}", f"fairlead explain {ref}")
        targets = lb.status.unhealthy_targets or []
        if targets:
            fix = f"{_nc(targets[0])}   from where a proxy runs; does a process listen there?"
            yield warning(path, f"health checks of the proxies fail for {listed(targets, 3)}", fix)


def unreachable_from_here(facts: Facts) -> Iterator[Finding]:
    """Name targets that did not answer when this machine connected to them, as a proxy on it would."""
    by_target: dict[tuple[str, str], list[str]] = defaultdict(list)
    for reach in facts.reach:
        if reach.problem:
            by_target[reach.target, reach.problem].append(reach.load_balancer)
    for (target, problem), load_balancers in sorted(by_target.items()):
        fault = f"this machine cannot connect ({problem}); the target belongs to {listed(load_balancers, 1)}"
        yield error(f"target {target}", fault, f"{_nc(target)}   then check routes and firewalls in between")


def held(facts: Facts) -> Iterator[Finding]:
    """Name load balancers whose changes are held, by the guard or by a pause."""
    for path, ref, fault in _condition_faults(facts, "Guarded"):
        yield warning(path, fault.text, f"fairlead plan {ref}")
    for path, ref, lb in _load_balancers(facts):
        if lb.annotation(ANNOTATION_PAUSED, "false") not in ("", "false"):
            yield warning(path, "paused: no change is applied", f"fairlead resume {ref}")


def drifted(facts: Facts) -> Iterator[Finding]:
    """Name load balancers that others have changed at their provider."""
    for path, ref, fault in _condition_faults(facts, "Drifted"):
        yield warning(path, fault.text, f"fairlead repair {ref}")


def _load_balancers(facts: Facts) -> Iterator[tuple[str, str, IntentObject]]:
    """Yield each load balancer as (path, its name for verbs, object)."""
    for resource in LOAD_BALANCER_KINDS:
        for lb in facts.hub.read(resource) if facts.hub else ():
            yield path_to(resource.kind, lb), path_to(COMMAND_NAMES[resource.kind], lb), lb


def _condition_faults(facts: Facts, kind: str) -> Iterator[tuple[str, str, ConditionFault]]:
    """Yield the load balancers whose condition of a type reports a fault, as (path, name for verbs, fault)."""
    for path, ref, lb in _load_balancers(facts):
        for fault in condition_faults(lb.status.conditions):
            if fault.type == kind:
                yield path, ref, fault


def _nc(target: str) -> str:
    """Return the command that connects to a target, which may have its listener after it."""
    host, port = split_host_port(target.partition(" ")[0])
    return f"nc -vz {host} {port or 'PORT'}"


# --- proxies ----------------------------------------------------------------------------------------------------


def proxies_missing(facts: Facts) -> Iterator[Finding]:
    """Name tenants' Deployments of Envoy that lack replicas."""
    for obj in facts.hub.list(DEPLOYMENTS) if facts.hub else ():
        if label(obj, LABEL_MANAGED_BY) != MANAGED_BY or label(obj, LABEL_TENANT) is None:
            continue
        desired, available = int(spec(obj).get("replicas", 1)), int(status(obj).get("availableReplicas") or 0)
        if available < desired:
            fix = f"kubectl -n {meta(obj, 'namespace')} describe pods"
            report = error if available == 0 else warning
            yield report(path_of("Deployment", obj), f"{available} of {desired} proxies are available", fix)


def proxies_stale(facts: Facts) -> Iterator[Finding]:
    """Name proxies that do not have the newest state."""
    for report in _reports(facts):
        rows = [
            ProxyStatusRow(row.node, row.group, row.state, row.refused, report.since)
            for row in report.proxies
            if row.state == "STALE"
        ]
        for fault in problems.of_proxies(rows):
            fix = f"kubectl -n {SYSTEM_NAMESPACE} logs deployment/fairlead-hub | grep -i refused"
            yield warning(f"proxy {fault.name}", fault.text, fix)


def _reports(facts: Facts) -> list[ReplicaReport]:
    """Return the reports of all replicas of the hub."""
    for config_map in facts.hub.list(CONFIG_MAPS) if facts.hub else ():
        if (meta(config_map, "namespace"), name_of(config_map)) == (SYSTEM_NAMESPACE, PROXY_REPORTS):
            return list(decode_reports(mapping(config_map.get("data"))).values())
    return []


def services_without_address(facts: Facts) -> Iterator[Finding]:
    """Name Services before proxies that the hub's own cluster gives no address."""
    for service in facts.hub.list(SERVICES) if facts.hub else ():
        ours = label(service, LABEL_MANAGED_BY) == MANAGED_BY and label(service, LABEL_TENANT) is not None
        if not ours or spec(service).get("type") != "LoadBalancer":
            continue
        if not items(mapping(status(service).get("loadBalancer")).get("ingress")):
            fault = "the hub's cluster assigns no address; a controller there has to implement type LoadBalancer"
            fix = f"kubectl -n {meta(service, 'namespace')} describe service {name_of(service)}"
            yield error(path_of("Service", service), fault, fix)


# --- the hub, tenants and their agents --------------------------------------------------------------------------


def leader(facts: Facts) -> Iterator[Finding]:
    """Name a lease without a leader, of the hub or of a region's hub: the present state is served, nothing changes."""
    if (hub := facts.hub_read) is None or not hub.knows(LEASES):
        return
    regional = [lease for lease in hub.read(STAMPED_LEASES) if _is_regional(lease)]
    for lease in regional:
        if not hub_row(lease, hub.now).leading:
            fault = "the hub of this region does not lead; the present state is served, and no other hub changes it"
            name = lease.metadata.name
            fix = f"kubectl -n {SYSTEM_NAMESPACE} delete lease {name}   if that hub is gone for good; else start it"
            yield error(path_to("Lease", lease), fault, fix)
    lease = _lease(hub, SYSTEM_NAMESPACE, HUB_LEASE)
    if lease is None and regional:
        return
    for fault in problems.of_hub(hub_row(lease, hub.now)):
        fix = f"kubectl -n {SYSTEM_NAMESPACE} logs deployment/fairlead-hub   or start one: fairlead hub"
        yield error(f"Lease/{SYSTEM_NAMESPACE}/{HUB_LEASE}", f"{fault.text}; nothing changes until a hub leads", fix)


def _is_regional(lease: StampedLease) -> bool:
    return lease.metadata.namespace == SYSTEM_NAMESPACE and lease.metadata.name.startswith(f"{HUB_LEASE}-")


def agents(facts: Facts) -> Iterator[Finding]:
    """Name members whose agent has never reported, or not for a while."""
    for hub, tenant, lease in _tenants(facts):
        row = member_row(tenant, lease, 0, hub.now)
        for fault in problems.of_silence(row):
            fix = f"kubectl -n {SYSTEM_NAMESPACE} logs deployment/fairlead-agent   in member {row.name}"
            if row.state == "Pending":
                fix = f"fairlead tenant add {row.name} --output kubeconfig   then: fairlead agent --tenant {row.name}"
            report = warning if row.state == "Pending" else error
            yield report(path_to("Tenant", tenant), fault.text, fix)


def objects_refused(facts: Facts) -> Iterator[Finding]:
    """Name the objects that a member's agent rejects, in part or as a whole."""
    of_member = namespaces_of_member(facts)
    for hub, tenant, lease in _tenants(facts):
        if lease is None:
            continue
        row = member_row(tenant, lease, 0, hub.now)
        for fault in problems.of_refused([row], {row.namespace: lease}):
            ref = ObjectRef(fault.kind, fault.namespace, fault.name)
            fix = f"fairlead explain {ref.argument} --kubeconfig FILE   with a kubeconfig of member {row.name}"
            if facts.member is not None and row.namespace in of_member:
                fix = f"fairlead explain {ref.argument} {facts.member.flags}".strip()
            report = error if fault.trouble is Trouble.NOT_SERVING else warning
            yield report("/".join(filter(None, (fault.kind, fault.namespace, fault.name))), fault.text, fix)


def _tenants(facts: Facts) -> Iterator[tuple[ApiFacts, Tenant, StampedLease | None]]:
    """Yield the tenants with the lease of their agent, if leases were read."""
    hub = facts.hub_read
    if hub is not None and hub.knows(LEASES):
        for tenant in hub.read(TENANTS):
            yield hub, tenant, _lease(hub, tenant.namespace, AGENT_LEASE)


def agents_clocks(facts: Facts) -> Iterator[Finding]:
    """Name members whose clock differs from the hub's."""
    for lease in facts.hub.read(STAMPED_LEASES) if facts.hub else ():
        if lease.metadata.name == AGENT_LEASE and abs(lease.clock_ahead_s) >= NOTICEABLE_S:
            direction = "ahead of" if lease.clock_ahead_s > 0 else "behind"
            fault = f"the agent's clock is {abs(lease.clock_ahead_s):.0f} s {direction} the hub's"
            yield warning(path_to("Lease", lease), fault, "timedatectl set-ntp true   where the agent runs")


def namespaces(facts: Facts) -> Iterator[Finding]:
    """Name tenants whose namespace is missing."""
    if (hub := facts.hub_read) is None or not hub.knows(NAMESPACES):
        return
    existing = {namespace.metadata.name for namespace in hub.read(NAMESPACES)}
    for tenant in hub.read(TENANTS):
        name = tenant.namespace
        if name not in existing and not tenant.deleting:
            fault = f"the namespace {name} does not exist, so the agent cannot write"
            fix = f"fairlead status   a hub that leads creates it; or: kubectl create namespace {name}"
            yield error(path_to("Tenant", tenant), fault, fix)


def stuck(facts: Facts) -> Iterator[Finding]:
    """Name objects that were deleted more than ten minutes ago and still exist."""
    for side in facts.sides:
        for resource in (*LOAD_BALANCER_KINDS, TENANTS, LOAD_BALANCER_CLASSES, NAMESPACES):
            for obj in side.read(resource):
                deleted = parsed_time(obj.metadata.deletion_timestamp or "")
                if deleted is None or side.now - deleted < _STUCK:
                    continue
                finalizers = ", ".join(obj.metadata.finalizers or ["remaining content"])
                namespace = f"-n {obj.metadata.namespace}" if obj.metadata.namespace else ""
                fix = f"kubectl describe {resource.plural} {obj.metadata.name} {namespace}".strip()
                fault = f"deleted {_minutes(side, deleted)} minutes ago, and held by {finalizers}"
                yield warning(path_to(resource.kind, obj), fault, fix)


def _lease(hub: ApiFacts, namespace: str, name: str) -> StampedLease | None:
    return next((lease for lease in hub.read(STAMPED_LEASES) if lease.key == (namespace, name)), None)


def _minutes(side: ApiFacts, since: datetime) -> int:
    return int((side.now - since).total_seconds() // 60)


# --- classes ----------------------------------------------------------------------------------------------------


def default_class(facts: Facts) -> Iterator[Finding]:
    """Report that the default class is missing, which every Service without a class requests."""
    existing = _class_names(facts)
    if existing is not None and DEFAULT_CLASS not in existing:
        fault = "missing, and every Service without a class requests this one"
        yield error(f"LoadBalancerClass/{DEFAULT_CLASS}", fault, "fairlead hub   creates it when it begins to lead")


def classes(facts: Facts) -> Iterator[Finding]:
    """Name classes that cannot be used, or accept no new load balancers."""
    for cls in facts.hub.read(LOAD_BALANCER_CLASSES) if facts.hub else ():
        path, name = path_to("LoadBalancerClass", cls), cls.metadata.name
        for fault in condition_faults(cls.status.conditions):
            if fault.type == "Accepted":
                yield error(path, fault.text, f"kubectl edit loadbalancerclass {name}")
        if cls.deleting:
            fix = f"kubectl get loadbalancerclass {name} -o yaml > class.yaml   and create it again"
            yield warning(path, "the class is being deleted and accepts no new load balancers", fix)
        elif cls.spec.draining:
            fix = f'kubectl patch loadbalancerclass {name} --type merge -p \'{{"spec":{{"draining":false}}}}\''
            yield warning(path, "the class is draining and accepts no new load balancers", fix)


def unknown_classes(facts: Facts) -> Iterator[Finding]:
    """Name load balancers that request a class that does not exist."""
    existing = _class_names(facts)
    if existing is None:
        return
    for path, _, lb in _load_balancers(facts):
        requested = lb.class_name or DEFAULT_CLASS
        if requested not in existing and requested != DEFAULT_CLASS:
            fault = f"class {requested} does not exist; existing classes: {', '.join(sorted(existing)) or 'none'}"
            field = "set loadBalancerClass: fairlead.dev/NAME on its Service"
            if path.startswith(f"{HTTP_LOAD_BALANCERS.kind}/"):
                field = "name one in the parameters of its IngressClass or GatewayClass, in the member"
            if path.startswith(f"{LOAD_BALANCERS.kind}/"):
                field = f"kubectl edit lb -n {lb.metadata.namespace} {lb.metadata.name}   and set spec.className"
            yield error(path, fault, f"kubectl get loadbalancerclasses   then {field}")


def _class_names(facts: Facts) -> set[str] | None:
    """Return the names of the classes, None if they were not read."""
    hub = facts.hub_read
    if hub is None or not hub.knows(LOAD_BALANCER_CLASSES):
        return None
    return {cls.metadata.name for cls in hub.read(LOAD_BALANCER_CLASSES)}


# --- pools, zones and names -------------------------------------------------------------------------------------


def pools_not_usable(facts: Facts) -> Iterator[Finding]:
    """Name pools that no address is allocated from: they are invalid, or overlap an older one."""
    for pool in facts.hub.read(ADDRESS_POOLS) if facts.hub else ():
        for fault in condition_faults(pool.status.conditions):
            if fault.type == "Accepted":
                fix = f"kubectl edit addresspool {pool.metadata.name}"
                yield error(path_to("AddressPool", pool), fault.text, fix)


def pools_exhausted(facts: Facts) -> Iterator[Finding]:
    """Name pools, and --address-pool, with no free address of a family, or few: the next request waits."""
    if facts.hub is None:
        return
    for pool in facts.hub.read(ADDRESS_POOLS):
        free = {"IPv4": pool.status.free_ipv4, "IPv6": pool.status.free_ipv6}
        empty = [family for family, count in free.items() if count == 0]
        taken = pool.status.used + pool.status.reserved
        few = taken >= problems.ALMOST_FULL * pool.status.size > 0
        if (empty or few) and not any(fault.type == "Accepted" for fault in condition_faults(pool.status.conditions)):
            usage = problems.pool_use(problems.pool_row(pool))
            fix = f"kubectl edit addresspool {pool.metadata.name}   add ranges to spec.addresses, or create another one"
            fault = f"no free {' or '.join(empty)} address" if empty else "few addresses are free"
            yield warning(path_to("AddressPool", pool), f"{fault}: {usage}", fix)
    given = [address for kind in LOAD_BALANCER_KINDS for lb in facts.hub.read(kind) for address in lb.status.addresses]
    for own in sorted({report.address_pool for report in _reports(facts)}):
        for row in problems.pool_rows((), own, given):
            if row.note:
                fault = "no address is free" if row.note == "Full" else "few addresses are free"
                yield warning(f"--address-pool {own}", f"{fault}: {problems.pool_use(row)}", _larger_pool(facts))


def pools_with_nodes(facts: Facts) -> Iterator[Finding]:
    """Name pools with an address of a member's node: a load balancer with it takes ports from that node."""
    if facts.hub is None:
        return
    nodes = {
        canonical_address(address): endpoints.metadata.namespace
        for endpoints in facts.hub.read(ENDPOINT_SLICES)
        if {LABEL_NODES, LABEL_NODES_IPV6} & set(endpoints.metadata.labels or ())
        for endpoint in endpoints.endpoints or ()
        for address in endpoint.addresses or ()
    }
    for pool in facts.hub.read(ADDRESS_POOLS):
        try:
            avoided = AddressRanges.whole(",".join(pool.spec.avoid), field="spec.avoid")
            ranges = AddressRanges.parse(",".join(pool.spec.addresses), field="spec.addresses", avoid=avoided)
        except BadConfiguration:
            continue  # reported by its condition Accepted, which has a check of its own
        inside = {address: namespace for address, namespace in nodes.items() if address in ranges}
        if inside:
            address, namespace = min(inside.items())
            more = f" and {len(inside) - 1} more" if inside.keys() - {address} else ""
            fault = (
                f"{address}{more} belongs to a node of the member in namespace {namespace}. A load balancer with this "
                "address takes its ports from the node, which may be a backend of others"
            )
            fix = f"kubectl edit addresspool {pool.metadata.name}   add it to spec.avoid"
            yield warning(path_to("AddressPool", pool), fault, fix)


def zones_not_usable(facts: Facts) -> Iterator[Finding]:
    """Name zones that cannot be written, and zones without a server, whose names cannot be checked."""
    for zone in facts.hub.read(DNS_ZONES) if facts.hub else ():
        path, edit = path_to("DNSZone", zone), f"kubectl edit dnszone {zone.metadata.name}"
        rejected = [fault for fault in condition_faults(zone.status.conditions) if fault.type == "Accepted"]
        for fault in rejected:
            yield error(path, fault.text, edit)
        if not rejected and not zone.spec.parameters.get("server"):
            fault = "the zone names no server, so its names cannot be checked"
            yield warning(path, fault, f"{edit}   set spec.parameters.server to HOST:PORT of its DNS server")


def zones_not_answering(facts: Facts) -> Iterator[Finding]:
    """Name zones whose server rejects changes: once for all names in the zone."""
    by_zone: dict[str, list[tuple[Hostname, str]]] = defaultdict(list)
    for obj in facts.hub.read(HOSTNAMES) if facts.hub else ():
        for fault in condition_faults(obj.status.conditions):
            if fault.type == "Programmed" and fault.reason in _OF_THE_SERVER:
                by_zone[obj.status.zone].append((obj, fault.text))
    for zone, names in sorted(by_zone.items()):
        hosts = listed(sorted(obj.spec.host for obj, _ in names), 3)
        fault = f"the server does not accept the records of {hosts}: {names[0][1]}"
        fix = f"kubectl describe dnszone {zone}   is spec.parameters right, and the server up?"
        yield error(f"DNSZone/{zone}", fault, fix)


def names_not_published(facts: Facts) -> Iterator[Finding]:
    """Name Hostnames that are rejected, or not published for another reason than the server of their zone."""
    for obj in facts.hub.read(HOSTNAMES) if facts.hub else ():
        by_type = {fault.type: fault for fault in condition_faults(obj.status.conditions)}
        faults = (by_type.get(kind) for kind in ("Accepted", "ResolvedRefs", "Programmed"))
        fault = next((fault for fault in faults if fault is not None), None)
        # A name that no zone holds may be kept by hand.
        if fault is not None and fault.reason not in (*_OF_THE_SERVER, ConditionReason.NO_SUCH_ZONE):
            text = f"{obj.spec.host} is not published: {fault.text}"
            yield error(path_to("Hostname", obj), text, f"fairlead explain {path_to('hostname', obj)}")


def names_refused(facts: Facts) -> Iterator[Finding]:
    """Name objects that request a name that another object owns, or that is in a domain of others."""
    for resource in _WITH_NAMES:
        # A LoadBalancer has no status of names.
        for obj in facts.hub.list(resource) if facts.hub else ():
            conditions = items(mapping(status(obj).get("names")).get("conditions"))
            for condition in conditions:
                if (condition.get("type"), condition.get("status")) == ("HostnamesAccepted", "False"):
                    fix = "fairlead names   lists the owners; request another name, or delete the owner's Hostname"
                    text = str(condition.get("message") or condition.get("reason"))
                    yield warning(path_of(resource.kind, obj), text, fix)


# --- certificates -----------------------------------------------------------------------------------------------


def issuers(facts: Facts) -> Iterator[Finding]:
    """Name issuers that have no account at their authority."""
    for issuer in facts.hub.read(CERTIFICATE_ISSUERS) if facts.hub else ():
        for fault in condition_faults(issuer.status.conditions):
            if fault.type == "Accepted":
                fix = f"kubectl edit certissuer {issuer.metadata.name}"
                yield error(path_to("CertificateIssuer", issuer), fault.text, fix)


def certificates(facts: Facts) -> Iterator[Finding]:
    """Name certificates that have expired, expire within two weeks, or were never issued."""
    hub = facts.hub
    if hub is None:
        return
    for fault in problems.of_certificates(hub.read(MANAGED_CERTIFICATES), hub.now):
        path = f"{fault.kind}/{fault.namespace}/{fault.name}"
        report = warning if fault.reason == "EndsSoon" else error
        yield report(
            path, f"{fault.subject}: {fault.text}", f"kubectl describe mcert -n {fault.namespace} {fault.name}"
        )


def other_names(facts: Facts) -> Iterator[Finding]:
    """Name listeners whose certificate is not valid for their host: clients reject the connection."""
    hub = facts.hub
    if hub is None:
        return
    names = {expiry.where: expiry.names for expiry in hub.endings if expiry.what == "certificate"}
    for lb in hub.read(HTTP_LOAD_BALANCERS):
        for listener in lb.spec.listeners:
            host, secrets = listener.hostname, listener.certificates
            covered = [names.get(f"Secret/{lb.metadata.namespace}/{secret}") for secret in secrets]
            if host and covered and not any(hosts is None or covers(hosts, host) for hosts in covered):
                fault = f"no certificate of listener {listener.name} is valid for {host}, so clients reject it"
                fix = f"openssl s_client -servername {host} -connect ADDRESS:443   then correct {listed(secrets, 3)}"
                yield error(path_to(HTTP_LOAD_BALANCERS.kind, lb), fault, fix)
