"""The annotations and paths of one Ingress of ingress-nginx as filters and matches of Gateway API.

In: annotations by their short names. Out: ``NginxSettings``: one redirect or a list of filters, retries, sessions,
other hosts. What is written wrongly is a remark, and is left out. No filter admits more requests than nginx does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec
import re2
from msgspec.structs import replace

from fairlead.api.annotations import IPNetwork, parse_cidr
from fairlead.api.gateway import (
    CorsFilter,
    HeaderFilter,
    HeaderPair,
    HTTPPathMatch,
    HTTPRetry,
    PathModifierSpec,
    RedirectFilter,
    RouteFilter,
    SessionPersistenceSpec,
)
from fairlead.api.kubernetes import IngressObject, IngressPath
from fairlead.api.meta import ObjectKey
from fairlead.api.names import ANNOTATION_IGNORED_ANNOTATIONS
from fairlead.api.times import gateway_duration
from fairlead.convert.annotations import (
    SOURCE_RANGES,
    Remarks,
    admits_all,
    flag_of,
    number_of,
    own_annotations,
    unconverted_protections,
)
from fairlead.model.in_words import whole_number

_REDIRECT_CODES = frozenset({301, 302, 303, 307, 308})
_DEFAULT_METHODS = "GET, PUT, POST, DELETE, PATCH, OPTIONS"
_HEADERS = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization"
#: The methods that the schema of a CORS filter has; browsers compare them with regard to case.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"})
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?")
#: How often nginx tries in all, and for how long a browser keeps what CORS allows, when no annotation sets it.
_TRIES, _MAX_AGE_S = 3, 1_728_000
#: More than that fits no field of type int32; other implementations could not read the route.
_MOST_INT32 = 2**31 - 1
_REQUEST_URI = "$request_uri"
_LEADING_ZERO = re.compile(r"(?:^|[.:])0\d+\.|\.0\d")
#: What may be sent as the path of a request: no space, control character, query, fragment or variable.
_TARGET = re.compile(r"/[!\"%-\x3e@-~]*")
_CLOSED = "answer 500, because without what is lost more clients would reach the backend"


class NginxSettings(msgspec.Struct, frozen=True):
    """The settings of all paths of an Ingress. With ``redirect`` nothing reaches a backend.

    ``own`` are our annotations for a route. ``unserved``: nginx answers all requests itself in a way that cannot be
    converted. ``closed``: no request may reach a backend, or more clients would get in; the paths keep their requests,
    so that no path of another Ingress takes them to the same backend. ``force_https``: plain requests are redirected
    where a host has TLS; ``always_https`` also where it has none.
    """

    filters: tuple[RouteFilter, ...] = ()
    own: Mapping[str, str] = {}
    hostname: str = ""
    redirect: RedirectFilter | None = None
    unserved: bool = False
    closed: bool = False
    app_root: str = ""
    retry: HTTPRetry | None = None
    session: SessionPersistenceSpec | None = None
    aliases: tuple[str, ...] = ()
    force_https: bool = True
    always_https: bool = False
    www: bool = False
    passthrough: bool = False


def is_request_path(text: str) -> bool:
    """Return whether a proxy may send ``text`` as the path of a request, as it is."""
    return _TARGET.fullmatch(text) is not None


def read_settings(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> NginxSettings:
    """Return the settings of the annotations."""
    redirect, unserved = _redirect(ingress, annotations, remarks)
    sources, closed = _sources(ingress, annotations, remarks)
    passthrough = flag_of(annotations, "ssl-passthrough")
    if (names := unconverted_protections(ingress)) and not passthrough:
        ignored = f"{ANNOTATION_IGNORED_ANNOTATIONS}={','.join(names)}"
        remarks.lost(ingress, "paths", f"{_CLOSED}; to convert them unprotected, annotate the Ingress: {ignored}")
        closed = True
    own = {**sources, **own_annotations(ingress, remarks)}
    return NginxSettings(
        filters=tuple(_filters(ingress, annotations, remarks)),
        own=own,
        hostname=_hostname(ingress, annotations, remarks),
        redirect=redirect,
        unserved=unserved,
        closed=closed and not passthrough,
        app_root=_app_root(ingress, annotations, remarks),
        retry=_retry(ingress, annotations, remarks),
        session=_session(ingress, annotations, remarks),
        aliases=tuple(_aliases(ingress, annotations, remarks)),
        force_https=flag_of(annotations, "ssl-redirect", default=True),
        always_https=flag_of(annotations, "force-ssl-redirect"),
        www=flag_of(annotations, "from-to-www-redirect"),
        passthrough=passthrough,
    )


def _filters(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> Iterator[RouteFilter]:
    if flag_of(annotations, "enable-cors") and (cors := _cors(ingress, annotations, remarks)) is not None:
        yield RouteFilter(type="CORS", cors=cors)
    if prefix := annotations.get("x-forwarded-prefix", ""):
        if not annotations.get("rewrite-target", ""):
            remarks.note(ingress, "x-forwarded-prefix", "without rewrite-target nginx does not send it, and is dropped")
        elif "$" in prefix:
            remarks.lost(ingress, "x-forwarded-prefix", f"{prefix} has variables, which a header filter cannot have")
        else:
            header = HeaderFilter(set=[HeaderPair("X-Forwarded-Prefix", prefix)])
            yield RouteFilter(type="RequestHeaderModifier", request_header_modifier=header)


def _sources(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> tuple[dict[str, str], bool]:
    """Return our annotations with client addresses, and whether nginx refuses all clients."""
    sources: dict[str, str] = {}
    for own, names in SOURCE_RANGES.items():
        name = next((name for name in names if annotations.get(name, "")), "")
        if not name or admits_all(name, annotations[name]):
            continue
        if own in (ingress.metadata.annotations or {}):
            remarks.note(ingress, name, f"annotation {own} of the Ingress takes its place")
            continue
        networks = {part: _network(part) for part in _list(annotations[name])}
        for part in (part for part, network in networks.items() if network is None):
            why = f"{part} is not an IP address or CIDR, so nginx refuses all clients; its paths answer 500"
            remarks.lost(ingress, name, why)
            return {}, True
        if not networks:
            remarks.lost(ingress, name, "the list is empty, so nginx refuses all clients; its paths answer 500")
            return {}, True
        sources[own] = ",".join(dict.fromkeys(map(str, networks.values())))
        if flag_of(annotations, "ssl-passthrough"):
            remarks.note(ingress, name, "nginx does not check the clients of connections that are passed through")
        else:
            remarks.note(ingress, name, f"becomes annotation {own}, which only Fairlead reads")
    return sources, False


def _network(text: str) -> IPNetwork | None:
    """Return a network as Go reads it: a mapped address is one of IPv4; zones and leading zeros are errors."""
    if _LEADING_ZERO.search(text):
        return None
    cidr = parse_cidr(text if "/" in text else f"{text}/{128 if ':' in text else 32}")
    return cidr.network if cidr is not None else None


def _cors(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> CorsFilter | None:
    remarks.note(ingress, "enable-cors", "the CORS filter needs Gateway API 1.5 or later, or its experimental channel")
    origins = _origins(ingress, annotations, remarks)
    if not origins:
        return None
    methods: list[str] = []
    for method in _list(annotations.get("cors-allow-methods", _DEFAULT_METHODS), r"[,\s]"):
        if method in _METHODS:
            methods.append(method)
        else:
            remarks.lost(ingress, "cors-allow-methods", f"{method} is not one of {', '.join(sorted(_METHODS))}")
    max_age = number_of(ingress, annotations, "cors-max-age", _MAX_AGE_S, remarks)
    if not max_age:
        remarks.lost(ingress, "cors-max-age", "0 is not allowed in a CORS filter: browsers keep an answer for 1 second")
    # nginx sends "*" as it is, and no browser takes that with credentials. A Gateway sends the origin of the request
    # where credentials are allowed, which would let every site read what a user may see.
    credentials = flag_of(annotations, "cors-allow-credentials", default=True) and origins != ["*"]
    return CorsFilter(
        allow_origins=origins,
        allow_methods=methods or None,
        allow_headers=_cors_headers(ingress, annotations, "cors-allow-headers", _HEADERS, credentials, remarks),
        expose_headers=_cors_headers(ingress, annotations, "cors-expose-headers", "", credentials, remarks),
        allow_credentials=credentials,
        max_age=min(max(1, max_age), _MOST_INT32),
    )


def _origins(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> list[str]:
    """Return the origins: ["*"], or those that a filter can compare exactly as nginx does."""
    listed = _list(annotations.get("cors-allow-origin", "*"))
    if "*" in listed:
        return ["*"]
    origins: list[str] = []
    for origin in listed:
        if "*" in origin:
            why = f"{origin}: the star of a CORS filter matches any number of labels, that of nginx matches one"
            remarks.lost(ingress, "cors-allow-origin", f"{why}; the origin is left out")
        elif _ORIGIN.fullmatch(origin):
            origins.append(origin)
        else:
            remarks.lost(ingress, "cors-allow-origin", f"{origin} is not an origin of HTTP; it is left out")
    if not origins:
        remarks.lost(ingress, "enable-cors", "no origin is left; the filter is left out")
    return origins


def _cors_headers(
    ingress: IngressObject, annotations: Mapping[str, str], name: str, default: str, credentials: bool, remarks: Remarks
) -> list[str] | None:
    """Return the header names; with credentials browsers take a star for the name of a header, a Gateway for all."""
    names = _list(annotations.get(name, default))
    if "*" in names and credentials:
        remarks.lost(ingress, name, "with credentials the star would admit every header, and in nginx it admits none")
        names.remove("*")
    return (["*"] if "*" in names else names) or None


def _redirect(
    ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks
) -> tuple[RedirectFilter | None, bool]:
    """Return the redirect of every request, and whether there is one that cannot be converted."""
    # nginx takes the temporal one when there are both.
    for name, default in (("temporal-redirect", 302), ("permanent-redirect", 301)):
        if url := annotations.get(name, ""):
            if not url.startswith("http"):
                remarks.note(ingress, name, f"nginx ignores {url}, which has no scheme http or https")
                return None, False
            code = number_of(ingress, annotations, f"{name}-code", default, remarks)
            if code not in _REDIRECT_CODES:
                why = f"{code} is not one of {sorted(_REDIRECT_CODES)}: {default} is used"
                remarks.lost(ingress, f"{name}-code", why)
                code = default
            redirect = redirect_to(url.removesuffix(_REQUEST_URI), code, keep_path=url.endswith(_REQUEST_URI))
            if redirect is None:
                why = f"{url[:200]} has variables or parts that a RequestRedirect cannot have; its paths are left out"
                remarks.lost(ingress, name, why)
            elif redirect.path is not None:
                remarks.note(ingress, name, "the query of a request is kept; nginx drops it")
            return redirect, redirect is None
    return None, False


def redirect_to(url: str, code: int, *, keep_path: bool = False, keep_rest: bool = False) -> RedirectFilter | None:
    """Return the redirect to ``url``; None where the filter cannot express it.

    ``keep_path``: the path of the request is appended. ``keep_rest``: what comes after the prefix that was matched.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    path = parts.path or ("" if keep_path else "/")
    if "$" in url or not _is_plain(parts) or not (is_request_path(path) or keep_path):
        return None
    if keep_path:
        return None if path else RedirectFilter(parts.scheme, parts.hostname, None, port, code)
    if keep_rest:
        modifier = PathModifierSpec("ReplacePrefixMatch", replace_prefix_match=path)
    else:
        modifier = PathModifierSpec("ReplaceFullPath", replace_full_path=path)
    return RedirectFilter(parts.scheme, parts.hostname, modifier, port, code)


