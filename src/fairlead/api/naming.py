"""Names made from names without ever colliding: pure, deterministic, the same on every replica."""

from __future__ import annotations

import hashlib
import re

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
    """Return the label value that stands for an object's name, which may be longer than labels may be."""
    return fit(name)


def backend_label(service: str) -> str:
    """Return the label value that stands for a Service of a member, given as "namespace/name"."""
    return label_value(service.replace("/", "."))


def region_problem(region: str) -> str:
    """Return why ``--region`` cannot be ``region``, empty when it can: the name of a hub's Lease is made of it."""
    if len(region) <= _LABEL_VALUE_MAX and _REGION.fullmatch(region):
        return ""
    return (
        f"--region: {region!r} cannot name a region; use letters, digits, dashes and dots, with a letter or digit at "
        f"both ends and on both sides of each dot, at most {_LABEL_VALUE_MAX}"
    )


def replica_key(identity: str) -> str:
    """Return the key of a ConfigMap's data, or label value, under which a hub replica of this identity reports."""
    return fit(re.sub(r"[^-._a-zA-Z0-9]", "_", identity))
