"""The record that a member's load balancer needs before it is used: finalizer, allocation, accepted spec.

When the hub dies after this write and before the provider's answer, the next leader finds the same address, the same
ports and the same last good configuration. The record has a field manager of its own, so that a status written from
an older view of the object cannot remove it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.api.intent import Allocation
from fairlead.api.meta import JSONObject, Resource
from fairlead.api.names import FINALIZER_CLEANUP, MANAGER_HUB, MANAGER_LEDGER, MANAGER_RECORD
from fairlead.api.provisioned import Provisioned
from fairlead.kube.cluster import Cluster
from fairlead.kube.finalizers import hold
from fairlead.kube.leadership import check_leads
from fairlead.kube.status import write_status
from fairlead.ledger.frontends import ledger_manager
from fairlead.translate.view import Translation


class AcceptedStatus:
    """Writes the record of one object of ``resource``, whose status has ``accepted``, when it differs."""

    def __init__(self, cluster: Cluster, resource: Resource[Any], leading: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._leading = leading
        self._resource = resource
        self._status: Any = type(resource.type().status)

    async def accept(self, obj: Any, translation: Translation, allocation: Allocation) -> None:
        """Record the present spec as accepted; one write for each part that differs, none when nothing does."""
        if translation.desired is None:
            return
        await hold(self._cluster, self._resource, obj, FINALIZER_CLEANUP, manager=MANAGER_HUB)
        if not translation.serving_last_accepted:
            await self._apply(obj, self._record(allocation, obj.spec, translation.provider))

    async def allocate(self, obj: Any, allocation: Allocation) -> None:
        """Record what the next provider is given; the accepted spec and the serving provider stay as they are."""
        status = obj.status
        allocation = status.allocation if allocation == Allocation() else allocation
        await self._apply(obj, self._record(allocation, status.accepted, status.serving_provider))

    async def forget_frontend(self, obj: Any, provider: str) -> None:
        """Remove the entry of ``provider`` from the record: it has released all that it had."""
        meta = obj.metadata
        if old := obj.status.old_places(provider):
            patch: JSONObject = {"metadata": {"uid": meta.uid}, "status": old}
            await self._cluster.merge_patch(
                self._resource, meta.namespace, meta.name, patch, subresource="status", manager=MANAGER_LEDGER
            )
        about: JSONObject = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        body: JSONObject = {"metadata": about, "status": {}}
        await self._cluster.apply(self._resource, body, manager=ledger_manager(provider), subresource="status")

    async def _apply(self, obj: Any, record: Any) -> None:
        known = obj.status
        old = self._record(known.allocation, known.accepted, known.recorded_serving_provider)
        # The view may be older than the term, after a suspension or a slow write before this one.
        check_leads(self._leading, f"{self._resource.kind} {obj.key}")
        await write_status(self._cluster, self._resource, obj, old, record, manager=MANAGER_RECORD)

    def _record(self, allocation: Allocation, accepted: Any, serving: str) -> Any:
        entries = [Provisioned(serving, serving=True)] if serving else None
        return self._status(provisioned=entries, allocation=allocation, accepted=accepted)
