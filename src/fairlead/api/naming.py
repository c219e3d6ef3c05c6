"""Names made from names without ever colliding: pure, deterministic, the same on every replica."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache

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
    HUB_LEASE,
)

_LABEL_VALUE_MAX = 63
_LABEL = "[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?"
_REGION = re.compile(rf"{_LABEL}(\.{_LABEL})*")


def short_hash(*parts: str, size_bytes: int = 5) -> str:
    """Hash ``parts`` to lower-case hex, unambiguous about where one part ends and the next begins."""
    digest = hashlib.blake2b(digest_size=size_bytes)
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(4, "big"))
        digest.update(raw)
    return digest.hexdigest()


def fit(name: str, *, limit: int = _LABEL_VALUE_MAX, identity: tuple[str, ...] = ()) -> str:
    """Return ``name`` when it is short enough, else its head with a hash of the whole ``identity``."""
    if len(name) <= limit:
        return name
    suffix = short_hash(*(identity or (name,)), size_bytes=8)
    head = name[: limit - len(suffix) - 1].rstrip("-._")
    return f"{head}-{suffix}"


def hub_name(namespace: str, name: str) -> str:
    """Name a hub object after its origin; neither part can hold a dot, so no two origins share a name."""
    return f"{namespace}.{name}"


def label_value(name: str) -> str:
    """Return the label value for an object's name, which may be longer than a label value."""
    return fit(name)


def backend_label(service: str) -> str:
    """Return the label value for a Service of a member, given as "namespace/name"."""
    return label_value(service.replace("/", "."))


def region_problem(region: str) -> str:
    """Return why ``--region`` cannot be ``region``, empty when it can: the name of a hub's Lease is made of it."""
    if len(region) <= _LABEL_VALUE_MAX and _REGION.fullmatch(region):
        return ""
    return (
        f"--region: {region!r} is not a valid region name. Use at most {_LABEL_VALUE_MAX} letters, digits, dashes and "
        "dots, with a letter or digit at both ends and on both sides of each dot."
    )


@lru_cache
def hub_lease(region: str) -> str:
    """Return the name of the Lease of the hub of ``region``; empty: of the hub without a region."""
    return fit(f"{HUB_LEASE}-{region.lower()}") if region else HUB_LEASE


def replica_key(identity: str) -> str:
    """Return the key of a ConfigMap's data, or label value, under which a hub replica of this identity reports."""
    return fit(re.sub(r"[^-._a-zA-Z0-9]", "_", identity))


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
