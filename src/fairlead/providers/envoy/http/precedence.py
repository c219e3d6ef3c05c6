"""The order in which the rules of one hostname are tried.

In: a route, and one match of one of its rules. Out: a key; the smaller one is tried first. Each entry of ``matches``
is ranked alone. Source: Gateway API; requirements G-28, G-29, G-31.
"""

from __future__ import annotations

from fairlead.model.http import PathMatch, RequestMatch, Route, RouteKind

Rank = tuple[int, int, int, int, int, str, str, str, int, int]

#: Which type of path is more specific. A regular expression of an HTTP route stands for something between an exact
#: path and a prefix; of a gRPC route it names no method of any service, so a named service is more specific.
_TYPES: dict[RouteKind, dict[str, int]] = {
    "HTTP": {"Exact": 0, "RegularExpression": 1, "PathPrefix": 2},
    "GRPC": {"Exact": 0, "PathPrefix": 1, "RegularExpression": 2},
}
_EVERY_PATH = 3
#: What the greater value of each part of a rank means.
_WHY = (
    "its path is less specific",
    "its path is shorter",
    "it names no method",
    "it names fewer headers",
    "it names fewer query parameters",
    "its route is younger",
    "its route comes later by namespace and name",
    "its route comes later by name",
    "its rule comes later in the route",
    "its match comes later in the rule",
)
#: After all dates, so that a route without one is the newest.
_NO_DATE = "~"


def is_every_path(path: PathMatch) -> bool:
    """Return whether this matches every path."""
    return path.type == "PathPrefix" and not path.value.rstrip("/")


def rank(route: Route, match: RequestMatch, *, rule: int, number: int) -> Rank:
    """Return the key of match ``number`` of rule ``rule``."""
    path = match.path
    every = is_every_path(path)
    return (
        _EVERY_PATH if every else _TYPES[route.kind][path.type],
        0 if every else -len(path.value),
        0 if match.method else 1,
        -len(match.headers),
        -len(match.query_params),
        *age(route),
        rule,
        number,
    )


def why_later(first: Rank, second: Rank) -> str:
    """Return why ``second`` is tried after ``first``: the first part in which they differ."""
    at = next((number for number, (left, right) in enumerate(zip(first, second, strict=True)) if left != right), -1)
    return _WHY[at]


def age(route: Route) -> tuple[str, str, str]:
    """Return the key by which the older route comes first, and of equally old ones the first by namespace/name."""
    return (route.created or _NO_DATE, route.origin or route.name, route.name)
