"""Finalizers: an object stays until what was made for it is gone.

In: an object as it was read, and the name of a finalizer. Out: the object as the server has it afterwards.
Never: writes when the object is as it should be, or replaces what changed since it was read: the patch carries the
object's resourceVersion, so that a finalizer that another controller has added meanwhile is kept.
Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/
"""

from __future__ import annotations

from typing import TypeVar

from fairlead.api.meta import JSONObject, KubeObject, Resource
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster

T = TypeVar("T", bound=KubeObject)


async def hold(cluster: Cluster, resource: Resource[T], obj: T, finalizer: str, *, manager: str) -> T:
    """Add ``finalizer`` to ``obj``, as its last one; return the object with it.

    Raises:
        Conflict: the object has changed since it was read.
        NotFound: it is gone.
    """
    if obj.held_by(finalizer):
        return obj
    return await _write(cluster, resource, obj, [*(obj.metadata.finalizers or ()), finalizer], manager=manager)


async def release(cluster: Cluster, resource: Resource[T], obj: T, finalizer: str, *, manager: str) -> T:
    """Remove ``finalizer`` from ``obj``; return the object without it, or ``obj`` when it is gone already.

    Raises:
        Conflict: the object has changed since it was read.
    """
    if not obj.held_by(finalizer):
        return obj
    others = [name for name in obj.metadata.finalizers or () if name != finalizer]
    try:
        return await _write(cluster, resource, obj, others, manager=manager)
    except NotFound:
        return obj


async def _write(cluster: Cluster, resource: Resource[T], obj: T, finalizers: list[str], *, manager: str) -> T:
    meta = obj.metadata
    patch: JSONObject = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}}
    return await cluster.merge_patch(resource, meta.namespace, meta.name, patch, manager=manager)
