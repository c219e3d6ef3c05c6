"""Settings of a watch cache: confirmation of empty lists, and times in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """The timings and limits of a cache.

    ``confirm_empty``: a list without objects, while we hold some, counts only when a second list, after
    ``confirm_after_s``, has none either. It costs one more request, only then, and outlives an API server that
    starts up with an empty view (B03).
    """

    confirm_empty: bool = True
    confirm_after_s: float = 3.0
    page_size: int = 500
    #: A server sends a bookmark about once a minute, so this much silence is a dead link.
    idle_s: float = 90.0
    #: Within the first state silence means that the server ignores sendInitialEvents.
    first_idle_s: float = 15.0
    #: Between attempts while an administrator has to change something (a right, a CRD).
    terminal_retry_s: float = 30.0