def _is_plain(parts: SplitResult) -> bool:
    """Return whether a URL has scheme, host, port and path alone."""
    unusual = parts.query or parts.fragment or parts.username is not None
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and not unusual


def _hostname(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> str:
    name = annotations.get("upstream-vhost", "")
    if name in {"$host", "$http_host"}:
        return ""  # the Host of the request, which is sent anyway
    if "$" in name or ":" in name:
        remarks.lost(ingress, "upstream-vhost", f"{name} has variables or a port, which a rewrite cannot have")
        return ""
    return name


def _app_root(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> str:
    root = annotations.get("app-root", "")
    if not root or is_request_path(root):
        return root
    if "$" in root or root.startswith("/"):
        remarks.lost(ingress, "app-root", f"{root} has variables or a query, which a RequestRedirect cannot have")
    else:
        remarks.note(ingress, "app-root", f"nginx ignores {root}, which does not begin with /")
    return ""


def _retry(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> HTTPRetry | None:
    when = annotations.get("proxy-next-upstream", "").split()
    numbers = (whole_number(word.removeprefix("http_")) for word in when)
    codes = sorted({code for code in numbers if code is not None and code >= 400})
    if not codes:
        return None
    remarks.note(ingress, "proxy-next-upstream", "retry needs the experimental channel of Gateway API's CRDs")
    if "non_idempotent" not in when:
        repeated = "a retry repeats POST, LOCK and PATCH too, as nginx does with non_idempotent only; match by method"
        remarks.note(ingress, "proxy-next-upstream", repeated)
    tries = number_of(ingress, annotations, "proxy-next-upstream-tries", _TRIES, remarks)
    return HTTPRetry(codes=codes, attempts=max(1, tries - 1))


def _session(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> SessionPersistenceSpec | None:
    if (affinity := annotations.get("affinity", "")) != "cookie":
        if affinity:
            remarks.note(ingress, "affinity", f"nginx ignores {affinity[:40]!r}, it reads cookie only")
        return None
    remarks.note(ingress, "affinity", "sessionPersistence needs the experimental channel of Gateway API's CRDs")
    session = SessionPersistenceSpec(
        session_name=annotations.get("session-cookie-name", "") or "INGRESSCOOKIE", type="Cookie"
    )
    expires = "session-cookie-max-age" if "session-cookie-max-age" in annotations else "session-cookie-expires"
    age_s = number_of(ingress, annotations, expires, 0, remarks)
    if not age_s:
        return session
    try:
        timeout = gateway_duration(age_s * 1000)
    except ValueError as error:
        remarks.lost(ingress, expires, f"{error}: the session ends with the browser's")
        return session
    return replace(session, absolute_timeout=timeout, cookie_config={"lifetimeType": "Permanent"})


def _aliases(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> Iterator[str]:
    for alias in dict.fromkeys(alias.lower() for alias in _list(annotations.get("server-alias", ""))):
        if alias.startswith("~"):
            remarks.lost(ingress, "server-alias", f"{alias} is a regular expression; a hostname may begin with *. only")
        else:
            yield alias


def _list(text: str, separator: str = ",") -> list[str]:
    return [part.strip() for part in re.split(separator, text) if part.strip()]


_PLAIN = r"(?:/[A-Za-z0-9._~!&',;=:@%-]+)*"
_LITERAL = re.compile(rf"{_PLAIN}/?")
#: A prefix, then everything behind it in a group of the number that the target names; and what PathPrefix does else.
_CUT = (
    (re.compile(rf"\^?(?P<prefix>{_PLAIN})\(/\|\$\)\(\.\*\)\$?"), "$2", "letters of another case are not matched"),
    (re.compile(rf"\^?(?P<prefix>{_PLAIN})/\(\.\*\)\$?"), "$1", "the path without / is matched too, another case not"),
    (re.compile(rf"\^?(?P<prefix>{_PLAIN})/\?\(\.\*\)\$?"), "$1", "longer names and another case are not matched"),
)
#: The beginning of an expression up to the first character that does not stand for itself.
_HEAD = re.compile(r"\^?(?P<literal>[^.^$*+?()\[\]{}|\\]*)(?P<next>.?)", re.DOTALL)
#: A group, a class or an escaped character, which alternatives may be in; innermost groups first.
_NESTED = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\([^()\[\\]*\)")
_URL = ("http://", "https://", "$scheme")
_RE2: Any = re2
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class ConvertedPath(msgspec.Struct, frozen=True):
    """The path of a match, and how it is changed on its way to the backend, or redirected; None: not at all."""

    match: HTTPPathMatch
    change: PathModifierSpec | None = None
    redirect: RedirectFilter | None = None


class PathOfHost(msgspec.Struct, frozen=True):
    """A path of a host, with the Ingress that it is of and what it becomes."""

    ingress: ObjectKey
    value: str
    converted: ConvertedPath


def needs_regex(path: IngressPath, annotations: Mapping[str, str]) -> bool:
    """Return whether a path makes nginx match all paths of its host as regular expressions."""
    target = annotations.get("rewrite-target", "")
    return flag_of(annotations, "use-regex") or (bool(target) and target != (path.path or "/"))


def nginx_order(value: str) -> tuple[int, tuple[int, ...]]:
    """Return a sort key: nginx tries the longest path first, then the last one by its characters."""
    return -len(value), tuple(-ord(character) for character in value)


def convert_path(
    ingress: IngressObject, path: IngressPath, annotations: Mapping[str, str], remarks: Remarks, *, regex: bool
) -> ConvertedPath | None:
    """Return ``path`` converted; None, with a remark, when no rule of Gateway API has the same effect as in nginx.

    ``regex``: the host is in regex mode.
    """
    value = path.path or "/"
    if not regex:
        if path.path_type == "Exact":
            return ConvertedPath(HTTPPathMatch("Exact", value))
        if path.path_type != "Prefix" and not value.endswith("/"):
            why = f"nginx takes longer names such as {value}x too, and PathPrefix whole names only: use pathType Prefix"
            remarks.lost(ingress, f"path {value}", why)
        return ConvertedPath(HTTPPathMatch("PathPrefix", value))
    target = annotations.get("rewrite-target", "")
    if target == value:
        target = ""
    if "$" in target:
        return _cut(ingress, value, target, remarks)
    if target.startswith(_URL):
        redirect = redirect_to(target, 302)
        if redirect is None:
            return _lost(ingress, value, f"rewrite-target {target} is more than a RequestRedirect can express", remarks)
        return _matched(ingress, value, ConvertedPath(HTTPPathMatch(), redirect=redirect), remarks)
    if target and not is_request_path(target):
        return _lost(ingress, value, f"rewrite-target {target} is not a path", remarks)
    change = PathModifierSpec("ReplaceFullPath", replace_full_path=target) if target else None
    return _matched(ingress, value, ConvertedPath(HTTPPathMatch(), change), remarks)


def overtaking(paths: Sequence[PathOfHost]) -> Iterable[tuple[PathOfHost, PathOfHost]]:
    """Yield each path of a host in regex mode that a Gateway would try before one that nginx tries first.

    Fairlead and other implementations try expressions before prefixes, and the longer of two first.
    """
    in_order = sorted(paths, key=lambda path: nginx_order(path.value))
    for number, later in enumerate(in_order):
        for first in in_order[:number]:
            a, b = _rank(first), _rank(later)
            # Within one Ingress, rules are in nginx's order, which decides where the rank does not.
            if (b < a or (a == b and first.ingress != later.ingress)) and _overlap(first.value, later.value):
                yield later, first
                break


def _matched(ingress: IngressObject, value: str, converted: ConvertedPath, remarks: Remarks) -> ConvertedPath | None:
    """Return ``converted`` with the match of ``value`` as an expression for the beginning of a path."""
    if value == "/":
        return replace(converted, match=HTTPPathMatch("PathPrefix", "/"))
    if problem := _expression_problem(value):
        return _lost(ingress, value, problem, remarks)
    if not _LITERAL.fullmatch(value):
        remarks.note(ingress, f"path {value}", "regular expressions are matched as the implementation does: RE2 here")
    # Nothing is shortened: the length of the text decides which of two expressions goes first.
    return replace(converted, match=HTTPPathMatch("RegularExpression", f"(?i){value}.*"))


def _expression_problem(value: str) -> str:
    rest = value
    while (shorter := _NESTED.sub("", rest)) != rest:
        rest = shorter
    if "|" in rest:
        return "the alternatives are not in a group, so nginx matches the last ones anywhere in a path"
    return re2_problem(value)


def re2_problem(expression: str) -> str:
    """Return why RE2 does not compile an expression of nginx; empty when it does."""
    try:
        _RE2.compile(expression.encode(), _OPTIONS)
    except _RE2.error:
        return "RE2 has no lookaround, backreferences or other syntax of PCRE"
    return ""


def _cut(ingress: IngressObject, value: str, target: str, remarks: Remarks) -> ConvertedPath | None:
    for pattern, group, otherwise in _CUT:
        matched = pattern.fullmatch(value)
        if matched is None or not target.endswith(f"/{group}") or "$" in target.removesuffix(group):
            continue
        prefix, new = matched["prefix"] or "/", target.removesuffix(group)
        match, redirect, change = HTTPPathMatch("PathPrefix", prefix), None, None
        if new.startswith(_URL):
            redirect = redirect_to(new, 302, keep_rest=True)
            if redirect is None:
                break
        elif not is_request_path(new):
            break
        elif (new := new.removesuffix("/") or "/") != prefix:
            change = PathModifierSpec("ReplacePrefixMatch", replace_prefix_match=new)
        if prefix != "/":
            remarks.lost(ingress, f"path {value}", f"of PathPrefix {prefix}, {otherwise}")
        return ConvertedPath(match, change, redirect)
    return _lost(ingress, value, f"rewrite-target {target} is more than a prefix that is replaced", remarks)


def _lost(ingress: IngressObject, value: str, why: str, remarks: Remarks) -> None:
    remarks.lost(ingress, f"path {value}", f"{why}; the path is left out")


def _rank(path: PathOfHost) -> tuple[int, int]:
    match = path.converted.match
    if match.type == "RegularExpression":
        return 0, -len(match.value or "")
    return (2, 0) if match.value == "/" else (1, -len(match.value or ""))


def _overlap(first: str, second: str) -> bool:
    """Return whether one request may match both expressions; in doubt it may."""
    a, b = _head(first), _head(second)
    return a.startswith(b) or b.startswith(a)


def _head(value: str) -> str:
    match = _HEAD.match(value)
    if match is None:
        return ""
    literal = match["literal"].lower()
    return literal[:-1] if match["next"] in {"*", "?", "{"} else literal
