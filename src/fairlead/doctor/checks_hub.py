"""Checks of the hub's objects: leader, tenants, classes, load balancers, pools, names and certificates.

In: facts about the hub. Out: findings about objects that are rejected, not programmed, not serving, held or changed by
others; proxies and their targets; agents that do not report; pools, zones and names; certificates and their issuers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, FailingRoute
from fairlead.api.kinds import LOAD_BALANCER_KINDS
from fairlead.api.kubernetes import CONFIG_MAPS, DEPLOYMENTS, ENDPOINT_SLICES, LEASES, NAMESPACES, SERVICES, Lease
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS, MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.api.meta import JSONObject
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
    TENANT_NAMESPACE_PREFIX,
)
from fairlead.api.tenant import TENANTS, state_by_age
from fairlead.api.times import parsed_time
from fairlead.doctor.facts import (
    ApiFacts,
    Facts,
    Finding,
    annotation,
    condition,
    error,
    is_false,
    items,
    label,
    mapping,
    message_of,
    meta,
    name_of,
    namespaces_of_member,
    path_of,
    since,
    spec,
    status,
    stored_at,
    warning,
)
from fairlead.errors import BadConfiguration
from fairlead.kube.transport import NOTICEABLE_S
from fairlead.model.condition import ConditionReason
from fairlead.model.in_words import counted, listed, split_host_port
from fairlead.model.key_pair import covers
from fairlead.model.keys import canonical_address
from fairlead.standalone.proxy_report import NAME as PROXY_REPORTS
from fairlead.standalone.proxy_report import decode_reports
from fairlead.standalone.right_cluster import OWN_TENANT
from fairlead.status.object_ref import ObjectRef
from fairlead.status.problems import of_refused
from fairlead.status.rows import MemberRow, Trouble
from fairlead.translate.address_ranges import AddressRanges
from fairlead.translate.certificates import ending

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


#: Kinds of which an object may ask for names.
_ASKING = (*LOAD_BALANCER_KINDS, LOAD_BALANCER_ROUTES)
#: Reasons that are of the zone's server, and so of every name in it.
_OF_THE_SERVER = frozenset({ConditionReason.PROVIDER_FAILED.value, ConditionReason.QUARANTINED.value})


def pools_not_usable(facts: Facts) -> Iterator[Finding]:
    """Name pools that no address is given from: they are invalid, or overlap an older one."""
    for pool in facts.hub.list(ADDRESS_POOLS) if facts.hub else ():
        if is_false(pool, "Accepted"):
            yield error(
                path_of("AddressPool", pool), message_of(pool, "Accepted"), f"kubectl edit addresspool {name_of(pool)}"
            )


def pools_exhausted(facts: Facts) -> Iterator[Finding]:
    """Name pools without a free address of a family: what asks for the next one waits."""
    for pool in facts.hub.list(ADDRESS_POOLS) if facts.hub else ():
        counts = status(pool)
        empty = [family for family in ("IPv4", "IPv6") if counts.get(f"free{family}") == 0]
        if empty and not is_false(pool, "Accepted"):
            kept = f", {counts['reserved']} of them reserved" if counts.get("reserved") else ""
            usage = f"{counts.get('used', 0)} of {counts.get('size', 0)} are given"
            fault = f"it has no free {' or '.join(empty)} address: {usage}"
            fix = (
                f"kubectl edit addresspool {name_of(pool)}   add ranges to spec.addresses, or make another AddressPool"
            )
            yield warning(path_of("AddressPool", pool), f"{fault}{kept}", fix)


def pools_with_nodes(facts: Facts) -> Iterator[Finding]:
    """Name pools with an address of a member's node: whose load balancer gets it takes ports from that node."""
    if facts.hub is None:
        return
    nodes = {
        canonical_address(str(address)): str(meta(each, "namespace"))
        for each in facts.hub.list(ENDPOINT_SLICES)
        if label(each, LABEL_NODES) is not None or label(each, LABEL_NODES_IPV6) is not None
        for endpoint in items(each.get("endpoints"))
        for address in items(endpoint.get("addresses"))
    }
    for pool in facts.hub.list(ADDRESS_POOLS):
        avoid, addresses = (",".join(map(str, items(spec(pool).get(each)))) for each in ("avoid", "addresses"))
        try:
            avoided = AddressRanges.whole(avoid, field="spec.avoid")
            ranges = AddressRanges.parse(addresses, field="spec.addresses", avoid=avoided)
        except BadConfiguration:
            continue  # its condition Accepted says so, which is a check of its own
        inside = {address: space for address, space in nodes.items() if address in ranges}
        if inside:
            address, space = min(inside.items())
            more = f" and {len(inside) - 1} more" if inside.keys() - {address} else ""
            yield warning(
                path_of("AddressPool", pool),
                f"{address}{more} is of a node, of the member in namespace {space}: a load balancer that gets it takes "
                "the ports that it opens from that node, as backends of others",
                f"kubectl edit addresspool {name_of(pool)}   add it to spec.avoid",
            )


def zones_not_usable(facts: Facts) -> Iterator[Finding]:
    """Name zones that cannot be written, and those of which no name can be checked as they name no server."""
    for zone in facts.hub.list(DNS_ZONES) if facts.hub else ():
        path, edit = path_of("DNSZone", zone), f"kubectl edit dnszone {name_of(zone)}"
        if is_false(zone, "Accepted"):
            yield error(path, message_of(zone, "Accepted"), edit)
        elif not mapping(spec(zone).get("parameters")).get("server"):
            fault = "it names no server, so nothing can ask whether its names resolve"
            yield warning(path, fault, f"{edit}   set spec.parameters.server to HOST:PORT of its DNS server")


