"""Checks of the installation: clusters, credentials, kinds, rights, versions and this machine.

In: facts. Out: findings about kubeconfigs and clocks; kinds, rights, versions and second installations; and whether an
Envoy on this machine can open what it needs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta

from fairlead.api.crd import fields_of
from fairlead.api.kinds import CRDS as OUR_CRDS
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import CRDS, DEPLOYMENTS, LEASES, NAMESPACES, SERVICES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.names import (
    AGENT_LEADER_LEASE,
    AGENT_LEASE,
    ANNOTATION_REFUSED,
    DEFAULT_CLASS,
    GROUP,
    HUB_LEASE,
    PROXIES_NAMESPACE,
    SYSTEM_NAMESPACE,
)
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import ANNOTATION_MEMBER_UID, ANNOTATION_VERSION
from fairlead.doctor.facts import (
    ApiFacts,
    Denied,
    Facts,
    Finding,
    annotation,
    error,
    items,
    label,
    mapping,
    meta,
    name_of,
    path_of,
    spec,
    status,
    unknown,
    warning,
)
from fairlead.kube.transport import NOTICEABLE_S

_APPLY_KINDS = "fairlead crds | kubectl apply --server-side --force-conflicts -f -"
_NAMES = ("fairlead-hub", "fairlead-agent")


def kinds_missing(facts: Facts) -> Iterator[Finding]:
    """Name the kinds of ours that the hub does not serve."""
    if (hub := facts.hub_read) is None:
        return
    if not hub.served:
        fault = f"{hub.server} serves no kind of {GROUP}: no hub has run there, or it is a member"
        yield error("hub", fault, f"{_APPLY_KINDS}   then: fairlead hub")
        return
    for crd in all_crds():
        if crd["spec"]["names"]["plural"] not in hub.served:
            yield error(
                f"CustomResourceDefinition/{crd['metadata']['name']}", "the hub does not serve it", _APPLY_KINDS
            )


def kinds_of_another_version(facts: Facts) -> Iterator[Finding]:
    """Name kinds whose fields are not those of this version: what is written there may be dropped in silence."""
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


def watch_denied(facts: Facts) -> Iterator[Finding]:
    """Name what may be listed and not watched: the view of it would stand still, without an error."""
    for side, denied in _denied(facts):
        if "watch" in denied and "list" not in denied:
            right = denied["watch"]
            fault = f"{right.account} may list {right.resource} and not watch it: it would not see changes"
            yield error(f"{side.name}: {right.resource}", fault, _grant(side, right))


def rights(facts: Facts) -> Iterator[Finding]:
    """Name the other rights that the account lacks which works there."""
    for side, denied in _denied(facts):
        only_watch = "watch" in denied and "list" not in denied
        verbs = [verb for verb in denied if not (only_watch and verb == "watch")]
        if verbs:
            right = denied[verbs[0]]
            where = f" in namespace {right.namespace}" if right.namespace else ""
            fault = f"{right.account} may not {', '.join(verbs)} {right.resource}{where}"
            yield error(f"{side.name}: {right.resource}", fault, _grant(side, right))


def _denied(facts: Facts) -> Iterator[tuple[ApiFacts, dict[str, Denied]]]:
    for side in facts.sides:
        grouped: dict[tuple[str, str, str], dict[str, Denied]] = defaultdict(dict)
        for right in side.denied:
            grouped[right.account, right.resource, right.namespace][right.verb] = right
        for denied in grouped.values():
            yield side, denied


def _grant(side: ApiFacts, right: Denied) -> str:
    file = "hub" if side.name == "hub" else "agent"
    return f"kubectl apply -f deploy/kubernetes/{file}.yaml   or helm upgrade; it has every right of {right.account}"


def second_hub(facts: Facts) -> Iterator[Finding]:
    """Name hubs and agents that are installed in two namespaces, and Leases of hubs where none belongs."""
    for side in facts.sides:
        for name in _NAMES:
            where = [obj for obj in side.list(DEPLOYMENTS) if label(obj, "app.kubernetes.io/name") == name]
            if len(where) > 1:
                there = ", ".join(sorted(path_of("Deployment", obj) for obj in where))
                fault = f"{name} is installed {len(where)} times: {there}; each would overwrite what the other writes"
                extra = next((obj for obj in where if meta(obj, "namespace") != SYSTEM_NAMESPACE), where[0])
                fix = f"kubectl --namespace {meta(extra, 'namespace')} delete deployment {name_of(extra)}"
                yield error(path_of("Deployment", extra), fault, fix)
    for side in facts.sides:
        for lease in side.list(LEASES):
            if name_of(lease) == HUB_LEASE and meta(lease, "namespace") != SYSTEM_NAMESPACE:
                fault = "a hub leads, or has led, in another namespace than fairlead-system"
                fix = f"kubectl --namespace {meta(lease, 'namespace')} delete lease {HUB_LEASE}   once it has ended"
                yield warning(path_of("Lease", lease), fault, fix)


def two_agents(facts: Facts) -> Iterator[Finding]:
    """Name a cluster that two tenants are the member of, and a member in which agents have Leases in two namespaces."""
    if facts.hub is not None:
        by_uid: dict[str, list[str]] = defaultdict(list)
        for lease in facts.hub.list(LEASES):
            if name_of(lease) == AGENT_LEASE and (uid := annotation(lease, ANNOTATION_MEMBER_UID)):
                by_uid[uid].append(str(meta(lease, "namespace")))
        for namespaces in by_uid.values():
            if len(namespaces) > 1:
                first, second = sorted(namespaces)[:2]
                fault = f"one cluster is the member of two tenants, {first} and {second}: its Services are served twice"
                fix = f"fairlead tenant remove {second.removeprefix('tenant-')}"
                yield error(f"Lease/{second}/{AGENT_LEASE}", fault, fix)
    if facts.member is not None:
        meeting = [obj for obj in facts.member.list(LEASES) if name_of(obj) == AGENT_LEADER_LEASE]
        if len(meeting) > 1:
            older = min(meeting, key=lambda obj: str(spec(obj).get("renewTime") or ""))
            fault = "agents use leader Leases in two namespaces, so two agents may be active at once"
            fix = f"kubectl -n {meta(older, 'namespace')} delete lease {AGENT_LEADER_LEASE}   once its agent has ended"
            yield error(path_of("Lease", older), fault, fix)


def versions(facts: Facts) -> Iterator[Finding]:
    """Name agents and images whose version is not that of this program."""
    for lease in facts.hub.list(LEASES) if facts.hub else ():
        version = annotation(lease, ANNOTATION_VERSION)
        if name_of(lease) == AGENT_LEASE and version and version != facts.version:
            fault = f"the agent is version {version}, this program is {facts.version}"
            yield warning(path_of("Lease", lease), fault, "upgrade the older one: hub first, then agents")
    for side in facts.sides:
        for deployment in side.list(DEPLOYMENTS):
            if label(deployment, "app.kubernetes.io/name") in _NAMES:
                yield from _images(facts, deployment)


def _images(facts: Facts, deployment: JSONObject) -> Iterator[Finding]:
    for container in items(mapping(mapping(spec(deployment).get("template")).get("spec")).get("containers")):
        image = str(container.get("image", ""))
        tag = image.rpartition("/")[2].partition(":")[2].partition("@")[0]
        if tag and tag != facts.version:
            path = path_of("Deployment", deployment)
            deployment_ref = f"deployment/{name_of(deployment)}"
            fix = f"kubectl -n {meta(deployment, 'namespace')} set image {deployment_ref} '*=IMAGE:{facts.version}'"
            yield warning(path, f"image {image} is not of version {facts.version}", fix)


def replicas(facts: Facts) -> Iterator[Finding]:
    """Name Deployments of hub and agent that lack replicas."""
    for side in facts.sides:
        for deployment in side.list(DEPLOYMENTS):
            if label(deployment, "app.kubernetes.io/name") not in _NAMES:
                continue
            asked, there = (
                int(spec(deployment).get("replicas", 1)),
                int(status(deployment).get("availableReplicas") or 0),
            )
            if there < asked:
                path = path_of("Deployment", deployment)
                name = name_of(deployment)
                fix = f"kubectl -n {meta(deployment, 'namespace')} describe pods -l app.kubernetes.io/name={name}"
                say = error if there == 0 else warning
                yield say(path, f"{there} of {asked} replicas are available", fix)


def proxies_namespace(facts: Facts) -> Iterator[Finding]:
    """Name the namespace of the proxies of Clusters, where there are load balancers of these, and it is not there."""
    hub = facts.hub_read
    if hub is None or not hub.knows(NAMESPACES) or not any(map(_runs_proxies, hub.list(DEPLOYMENTS))):
        return
    if any(name_of(namespace) == PROXIES_NAMESPACE for namespace in hub.list(NAMESPACES)):
        return
    served = {name_of(cls) for cls in hub.list(LOAD_BALANCER_CLASSES) if spec(cls).get("provider") == DEFAULT_CLASS}
    waiting = [lb for lb in hub.list(LOAD_BALANCERS) if (spec(lb).get("className") or DEFAULT_CLASS) in served]
    if waiting:
        fault = (
            f"the namespace is missing, and the Envoys of {len(waiting)} load balancers of Clusters would run in it "
            f"({path_of('LoadBalancer', waiting[0])})"
        )
        fix = (
            "kubectl apply -f deploy/kubernetes/cluster-proxies.yaml   or helm upgrade with "
            "--set clusterProxies.enabled=true; both give the hub its rights there, too"
        )
        yield error(f"Namespace/{PROXIES_NAMESPACE}", fault, fix)


def _runs_proxies(deployment: JSONObject) -> bool:
    """Return whether a Deployment is a hub whose Envoys are Deployments."""
    if label(deployment, "app.kubernetes.io/name") != _NAMES[0]:
        return False
    containers = items(mapping(mapping(spec(deployment).get("template")).get("spec")).get("containers"))
    arguments = " ".join(str(arg) for container in containers for arg in items(container.get("args")))
    return any(flag in arguments for flag in ("--envoy=deployment", "--envoy deployment"))


#: The oldest minor version of Kubernetes that is tested: EndpointSlices, server-side apply and CEL rules are there.
OLDEST_MINOR = 29
_SOON = timedelta(days=7)
_FLAG = {"hub": "--kubeconfig", "member": "--member-kubeconfig"}


def unreachable(facts: Facts) -> Iterator[Finding]:
    """Name each cluster that does not answer."""
    for side in filter(None, (facts.hub, facts.member)):
        if side.error:
            fix = " ".join(filter(None, ("kubectl", side.flags, "get --raw /readyz")))
            yield error(f"{side.name} {side.server}".strip(), side.error, fix)


def swapped(facts: Facts) -> Iterator[Finding]:
    """Name a kubeconfig that is for the other side, or an agent's key in place of an administrator's."""
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


def old_kubernetes(facts: Facts) -> Iterator[Finding]:
    """Name a Kubernetes that is older than what is tested."""
    for side in facts.sides:
        minor = re.match(r"v?1\.(\d+)", side.version)
        if minor and int(minor[1]) < OLDEST_MINOR:
            fault = f"Kubernetes {side.version} is older than 1.{OLDEST_MINOR}, the oldest tested version"
            yield warning(f"{side.name} {side.server}", fault, "upgrade the cluster's control plane")


def clocks(facts: Facts) -> Iterator[Finding]:
    """Name a cluster whose clock differs from this machine's: tokens and certificates end too early, or too late."""
    for side in facts.sides:
        if side.ahead_s is not None and abs(side.ahead_s) >= NOTICEABLE_S:
            direction = "ahead of" if side.ahead_s > 0 else "behind"
            fault = f"the clock is {abs(side.ahead_s):.0f} s {direction} this machine's"
            yield warning(
                f"{side.name} {side.server}", fault, "timedatectl set-ntp true   on the machine that is wrong"
            )


