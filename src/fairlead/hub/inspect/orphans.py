"""Find what has no owner any more, in both directions, and have it removed.

    a record whose load balancer is gone      its deletion is asked for
    an entry of ours that no record knows     it is put on record as going, and that record's deletion asked for

Both ways the hub that leads does the rest as it always does, so there is still one writer for each load balancer.
In: what a preview found. Out: orphans, and one sentence for each that was asked to go. Never: a call of a provider, a
change of foreign entries, or a deletion of what has got an owner since the preview.
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
    """Have one orphan removed; returns what was done in one sentence."""
    if orphan.leaving:
        return "on its way out already"
    uid = orphan.uid if orphan.kind is OrphanKind.RECORD else await _put_on_record(cluster, preview, orphan)
    if not uid:
        return "left alone: it has got a record meanwhile"
    try:
        await cluster.delete(BACKEND_RECORDS, *orphan.record, uid=uid)
    except NotFound:
        return "gone already"
    when = f"once {' and '.join(preview.paused)} is resumed" if preview.paused else "now"
    return f"deleted: the hub deregisters it {when}"


def _of_record(preview: Previewed, record: BackendRecord) -> Orphan:
    place = (listener_of(record), target_of(record).key)
    return Orphan(OrphanKind.RECORD, preview.key, *place, record.key, record.metadata.uid, record.deleting)


async def _put_on_record(cluster: Cluster, preview: Previewed, orphan: Orphan) -> str:
    """Make the record that should have been there; its name makes sure that there is no other."""
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
            "message": "found by fairlead gc: ours, and on no record",
            "since": wire_time(SystemClock().now()),
        },
    }
    try:
        made: BackendRecord = await cluster.create(BACKEND_RECORDS, body)
    except AlreadyExists:
        return ""
    return made.metadata.uid
