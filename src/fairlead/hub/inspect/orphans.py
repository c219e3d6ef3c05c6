"""Orphans: records without a load balancer, and entries of ours without a record; and their removal.

    a record whose load balancer is gone      the record is deleted
    an entry of ours without a record         a record is created as deregistering, and deleted

The leading hub then deregisters the backend, as for any deleted record, so each load balancer has one writer.
In: a preview. Out: orphans, and one sentence for each removal. Never: a call of a provider, a change of foreign
entries, or a deletion of an orphan that has an owner since the preview.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from fairlead.api.backendgroup import BACKEND_RECORDS, BackendRecord
from fairlead.api.meta import JSONObject
from fairlead.api.names import FINALIZER_DEREGISTER, LABEL_LOAD_BALANCER, LABEL_MANAGED_BY, MANAGED_BY, label_value
from fairlead.api.times import wire_time
from fairlead.errors import AlreadyExists, NotFound
from fairlead.hub.inspect.preview import Previewed
from fairlead.kube.cluster import Cluster
from fairlead.ledger.records import listener_of, record_name, record_spec, target_of
from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.desired import Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.runtime.clock import SystemClock


class OrphanKind(StrEnum):
    """The kinds of orphans: a record, or an entry."""

    RECORD = "Record"
    ENTRY = "Entry"


class Orphan(msgspec.Struct, frozen=True):
    """One backend without an owner. ``leaving``: its record is being deleted already."""

    kind: OrphanKind
    load_balancer: LoadBalancerKey
    listener: ListenerKey
    target: TargetKey
    record: tuple[str, str]
    uid: str = ""
    leaving: bool = False


def orphans_of(preview: Previewed) -> list[Orphan]:
    """Return the orphans of one load balancer, records first."""
    records = [_of_record(preview, record) for record in preview.records] if preview.gone else []
    return records + [
        Orphan(
            OrphanKind.ENTRY,
            preview.key,
            listener,
            key,
            (preview.key.namespace, record_name(preview.key, listener, key)),
        )
        for listener, key in preview.drift.unrecorded
    ]


async def remove_orphan(cluster: Cluster, preview: Previewed, orphan: Orphan) -> str:
    """Have one orphan removed; return in one sentence what was done."""
    if orphan.leaving:
        return "already being deleted"
    uid = orphan.uid if orphan.kind is OrphanKind.RECORD else await _put_on_record(cluster, preview, orphan)
    if not uid:
        return "kept: it has a record now"
    try:
        await cluster.delete(BACKEND_RECORDS, *orphan.record, uid=uid)
    except NotFound:
        return "already gone"
    when = f"once {' and '.join(preview.paused)} is resumed" if preview.paused else "now"
    return f"deleted: the hub deregisters it {when}"


def _of_record(preview: Previewed, record: BackendRecord) -> Orphan:
    place = (listener_of(record), target_of(record).key)
    return Orphan(OrphanKind.RECORD, preview.key, *place, record.key, record.metadata.uid, record.deleting)


async def _put_on_record(cluster: Cluster, preview: Previewed, orphan: Orphan) -> str:
    """Create the missing record; its name ensures that there is no other."""
    spec = preview.side.recorded_spec or (preview.side.desired.spec if preview.side.desired is not None else None)
    if spec is None:
        return ""
    change = TargetChange(preview.key, orphan.listener, Target(orphan.target), Action.DEREGISTER, Reason.DEREGISTERING)
    namespace, name = orphan.record
    body: JSONObject = {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_LOAD_BALANCER: label_value(preview.key.name)},
            "finalizers": [FINALIZER_DEREGISTER],
        },
        "spec": msgspec.to_builtins(record_spec(spec, change, provider=preview.provider, info=preview.info, epoch=0)),
        "status": {
            "state": "Deregistering",
            "reason": Reason.DEREGISTERING.value,
            "message": "found by fairlead gc: an entry of ours without a record",
            "since": wire_time(SystemClock().now()),
        },
    }
    try:
        created: BackendRecord = await cluster.create(BACKEND_RECORDS, body)
    except AlreadyExists:
        return ""
    return created.metadata.uid
