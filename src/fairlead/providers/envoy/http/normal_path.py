"""The normal form of a path, as Envoy compares it.

With ``normalize_path``, ``merge_slashes`` and the redirect of escaped slashes: percent-encoded characters that need no
encoding are decoded, a backslash is a slash, dot segments are resolved, and slashes that follow each other are one.
Source: https://datatracker.ietf.org/doc/html/rfc3986#section-6
"""

from __future__ import annotations

import re

_ESCAPED_SLASH = re.compile(r"%(2f|5c)", re.IGNORECASE)
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def has_escaped_slash(target: str) -> bool:
    """Return whether the path of a request target holds an escaped slash or backslash."""
    return _ESCAPED_SLASH.search(target.partition("?")[0]) is not None


def normal_path(path: str) -> str:
    """Return a path as it is compared with the paths of rules."""
    decoded = _ESCAPED.sub(_decode, path).replace("\\", "/")
    kept: list[str] = []
    segments = decoded.split("/")[1:]
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        if segment == "..":
            if kept:
                kept.pop()
            if last:
                kept.append("")
        elif segment == ".":
            if last:
                kept.append("")
        else:
            kept.append(segment)
    path = "/" + "/".join(kept)
    # A path of slashes alone keeps two of them.
    return "//" if len(path) > 1 and not path.strip("/") else re.sub("/+", "/", path)


def _decode(match: re.Match[str]) -> str:
    character = chr(int(match[1], 16))
    return character if character in _UNRESERVED else match[0]
