"""The time at which a certificate is renewed.

In: its life, its name, and the window that the authority suggests (RFC 9773), if it does. Out: a moment. Pure: the
same certificate has the same moment on every replica and after every restart.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.names import short_hash
from fairlead.api.times import parsed_time
from fairlead.runtime.queue import doubled_s

#: The part of the life after which the next one is ordered.
_DUE = 2 / 3
#: At most this part of the life earlier, so that a thousand issued in one hour are not renewed in one hour.
_JITTER = 1 / 20
#: The part of the life that must have passed since a certificate was received before the next one is ordered.
_LEAST = 1 / 3
#: Clocks may differ so much.
_TOLERANCE = timedelta(minutes=5)


class Window(msgspec.Struct, frozen=True):
    """The window in which the authority suggests to order the next one."""

    start: datetime
    end: datetime


def renewal_time(
    not_before: datetime,
    not_after: datetime,
    *,
    identity: tuple[str, ...],
    window: Window | None = None,
    issued: datetime | None = None,
) -> datetime:
    """Return when the next certificate is ordered; ``identity`` spreads those that were issued together.

    The authority's window counts only if it begins before the certificate ends: it asks to be earlier, or when to come,
    and cannot make us come too late. ``issued`` is when the hub received the certificate: the next one is never ordered
    before a third of the life has passed since then, whatever the hub's clock or the window say.
    """
    spread = fraction(*identity)
    lifetime = not_after - not_before
    if window is not None and window.start <= window.end and window.start < not_after:
        chosen = window.start + (window.end - window.start) * spread
        due = min(chosen, not_after - lifetime * _JITTER)
    else:
        due = not_before + lifetime * (_DUE - _JITTER * spread)
    return due if issued is None else max(due, issued + lifetime * _LEAST)


def next_renewal(obj: ManagedCertificate, now: datetime) -> datetime | None:
    """Return when the certificate that is there is renewed, None when that is not known.

    A certificate that was received after ``now`` was received while the hub's clock was ahead: its own times count.
    """
    status = obj.status
    renew_at, issued_at, not_before, not_after = map(
        parsed_time, (status.renew_at, status.issued_at, status.not_before, status.not_after)
    )
    if renew_at is None or issued_at is None or not_before is None or not_after is None or issued_at <= now:
        return renew_at
    return min(renew_at, renewal_time(not_before, not_after, identity=obj.key))


def skew_text(not_before: datetime, not_after: datetime, now: datetime) -> str:
    """Return how far the clocks of hub and authority are apart when a certificate is received; empty if not much."""
    lifetime, ahead = not_after - not_before, now - not_before
    if ahead > lifetime * _LEAST:
        text = f"began {_duration(ahead)} before it was received"
    elif ahead < -_TOLERANCE:
        text = f"begins {_duration(-ahead)} after it was received"
    else:
        return ""
    return (
        f"the certificate {text}, by the hub's clock: set it by NTP if it is wrong. The next certificate is ordered "
        "after a third of the life of this one at the earliest"
    )


def _duration(time: timedelta) -> str:
    return f"{time.days} days" if time.days else f"{time.total_seconds() / 3600:.1f} hours"


def fraction(*identity: str) -> float:
    """Return a number from 0 to 1 that is the same for the same identity, and spread evenly."""
    return int(short_hash(*identity, size_bytes=6), 16) / 2**48


#: The first failure is often a name that does not resolve yet; authorities allow five failed validations an hour.
_BASE_S = 60.0
_LIMIT_S = 6 * 3600.0
#: What costs the authority nothing, such as looking whether it can be reached again, need not wait for hours.
_NOT_ORDERED_LIMIT_S = 900.0
#: An authority that refuses because of its limits is not asked again sooner, whatever it says.
_RATE_LIMITED_S = 3600.0
#: More than a week is a mistake of the server: a certificate may end meanwhile.
LONGEST_S = 7 * 24 * 3600.0
_BACKOFF_JITTER = 0.2


def retry_delay_s(
    failures: int,
    *,
    identity: tuple[str, ...],
    retry_after_s: float | None = None,
    rate_limited: bool = False,
    ordered: bool = True,
) -> float:
    """Return the seconds until the next order after the n-th failure in a row (from 1).

    It doubles from a minute to six hours, or to a quarter of an hour where nothing could be ``ordered``; a Retry-After
    of the authority is never undercut.
    """
    delay_s = doubled_s(failures, base_s=_BASE_S, limit_s=_LIMIT_S if ordered else _NOT_ORDERED_LIMIT_S)
    if rate_limited and retry_after_s is None:
        delay_s = max(delay_s, _RATE_LIMITED_S)
    delay_s *= 1 + _BACKOFF_JITTER * fraction(*identity, str(failures))
    return min(max(delay_s, retry_after_s or 0.0), LONGEST_S)