def endings(facts: Facts) -> Iterator[Finding]:
    """Name each token and certificate that has expired, or expires within a week.

    The expired certificate of a member is named with the object that has it, once its agent has reported that.
    """
    for side in facts.sides:
        leases = [(str(meta(lease, "namespace")), lease) for lease in side.list(LEASES)]
        reported = [(f"Secret/{namespace}/", annotation(lease, ANNOTATION_REFUSED)) for namespace, lease in leases]
        for ending in side.endings:
            remaining = ending.ends - side.now
            when = f"{ending.ends:%Y-%m-%d %H:%M} UTC"
            if remaining <= timedelta():
                if any(ending.where.startswith(place) and f"expired at {when}" in text for place, text in reported):
                    continue
                yield error(ending.where, f"the {ending.what} expired at {when}", ending.renew)
            elif remaining < _SOON:
                yield warning(ending.where, f"the {ending.what} expires at {when}", ending.renew)


def unread(facts: Facts) -> Iterator[Finding]:
    """Name what could not be read, so that a check without findings is not mistaken for a passed one."""
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


def open_kubeconfigs(facts: Facts) -> Iterator[Finding]:
    """Name kubeconfigs that others on this machine may read."""
    for path in facts.machine.open_kubeconfigs if facts.machine else ():
        yield warning(path, "every user of this machine may read this key", f"chmod 600 {path}")


