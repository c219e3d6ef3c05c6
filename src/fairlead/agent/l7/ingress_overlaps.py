"""Paths of an Ingress that an older one of its class has too, for the same host: they get no request.

In: an Ingress, and which Ingresses of its class have a path. Out: one sentence for each such path. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from fairlead.api.ingress import IngressObject


class Place(NamedTuple):
    """One path of one host (empty: any host); a prefix has no slash at its end, as it is the same with one."""

    host: str
    path: str
    exact: bool


def places_of(ingress: IngressObject) -> frozenset[Place]:
    """Return the paths of an Ingress."""
    return frozenset(_places(ingress))


def overlaps(ingress: IngressObject, at: Callable[[Place], Iterable[IngressObject]]) -> tuple[str, ...]:
    """Return a sentence for each path that an older Ingress has too; ``at`` returns those of its class with a path."""
    return tuple(filter(None, (_overlap(ingress, place, at(place)) for place in dict.fromkeys(_places(ingress)))))


def _overlap(ingress: IngressObject, place: Place, others: Iterable[IngressObject]) -> str:
    oldest = min((ingress, *others), key=attrgetter("age_order"))
    if oldest.key == ingress.key:
        return ""
    path = f"{'exact path' if place.exact else 'path'} {place.path}"
    of = f"{oldest.metadata.namespace}/{oldest.metadata.name}"
    return f"host {place.host or '*'}, {path}: Ingress {of} is older and has it too, so all of its requests go there"


def _places(ingress: IngressObject) -> Iterator[Place]:
    for rule in ingress.spec.rules or ():
        for each in (rule.http.paths if rule.http else None) or ():
            exact, path = each.path_type == "Exact", each.path or "/"
            yield Place(rule.host, path if exact else path.rstrip("/") or "/", exact)
