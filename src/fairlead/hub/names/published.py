"""The reasons for which records of a name cannot be written, and when the objects that claim it report them.

    no DNSZone holds the host         nothing: this hub does not publish it
    not published for SHOWN_AFTER_S    the reason of its Hostname, as one word
    for less                          nothing yet: servers are restarted

In: a Hostname, the time. Out: the reason, and in how many seconds it may be shown. Pure.
"""

from __future__ import annotations

from datetime import datetime

from fairlead.api.hostname import Hostname
from fairlead.api.meta import WireCondition
from fairlead.api.times import parsed_time
from fairlead.model.condition import ConditionReason, ConditionType

#: For how long records may be missing before users read of it, in seconds.
SHOWN_AFTER_S = 30.0
_TYPES = (ConditionType.ACCEPTED, ConditionType.RESOLVED_REFS, ConditionType.PROGRAMMED)


def why_unpublished(obj: Hostname | None, now: datetime) -> tuple[str, float]:
    """Return the reason why a name is not published, empty when it is, and seconds until that may be shown."""
    bad = problem(obj)
    if bad is None:
        return "", 0.0
    age_s = (now - (parsed_time(bad.last_transition_time) or now)).total_seconds()
    return (bad.reason, 0.0) if age_s >= SHOWN_AFTER_S else ("", SHOWN_AFTER_S - age_s)


def problem(obj: Hostname | None) -> WireCondition | None:
    """Return the first condition of a name that says why it is not published; None where no zone is to have it."""
    conditions = (obj.status.conditions or ()) if obj is not None and not obj.deleting else ()
    if any(each.reason == ConditionReason.NO_SUCH_ZONE for each in conditions):
        return None
    bad = {each.type: each for each in conditions if each.type in _TYPES and each.status == "False"}
    return next((bad[kind] for kind in _TYPES if kind in bad), None)
