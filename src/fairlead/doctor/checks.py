"""All checks in the order of the report, the findings that they give, and the selection of those by object.

    installation   kubeconfigs and clocks; kinds, rights, versions, second installations; Envoy on this machine
    hub            objects that are rejected, not programmed, not serving, held or changed by others; proxies and their
                   targets; agents that do not report; pools, zones and names; certificates and their issuers
    member         nodes, Services, Ingresses and Gateways that cannot be served as they are
    proxy machine  its processes, certificate, hubs and clock; the kernel's settings, neighbours and routers

In: facts. Out: findings, each with the name of its check; the worst come first, and each fault is reported once. What
a condition or a row means is decided in ``status/``; the checks add severity and the command that fixes it. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network

import msgspec
from msgspec.structs import replace

from fairlead.agent.events import missing_endpoints
from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.crd import fields_of
from fairlead.api.gateway import GATEWAY_CLASSES
from fairlead.api.globalservice import GLOBAL_SERVICES
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES, Hostname
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, http_status
from fairlead.api.intent import IntentObject
from fairlead.api.kinds import CRDS as OUR_CRDS
from fairlead.api.kinds import LOAD_BALANCER_KINDS, all_crds
from fairlead.api.kubernetes import (
    ANNOTATION_DEFAULT_CLASS,
    CRDS,
    ENDPOINT_SLICES,
    INGRESS_CLASSES,
    INGRESSES,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    EndpointSlice,
    Node,
    Service,
)
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS, MANAGED_CERTIFICATES
from fairlead.api.meta import JSONObject, KubeObject, condition_of
from fairlead.api.multicluster import EXPORTED_SERVICES, MULTICLUSTER_GROUP
from fairlead.api.names import (
    AGENT_LEADER_LEASE,
    AGENT_LEASE,
    ANNOTATION_PAUSED,
    ANNOTATION_REFUSED,
    ANNOTATION_TARGET,
    COMMAND_NAMES,
    CONDITION_SERVING,
    DEFAULT_CLASS,
    GROUP,
    HUB_LEASE,
    LABEL_EXCLUDE_NODE,
    LABEL_MANAGED_BY,
    LABEL_NODES,
    LABEL_NODES_IPV6,
    LABEL_READINESS_GATE,
    LABEL_SERVICE_NAME,
    LABEL_TENANT,
    LOAD_BALANCER_CLASS_PREFIX,
    MANAGED_BY,
    PROXIES_NAMESPACE,
    READINESS_GATE_ENABLED,
    SERVICE_ANNOTATIONS,
    SYSTEM_NAMESPACE,
    TAINT_TO_BE_DELETED,
    did_you_mean,
    near_annotation,
)
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import ANNOTATION_MEMBER_UID, ANNOTATION_VERSION, STAMPED_LEASES, TENANTS, StampedLease, Tenant
from fairlead.api.times import parsed_time
from fairlead.doctor.facts import (
    DEPLOYED,
    REPORTS,
    ApiFacts,
    Check,
    Denied,
    Deployed,
    Facts,
    Finding,
    LinkFacts,
    ProxyMachineFacts,
    Severity,
    error,
    mapping,
    meta,
    name_of,
    namespaces_of_member,
    objects_by_path,
    pasteable,
    path_to,
    service_of,
    spec,
    unknown,
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
from fairlead.status import fleet
from fairlead.status.fleet import (
    ConditionFault,
    ProxyStatusRow,
    ReplicaReport,
    Trouble,
    condition_faults,
    hub_row,
    member_row,
)
from fairlead.status.object_ref import CLASS, KINDS, SHARING, ObjectRef
from fairlead.translate.addresses import AddressRanges

_NO_ADDRESS = (
    ConditionReason.ADDRESS_NOT_ASSIGNED,
    ConditionReason.ADDRESS_NOT_USABLE,
    ConditionReason.ADDRESS_POOL_EXHAUSTED,
)
_STUCK = timedelta(minutes=10)
#: Kinds whose objects may request names.
_WITH_NAMES = (TCP_LOAD_BALANCERS, HTTP_LOAD_BALANCERS, LOAD_BALANCERS, LOAD_BALANCER_ROUTES, GLOBAL_SERVICES)
#: Reasons that concern the zone's server, and so every name in the zone.
_OF_THE_SERVER = (ConditionReason.PROVIDER_FAILED, ConditionReason.QUARANTINED)
_APPLY_KINDS = "fairlead crds | kubectl apply --server-side --force-conflicts -f -"
_NAMES = ("fairlead-hub", "fairlead-agent")
#: The oldest minor version of Kubernetes that is tested: EndpointSlices, server-side apply and CEL rules are there.
OLDEST_MINOR = 29
_SOON = timedelta(days=7)
_FLAG = {"hub": "--kubeconfig", "member": "--member-kubeconfig"}
#: Below this an Envoy runs out of files with some thousand listeners and their connections.
FEW_FILES = 65_536
_LITTLE_SPACE = 256 << 20
#: Each connection of a proxy to a target takes a port of this range.
_FEW_PORTS = 16_384
_JOURNAL = "journalctl -u fairlead-proxy"
#: A certificate is renewed at two thirds of its life; after so long it should have been.
_RENEWAL_LATE = timedelta(hours=1)
#: Clocks of machine and hub that differ by more are wrong.
_PROXY_SKEW_S = 10.0
#: An owner announces its addresses at least this often, in seconds.
_REFRESH_S = 60.0

CHECKS: list[Check] = []
_Run = Callable[[Facts], Iterator[Finding]]


def _check(name: str, question: str, *, side: str = "hub", causes: tuple[str, ...] = ()) -> Callable[[_Run], _Run]:
    """Add a function to ``CHECKS``, which is in the order of the report."""

    def add(run: _Run) -> _Run:
        CHECKS.append(Check(name, question, run, side, causes))
        return run

    return add


# --- installation -------------------------------------------------------------------------------------------------


@_check("unreachable", "Do the APIs answer?")
def _unreachable(facts: Facts) -> Iterator[Finding]:
    for side in filter(None, (facts.hub, facts.member)):
        if side.error:
            fix = " ".join(filter(None, ("kubectl", side.flags, "get --raw /readyz")))
            yield error(f"{side.name} {side.server}".strip(), side.error, fix)


@_check("swapped", "Is each kubeconfig for the cluster that it is meant for?")
def _swapped(facts: Facts) -> Iterator[Finding]:
    for side in facts.sides:
        if side.key_of:
            fault = f"the kubeconfig is the key of tenant {side.key_of}, which only its agent can use"
            fix = f"fairlead doctor {_FLAG[side.name]} FILE   with an administrator's kubeconfig of the {side.name}"
            yield error(f"{side.name} {side.server}", fault, fix)
    hub, member = facts.hub, facts.member
    if hub is not None and member is not None and hub.uid and hub.uid == member.uid and hub.server != member.server:
        fault = f"hub and member are one cluster, under two addresses: {hub.server} and {member.server}"
        yield warning(
            f"member {member.server}", fault, "fairlead run --kubeconfig FILE   serves a cluster that is both"
        )


@_check("kubernetes-version", "Is Kubernetes new enough?")
def _old_kubernetes(facts: Facts) -> Iterator[Finding]:
    for side in facts.sides:
        minor = re.match(r"v?1\.(\d+)", side.version)
        if minor and int(minor[1]) < OLDEST_MINOR:
            fault = f"Kubernetes {side.version} is older than 1.{OLDEST_MINOR}, the oldest tested version"
            yield warning(f"{side.name} {side.server}", fault, "upgrade the cluster's control plane")


@_check("clocks", "Do the clocks agree?")
def _clocks(facts: Facts) -> Iterator[Finding]:
    for side in facts.sides:
        if side.ahead_s is not None and abs(side.ahead_s) >= NOTICEABLE_S:
            direction = "ahead of" if side.ahead_s > 0 else "behind"
            fault = f"the clock is {abs(side.ahead_s):.0f} s {direction} this machine's"
            yield warning(
                f"{side.name} {side.server}", fault, "timedatectl set-ntp true   on the machine that is wrong"
            )


@_check("endings", "Are tokens and certificates valid for another week?")
def _endings(facts: Facts) -> Iterator[Finding]:
    for side in facts.sides:
        leases = side.read(LEASES)
        reported = [(f"Secret/{lease.metadata.namespace}/", lease.annotation(ANNOTATION_REFUSED)) for lease in leases]
        for ending in side.endings:
            remaining = ending.ends - side.now
            when = f"{ending.ends:%Y-%m-%d %H:%M} UTC"
            if remaining <= timedelta():
                if any(ending.where.startswith(place) and f"expired at {when}" in text for place, text in reported):
                    continue
                yield error(ending.where, f"the {ending.what} expired at {when}", ending.renew)
            elif remaining < _SOON:
                yield warning(ending.where, f"the {ending.what} expires at {when}", ending.renew)


@_check("issuers", "Can the issuers of certificates be used?")
def _issuers(facts: Facts) -> Iterator[Finding]:
    for issuer in facts.hub.read(CERTIFICATE_ISSUERS) if facts.hub else ():
        for fault in condition_faults(issuer.status.conditions):
            if fault.type == "Accepted":
                fix = f"kubectl edit certissuer {issuer.metadata.name}"
                yield error(path_to("CertificateIssuer", issuer), fault.text, fix)


@_check("certificates", "Are the certificates of the hub issued and renewed?")
def _certificates(facts: Facts) -> Iterator[Finding]:
    hub = facts.hub
    if hub is None:
        return
    for fault in fleet.certificate_faults(hub.read(MANAGED_CERTIFICATES), hub.now):
        path = f"{fault.kind}/{fault.namespace}/{fault.name}"
        report = warning if fault.reason == "EndsSoon" else error
        yield report(
            path, f"{fault.subject}: {fault.text}", f"kubectl describe mcert -n {fault.namespace} {fault.name}"
        )


@_check("certificate-names", "Are certificates valid for their hosts?")
def _other_names(facts: Facts) -> Iterator[Finding]:
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


@_check("kubeconfig-mode", "Can only their owners read keys?")
def _open_kubeconfigs(facts: Facts) -> Iterator[Finding]:
    for path in facts.machine.open_kubeconfigs if facts.machine else ():
        yield warning(path, "every user of this machine may read this key", f"chmod 600 {path}")


@_check("unread", "Could everything be read?")
def _unread(facts: Facts) -> Iterator[Finding]:
    for side in facts.sides:
        for resource, sentence in sorted(side.unread.items()):
            fix = f"kubectl auth can-i list {resource} --all-namespaces   with the same kubeconfig"
            yield unknown(f"{side.name}: {resource}", sentence, fix)
    if (hub := facts.hub_read) is not None:
        for crd in OUR_CRDS:
            hub.read(crd.resource)
        for path, problem in sorted(hub.undecodable.items()):
            fix = "upgrade this program to the version of the hub, or correct the object"
            yield unknown(path, f"cannot be decoded, so it is not checked: {problem}", f"fairlead version   {fix}")


@_check("kinds", "Are all kinds installed at the hub?")
def _kinds_missing(facts: Facts) -> Iterator[Finding]:
    if (hub := facts.hub_read) is None:
        return
    if not hub.served:
        agent = next((lease for lease in hub.read(LEASES) if lease.metadata.name == AGENT_LEADER_LEASE), None)
        if agent is not None and _lease(hub, SYSTEM_NAMESPACE, HUB_LEASE) is None:
            fault = f"{hub.server} is a member, not a hub: an agent works there ({path_to('Lease', agent)})"
            yield error("hub", fault, f"fairlead doctor {_FLAG['hub']} FILE   with the kubeconfig of the hub")
            return
        fault = f"{hub.server} serves no kind of {GROUP}: no hub has run there, or it is a member"
        yield error("hub", fault, f"{_APPLY_KINDS}   then: fairlead hub")
        return
    for crd in all_crds():
        if crd["spec"]["names"]["plural"] not in hub.served:
            yield error(
                f"CustomResourceDefinition/{crd['metadata']['name']}", "the hub does not serve it", _APPLY_KINDS
            )


def _lease(hub: ApiFacts, namespace: str, name: str) -> StampedLease | None:
    return next((lease for lease in hub.read(STAMPED_LEASES) if lease.key == (namespace, name)), None)


@_check("kinds-version", "Are the kinds of this version?")
def _kinds_of_another_version(facts: Facts) -> Iterator[Finding]:
    hub = facts.hub_read
    there = {name_of(crd): crd for crd in hub.list(CRDS)} if hub is not None else {}
    for crd in all_crds():
        name = crd["metadata"]["name"]
        if name in there and (differs := _difference(crd, there[name])):
            fault = f"installed from another version than this program ({facts.version}): {differs}"
            yield warning(f"CustomResourceDefinition/{name}", fault, _APPLY_KINDS)


def _difference(ours: JSONObject, theirs: JSONObject) -> str:
    """Return which fields one of two definitions has and the other has not, empty when they have the same."""
    here, there = fields_of(ours), fields_of(theirs)
    parts = [f"{', '.join(sorted(here - there)[:3])} is missing there"] if here - there else []
    parts += [f"{', '.join(sorted(there - here)[:3])} is not known here"] if there - here else []
    return "; ".join(parts)


@_check("watch-denied", "May hub and agent watch all that they list?")
def _watch_denied(facts: Facts) -> Iterator[Finding]:
    for side, denied in _denied(facts):
        if "watch" in denied and "list" not in denied:
            right = denied["watch"]
            fault = f"{right.account} may list {right.resource} and not watch it: it would not see changes"
            yield error(f"{side.name}: {right.resource}", fault, _grant(side, right))


def _denied(facts: Facts) -> Iterator[tuple[ApiFacts, dict[str, Denied]]]:
    for side in facts.sides:
        grouped: dict[tuple[str, str, str], dict[str, Denied]] = defaultdict(dict)
        for right in side.denied:
            grouped[right.account, right.resource, right.namespace][right.verb] = right
        for denied in grouped.values():
            yield side, denied


def _grant(side: ApiFacts, right: Denied) -> str:
    file = (
        "hub" if side.name == "hub" else "multi-cluster-services" if MULTICLUSTER_GROUP in right.resource else "agent"
    )
    return f"kubectl apply -f deploy/kubernetes/{file}.yaml   or helm upgrade; it has every right of {right.account}"


@_check("rights", "Do hub and agent have their rights?")
def _rights(facts: Facts) -> Iterator[Finding]:
    for side, denied in _denied(facts):
        only_watch = "watch" in denied and "list" not in denied
        verbs = [verb for verb in denied if not (only_watch and verb == "watch")]
        if verbs:
            right = denied[verbs[0]]
            where = f" in namespace {right.namespace}" if right.namespace else ""
            fault = f"{right.account} may not {', '.join(verbs)} {right.resource}{where}"
            yield error(f"{side.name}: {right.resource}", fault, _grant(side, right))


@_check("two-hubs", "Is Fairlead installed once?")
def _second_hub(facts: Facts) -> Iterator[Finding]:
    for side in facts.sides:
        for name in _NAMES:
            where = [obj for obj in side.read(DEPLOYED) if obj.part == name]
            if len(where) > 1:
                there = ", ".join(sorted(path_to("Deployment", obj) for obj in where))
                fault = f"{name} is installed {len(where)} times: {there}; each would overwrite what the other writes"
                extra = next((obj for obj in where if obj.metadata.namespace != SYSTEM_NAMESPACE), where[0])
                fix = f"kubectl --namespace {extra.metadata.namespace} delete deployment {extra.metadata.name}"
                yield error(path_to("Deployment", extra), fault, fix)
    for side in facts.sides:
        for lease in side.read(LEASES):
            if lease.metadata.name == HUB_LEASE and lease.metadata.namespace != SYSTEM_NAMESPACE:
                fault = "a hub leads, or has led, in another namespace than fairlead-system"
                fix = f"kubectl --namespace {lease.metadata.namespace} delete lease {HUB_LEASE}   once it has ended"
                yield warning(path_to("Lease", lease), fault, fix)


@_check("two-agents", "Does each member have one tenant and one agent?")
def _two_agents(facts: Facts) -> Iterator[Finding]:
    if facts.hub is not None:
        by_uid: dict[str, list[str]] = defaultdict(list)
        for lease in facts.hub.read(LEASES):
            if lease.metadata.name == AGENT_LEASE and (uid := lease.annotation(ANNOTATION_MEMBER_UID)):
                by_uid[uid].append(lease.metadata.namespace)
        for namespaces in by_uid.values():
            if len(namespaces) > 1:
                first, second = sorted(namespaces)[:2]
                fault = f"one cluster is the member of two tenants, {first} and {second}: its Services are served twice"
                fix = f"fairlead tenant remove {second.removeprefix('tenant-')}"
                yield error(f"Lease/{second}/{AGENT_LEASE}", fault, fix)
    if facts.member is not None:
        meeting = [lease for lease in facts.member.read(LEASES) if lease.metadata.name == AGENT_LEADER_LEASE]
        if len(meeting) > 1:
            older = min(meeting, key=lambda lease: lease.spec.renew_time or "")
            fault = "agents use leader Leases in two namespaces, so two agents may be active at once"
            fix = f"kubectl -n {older.metadata.namespace} delete lease {AGENT_LEADER_LEASE}   once its agent has ended"
            yield error(path_to("Lease", older), fault, fix)


@_check("versions", "Are all parts of one version?")
def _versions(facts: Facts) -> Iterator[Finding]:
    for lease in facts.hub.read(LEASES) if facts.hub else ():
        version = lease.annotation(ANNOTATION_VERSION)
        if lease.metadata.name == AGENT_LEASE and version and version != facts.version:
            fault = f"the agent is version {version}, this program is {facts.version}"
            yield warning(path_to("Lease", lease), fault, "upgrade the older one: hub first, then agents")
    for side in facts.sides:
        for deployment in side.read(DEPLOYED):
            if deployment.part in _NAMES:
                yield from _images(facts, deployment)


def _images(facts: Facts, deployment: Deployed) -> Iterator[Finding]:
    for container in deployment.containers:
        tag = container.image.rpartition("/")[2].partition(":")[2].partition("@")[0]
        if tag and tag != facts.version:
            namespace, name = deployment.key
            fix = f"kubectl -n {namespace} set image deployment/{name} '*=IMAGE:{facts.version}'"
            fault = f"image {container.image} is not of version {facts.version}"
            yield warning(path_to("Deployment", deployment), fault, fix)


@_check("replicas", "Are hub and agent available?")
def _replicas(facts: Facts) -> Iterator[Finding]:
    for side in facts.sides:
        for deployment in side.read(DEPLOYED):
            desired, available = deployment.spec.replicas, deployment.status.available_replicas or 0
            if deployment.part in _NAMES and available < desired:
                namespace, name = deployment.key
                fix = f"kubectl -n {namespace} describe pods -l app.kubernetes.io/name={name}"
                report = error if available == 0 else warning
                yield report(path_to("Deployment", deployment), f"{available} of {desired} replicas are available", fix)


@_check("proxies-namespace", "Do the proxies of Clusters have a namespace?")
def _proxies_namespace(facts: Facts) -> Iterator[Finding]:
    hub = facts.hub_read
    if hub is None or not hub.knows(NAMESPACES) or not any(map(_runs_proxies, hub.read(DEPLOYED))):
        return
    if any(namespace.metadata.name == PROXIES_NAMESPACE for namespace in hub.read(NAMESPACES)):
        return
    served = {cls.metadata.name for cls in hub.read(LOAD_BALANCER_CLASSES) if cls.spec.provider == DEFAULT_CLASS}
    waiting = [lb for lb in hub.read(LOAD_BALANCERS) if (lb.class_name or DEFAULT_CLASS) in served]
    if waiting:
        fault = (
            f"the namespace is missing, and the Envoys of {len(waiting)} load balancers of Clusters would run in it "
            f"({path_to('LoadBalancer', waiting[0])})"
        )
        fix = (
            "kubectl apply -f deploy/kubernetes/cluster-proxies.yaml   or helm upgrade with "
            "--set clusterProxies.enabled=true; both give the hub its rights there, too"
        )
        yield error(f"Namespace/{PROXIES_NAMESPACE}", fault, fix)


def _runs_proxies(deployment: Deployed) -> bool:
    """Return whether a Deployment is a hub whose Envoys are Deployments."""
    arguments = " ".join(arg for container in deployment.containers for arg in container.args or ())
    flags = ("--envoy=deployment", "--envoy deployment")
    return deployment.part == _NAMES[0] and any(flag in arguments for flag in flags)


# --- the hub, its objects, members and proxies --------------------------------------------------------------------


@_check("leader", "Does a hub lead?")
def _leader(facts: Facts) -> Iterator[Finding]:
    if (hub := facts.hub_read) is None or not hub.knows(LEASES) or not hub.served:
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
    for fault in fleet.hub_faults(hub_row(lease, hub.now)):
        fix = f"kubectl -n {SYSTEM_NAMESPACE} logs deployment/fairlead-hub   or start one: fairlead hub"
        yield error(f"Lease/{SYSTEM_NAMESPACE}/{HUB_LEASE}", f"{fault.text}; nothing changes until a hub leads", fix)


def _is_regional(lease: StampedLease) -> bool:
    return lease.metadata.namespace == SYSTEM_NAMESPACE and lease.metadata.name.startswith(f"{HUB_LEASE}-")


@_check("agents", "Do the members' agents report?")
def _agents(facts: Facts) -> Iterator[Finding]:
    for hub, tenant, lease in _tenants(facts):
        row = member_row(tenant, lease, 0, hub.now)
        for fault in fleet.silence_faults(row):
            fix = f"kubectl -n {SYSTEM_NAMESPACE} logs deployment/fairlead-agent   in member {row.name}"
            if row.state == "Pending":
                fix = f"fairlead tenant add {row.name} --output kubeconfig   then: fairlead agent --tenant {row.name}"
            report = warning if row.state == "Pending" else error
            yield report(path_to("Tenant", tenant), fault.text, fix)


def _tenants(facts: Facts) -> Iterator[tuple[ApiFacts, Tenant, StampedLease | None]]:
    """Yield the tenants with the lease of their agent, if leases were read."""
    hub = facts.hub_read
    if hub is not None and hub.knows(LEASES):
        for tenant in hub.read(TENANTS):
            yield hub, tenant, _lease(hub, tenant.namespace, AGENT_LEASE)


@_check("agents-clocks", "Do the members' clocks agree with the hub's?")
def _agents_clocks(facts: Facts) -> Iterator[Finding]:
    for lease in facts.hub.read(STAMPED_LEASES) if facts.hub else ():
        if lease.metadata.name == AGENT_LEASE and abs(lease.clock_ahead_s) >= NOTICEABLE_S:
            direction = "ahead of" if lease.clock_ahead_s > 0 else "behind"
            fault = f"the agent's clock is {abs(lease.clock_ahead_s):.0f} s {direction} the hub's"
            yield warning(path_to("Lease", lease), fault, "timedatectl set-ntp true   where the agent runs")


@_check("refused-objects", "Do the agents serve all that members ask for?", causes=("ingress-class",))
def _objects_refused(facts: Facts) -> Iterator[Finding]:
    of_member = namespaces_of_member(facts)
    for hub, tenant, lease in _tenants(facts):
        if lease is None:
            continue
        row = member_row(tenant, lease, 0, hub.now)
        for fault in fleet.refusal_faults([row], {row.namespace: lease}):
            ref = ObjectRef(fault.kind, fault.namespace, fault.name)
            fix = f"fairlead explain {ref.argument} --kubeconfig FILE   with a kubeconfig of member {row.name}"
            if facts.member is not None and row.namespace in of_member:
                fix = f"fairlead explain {ref.argument} {facts.member.flags}".strip()
            report = error if fault.trouble is Trouble.NOT_SERVING else warning
            yield report("/".join(filter(None, (fault.kind, fault.namespace, fault.name))), fault.text, fix)


@_check("namespaces", "Does each tenant have its namespace?")
def _namespaces(facts: Facts) -> Iterator[Finding]:
    if (hub := facts.hub_read) is None or not hub.knows(NAMESPACES):
        return
    existing = {namespace.metadata.name for namespace in hub.read(NAMESPACES)}
    for tenant in hub.read(TENANTS):
        name = tenant.namespace
        if name not in existing and not tenant.deleting:
            fault = f"the namespace {name} does not exist, so the agent cannot write"
            fix = f"fairlead status   a hub that leads creates it; or: kubectl create namespace {name}"
            yield error(path_to("Tenant", tenant), fault, fix)


@_check("stuck", "Do deletions finish?")
def _stuck(facts: Facts) -> Iterator[Finding]:
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


def _minutes(side: ApiFacts, since: datetime) -> int:
    return int((side.now - since).total_seconds() // 60)


@_check("default-class", "Does the default class exist?")
def _default_class(facts: Facts) -> Iterator[Finding]:
    existing = _class_names(facts)
    if existing is not None and DEFAULT_CLASS not in existing:
        fault = "missing, and every Service without a class requests this one"
        yield error(f"LoadBalancerClass/{DEFAULT_CLASS}", fault, "fairlead hub   creates it when it begins to lead")


def _class_names(facts: Facts) -> set[str] | None:
    """Return the names of the classes, None if they were not read."""
    hub = facts.hub_read
    if hub is None or not hub.knows(LOAD_BALANCER_CLASSES):
        return None
    return {cls.metadata.name for cls in hub.read(LOAD_BALANCER_CLASSES)}


@_check("classes", "Can the classes be used?")
def _classes(facts: Facts) -> Iterator[Finding]:
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


@_check("unknown-classes", "Do the classes of load balancers exist?", causes=("service-class",))
def _unknown_classes(facts: Facts) -> Iterator[Finding]:
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


def _load_balancers(facts: Facts) -> Iterator[tuple[str, str, IntentObject]]:
    """Yield each load balancer as (path, its name for verbs, object)."""
    for resource in LOAD_BALANCER_KINDS:
        for lb in facts.hub.read(resource) if facts.hub else ():
            yield path_to(resource.kind, lb), path_to(COMMAND_NAMES[resource.kind], lb), lb


@_check("refused", "Is every load balancer accepted?", causes=("unknown-classes", "service-class"))
def _refused(facts: Facts) -> Iterator[Finding]:
    for path, ref, fault in _condition_faults(facts, "Accepted"):
        yield error(path, fault.text, f"fairlead explain {ref}")


def _condition_faults(facts: Facts, kind: str) -> Iterator[tuple[str, str, ConditionFault]]:
    """Yield the load balancers whose condition of a type reports a fault, as (path, name for verbs, fault)."""
    for path, ref, lb in _load_balancers(facts):
        for fault in condition_faults(lb.status.conditions):
            if fault.type == kind:
                yield path, ref, fault


@_check(
    "unresolved",
    "Do all objects that load balancers refer to exist?",
    causes=("refused", "unknown-classes", "service-pods"),
)
def _unresolved(facts: Facts) -> Iterator[Finding]:
    for path, ref, fault in _condition_faults(facts, "ResolvedRefs"):
        yield error(path, fault.text, f"fairlead explain {ref}")


@_check(
    "programmed", "Is every load balancer programmed?", causes=("refused", "unresolved", "unknown-classes", "address")
)
def _not_programmed(facts: Facts) -> Iterator[Finding]:
    for path, ref, fault in _condition_faults(facts, "Programmed"):
        report = warning if fault.trouble is Trouble.ATTENTION else error
        yield report(path, fault.text, f"fairlead explain {ref} --history")
    for path, _, lb in _load_balancers(facts):
        if condition_of(lb.status.conditions, "Programmed") is None and not lb.deleting:
            yield warning(path, "no hub has written a status yet", "fairlead status   does a hub lead?")


@_check("address", "Does every load balancer have an address?", causes=("refused", "unknown-classes"))
def _no_address(facts: Facts) -> Iterator[Finding]:
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


@_check("pools", "Can addresses be given from every AddressPool?")
def _pools_not_usable(facts: Facts) -> Iterator[Finding]:
    for pool in facts.hub.read(ADDRESS_POOLS) if facts.hub else ():
        for fault in condition_faults(pool.status.conditions):
            if fault.type == "Accepted":
                fix = f"kubectl edit addresspool {pool.metadata.name}"
                yield error(path_to("AddressPool", pool), fault.text, fix)


@_check("pools-exhausted", "Do the AddressPools have free addresses?")
def _pools_exhausted(facts: Facts) -> Iterator[Finding]:
    if facts.hub is None:
        return
    for pool in facts.hub.read(ADDRESS_POOLS):
        free = {"IPv4": pool.status.free_ipv4, "IPv6": pool.status.free_ipv6}
        empty = [family for family, count in free.items() if count == 0]
        taken = pool.status.used + pool.status.reserved
        few = taken >= fleet.ALMOST_FULL * pool.status.size > 0
        if (empty or few) and not any(fault.type == "Accepted" for fault in condition_faults(pool.status.conditions)):
            usage = fleet.pool_use(fleet.pool_row(pool))
            fix = f"kubectl edit addresspool {pool.metadata.name}   add ranges to spec.addresses, or create another one"
            fault = f"no free {' or '.join(empty)} address" if empty else "few addresses are free"
            yield warning(path_to("AddressPool", pool), f"{fault}: {usage}", fix)
    given = [address for kind in LOAD_BALANCER_KINDS for lb in facts.hub.read(kind) for address in lb.status.addresses]
    for own in sorted({report.address_pool for report in _reports(facts)}):
        for row in fleet.pool_rows((), own, given):
            if row.note:
                fault = "no address is free" if row.note == "Full" else "few addresses are free"
                yield warning(f"--address-pool {own}", f"{fault}: {fleet.pool_use(row)}", _larger_pool(facts))


def _reports(facts: Facts) -> list[ReplicaReport]:
    """Return the reports of all replicas of the hub."""
    for config_map in facts.hub.read(REPORTS) if facts.hub else ():
        if config_map.key == (SYSTEM_NAMESPACE, PROXY_REPORTS):
            return list(decode_reports(config_map.data or {}).values())
    return []


@_check("pools-nodes", "Do AddressPools exclude the addresses of nodes?")
def _pools_with_nodes(facts: Facts) -> Iterator[Finding]:
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


@_check("zones", "Can the DNSZones be used?")
def _zones_not_usable(facts: Facts) -> Iterator[Finding]:
    for zone in facts.hub.read(DNS_ZONES) if facts.hub else ():
        path, edit = path_to("DNSZone", zone), f"kubectl edit dnszone {zone.metadata.name}"
        rejected = [fault for fault in condition_faults(zone.status.conditions) if fault.type == "Accepted"]
        for fault in rejected:
            yield error(path, fault.text, edit)
        if not rejected and not zone.spec.parameters.get("server"):
            fault = "the zone names no server, so its names cannot be checked"
            yield warning(path, fault, f"{edit}   set spec.parameters.server to HOST:PORT of its DNS server")


@_check("zones-server", "Do the servers of the DNSZones accept changes?")
def _zones_not_answering(facts: Facts) -> Iterator[Finding]:
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


@_check("names", "Are the Hostnames published?")
def _names_not_published(facts: Facts) -> Iterator[Finding]:
    for obj in facts.hub.read(HOSTNAMES) if facts.hub else ():
        by_type = {fault.type: fault for fault in condition_faults(obj.status.conditions)}
        faults = (by_type.get(kind) for kind in ("Accepted", "ResolvedRefs", "Programmed"))
        fault = next((fault for fault in faults if fault is not None), None)
        # A name that no zone holds may be kept by hand.
        if fault is not None and fault.reason not in (*_OF_THE_SERVER, ConditionReason.NO_SUCH_ZONE):
            text = f"{obj.spec.host} is not published: {fault.text}"
            yield error(path_to("Hostname", obj), text, f"fairlead explain {path_to('hostname', obj)}")


@_check("names-refused", "Does every object have the names that it asks for?", causes=("refused",))
def _names_refused(facts: Facts) -> Iterator[Finding]:
    for resource in _WITH_NAMES:
        for obj in facts.hub.read(resource) if facts.hub else ():
            condition = condition_of(obj.status.names.conditions, "HostnamesAccepted")
            if condition is not None and condition.status == "False":
                fix = "fairlead names   lists the owners; request another name, or delete the owner's Hostname"
                yield warning(path_to(resource.kind, obj), condition.message or condition.reason, fix)


@_check("exports", "Does every exported Service reach its cluster set?")
def _exports(facts: Facts) -> Iterator[Finding]:
    hub = facts.hub
    for fault in fleet.export_faults(hub.read(EXPORTED_SERVICES), hub.read(TENANTS)) if hub else ():
        fix = f"kubectl describe exsvc {fault.name} -n {fault.namespace}"
        yield warning(f"{fault.kind}/{fault.namespace}/{fault.name}", f"{fault.subject}: {fault.text}", fix)


@_check(
    "serving",
    "Does every load balancer have a healthy target?",
    causes=("refused", "unresolved", "unknown-classes", "address", "programmed", "service-pods"),
)
def _not_serving(facts: Facts) -> Iterator[Finding]:
    for path, ref, lb in _load_balancers(facts):
        serving = condition_of(lb.status.conditions, "Serving")
        if serving is not None and serving.status == "False":
            targets = lb.status.unhealthy_targets or ()
            fix = f"{_nc(targets[0])}   from where a proxy runs; and: " if targets else ""
            yield error(path, serving.message or serving.reason, f"{fix}fairlead explain {ref}")


def _nc(target: str) -> str:
    """Return the command that connects to a target, which may have its listener after it."""
    host, port = split_host_port(target.partition(" ")[0])
    return f"nc -vz {host} {port or 'PORT'}"


@_check("unhealthy-targets", "Do the proxies reach all targets?", causes=("serving",))
def _unhealthy_targets(facts: Facts) -> Iterator[Finding]:
    for path, ref, lb in _load_balancers(facts):
        for route in http_status(lb).failing_routes:
            title = f"{route.kind} {route.namespace}/{route.object}"
            yield error(path, f"{title}: {route.sentence}", f"fairlead explain {ref}")
        targets = lb.status.unhealthy_targets or []
        if targets:
            fix = f"{_nc(targets[0])}   from where a proxy runs; does a process listen there?"
            yield warning(path, f"health checks of the proxies fail for {listed(targets, 3)}", fix)


@_check("reach", "Does this machine reach the targets (--connect)?")
def _unreachable_from_here(facts: Facts) -> Iterator[Finding]:
    by_target: dict[tuple[str, str], list[str]] = defaultdict(list)
    for reach in facts.reach:
        if reach.problem:
            by_target[reach.target, reach.problem].append(reach.load_balancer)
    for (target, problem), load_balancers in sorted(by_target.items()):
        fault = f"this machine cannot connect ({problem}); the target belongs to {listed(load_balancers, 1)}"
        yield error(f"target {target}", fault, f"{_nc(target)}   then check routes and firewalls in between")


@_check("held", "Are changes held?")
def _held(facts: Facts) -> Iterator[Finding]:
    for path, ref, fault in _condition_faults(facts, "Guarded"):
        yield warning(path, fault.text, f"fairlead plan {ref}")
    for path, ref, lb in _load_balancers(facts):
        if lb.annotation(ANNOTATION_PAUSED, "false") not in ("", "false"):
            yield warning(path, "paused: no change is applied", f"fairlead resume {ref}")


@_check("drift", "Has another client changed our entries?")
def _drifted(facts: Facts) -> Iterator[Finding]:
    for path, ref, fault in _condition_faults(facts, "Drifted"):
        yield warning(path, fault.text, f"fairlead repair {ref}")


@_check("proxies", "Are the proxies available?")
def _proxies_missing(facts: Facts) -> Iterator[Finding]:
    for obj in facts.hub.read(DEPLOYED) if facts.hub else ():
        desired, available = obj.spec.replicas, obj.status.available_replicas or 0
        if _is_of_tenant(obj) and available < desired:
            fix = f"kubectl -n {obj.metadata.namespace} describe pods"
            report = error if available == 0 else warning
            yield report(path_to("Deployment", obj), f"{available} of {desired} proxies are available", fix)


def _is_of_tenant(obj: KubeObject) -> bool:
    """Return whether an object of the hub's cluster was made for a tenant's proxies."""
    return obj.label(LABEL_MANAGED_BY) == MANAGED_BY and LABEL_TENANT in (obj.metadata.labels or {})


@_check("proxies-stale", "Do the proxies have the newest state?")
def _proxies_stale(facts: Facts) -> Iterator[Finding]:
    for report in _reports(facts):
        rows = [
            ProxyStatusRow(row.node, row.group, row.state, row.refused, report.since)
            for row in report.proxies
            if row.state == "STALE"
        ]
        for fault in fleet.proxy_faults(rows):
            fix = f"kubectl -n {SYSTEM_NAMESPACE} logs deployment/fairlead-hub | grep -i refused"
            yield warning(f"proxy {fault.name}", fault.text, fix)


@_check("proxies-address", "Do the proxies' Services have addresses?")
def _services_without_address(facts: Facts) -> Iterator[Finding]:
    for service in facts.hub.read(SERVICES) if facts.hub else ():
        balanced = _is_of_tenant(service) and service.spec.type == "LoadBalancer"
        if balanced and not service.status.load_balancer.ingress:
            fault = "the hub's cluster assigns no address; a controller there has to implement type LoadBalancer"
            fix = f"kubectl -n {service.metadata.namespace} describe service {service.metadata.name}"
            yield error(path_to("Service", service), fault, fix)


# --- the member ---------------------------------------------------------------------------------------------------


@_check("agent-missing", "Does an agent run in the member?", side="member")
def _agent_missing(facts: Facts) -> Iterator[Finding]:
    member = facts.member_read
    if member is None or not member.knows(LEASES):
        return
    if not any(lease.metadata.name == AGENT_LEADER_LEASE for lease in member.read(LEASES)):
        fix = "helm install fairlead-agent deploy/charts/fairlead-agent -n fairlead-system   or: fairlead agent"
        yield error(f"member {member.server}", "no agent has ever run there", fix)


@_check("no-nodes", "Does the member have nodes?", side="member")
def _no_nodes(facts: Facts) -> Iterator[Finding]:
    member = facts.member_read
    if member is None or not member.knows(NODES) or member.list(NODES) or not _services(facts):
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
    if hub is None:
        return set()
    load_balancers = (*hub.read(TCP_LOAD_BALANCERS), *hub.read(HTTP_LOAD_BALANCERS))
    return {lb.spec.targets for lb in load_balancers if lb.metadata.namespace in namespaces}


def _services(facts: Facts) -> list[Service]:
    """Return the Services that are ours to serve: of type LoadBalancer, of no class or one of ours."""
    member = facts.member_read
    services = member.read(SERVICES) if member is not None else ()
    return [
        service
        for service in services
        if service.spec.type == "LoadBalancer"
        and (service.spec.load_balancer_class or LOAD_BALANCER_CLASS_PREFIX).startswith(LOAD_BALANCER_CLASS_PREFIX)
    ]


@_check("excluded-nodes", "Does a label exclude nodes?", side="member")
def _excluded_nodes(facts: Facts) -> Iterator[Finding]:
    nodes = _target_nodes(facts)
    excluded = [node for node in nodes if LABEL_EXCLUDE_NODE in (node.metadata.labels or {})]
    for node in excluded:
        every = len(excluded) == len(nodes)
        fault = f"the label {LABEL_EXCLUDE_NODE} keeps it out of load balancers"
        fix = f"kubectl label node {node.metadata.name} {LABEL_EXCLUDE_NODE}-"
        report = error if every else warning
        yield report(path_to("Node", node), fault + (", as it does every node" if every else ""), fix)


def _target_nodes(facts: Facts) -> list[Node]:
    """Return the nodes of the member; none where all of its load balancers send traffic to pods."""
    member = facts.member_read
    return list(member.read(NODES)) if member is not None and _targets(facts) != {"Pod"} else []


@_check("nodes-ready", "Are the nodes ready?", side="member")
def _nodes_not_ready(facts: Facts) -> Iterator[Finding]:
    for node in _target_nodes(facts):
        if not node.ready:
            ready = condition_of(node.status.conditions, "Ready")
            reason = (ready.message if ready is not None else "") or "the kubelet gives no reason"
            fault = f"not ready, so it takes no traffic: {reason}"
            yield warning(path_to("Node", node), fault, f"kubectl describe node {node.metadata.name}")


@_check("nodes-leaving", "Does the autoscaler remove nodes?", side="member")
def _nodes_leaving(facts: Facts) -> Iterator[Finding]:
    for node in _target_nodes(facts):
        if any(taint.key == TAINT_TO_BE_DELETED for taint in node.spec.taints or ()):
            name = node.metadata.name
            fix = f"kubectl taint node {name} {TAINT_TO_BE_DELETED}-   if the autoscaler has given it up"
            yield warning(path_to("Node", node), "the autoscaler is about to remove it, so it takes no traffic", fix)


@_check("nodes-address", "Do the nodes have addresses?", side="member")
def _nodes_without_address(facts: Facts) -> Iterator[Finding]:
    report = error if "Node" in _targets(facts) else warning
    for node in _target_nodes(facts):
        if not any(address.type in ("InternalIP", "ExternalIP") for address in node.status.addresses or ()):
            name = node.metadata.name
            fix = f"kubectl get node {name} -o yaml   its kubelet or cloud provider sets status.addresses"
            yield report(path_to("Node", node), "no internal or external address", fix)


@_check("service-class", "Do the classes of Services exist?")
def _classes_of_services(facts: Facts) -> Iterator[Finding]:
    hub = facts.hub
    if hub is None or not hub.knows(LOAD_BALANCER_CLASSES):
        return
    there = {cls.metadata.name for cls in hub.read(LOAD_BALANCER_CLASSES)}
    for service in _services(facts):
        asked = service.spec.load_balancer_class or ""
        name = asked.removeprefix(LOAD_BALANCER_CLASS_PREFIX)
        if asked.startswith(LOAD_BALANCER_CLASS_PREFIX) and name not in there:
            hint = did_you_mean(name, tuple(sorted(there)))
            fault = f"loadBalancerClass is {asked}, which the hub does not have.{hint}"
            fix = "kubectl get loadbalancerclasses   at the hub; the field cannot be changed: create the Service again"
            yield error(path_to("Service", service), fault, fix)


@_check("annotations", "Are annotations spelled correctly?", side="member")
def _misspelt_annotations(facts: Facts) -> Iterator[Finding]:
    member = facts.member_read
    for service in member.read(SERVICES) if member is not None else ():
        for key in sorted(service.metadata.annotations or ()):
            if key.startswith(f"{GROUP}/") and key not in SERVICE_ANNOTATIONS:
                fix = f"kubectl -n {service.metadata.namespace} annotate service {service.metadata.name} {key}-"
                fault = f"annotation {key} has no meaning.{near_annotation(key)}"
                yield warning(path_to("Service", service), fault, fix)


@_check("service-pods", "Do Services have ready pods?", side="member")
def _services_without_pods(facts: Facts) -> Iterator[Finding]:
    member = facts.member_read
    if member is None or not member.knows(ENDPOINT_SLICES):
        return
    slices: dict[tuple[str, str], list[EndpointSlice]] = defaultdict(list)
    for endpoints in member.read(ENDPOINT_SLICES):
        slices[endpoints.metadata.namespace, endpoints.label(LABEL_SERVICE_NAME)].append(endpoints)
    for service in _services(facts):
        if missing := missing_endpoints(service, slices[service.key]):
            yield warning(path_to("Service", service), missing.why, missing.command)


@_check("node-ports", "Do Services have node ports where nodes are targets?", side="member")
def _services_without_node_ports(facts: Facts) -> Iterator[Finding]:
    paths = service_of(facts)
    to_pods = {
        paths.get(path_to(TCP_LOAD_BALANCERS.kind, lb))
        for lb in (facts.hub.read(TCP_LOAD_BALANCERS) if facts.hub is not None else ())
        if lb.spec.targets == "Pod"
    }
    for service in _services(facts):
        path, spec = path_to("Service", service), service.spec
        pods = service.annotation(ANNOTATION_TARGET) == "Pod" or path in to_pods
        ports = all(port.node_port for port in spec.ports or ())
        if spec.allocate_load_balancer_node_ports is False and not pods and not ports:
            namespace, name = service.key
            fault = "allocateLoadBalancerNodePorts is false, so its nodes cannot take its traffic"
            fix = f"kubectl -n {namespace} annotate --overwrite service {name} {ANNOTATION_TARGET}=Pod"
            yield error(path, fault, fix)


@_check("readiness-gates", "Do pods have the readiness gates that are asked for?", side="member")
def _readiness_gates(facts: Facts) -> Iterator[Finding]:
    member = facts.member_read
    if member is None:
        return
    labelled = {
        namespace.metadata.name
        for namespace in member.read(NAMESPACES)
        if namespace.label(LABEL_READINESS_GATE) == READINESS_GATE_ENABLED
    } - {SYSTEM_NAMESPACE, "kube-system"}
    services = [item for item in member.read(SERVICES) if item.label(LABEL_READINESS_GATE) == READINESS_GATE_ENABLED]
    without, closed = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for pod in member.read(PODS):
        namespace, labels = pod.metadata.namespace, pod.metadata.labels or {}
        selected = any(
            (selector := service.spec.selector) and selector.items() <= labels.items()
            for service in services
            if service.metadata.namespace == namespace
        )
        if pod.deleting or pod.label(LABEL_READINESS_GATE) == "disabled" or not (namespace in labelled or selected):
            continue
        if not pod.has_gate(CONDITION_SERVING):
            without[namespace].append(pod.metadata.name)
        elif pod.waits_only_for(CONDITION_SERVING) and not pod.is_open(CONDITION_SERVING):
            closed[namespace].append(pod.metadata.name)
    for namespace, names in sorted(without.items()):
        pods = f"{counted(len(names), 'pod')} ({listed(sorted(names), 3)})"
        fault = f"{pods} without the readiness gate, as from before the label, so rollouts do not wait for them"
        yield warning(f"Namespace/{namespace}", fault, f"kubectl -n {namespace} rollout restart deployment")
    for namespace, names in sorted(closed.items()):
        pods = f"{counted(len(names), 'pod')} ({listed(sorted(names), 3)})"
        fault = f"{pods} waiting for readiness gate {CONDITION_SERVING} alone"
        fix = f"kubectl -n {namespace} get pods -o wide   the agent opens gates if it runs with --readiness-gates"
        yield warning(f"Namespace/{namespace}", fault, fix)


@_check(
    "service-address",
    "Do Services have addresses?",
    side="member",
    causes=("service-class", "node-ports", "refused", "unresolved", "unknown-classes", "address", "programmed"),
)
def _services_pending(facts: Facts) -> Iterator[Finding]:
    for service in _services(facts):
        if not service.status.load_balancer.ingress:
            member = facts.member_read
            ref = ObjectRef("Service", *service.key).argument
            fix = " ".join(filter(None, ("fairlead explain", ref, member.flags if member is not None else "")))
            yield warning(path_to("Service", service), "no address", fix)


@_check("ingress-class", "Do the classes of Ingresses exist?", side="member")
def _ingress_classes(facts: Facts) -> Iterator[Finding]:
    member = facts.member_read
    if member is None or not member.knows(INGRESS_CLASSES):
        return
    there = {ingress_class.metadata.name: ingress_class for ingress_class in member.read(INGRESS_CLASSES)}
    default = sorted(name for name, each in there.items() if each.annotation(ANNOTATION_DEFAULT_CLASS) == "true")
    if len(default) > 1:
        fault = f"two IngressClasses are the default, {' and '.join(default)}: an Ingress without a class is refused"
        fix = f"kubectl annotate ingressclass {default[0]} {ANNOTATION_DEFAULT_CLASS}-"
        yield warning(f"IngressClass/{default[0]}", fault, fix)
    if not any(each.is_ours for each in there.values()):
        return  # no Ingress here is meant for us
    for ingress in member.read(INGRESSES):
        asked = ingress.spec.ingress_class_name
        if asked and asked not in there:
            hint = did_you_mean(asked, tuple(sorted(there)))
            fault = f"ingressClassName is {asked}, which does not exist.{hint}"
            fix = f"kubectl edit ingress -n {ingress.metadata.namespace} {ingress.metadata.name}"
            yield error(path_to("Ingress", ingress), fault, fix)


@_check("gateway-class", "Are our GatewayClasses accepted?", side="member")
def _gateway_classes(facts: Facts) -> Iterator[Finding]:
    member = facts.member_read
    for gateway_class in member.read(GATEWAY_CLASSES) if member is not None else ():
        for fault in condition_faults(gateway_class.status.conditions) if gateway_class.is_ours else ():
            if fault.type == "Accepted":
                fix = f"kubectl describe gatewayclass {gateway_class.metadata.name}"
                yield error(path_to("GatewayClass", gateway_class), fault.message or "not accepted", fix)


# --- this machine, on which a hub has its Envoy -------------------------------------------------------------------


@_check("envoy", "Is there an Envoy on this machine?")
def _envoy(facts: Facts) -> Iterator[Finding]:
    if facts.machine is not None and facts.machine.envoy_problem:
        yield error("Envoy", facts.machine.envoy_problem, "pip install 'fairlead[standalone]'")


@_check("low-ports", "May it open ports below 1024?")
def _low_ports(facts: Facts) -> Iterator[Finding]:
    if facts.machine is not None and facts.machine.low_ports_problem:
        yield warning(
            "ports below 1024", facts.machine.low_ports_problem, "sysctl -w net.ipv4.ip_unprivileged_port_start=80"
        )


@_check("files", "May it open enough files?")
def _files(facts: Facts) -> Iterator[Finding]:
    if facts.machine is not None and facts.machine.file_limit < FEW_FILES:
        fault = f"a process may open {facts.machine.file_limit} files; each connection takes two"
        yield warning("limit of open files", fault, "ulimit -Hn 1048576   or LimitNOFILE=1048576 in the unit")


@_check("outgoing-ports", "Are there ports for connections to targets?")
def _outgoing_ports(facts: Facts) -> Iterator[Finding]:
    if facts.machine is None:
        return
    first, last = facts.machine.ephemeral_ports
    if last - first + 1 < _FEW_PORTS:
        fault = f"only {last - first + 1} ports are for outgoing connections ({first} to {last})"
        yield warning("net.ipv4.ip_local_port_range", fault, 'sysctl -w net.ipv4.ip_local_port_range="32768 60999"')
    listened = _listened(facts)
    among = sorted(port for port in listened if first <= port <= last)
    if among:
        fault = f"load balancers listen at {', '.join(map(str, among[:3]))}, which outgoing connections may take first"
        yield warning("net.ipv4.ip_local_port_range", fault, f"sysctl -w net.ipv4.ip_local_reserved_ports={among[0]}")


def _listened(facts: Facts) -> set[int]:
    hub = facts.hub
    if hub is None or hub.list(SERVICES):
        return set()  # proxies in a cluster have a network of their own
    return {port.port for lb in hub.read(TCP_LOAD_BALANCERS) for port in lb.spec.ports}


@_check("data-dir", "Can the data directory be used?")
def _directory(facts: Facts) -> Iterator[Finding]:
    machine = facts.machine
    if machine is None or not machine.data_dir:
        return
    if machine.data_dir_problem:
        yield error(machine.data_dir, machine.data_dir_problem, f"install -d -m 0700 -o $USER {machine.data_dir}")
    elif machine.free_bytes < _LITTLE_SPACE:
        fault = f"{machine.free_bytes >> 20} MiB are free where it is"
        yield warning(machine.data_dir, fault, f"df -h {machine.data_dir}")


@_check("lost-envoys", "Does each Envoy here belong to a hub?")
def _lost_envoys(facts: Facts) -> Iterator[Finding]:
    for data_dir in facts.machine.lost_envoys if facts.machine else ():
        fault = "orphaned Envoy: its data directory was deleted, and no hub configures it"
        yield warning(data_dir, fault, f"fairlead standalone --stop --data-dir {data_dir}")


# --- this machine as a proxy machine ------------------------------------------------------------------------------


@_check("proxy-state", "Can the state directory of this proxy machine be used?")
def _proxy_state(facts: Facts) -> Iterator[Finding]:
    proxy = facts.proxy
    if proxy is None:
        return
    if proxy.problem:
        yield error(proxy.state_dir, proxy.problem, "fairlead proxy token   at the hub, if the machine has to join")
    elif proxy.directory_problem:
        fault = f"no file can be written there ({proxy.directory_problem}), so changes are lost at the next boot"
        yield error(proxy.state_dir, fault, f"df -h {proxy.state_dir}   and: mount, for a read-only file system")
    elif proxy.free_bytes < _LITTLE_SPACE:
        yield warning(proxy.state_dir, f"{proxy.free_bytes >> 20} MiB are free where it is", f"df -h {proxy.state_dir}")


@_check("proxy-process", "Does the process of this proxy machine run, and may it announce?")
def _proxy_process(facts: Facts) -> Iterator[Finding]:
    proxy = _joined(facts)
    if proxy is not None and not proxy.runs:
        fault = "the process of the machine does not run: it follows no plan, and other machines take its addresses"
        yield error("fairlead proxy run", fault, f"systemctl start fairlead-proxy   then: {_JOURNAL}")
    elif proxy is not None and proxy.missing_capabilities:
        fault = f"the process lacks {' and '.join(proxy.missing_capabilities)}, so it cannot announce addresses"
        step = f"systemctl edit fairlead-proxy   add AmbientCapabilities={' '.join(proxy.missing_capabilities)}"
        yield error("fairlead proxy run", fault, step)


def _joined(facts: Facts) -> ProxyMachineFacts | None:
    return facts.proxy if facts.proxy is not None and not facts.proxy.problem else None


@_check("proxy-envoy", "Does the Envoy of this proxy machine answer?")
def _proxy_envoy(facts: Facts) -> Iterator[Finding]:
    proxy = _joined(facts)
    if proxy is not None and not proxy.envoy_answers:
        yield error("Envoy", "Envoy does not answer, so this machine serves nothing", f"{_JOURNAL} -n 50")


@_check("proxy-certificate", "Is the certificate of this proxy machine valid?")
def _proxy_certificate(facts: Facts) -> Iterator[Finding]:
    proxy = _joined(facts)
    if proxy is None:
        return
    ends, subject = f"{proxy.certificate_ends:%Y-%m-%d %H:%M} UTC", f"certificate of {proxy.machine}"
    if proxy.certificate_ends <= proxy.now:
        fault = f"the certificate expired at {ends}, so no hub answers; the machine serves what it has"
        yield error(subject, fault, f"fairlead proxy remove {proxy.machine}   at the hub, then join again")
    elif proxy.now > proxy.renew_at + _RENEWAL_LATE:
        fault = f"the certificate ends at {ends}, and should have been renewed by now"
        yield warning(subject, fault, f"{_JOURNAL} -g certificate")


@_check("proxy-hubs", "Do the hubs answer this proxy machine?")
def _proxy_hubs(facts: Facts) -> Iterator[Finding]:
    proxy = _joined(facts)
    for hub in proxy.hubs if proxy is not None else ():
        if hub.problem:
            yield error(f"hub {hub.place}", hub.problem, _nc(hub.place))
        elif hub.xds_problem:
            fault = f"the xDS port {hub.xds} cannot be reached ({hub.xds_problem}), so Envoy gets no changes"
            yield error(f"hub {hub.place}", fault, f"{_nc(hub.xds)}   then open the port in firewalls")


@_check("proxy-clock", "Is the clock of this proxy machine right?")
def _proxy_clock(facts: Facts) -> Iterator[Finding]:
    proxy = _joined(facts)
    for hub in proxy.hubs if proxy is not None else ():
        if hub.ahead_s is not None and abs(hub.ahead_s) > _PROXY_SKEW_S:
            difference = f"{abs(hub.ahead_s):.0f} s {'ahead of' if hub.ahead_s > 0 else 'behind'}"
            fault = f"the clock of this machine is {difference} that of hub {hub.place}"
            yield warning("clock", fault, "timedatectl set-ntp true   on the machine that is wrong")


@_check("proxy-settings", "Are the kernel's settings right for announced addresses?")
def _proxy_settings(facts: Facts) -> Iterator[Finding]:
    proxy = _joined(facts)
    if proxy is None:
        return
    links = {link.name: link for link in proxy.links if link.up and link.subnets}
    routed = any(planned.announcement in ("BGP", "External") for planned in proxy.plan.addresses)
    for setting in proxy.settings:
        kind, link = setting.name.rpartition(".")[2], links.get(setting.interface)
        local = link is not None and _has_address_of(proxy, link)
        if kind == "ip_nonlocal_bind" and setting.value == 0:
            fault = "0: Envoy cannot open listeners before their address is on this machine"
            yield error(setting.name, fault, f"sysctl -w {setting.name}=1")
        elif kind == "rp_filter" and setting.value == 1 and routed and link is not None and len(links) > 1:
            fault = "1: packets of clients that arrive by another interface than their replies leave by are dropped"
            yield warning(setting.name, fault, f"sysctl -w {setting.name}=2")
        elif kind == "arp_ignore" and setting.value == 0 and local:
            fault = "0: the kernel answers ARP on this interface for addresses that are on another one"
            yield error(setting.name, fault, f"sysctl -w {setting.name}=1")
        elif kind == "arp_announce" and setting.value == 0 and local and routed:
            fault = "0: the machine asks its neighbours from addresses of load balancers, and they may keep its MAC"
            yield warning(setting.name, fault, f"sysctl -w {setting.name}=2")


def _has_address_of(proxy: ProxyMachineFacts, link: LinkFacts) -> bool:
    """Return whether an address of the plan is in a subnet of the link."""
    networks = [ip_network(subnet) for subnet in link.subnets]
    return any(ip_address(planned.address) in network for planned in proxy.plan.addresses for network in networks)


@_check("proxy-mtu", "Do neighbours get packets of the full size?")
def _proxy_mtu(facts: Facts) -> Iterator[Finding]:
    proxy = _joined(facts)
    for link in proxy.links if proxy is not None else ():
        if link.small:
            fault = f"{listed(link.small, 3)} answer small packets, and none of {link.mtu} bytes: the path is narrower"
            yield error(f"MTU of {link.name}", fault, f"ip link set {link.name} mtu 1400   or raise the switch's MTU")


@_check("proxy-ageing", "Do bridges here keep the owners of addresses?")
def _proxy_ageing(facts: Facts) -> Iterator[Finding]:
    proxy = _joined(facts)
    for bridge, ageing_s in proxy.ageing_s.items() if proxy is not None else ():
        if 0 < ageing_s < _REFRESH_S:
            fault = f"the bridge forgets a MAC address after {ageing_s:g} s, and owners announce every {_REFRESH_S:g} s"
            yield warning(f"bridge {bridge}", fault, f"ip link set {bridge} type bridge ageing_time 30000")


@_check("proxy-owners", "Does one host answer for each address?")
def _proxy_owners(facts: Facts) -> Iterator[Finding]:
    proxy = _joined(facts)
    for asked in proxy.addresses if proxy is not None else ():
        owners = (*((asked.mac,) if asked.owned else ()), *asked.macs)
        if len(owners) > 1:
            mine = " (this machine)" if asked.owned else ""
            fault = f"{owners[0]}{mine} and {listed(owners[1:], 3)} answer for it, so some connections fail"
            fix = f"bridge fdb show | grep -i {owners[-1]}   or at the switch: find that host, and remove the address"
            yield error(f"address {asked.address}", fault, fix)


@_check("proxy-sessions", "Are the BGP sessions up?")
def _proxy_sessions(facts: Facts) -> Iterator[Finding]:
    proxy = _joined(facts)
    if proxy is None:
        return
    states = {session.peer: session for session in proxy.sessions}
    for peer in proxy.plan.bgp_peers:
        session = states.get(peer.name)
        subject = f"BGPPeer {peer.name}"
        if session is None:
            yield error(subject, "no BGP speaker runs on this machine", f"{_JOURNAL} -g speaker")
        elif not session.up:
            fault = session.problem or f"the session is in state {session.state}"
            place = peer.address or f"on {peer.interface}"
            yield error(subject, fault, f"tcpdump -ni any tcp port {peer.port}   does router {place} answer?")


@_check("proxy-bfd", "Does BFD work in both directions?")
def _proxy_bfd(facts: Facts) -> Iterator[Finding]:
    proxy = _joined(facts)
    for session in proxy.sessions if proxy is not None else ():
        if session.up and session.bfd and session.bfd.lower() != "up":
            fault = f"the session is up, and BFD is {session.bfd}: a lost link is noticed after the hold time only"
            yield warning(f"BGPPeer {session.peer}", fault, "tcpdump -ni any udp port 3784   must show both directions")


# --- the report ---------------------------------------------------------------------------------------------------


Matches = Callable[[Mapping[str, str] | None], bool]
_KINDS = frozenset({*KINDS.values(), *SHARING.values()})
_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.UNKNOWN: 2}


def examine(facts: Facts) -> list[Finding]:
    """Run every check; errors come first, and within them the order of ``CHECKS`` counts."""
    sides = {side.name: side.undecoded for side in (facts.hub, facts.member) if side is not None}
    facts = replace(facts, hub=sides.get("hub"), member=sides.get("member"))
    flags = {side.name: side.flags for side in facts.sides}
    every = [
        replace(finding, check=check.name, fix=pasteable(finding.fix, flags.get(check.side, "")))
        for check in CHECKS
        for finding in check.run(facts)
    ]
    return sorted(_without_consequences(facts, every), key=lambda finding: _ORDER[finding.severity])


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


def _without_consequences(facts: Facts, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without those that another one of the same object explains: each fault is reported once.

    A load balancer and its Service are one object here.
    """
    causes_of = {check.name: check.causes for check in CHECKS}
    services = service_of(facts)
    by_check: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        by_check[finding.check, services.get(finding.object, finding.object)].append(finding)
    kept: list[Finding] = []
    worst: dict[int, Severity] = {}
    for finding in findings:
        subject = services.get(finding.object, finding.object)
        causes = [cause for check in causes_of[finding.check] for cause in by_check.get((check, subject), ())]
        if not causes:
            kept.append(finding)
        elif finding.severity is Severity.ERROR:
            # What it causes says how bad the cause is.
            worst |= {id(cause): Severity.ERROR for cause in causes}
    return [replace(finding, severity=worst.get(id(finding), finding.severity)) for finding in kept]
