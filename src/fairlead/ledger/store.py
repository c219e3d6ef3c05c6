"""The few calls of a Kubernetes API that a ledger makes; a ``Cluster`` has them all."""

from __future__ import annotations

from typing import Any, Protocol

from fairlead.api.meta import JSONObject, Resource


class Store(Protocol):
    """Where records are: optimistic writes by resourceVersion, finalizers, deletion in two steps."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Any:
        """Return one object; ``NotFound`` when there is none."""
        ...

    async def create(self, resource: Resource, obj: JSONObject) -> Any:
        """Create an object; ``AlreadyExists`` when there is one of that name."""
        ...

    async def merge_patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JSONObject,
        *,
        subresource: str = "",
        manager: str = "",
    ) -> Any:
        """Change some fields; ``Conflict`` when ``metadata.resourceVersion`` is given and not the current one."""
        ...

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", resource_version: str = ""
    ) -> bool:
        """Delete an object, at least by asking for it; False when it was gone already."""
        ...