#: Below this an Envoy runs out of files with some thousand listeners and their connections.
FEW_FILES = 65_536
_LITTLE_SPACE = 256 << 20
#: Each connection of a proxy to a target takes a port of this range.
_FEW_PORTS = 16_384


def envoy(facts: Facts) -> Iterator[Finding]:
    """Say that there is no Envoy to start."""
    if facts.machine is not None and facts.machine.envoy_problem:
        yield error("Envoy", facts.machine.envoy_problem, "pip install 'fairlead[standalone]'")


def low_ports(facts: Facts) -> Iterator[Finding]:
    """Say that ports below 1024 may not be opened."""
    if facts.machine is not None and facts.machine.low_ports_problem:
        yield warning(
            "ports below 1024", facts.machine.low_ports_problem, "sysctl -w net.ipv4.ip_unprivileged_port_start=80"
        )


def files(facts: Facts) -> Iterator[Finding]:
    """Say that a process may open few files."""
    if facts.machine is not None and facts.machine.file_limit < FEW_FILES:
        fault = f"a process may open {facts.machine.file_limit} files; each connection takes two"
        yield warning("limit of open files", fault, "ulimit -Hn 1048576   or LimitNOFILE=1048576 in the unit")


def outgoing_ports(facts: Facts) -> Iterator[Finding]:
    """Say that few ports are left for connections to targets, or that listeners are among them."""
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


