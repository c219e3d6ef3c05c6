"""The annotations of one Ingress of ingress-nginx as filters of Gateway API.

In: annotations by their short names. Out: ``NginxSettings``: one redirect or a list of filters, retries, sessions,
other hosts. What is written wrongly is a remark, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

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
from fairlead.convert.annotations import number_of
from fairlead.convert.remarks import Remarks
from fairlead.model.numbers import whole_number

_REDIRECT_CODES = frozenset({301, 302, 303, 307, 308})
_METHODS = "GET, PUT, POST, DELETE, PATCH, OPTIONS"
_HEADERS = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization"
#: How often nginx tries in all, and for how long a browser keeps what CORS allows, when nothing is said.
_TRIES, _MAX_AGE_S = 3, 1_728_000


class NginxSettings(msgspec.Struct, frozen=True):
    """The settings of all paths of an Ingress. With ``redirect`` nothing reaches a backend.

    ``force_https``: plain requests are redirected where a host has TLS; ``always_https`` also where it has none.
    """

    filters: tuple[RouteFilter, ...] = ()
    hostname: str = ""
    redirect: RedirectFilter | None = None
    app_root: str = ""
    retry: HTTPRetry | None = None
    session: SessionPersistenceSpec | None = None
    aliases: tuple[str, ...] = ()
    force_https: bool = True
    always_https: bool = False
    www: bool = False
    passthrough: bool = False


def read_settings(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> NginxSettings:
    """Return the settings of the annotations."""
    return NginxSettings(
        filters=tuple(_filters(ingress, annotations, remarks)),
        hostname=annotations.get("upstream-vhost", ""),
        redirect=_redirect(ingress, annotations, remarks),
        app_root=annotations.get("app-root", ""),
        retry=_retry(ingress, annotations, remarks),
        session=_session(ingress, annotations, remarks),
        aliases=tuple(_aliases(ingress, annotations, remarks)),
        force_https=annotations.get("ssl-redirect") != "false",
        always_https=annotations.get("force-ssl-redirect") == "true",
        www=annotations.get("from-to-www-redirect") == "true",
        passthrough=annotations.get("ssl-passthrough") == "true",
    )


def _filters(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> Iterator[RouteFilter]:
    if annotations.get("enable-cors") == "true":
        yield RouteFilter(type="CORS", cors=_cors(ingress, annotations, remarks))
    if prefix := annotations.get("x-forwarded-prefix", ""):
        header = HeaderFilter(set=[HeaderPair("X-Forwarded-Prefix", prefix)])
        yield RouteFilter(type="RequestHeaderModifier", request_header_modifier=header)


def _cors(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> CorsFilter:
    remarks.note(ingress, "enable-cors", "the CORS filter needs the experimental channel of Gateway API's CRDs")
    expose = _list(annotations.get("cors-expose-headers", ""))
    return CorsFilter(
        allow_origins=_list(annotations.get("cors-allow-origin", "*")),
        allow_methods=_list(annotations.get("cors-allow-methods", _METHODS)),
        allow_headers=_list(annotations.get("cors-allow-headers", _HEADERS)),
        expose_headers=expose or None,
        allow_credentials=annotations.get("cors-allow-credentials") != "false",
        max_age=number_of(ingress, annotations, "cors-max-age", _MAX_AGE_S, remarks),
    )


def _redirect(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> RedirectFilter | None:
    # nginx takes the temporal one when there are both.
    for name, default in (("temporal-redirect", 302), ("permanent-redirect", 301)):
        if url := annotations.get(name, ""):
            code = number_of(ingress, annotations, f"{name}-code", default, remarks)
            if code not in _REDIRECT_CODES:
                remarks.lost(ingress, f"{name}-code", f"{code} is none of {sorted(_REDIRECT_CODES)}: {default} is used")
                code = default
            return _redirect_to(ingress, name, url, code, remarks)
    return None


def _redirect_to(ingress: IngressObject, name: str, url: str, code: int, remarks: Remarks) -> RedirectFilter | None:
    keeps_path = url.endswith("$request_uri")
    try:
        parts = urlsplit(url.removesuffix("$request_uri"))
        port = parts.port
    except ValueError:
        remarks.lost(ingress, name, f"{url} is no URL")
        return None
    if (
        "$" in url.removesuffix("$request_uri")
        or parts.query
        or parts.fragment
        or parts.scheme not in ("", "http", "https")
    ):
        remarks.lost(ingress, name, f"{url} has variables, a query or a scheme that a RequestRedirect cannot have")
        return None
    path = None if keeps_path else PathModifierSpec("ReplaceFullPath", replace_full_path=parts.path or "/")
    if not keeps_path:
        remarks.note(ingress, name, "the query of a request is kept; nginx drops it")
    return RedirectFilter(parts.scheme or None, parts.hostname or None, path, port, code)


def _retry(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> HTTPRetry | None:
    when = annotations.get("proxy-next-upstream", "").split()
    codes = sorted({code for each in when if (code := whole_number(each.removeprefix("http_"))) is not None})
    if not codes:
        return None
    remarks.note(ingress, "proxy-next-upstream", "retry needs the experimental channel of Gateway API's CRDs")
    tries = number_of(ingress, annotations, "proxy-next-upstream-tries", _TRIES, remarks)
    return HTTPRetry(codes=[code for code in codes if code >= 400], attempts=max(1, tries - 1))


def _session(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> SessionPersistenceSpec | None:
    if annotations.get("affinity") != "cookie":
        return None
    remarks.note(ingress, "affinity", "sessionPersistence needs the experimental channel of Gateway API's CRDs")
    name = annotations.get("session-cookie-name", "INGRESSCOOKIE")
    expires = "session-cookie-max-age" if "session-cookie-max-age" in annotations else "session-cookie-expires"
    age_s = number_of(ingress, annotations, expires, 0, remarks)
    if not age_s:
        return SessionPersistenceSpec(session_name=name, type="Cookie")
    return SessionPersistenceSpec(
        session_name=name, absolute_timeout=f"{age_s}s", type="Cookie", cookie_config={"lifetimeType": "Permanent"}
    )


def _aliases(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> Iterator[str]:
    for alias in _list(annotations.get("server-alias", "")):
        if alias.startswith("~"):
            remarks.lost(ingress, "server-alias", f"{alias} is a regular expression; a hostname may begin with *. only")
        else:
            yield alias.lower()


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
