"""The kinds that an API serves and how their objects are addressed, from its discovery, which needs no right.

In: a cluster, a group. Out: versions, kinds, resources. Never: takes what cannot be read for a kind that is not served.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#discovery-api
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from fairlead.api.json_text import decode
from fairlead.api.meta import KubeObject, Resource, Wire
from fairlead.errors import NotServed, Retry
from fairlead.kube.cluster import Cluster

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


class _Groups(Wire, frozen=True, gc=False):
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
    return sorted((each.version for each in served.versions or ()), key=_age)


async def served_kinds(cluster: Cluster, group: str, version: str) -> list[ServedKind]:
    """Return the kinds of a version of a group, with their subresources; none when it is not served.

    Raises:
        FairleadError: the API does not answer, or as no API server does.
    """
    try:
        return (await _read(cluster, f"/apis/{group}/{version}", _Kinds)).resources or []
    except NotServed as error:
        if version not in {each.version for each in (await _listed(cluster, group)).versions or ()}:
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
        groups = (await _read(cluster, "/apis", _Groups)).groups
    except NotServed as error:
        raise _unreadable(cluster, "/apis", error.sentence) from error
    return next((each for each in groups if each.name == group), _Group(group))


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