def zones_not_answering(facts: Facts) -> Iterator[Finding]:
    """Name zones whose server does not take changes: once for all names in it."""
    by_zone: dict[str, list[JSONObject]] = defaultdict(list)
    for obj in facts.hub.list(HOSTNAMES) if facts.hub else ():
        if is_false(obj, "Programmed") and condition(obj, "Programmed").get("reason") in _OF_THE_SERVER:
            by_zone[str(status(obj).get("zone") or "")].append(obj)
    for zone, names in sorted(by_zone.items()):
        hosts = listed(sorted(str(spec(each).get("host")) for each in names), 3)
        fault = f"its server does not take the records of {hosts}: {message_of(names[0], 'Programmed')}"
        yield error(
            f"DNSZone/{zone}", fault, f"kubectl describe dnszone {zone}   is spec.parameters right, and the server up?"
        )


def names_not_published(facts: Facts) -> Iterator[Finding]:
    """Name Hostnames that are refused, or not published for another reason than the server of their zone."""
    for obj in facts.hub.list(HOSTNAMES) if facts.hub else ():
        kind = next((each for each in ("Accepted", "ResolvedRefs", "Programmed") if is_false(obj, each)), "")
        reason = condition(obj, kind).get("reason")
        # A name that no zone holds may be kept by hand.
        if not kind or reason in (*_OF_THE_SERVER, ConditionReason.NO_SUCH_ZONE.value):
            continue
        path = path_of("Hostname", obj)
        ref = path_of("hostname", obj)
        yield error(
            path, f"{spec(obj).get('host')} is not published: {message_of(obj, kind)}", f"fairlead explain {ref}"
        )


def names_refused(facts: Facts) -> Iterator[Finding]:
    """Name objects that ask for a name that another one has, or that is in a domain of others."""
    for resource in _ASKING:
        for obj in facts.hub.list(resource) if facts.hub else ():
            conditions = items(mapping(status(obj).get("names")).get("conditions"))
            refused = next((each for each in conditions if each.get("type") == "HostnamesAccepted"), JSONObject())
            if refused.get("status") == "False":
                fix = "fairlead names   lists who has each name; ask for another one, or delete the Hostname of that"
                yield warning(path_of(resource.kind, obj), str(refused.get("message") or refused.get("reason")), fix)


def issuers(facts: Facts) -> Iterator[Finding]:
    """Name issuers that have no account at their authority."""
    hub = facts.hub
    for issuer in hub.list(CERTIFICATE_ISSUERS) if hub is not None else ():
        if is_false(issuer, "Accepted"):
            fault = str(condition(issuer, "Accepted").get("message", ""))
            yield error(path_of("CertificateIssuer", issuer), fault, f"kubectl edit certissuer {name_of(issuer)}")


def certificates(facts: Facts) -> Iterator[Finding]:
    """Name certificates that have ended, end within two weeks, or could not be had at all."""
    hub = facts.hub
    if hub is None:
        return
    for row in ending(_managed(hub), hub.now):
        path = f"ManagedCertificate/{row.namespace}/{row.name}"
        names = ", ".join(row.hosts)
        fix = f"kubectl describe mcert -n {row.namespace} {row.name}"
        if row.ends is None:
            yield error(path, f"there is no certificate for {names}: {row.why}", fix)
        elif row.ends <= hub.now:
            yield error(path, f"the certificate for {names} has ended at {row.ends:%Y-%m-%d %H:%M} UTC: {row.why}", fix)
        else:
            yield warning(path, f"the certificate for {names} ends at {row.ends:%Y-%m-%d %H:%M} UTC: {row.why}", fix)


def other_names(facts: Facts) -> Iterator[Finding]:
    """Name listeners whose certificate is not valid for their host: clients refuse the connection."""
    hub = facts.hub
    if hub is None:
        return
    names = {each.where: each.names for each in hub.endings if each.what == "certificate"}
    for lb in hub.list(HTTP_LOAD_BALANCERS):
        namespace = str(meta(lb, "namespace"))
        for listener in items(spec(lb).get("listeners")):
            host = str(listener.get("hostname") or "")
            secrets = [str(each) for each in items(listener.get("certificates"))]
            known = [names.get(f"Secret/{namespace}/{secret}") for secret in secrets]
            if host and known and not any(each is None or covers(each, host) for each in known):
                fault = f"no certificate of listener {listener.get('name')} is valid for {host}, so clients refuse it"
                fix = f"openssl s_client -servername {host} -connect ADDRESS:443   then correct {listed(secrets, 3)}"
                yield error(path_of(HTTP_LOAD_BALANCERS.kind, lb), fault, fix)


def _managed(hub: ApiFacts) -> list[ManagedCertificate]:
    """Return the ManagedCertificates that can be decoded; others were written by another version."""
    readable: list[ManagedCertificate] = []
    for obj in hub.list(MANAGED_CERTIFICATES):
        try:
            readable.append(msgspec.convert(obj, ManagedCertificate))
        except msgspec.ValidationError:
            continue
    return readable
