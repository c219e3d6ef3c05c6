"""The RouteMatch of a RequestMatch, and its regular expressions as RE2, the engine of Envoy, reads them.

In: a match, the kind of its route, and a wildcard for one label. Out: fields of a RouteMatch. Of several conditions on
one header or parameter the first one counts (Gateway API).
Envoy rejects a whole route configuration for one expression that does not compile, so each is compiled here before.
RE2 matches bytes (the encoding is Latin-1) and writes repetitions out; Envoy limits the number of its instructions.
Matching takes time in proportion to the text, however an expression is written.
Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/route/v3/route_components.proto
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import re2

from fairlead.model.http import PathMatch, RequestMatch, Route, RouteKind, ValueMatch
from fairlead.providers.envoy.bootstrap import MAX_REGEX_SIZE
from fairlead.providers.envoy.resources import Fields


def match_fields(
    match: RequestMatch, kind: RouteKind, *, one_label: str = "", cookie: str = "", upgrade: bool = False
) -> Fields:
    """Build the match.

    ``one_label`` is the wildcard hostname whose star is exactly one label, ``cookie`` one that must be there.
    ``upgrade``: only requests for another protocol, such as a WebSocket, without a body.
    """
    headers: list[Fields] = [
        {"name": name, "string_match": _string(header)} for name, header in first_of_each(match.headers, str.lower)
    ]
    if match.method:
        headers.append({"name": ":method", "string_match": {"exact": match.method}})
    if one_label:
        headers.append({"name": ":authority", "string_match": {"safe_regex": {"regex": one_label_regex(one_label)}}})
    if cookie:
        headers.append({"name": "cookie", "string_match": {"contains": cookie}})
    if upgrade:
        # Envoy removes the header from all other requests.
        headers.append({"name": "upgrade", "present_match": True})
        headers += [{"name": name, "present_match": True, "invert_match": True} for name in _ABOUT_A_BODY]
    parameters = first_of_each(match.query_params, str)
    fields: dict[str, object] = {
        **_path(match.path),
        "headers": headers,
        "query_parameters": [{"name": name, "string_match": _parameter(value)} for name, value in parameters],
    }
    if kind == "GRPC":
        # An HTTP route may have the same hostname: other requests belong to that one.
        fields["grpc"] = {}
    return fields


_ABOUT_A_BODY = ("content-length", "transfer-encoding")


def takes_every_request(match: RequestMatch, kind: RouteKind) -> bool:
    """Return whether nothing later in the same virtual host can be reached."""
    return kind == "HTTP" and is_every_path(match.path) and not (match.method or match.headers or match.query_params)


def one_label_regex(wildcard: str) -> str:
    """Return the expression for the Host header, with or without a port."""
    return rf"(?i)[^.:]+{re.escape(wildcard.removeprefix('*'))}(:[0-9]+)?"


def first_of_each(matches: Iterable[ValueMatch], normal: Callable[[str], str]) -> list[tuple[str, ValueMatch]]:
    """Return the first condition on each name, with the name as it is compared."""
    chosen: dict[str, ValueMatch] = {}
    for match in matches:
        chosen.setdefault(normal(match.name), match)
    return list(chosen.items())


def encoded_regex(value: str) -> str:
    """Return the expression of a query value as clients may write it; empty when they write it in one way only.

    Envoy compares query values without decoding them.
    """
    parts = [_ways_to_write(character) for character in value]
    return "".join(parts) if any(part.startswith("(?:") for part in parts) else ""


def _ways_to_write(character: str) -> str:
    if character.isascii() and (character.isalnum() or character in "-._~"):
        return re.escape(character)
    encoded = "".join(f"%{byte:02X}" for byte in character.encode())
    ways = dict.fromkeys((character, encoded, encoded.lower(), "+" if character == " " else character))
    return f"(?:{'|'.join(map(re.escape, ways))})"


def prefix_of(path: PathMatch) -> str:
    """Return a path prefix without trailing slashes, which have no meaning; empty for every path."""
    return path.value.rstrip("/")


def _path(path: PathMatch) -> Fields:
    if path.type == "Exact":
        return {"path": path.value}
    if path.type == "RegularExpression":
        return {"safe_regex": {"regex": path.value}}
    return {"prefix": "/"} if is_every_path(path) else {"path_separated_prefix": prefix_of(path)}


def _parameter(match: ValueMatch) -> Fields:
    pattern = encoded_regex(match.value) if match.type == "Exact" else ""
    return {"safe_regex": {"regex": pattern}} if pattern else _string(match)


def _string(match: ValueMatch) -> Fields:
    return {"safe_regex": {"regex": match.value}} if match.type == "RegularExpression" else {"exact": match.value}


Rank = tuple[int, int, int, int, int, str, str, str, int, int]

#: Which type of path is more specific. A regular expression of an HTTP route ranks between an exact
#: path and a prefix; of a gRPC route it names no method of any service, so a named service is more specific.
_TYPES: dict[RouteKind, dict[str, int]] = {
    "HTTP": {"Exact": 0, "RegularExpression": 1, "PathPrefix": 2},
    "GRPC": {"Exact": 0, "PathPrefix": 1, "RegularExpression": 2},
}
_EVERY_PATH = 3
#: The meaning of the greater value of each part of a rank.
_WHY = (
    "the path is less specific",
    "the path is shorter",
    "no method is named",
    "fewer headers are named",
    "fewer query parameters are named",
    "the route is younger",
    "the route comes later by namespace and name",
    "the route comes later by name",
    "the rule comes later in the route",
    "the match comes later in the rule",
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


_MAX_LENGTH = 1024
_SYNTAX = "the RE2 syntax, without lookaround and backreferences: https://github.com/google/re2/wiki/Syntax"
#: Each costs Envoy's main thread up to half a millisecond.
_MAX_CLASSES = 8
_CLASS = re.compile(r"\\[pP]")
#: With this flag RE2 looks up the other case of each character of a class: up to 22 ms in Envoy's main thread.
_ANY_CASE = re.compile(r"\(\?[a-zA-Z]*i")
_OPTIONS = re2.Options()
_OPTIONS.encoding = re2.Options.Encoding.LATIN1
_OPTIONS.log_errors = False


@lru_cache(maxsize=4096)
def invalid_regex(pattern: str) -> str:
    """Return the error in a user's pattern; empty if it is valid."""
    if len(pattern) > _MAX_LENGTH:
        return f"longer than {_MAX_LENGTH} characters"
    classes = len(_CLASS.findall(pattern))
    if classes and _ANY_CASE.search(pattern):
        return r"a Unicode class such as \pL with (?i) takes Envoy too long to compile; list characters, as in [a-z]"
    if classes > _MAX_CLASSES:
        return rf"more than {_MAX_CLASSES} Unicode classes such as \pL take Envoy too long to compile; list characters"
    try:
        size = _size(pattern)
    except re2.error as error:
        return f"RE2 says {error.args[0].decode(errors='replace')!r}; {_SYNTAX}"
    if size <= MAX_REGEX_SIZE:
        return ""
    return (
        f"RE2 makes {size} instructions of it, Envoy takes {MAX_REGEX_SIZE}; "
        "use smaller repetition counts, or fewer and smaller classes in what is repeated"
    )


def invalid_expression(pattern: str) -> str:
    """Return the error in a pattern that is built from a user's text; empty if it is valid."""
    try:
        is_taken = _size(pattern) <= MAX_REGEX_SIZE
    except re2.error:  # even more of it than RE2 itself takes
        is_taken = False
    return "" if is_taken else "too long: Envoy compares the path as a regular expression, and limits these"


def steps_of(pattern: str) -> int:
    """Return the number of RE2 instructions of a pattern; 0 if RE2 cannot compile it, so that Envoy rejects it."""
    try:
        return _size(pattern)
    except re2.error:
        return 0


def matches_whole(pattern: str, text: str) -> bool:
    """Return whether a pattern that passes ``invalid_regex`` matches all of ``text``."""
    return _compiled(pattern).fullmatch(_bytes(text)) is not None


def _size(pattern: str) -> int:
    return _compiled(pattern).programsize


def _compiled(pattern: str) -> Any:
    return re2.compile(_bytes(pattern), _OPTIONS)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
