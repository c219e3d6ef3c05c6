"""Matches the host of a request, or an SNI, to the most specific of several hostnames.

A pattern is a name, a name that begins with ``*.`` (any number of labels, as in Gateway API), or empty: every host.
All are compared in lower case. Source: Gateway API, ``Hostname``; requirements G-26, G-28, G-63.
"""

from __future__ import annotations

from collections.abc import Container, Iterator


def normal(hostname: str) -> str:
    """Return a name or pattern as all of them are compared here: lower case, no dot at the end, ``*`` as empty."""
    return "" if hostname == "*" else hostname.lower().removesuffix(".")


def patterns_for(hostname: str) -> Iterator[str]:
    """Yield every pattern that covers a name (or pattern), the most specific one first; the last is empty."""
    if hostname:
        yield hostname
        rest = hostname.removeprefix("*.") if hostname.startswith("*.") else hostname
        while "." in rest:
            rest = rest.partition(".")[2]
            yield f"*.{rest}"
    yield ""


def most_specific(hostname: str, among: Container[str]) -> str | None:
    """Return the most specific pattern of ``among`` that covers a name or pattern; None when there is none."""
    return next((pattern for pattern in patterns_for(hostname) if pattern in among), None)


def has_one_label_more(hostname: str, wildcard: str) -> bool:
    """Return whether a name has exactly one label in the place of the star."""
    suffix = wildcard.removeprefix("*")
    return hostname.endswith(suffix) and "." not in hostname.removesuffix(suffix) and not hostname.startswith("*")
