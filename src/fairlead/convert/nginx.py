"""The annotations of one Ingress of ingress-nginx as filters of Gateway API.

In: annotations by their short names. Out: ``NginxSettings``: one redirect or a list of filters, retries, sessions,
other hosts. What is written wrongly is a remark, and is left out. No filter admits more requests than nginx does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import SplitResult, urlsplit

import msgspec

from fairlead.api.gateway_routes import (
    CorsFilter,
    HeaderFilter,
    HeaderPair,
    HTTPRetry,
    PathModifierSpec,
    RedirectFilter,
    RouteFilter,
    SessionPersistenceSpec,
)
from fairlead.api.ingress import IngressObject
from fairlead.api.times import gateway_duration
from fairlead.convert.annotations import flag_of, number_of
from fairlead.convert.remarks import Remarks
from fairlead.model.in_words import whole_number

_REDIRECT_CODES = frozenset({301, 302, 303, 307, 308})
_DEFAULT_METHODS = "GET, PUT, POST, DELETE, PATCH, OPTIONS"
_HEADERS = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization"
#: The methods that the schema of a CORS filter has; browsers compare them with regard to case.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"})
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?")
#: How often nginx tries in all, and for how long a browser keeps what CORS allows, when no annotation sets it.
_TRIES, _MAX_AGE_S = 3, 1_728_000
_REQUEST_URI = "$request_uri"
#: What may be sent as the path of a request: no space, control character, query, fragment or variable.
_TARGET = re.compile(r"/[!\"%-\x3e@-~]*")


class NginxSettings(msgspec.Struct, frozen=True):
    """The settings of all paths of an Ingress. With ``redirect`` nothing reaches a backend.

    ``unserved``: nginx answers every request itself in a way that cannot be converted. ``force_https``: plain requests
    are redirected where a host has TLS; ``always_https`` also where it has none.
    """

    filters: tuple[RouteFilter, ...] = ()
    hostname: str = ""
    redirect: RedirectFilter | None = None
    unserved: bool = False
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
    return NginxSettings(
        filters=tuple(_filters(ingress, annotations, remarks)),
        hostname=_hostname(ingress, annotations, remarks),
        redirect=redirect,
        unserved=unserved,
        app_root=_app_root(ingress, annotations, remarks),
        retry=_retry(ingress, annotations, remarks),
        session=_session(ingress, annotations, remarks),
        aliases=tuple(_aliases(ingress, annotations, remarks)),
        force_https=flag_of(annotations, "ssl-redirect", default=True),
        always_https=flag_of(annotations, "force-ssl-redirect"),
        www=flag_of(annotations, "from-to-www-redirect"),
        passthrough=flag_of(annotations, "ssl-passthrough"),
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
        max_age=max(1, max_age),
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
    numbers = (whole_number(each.removeprefix("http_")) for each in when)
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
    if annotations.get("affinity") != "cookie":
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
    return msgspec.structs.replace(session, absolute_timeout=timeout, cookie_config={"lifetimeType": "Permanent"})


def _aliases(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> Iterator[str]:
    for alias in dict.fromkeys(each.lower() for each in _list(annotations.get("server-alias", ""))):
        if alias.startswith("~"):
            remarks.lost(ingress, "server-alias", f"{alias} is a regular expression; a hostname may begin with *. only")
        else:
            yield alias


def _list(text: str, separator: str = ",") -> list[str]:
    return [part.strip() for part in re.split(separator, text) if part.strip()]
