"""The few calls of a Kubernetes API that a ledger makes; a ``Cluster`` has them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from fairlead.api.meta import AnyResource, JSONObject, KubeObject, Resource

T = TypeVar("T", bound=KubeObject)


class RecordStore(Protocol):
    """The store of records: optimistic writes by resourceVersion, finalizers, deletion in two steps."""

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T:
        """Return one object; ``NotFound`` when there is none."""
        ...

    async def list(
        self, resource: Resource[T], namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Sequence[T]:
        """Return all objects that the selectors choose; an empty namespace is all of them."""
        ...

    async def create(self, resource: Resource[T], obj: JSONObject) -> T:
        """Create an object; ``AlreadyExists`` when there is one of that name."""
        ...

    async def apply(
        self, resource: Resource[T], obj: JSONObject, *, manager: str, force: bool = True, subresource: str = ""
    ) -> T:
        """Make the fields of ``manager`` be those of ``obj``, and no others; ``NotFound`` for a status of nothing."""
        ...

    async def merge_patch(
        self,
        resource: Resource[T],
        namespace: str,
        name: str,
        patch: JSONObject,
        *,
        subresource: str = "",
        manager: str = "",
    ) -> T:
        """Change some fields; ``Conflict`` when ``metadata.resourceVersion`` is given and not the current one."""
        ...

    async def delete(
        self, resource: AnyResource, namespace: str, name: str, *, uid: str = "", resource_version: str = ""
    ) -> bool:
        """Delete an object, at least by asking for it; False when it was gone already."""
        ...
