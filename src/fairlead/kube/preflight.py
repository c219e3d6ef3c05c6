"""Check rights and CustomResourceDefinitions before anything is started.

In: what will be needed. Out: sentences about what is missing; none means that all is well.
Never: changes anything but our own CustomResourceDefinitions.
Source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from fairlead.api.crd_fields import is_within, newer_fields
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import CRDS, NAMESPACES
from fairlead.api.meta import AnyResource, JSONObject, KubeObject
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.errors import AlreadyExists, BadConfiguration, FairleadError, Forbidden, NotFound, Retry
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import served_kinds
from fairlead.kube.failures import forbidden_sentence

log = structlog.get_logger(__name__)

_ESTABLISHED_S = 30.0
_LOOK_S = 0.25
#: So many questions about rights are under way at once.
_AT_ONCE = 4

#: Plurals that discovery has shown, by group and version.
_Served = dict[tuple[str, str], set[str]]


@dataclass(frozen=True)
class AccessNeed:
    """One right; an empty namespace, or name, means all of them."""

    verb: str
    resource: AnyResource
    namespace: str = ""
    subresource: str = ""
    name: str = ""


async def check_access(cluster: Cluster, needs: Sequence[AccessNeed]) -> list[str]:
    """Return one sentence for each resource on which rights are missing, in the order of ``needs``.

    Raises:
        FairleadError: the server cannot be asked.
    """
    # A few at once: each takes a connection of its own, and hundreds of agents may come at the same moment.
    slots = asyncio.Semaphore(_AT_ONCE)

    async def is_allowed(need: AccessNeed) -> bool:
        async with slots:
            return await _allowed(cluster, need)

    allowed = await asyncio.gather(*map(is_allowed, needs))
    missing: dict[tuple[AnyResource, str, str, str], list[str]] = {}
    for need, yes in zip(needs, allowed, strict=True):
        if not yes:
            missing.setdefault((need.resource, need.namespace, need.name, need.subresource), []).append(need.verb)
    return [
        forbidden_sentence(cluster.call_for(verbs[0], resource, namespace, name, subresource), verbs=verbs)
        for (resource, namespace, name, subresource), verbs in missing.items()
    ]


async def _allowed(cluster: Cluster, need: AccessNeed) -> bool:
    return await cluster.can_i(
        need.verb,
        need.resource.group,
        need.resource.plural,
        need.namespace if need.resource.namespaced else "",
        need.name,
        need.subresource,
    )


async def install_crds(
    cluster: Cluster, crds: Sequence[JSONObject], manager: str, *, timeout_s: float = _ESTABLISHED_S
) -> list[str]:
    """Apply the definitions and wait until they are served; return a sentence for each that is not.

    One that is as ours stays as it is, also where another tool has installed it. One that has all fields of ours and
    more is of a newer version and stays too: with two versions at once, as in a rolling upgrade, what the newer one
    writes would be dropped in silence.
    Without the right to install them it is enough that they are there and serve the version.

    Raises:
        Retry: the server does not take writes now.
        FairleadError: the server cannot be asked.
    """
    problems: list[str] = []
    served: _Served = {}
    for crd in crds:
        try:
            present = await _definition(cluster, crd)
            if present and (newer := newer_fields(crd, present)) and not await _missing(cluster, crd, served):
                log.warning(
                    "this CRD was installed by a newer version: it stays as it is, and its new fields are not used",
                    kind=crd["metadata"]["name"],
                    fields=newer[:3],
                    cluster=cluster.name,
                )
                continue
            if not is_within(crd, present):
                await cluster.apply(CRDS, crd, manager=manager)
            elif not await _missing(cluster, crd, served):
                continue
        except Forbidden as error:
            missing = await _missing(cluster, crd, served)
            problems.extend(f"{sentence} {error.sentence}" for sentence in missing)
            continue
        except Retry:
            raise
        except FairleadError as error:
            problems.append(error.sentence)
            continue
        problem = await _wait_until_served(cluster, crd, served, timeout_s)
        if problem:
            problems.append(problem)
    return problems


async def _definition(cluster: Cluster, crd: JSONObject) -> JSONObject:
    """Return the definition of that name at the cluster; empty when there is none, or none that we may read."""
    try:
        return await cluster.raw_as("GET", CRDS.path("", str(crd["metadata"]["name"])), JSONObject)
    except (NotFound, Forbidden):
        return {}


async def _wait_until_served(cluster: Cluster, crd: JSONObject, served: _Served, timeout_s: float) -> str:
    name = str(crd["metadata"]["name"])
    end_s = cluster.clock.monotonic() + timeout_s
    while True:
        crd_there = await cluster.get(CRDS, "", name)
        conditions = {condition.type: condition for condition in crd_there.status.conditions or ()}
        names = conditions.get("NamesAccepted")
        if names and names.status == "False":
            return f"The CustomResourceDefinition {name} clashes with another one at {cluster.name}: {names.message}."
        established = conditions.get("Established")
        # Established comes a moment before the API is really served, so discovery decides.
        if established and established.status == "True":
            try:
                if not await _missing(cluster, crd, served):
                    return ""
            except Retry as error:
                log.debug("discovery is not ready yet", sentence=error.sentence)
        if cluster.clock.monotonic() >= end_s:
            why = established.message if established and established.message else "no reason given"
            return f"The CustomResourceDefinition {name} is not served by {cluster.name} after {timeout_s:g} s: {why}."
        await cluster.clock.sleep(_LOOK_S)


async def _missing(cluster: Cluster, crd: JSONObject, served: _Served) -> list[str]:
    """Return a sentence for each version that the server should serve and does not, by discovery."""
    spec: JSONObject = crd["spec"]
    plural, group = str(spec["names"]["plural"]), str(spec["group"])
    missing: list[str] = []
    for version in (str(each["name"]) for each in spec["versions"] if each.get("served", True)):
        if plural not in served.get((group, version), ()):
            served[group, version] = {each.name for each in await served_kinds(cluster, group, version)}
        if plural not in served[group, version]:
            missing.append(
                f"{cluster.name} does not serve {plural}.{group} in version {version}, and we may not install it:"
                f" have an administrator apply the CustomResourceDefinitions (`fairlead crds | kubectl apply -f -`)."
            )
    return missing


async def ensure_own_kinds(cluster: Cluster, *, component: str, manager: str) -> None:
    """Install all kinds of ours, and make our namespace; ``component`` is the subject of the error, such as "Regions".

    Raises:
        BadConfiguration: a kind is missing, and it may not be installed.
    """
    if problems := await install_crds(cluster, all_crds(), manager):
        raise BadConfiguration(f"{component} cannot start. {' '.join(problems)}")
    # Where that is not allowed, the operator who gave us our rights has made it.
    with suppress(AlreadyExists, Forbidden):
        await cluster.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})


async def read_cluster_uid(cluster: Cluster) -> str:
    """Return the uid of the namespace kube-system, which identifies a cluster; empty without that namespace.

    Raises:
        FairleadError: it cannot be read.
    """
    try:
        namespace: KubeObject = await cluster.get(NAMESPACES, "", "kube-system")
    except NotFound:
        return ""
    return namespace.metadata.uid
