"""The time at which a certificate is renewed.

In: its life, its name, and the window that the authority suggests (RFC 9773), if it does. Out: a moment. Pure: the
same certificate has the same moment on every replica and after every restart.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from fairlead.api.naming import short_hash

#: The part of the life after which the next one is ordered.
_DUE = 2 / 3
#: At most this part of the life earlier, so that a thousand issued in one hour are not renewed in one hour.
_JITTER = 1 / 20


class Window(msgspec.Struct, frozen=True):
    """The window in which the authority suggests to order the next one."""

    start: datetime
    end: datetime


def renewal_time(
    not_before: datetime, not_after: datetime, *, identity: tuple[str, ...], window: Window | None = None
) -> datetime:
    """Return when the next certificate is ordered; ``identity`` spreads those that were issued together.

    The authority's window counts only if it begins before the certificate ends: it asks to be earlier, or when to come,
    and cannot make us come too late.
    """
    spread = fraction(*identity)
    lifetime = not_after - not_before
    if window is not None and window.start <= window.end and window.start < not_after:
        chosen = window.start + (window.end - window.start) * spread
        return min(chosen, not_after - lifetime * _JITTER)
    return not_before + lifetime * (_DUE - _JITTER * spread)


def fraction(*identity: str) -> float:
    """Return a number from 0 to 1 that is the same for the same identity, and spread evenly."""
    return int(short_hash(*identity, size_bytes=6), 16) / 2**48
