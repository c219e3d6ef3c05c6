"""The names nearest to one that does not exist, for a person who has mistyped it.

In: what was typed, and the names that there are. Out: the end of a sentence, empty where none is near. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from fairlead.api.names import (
    ANNOTATION_ACCESS_POINTS,
    ANNOTATION_ADDRESS,
    ANNOTATION_GENERATED_HOSTNAME,
    ANNOTATION_HOSTNAME,
    ANNOTATION_NODEPOOL_SELECTOR,
    ANNOTATION_PROXY_PROTOCOL,
    ANNOTATION_REQUESTED_ADDRESS,
    ANNOTATION_TARGET,
    GROUP,
)

#: What a user may write on a Service, plus what we write there.
SERVICE_ANNOTATIONS = (
    ANNOTATION_ADDRESS,
    ANNOTATION_PROXY_PROTOCOL,
    ANNOTATION_REQUESTED_ADDRESS,
    ANNOTATION_TARGET,
    ANNOTATION_HOSTNAME,
    ANNOTATION_GENERATED_HOSTNAME,
    ANNOTATION_NODEPOOL_SELECTOR,
    ANNOTATION_ACCESS_POINTS,
)


def near_names(value: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """Return the known names that are near, the nearest first, without regard to case."""
    lower = {candidate.lower(): candidate for candidate in known}
    return [lower[match] for match in get_close_matches(value.strip().lower(), sorted(lower), n=most, cutoff=0.6)]


def did_you_mean(value: str, known: Iterable[str], *, most: int = 1) -> str:
    """Return `` Did you mean ...?`` (with its leading space), or nothing when no known value is near."""
    matches = near_names(value, known, most=most)
    return f" Did you mean {' or '.join(map(repr, matches))}?" if matches else ""


def near_annotation(key: str) -> str:
    """Suggest by what follows the slash: the group, which all of ours share, makes any two of them look alike."""
    by_short_name = {name.removeprefix(f"{GROUP}/"): name for name in SERVICE_ANNOTATIONS}
    nearest = near_names(key.removeprefix(f"{GROUP}/"), by_short_name, most=1)
    return f" Did you mean {by_short_name[nearest[0]]!r}?" if nearest else ""
