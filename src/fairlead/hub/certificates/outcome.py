"""The status of a ManagedCertificate after each outcome of an order.

    ordered     state Ordering; what users read stays while a failed order is repeated: one failure, one Event
    issued      state Issued, Ready
    failed      state Failing; Ready as long as the last good certificate lasts, and then Stale says why it is old
    refused     state Pending, or Issued while a certificate is there, with the reason

In: the status before, what happened, the time. Out: the next status. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from fairlead.api.conditions import wire_conditions
from fairlead.api.managedcertificate import CertificateOrder, ManagedCertificate, ManagedCertificateStatus
from fairlead.api.times import parsed_time, wire_time
from fairlead.hub.certificates.keys import CertificateFacts
from fairlead.hub.certificates.order import shown
from fairlead.hub.certificates.renewal import skew_text
from fairlead.model.condition import Condition, ConditionReason, ConditionType


def ordered(
    obj: ManagedCertificate, order: CertificateOrder | None, now: datetime, waits: str = ""
) -> ManagedCertificateStatus:
    """Return the status while an order is under way; ``waits`` says what for."""
    status = msgspec.structs.replace(obj.status, order=order, state="Ordering", next_try="")
    if obj.status.failures or not _has_no_certificate(obj, now):
        return _observed(obj, status)
    text = f"{shown(obj.spec.hosts)} is ordered; {waits or 'the authority is validating it'}"
    return _with(obj, status, now, [_ready(False, ConditionReason.PENDING, text)])


def issued(
    obj: ManagedCertificate, facts: CertificateFacts, digest: str, renew_at: datetime, now: datetime
) -> ManagedCertificateStatus:
    """Return the status once a certificate is in its Secret."""
    status = msgspec.structs.replace(
        obj.status,
        state="Issued",
        digest=digest,
        issued_by=obj.spec.issuer,
        issued_for=tuple(sorted(obj.spec.hosts)),
        serial=facts.serial,
        not_before=wire_time(facts.not_before),
        not_after=wire_time(facts.not_after),
        renew_at=wire_time(renew_at),
        issued_at=wire_time(now),
        failures=0,
        next_try="",
        tried_with="",
        order=None,
    )
    conditions = [_ready(True, ConditionReason.ISSUED, f"it ends at {wire_time(facts.not_after)}")]
    if skew := skew_text(facts.not_before, facts.not_after, now):
        conditions.append(Condition(ConditionType.CLOCK_SKEWED, True, ConditionReason.CLOCK_SKEW, skew))
    return _with(obj, status, now, conditions)


def failed(
    obj: ManagedCertificate,
    reason: ConditionReason,
    sentence: str,
    *,
    delay_s: float,
    now: datetime,
    keep_order: bool,
    failures: int,
    tried_with: str,
) -> ManagedCertificateStatus:
    """Return the status after an order has failed, or could not be made; the next one is tried in ``delay_s``.

    ``failures``: how often in a row with what ``tried_with`` names.
    """
    status = msgspec.structs.replace(
        obj.status,
        state="Failing",
        failures=failures,
        tried_with=tried_with,
        next_try=wire_time(now + timedelta(seconds=delay_s)),
        order=obj.status.order if keep_order else None,
    )
    if _has_no_certificate(obj, now):
        return _with(obj, status, now, [_ready(False, reason, sentence)])
    ready = _ready(True, ConditionReason.ISSUED, f"it ends at {obj.status.not_after}")
    return _with(obj, status, now, [ready, Condition(ConditionType.STALE, True, reason, sentence)])


def without_certificate(obj: ManagedCertificate) -> ManagedCertificate:
    """Return a certificate whose Secret holds that of another object."""
    return msgspec.structs.replace(obj, status=msgspec.structs.replace(obj.status, digest=""))


def refused(obj: ManagedCertificate, condition: Condition, now: datetime) -> ManagedCertificateStatus:
    """Return the status of one that may not be ordered; a certificate that is there is served on."""
    if _has_no_certificate(obj, now):
        return _with(obj, msgspec.structs.replace(obj.status, state="Pending", order=None), now, [condition])
    ready = _ready(True, ConditionReason.ISSUED, f"it ends at {obj.status.not_after}")
    stale = msgspec.structs.replace(condition, type=ConditionType.STALE, status=True)
    return _with(obj, msgspec.structs.replace(obj.status, order=None), now, [ready, stale])


def _has_no_certificate(obj: ManagedCertificate, now: datetime) -> bool:
    ends = parsed_time(obj.status.not_after)
    return not obj.status.digest or ends is None or ends <= now


def _ready(status: bool, reason: ConditionReason, message: str) -> Condition:
    return Condition(ConditionType.READY, status, reason, message)


def _observed(obj: ManagedCertificate, status: ManagedCertificateStatus) -> ManagedCertificateStatus:
    return msgspec.structs.replace(status, observed_generation=obj.metadata.generation)


def _with(
    obj: ManagedCertificate, status: ManagedCertificateStatus, now: datetime, conditions: Sequence[Condition]
) -> ManagedCertificateStatus:
    generation = obj.metadata.generation
    made = wire_conditions(conditions, obj.status.conditions, generation=generation, now=wire_time(now))
    return _observed(obj, msgspec.structs.replace(status, conditions=made))