def directory(facts: Facts) -> Iterator[Finding]:
    """Say that the data directory cannot be used, or is nearly full."""
    machine = facts.machine
    if machine is None or not machine.data_dir:
        return
    if machine.data_dir_problem:
        yield error(machine.data_dir, machine.data_dir_problem, f"install -d -m 0700 -o $USER {machine.data_dir}")
    elif machine.free_bytes < _LITTLE_SPACE:
        fault = f"{machine.free_bytes >> 20} MiB are free where it is"
        yield warning(machine.data_dir, fault, f"df -h {machine.data_dir}")


def lost_envoys(facts: Facts) -> Iterator[Finding]:
    """Name Envoys whose directory is gone: nothing configures them, and they serve on."""
    for data_dir in facts.machine.lost_envoys if facts.machine else ():
        fault = "orphaned Envoy: its data directory was deleted, and no hub configures it"
        yield warning(data_dir, fault, f"fairlead standalone --stop --data-dir {data_dir}")


def _listened(facts: Facts) -> set[int]:
    hub = facts.hub
    if hub is None or hub.list(SERVICES):
        return set()  # proxies in a cluster have a network of their own
    return {int(port.get("port", 0)) for lb in hub.list(TCP_LOAD_BALANCERS) for port in items(spec(lb).get("ports"))}
