"""Checks that the installation is complete, of one version, has its rights, and exists once.

In: facts. Out: findings about kinds, rights, versions and second installations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fairlead.api.crd_fields import fields_of
from fairlead.api.heartbeat import ANNOTATION_MEMBER_UID, ANNOTATION_VERSION
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import CRDS, DEPLOYMENTS, LEASES, NAMESPACES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.names import (
    AGENT_LEADER_LEASE,
    AGENT_LEASE,
    DEFAULT_CLASS,
    GROUP,
    HUB_LEASE,
    PROXIES_NAMESPACE,
    SYSTEM_NAMESPACE,
)
from fairlead.doctor.facts import ApiFacts, Denied, Facts
from fairlead.doctor.finding import Finding, error, warning
from fairlead.doctor.reading import annotation, items, label, mapping, meta, name_of, path_of, spec, status

_APPLY_KINDS = "fairlead crds | kubectl apply --server-side --force-conflicts -f -"
_NAMES = ("fairlead-hub", "fairlead-agent")


def kinds_missing(facts: Facts) -> Iterator[Finding]:
    """Name the kinds of ours that the hub does not serve."""
    if (hub := facts.hub_read) is None:
        return
    if not hub.served:
        fault = f"no kind of {GROUP} is served there: no hub has run at {hub.server}, or it is a member"
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
            fault = f"it is of another version than this program ({facts.version}): {differs}"
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
                fault = f"{name} is installed {len(where)} times: {there}; each would write what the other one writes"
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
            fault = f"its agent is version {version}, this program is {facts.version}"
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
            yield warning(path, f"its image {image} is not of version {facts.version}", fix)


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
    served = {name_of(each) for each in hub.list(LOAD_BALANCER_CLASSES) if spec(each).get("provider") == DEFAULT_CLASS}
    waiting = [lb for lb in hub.list(LOAD_BALANCERS) if (spec(lb).get("className") or DEFAULT_CLASS) in served]
    if waiting:
        fault = (
            f"it is not there, and the Envoys of {len(waiting)} load balancers of Clusters would run in it "
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
    arguments = " ".join(str(each) for container in containers for each in items(container.get("args")))
    return any(flag in arguments for flag in ("--envoy=deployment", "--envoy deployment"))
