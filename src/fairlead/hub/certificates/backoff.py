"""The delay before a failed order is tried again.

In: how often it failed in a row, what the authority asked for, and its name. Out: seconds. Pure.
"""

from __future__ import annotations

from fairlead.hub.certificates.renewal import fraction
from fairlead.runtime.queue import doubled_s

#: The first failure is often a name that does not resolve yet; authorities allow five failed validations an hour.
_BASE_S = 60.0
_LIMIT_S = 6 * 3600.0
#: What costs the authority nothing, such as looking whether it can be reached again, need not wait for hours.
_NOT_ORDERED_LIMIT_S = 900.0
#: An authority that refuses because of its limits is not asked again sooner, whatever it says.
_RATE_LIMITED_S = 3600.0
#: More than a week is a mistake of the server: a certificate may end meanwhile.
LONGEST_S = 7 * 24 * 3600.0
_JITTER = 0.2


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
    delay_s *= 1 + _JITTER * fraction(*identity, str(failures))
    return min(max(delay_s, retry_after_s or 0.0), LONGEST_S)
