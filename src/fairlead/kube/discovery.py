"""The kinds that an API serves, caches that follow them, and the checks of a cluster before a process starts.

In: a cluster, a group. Out: served versions and kinds; caches of them; errors that name a missing right.
Never: takes a kind that cannot be read for a kind that is not served.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#discovery-api
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import structlog

from fairlead.api.crd import is_within, newer_fields
from fairlead.api.json_text import decode
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import CRDS, NAMESPACES
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, Resource, Wire
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.errors import AlreadyExists, BadConfiguration, FairleadError, Forbidden, NotFound, NotServed, Retry
from fairlead.kube.cache import EventReader, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.transport import forbidden_sentence
from fairlead.runtime.background import keep
from fairlead.runtime.clock import wait_for

T = TypeVar("T", bound=KubeObject)
W = TypeVar("W", bound=Wire)


class ServedKind(Wire, frozen=True, gc=False):
    """One entry of a group version's discovery: a kind, or a subresource of one (with a slash in its name)."""

    name: str = ""
    kind: str = ""


class _Kinds(Wire, frozen=True, gc=False):
    resources: list[ServedKind] | None = None


class _Version(Wire, frozen=True, gc=False):
    version: str = ""


class _Group(Wire, frozen=True, gc=False):
    name: str = ""
    versions: list[_Version] | None = None


class _ApiGroups(Wire, frozen=True, gc=False):
    groups: list[_Group]


async def served_versions(cluster: Cluster, group: str) -> list[str]:
    """Return the versions of a group, those first that Kubernetes prefers; none when it is not served.

    Raises:
        FairleadError: the API does not answer, or as no API server does.
    """
    try:
        served = await _read(cluster, f"/apis/{group}", _Group)
    except NotServed:
        served = await _listed(cluster, group)
    return sorted((version.version for version in served.versions or ()), key=_age)


async def served_kinds(cluster: Cluster, group: str, version: str) -> list[ServedKind]:
    """Return the kinds of a version of a group, with their subresources; none when it is not served.

    Raises:
        FairleadError: the API does not answer, or as no API server does.
    """
    try:
        return (await _read(cluster, f"/apis/{group}/{version}", _Kinds)).resources or []
    except NotServed as error:
        if version not in {served_version.version for served_version in (await _listed(cluster, group)).versions or ()}:
            return []
        raise _unreadable(cluster, f"/apis/{group}/{version}", error.sentence) from error


async def find_kind(cluster: Cluster, group: str, kind: str, type_: type[T]) -> Resource[T] | None:
    """Return how objects of a namespaced kind are addressed, by the version that Kubernetes prefers; None: not served.

    Raises:
        FairleadError: the API does not answer, or as no API server does.
    """
    for version in await served_versions(cluster, group):
        for row in await served_kinds(cluster, group, version):
            if row.kind == kind and "/" not in row.name:
                return Resource(group, version, kind, row.name, True, type_)
    return None


async def _listed(cluster: Cluster, group: str) -> _Group:
    """Return a group as the list of all groups has it, without versions when it is not in that list.

    Any server that is not an API server answers 404, too; only the list shows that a group is not served.
    """
    try:
        groups = (await _read(cluster, "/apis", _ApiGroups)).groups
    except NotServed as error:
        raise _unreadable(cluster, "/apis", error.sentence) from error
    return next((api_group for api_group in groups if api_group.name == group), _Group(group))


async def _read(cluster: Cluster, path: str, type_: type[W]) -> W:
    try:
        return decode(await cluster.raw("GET", path), type_)
    except msgspec.DecodeError as error:
        raise _unreadable(cluster, path, str(error)) from error


def _unreadable(cluster: Cluster, path: str, problem: str) -> Retry:
    return Retry(
        f"The discovery of {cluster.name} at {path} cannot be read: {problem}. It is asked again; see what answers "
        f"there (kubectl get --raw {path})",
        reason="DiscoveryUnreadable",
    )


def _age(version: str) -> tuple[int, int, int]:
    """Return a key that sorts versions as Kubernetes does: v2, v1, v2beta1, v1beta2, v1beta1, v1alpha1."""
    parts = re.fullmatch(r"v(\d{1,9})(?:(alpha|beta)(\d{1,9}))?", version)
    if parts is None:
        return (3, 0, 0)
    return ({None: 0, "beta": 1, "alpha": 2}[parts[2]], -int(parts[1]), -int(parts[3] or 0))


#: The interval of discovery requests, in seconds: the initial one, which grows with each answer that shows nothing new.
LOOK_S = 3.0
_SLOWDOWN, _SLOWEST = 1.25, 5.0


class OptionalCache(WatchCache[T]):
    """A cache of a kind that the API may not serve; while it does not, what was read last stays."""

    def __init__(self, cluster: Cluster, resource: Resource[T], **options: Any) -> None:
        super().__init__(cluster, resource, **options)
        self._transform = options.get("transform")
        self.served = False
        #: Called when the API answers that it does not serve the kind.
        self.on_not_served: Callable[[], None] = lambda: None
        self._switched = asyncio.Event()

    def serve(self, version: str) -> None:
        """Set the version in which the kind is served; empty: not served."""
        if self.served == bool(version) and version in {"", self.resource.version}:
            return
        self.served = bool(version)
        if version and version != self.resource.version:
            self.resource = msgspec.structs.replace(self.resource, version=version)
            self._reader = EventReader(self.cluster, self.resource, namespace=self.namespace, transform=self._transform)
        self._read_anew()
        self.problem = ""
        self._switched.set()

    @property
    def settled(self) -> bool:
        """Return whether the cache is complete: it is synced, or the kind is not served."""
        return self.synced or not self.served

    def _read_anew(self) -> None:
        """Have the next state read as a whole, and compared with what is held: a watch would show no deletion."""
        self._version, self._resumes = "", False

    def _report(self, error: FairleadError) -> None:
        if isinstance(error, NotServed):
            self.problem = error.sentence  # discovery is about to notice: no news for the log
            self.on_not_served()
        else:
            super()._report(error)

    async def run(self, *, end_when_restored: bool = False) -> None:
        """Keep the copy current while the kind is served, until cancelled.

        Raises:
            StateRestored: see ``WatchCache.run``.
        """
        while True:
            self._switched.clear()
            tasks: list[asyncio.Task[object]] = [asyncio.create_task(self._switched.wait())]
            if self.served:
                follow = super().run(end_when_restored=end_when_restored)
                tasks.append(asyncio.create_task(follow, name=f"follow-{self.resource.plural}"))
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            # The watch that has just ended may have taken a state after the switch.
            self._read_anew()


class Discovery:
    """Polls discovery for the kinds of one group.

    ``caches`` have their versions, the preferred one first. ``looked`` is called after each answer.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        caches: Mapping[OptionalCache[Any], Sequence[str]],
        *,
        looked: Callable[[], None] = lambda: None,
        look_s: float = LOOK_S,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._caches = caches
        self._looked = looked
        self._look_s = look_s
        self._look_now = asyncio.Event()
        for cache in caches:
            cache.on_not_served = self._look_now.set
        self.asked = False
        self.problem = ""
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.kube.discovery").bind(
            cluster=cluster.name, group=group
        )

    async def run(self) -> None:
        """Poll discovery until cancelled; a failure changes nothing."""
        await keep("discovery", self._run, clock=self._cluster.clock)

    async def _run(self) -> None:
        pause_s = self._look_s
        while True:
            self._look_now.clear()
            try:
                changed = await self.look()
                pause_s = self._look_s if changed else min(pause_s * _SLOWDOWN, self._look_s * _SLOWEST)
                self.problem = ""
            except FairleadError as error:
                if error.sentence != self.problem:
                    self._log.warning("discovery failed", sentence=error.sentence, detail=error.detail)
                self.problem = error.sentence
                pause_s = self._look_s
            if await wait_for(self._look_now, self._cluster.clock, pause_s):
                pause_s = self._look_s

    async def look(self) -> bool:
        """Poll discovery once; return whether a kind is served otherwise than before.

        Raises:
            FairleadError: the API does not answer.
        """
        wanted = {version for versions in self._caches.values() for version in versions}
        found_versions = {
            version: {served_kind.name for served_kind in await served_kinds(self._cluster, self._group, version)}
            for version in await served_versions(self._cluster, self._group)
            if version in wanted
        }
        changed = False
        for cache, versions in self._caches.items():
            plural = cache.resource.plural
            version = next((version for version in versions if plural in found_versions.get(version, ())), "")
            if cache.served != bool(version) or version not in {"", cache.resource.version}:
                changed = True
                self._log.info("served" if version else "not served", kind=cache.resource.full_name, version=version)
                if not version and len(cache):
                    self._log.warning("kind no longer served; keeping the objects that were read", held=len(cache))
            cache.serve(version)
        self.asked = True
        self._looked()
        return changed


log = structlog.get_logger(__name__)

_ESTABLISHED_S = 30.0
_LOOK_S = 0.25
#: The number of concurrent access reviews.
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
    for version in (str(crd_version["name"]) for crd_version in spec["versions"] if crd_version.get("served", True)):
        if plural not in served.get((group, version), ()):
            served[group, version] = {served_kind.name for served_kind in await served_kinds(cluster, group, version)}
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
    # Where that is not allowed, the operator who granted our rights has created it.
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
