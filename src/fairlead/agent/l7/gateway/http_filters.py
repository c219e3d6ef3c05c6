"""The filters of an HTTPRoute or GRPCRoute, at a rule and at one of its backends.

    filter                                       at a rule   at a backend
    -------------------------------------------  ----------  -----------------------------
    RequestHeaderModifier, ResponseHeaderModifier  yes         yes
    RequestMirror                                  yes         of a rule with one backend
    URLRewrite                                     yes         hostname only
    RequestRedirect, CORS                          yes         no
    ExtensionRef, ExternalAuth, unknown ones       no          no

In: filters. Out: ``Filters``, or ``Unusable`` with a reason of condition Accepted. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from fairlead.agent.l7.gateway.backend_refs import BackendRefs
from fairlead.api.gateway import (
    CorsFilter,
    HeaderFilter,
    HeaderPair,
    Match,
    MirrorFilter,
    PathModifierSpec,
    RedirectFilter,
    RewriteFilter,
    RouteFilter,
)
from fairlead.model.http import Cors, Filters, HeaderModifier, HeaderValue, Mirror, PathModifier, Redirect, Rewrite

_Header = TypeVar("_Header", HeaderPair, Match)

_CORS_MAX_AGE_S = 5
_AT_RULES_ONLY = frozenset({"RequestRedirect", "CORS"})
#: All others may be there once.
_MANY = frozenset({"RequestMirror"})


class Unusable(ValueError):
    """A rule asks for what cannot be done; ``reason`` is that of condition Accepted."""

    def __init__(self, message: str, *, reason: str = "UnsupportedValue") -> None:
        super().__init__(message)
        self.reason = reason


def build_filters(filters: Iterable[RouteFilter] | None, refs: BackendRefs) -> Filters:
    """Return the filters of a rule; raises ``Unusable``."""
    return _Builder(refs).build(filters or ())


def build_backend_filters(filters: Iterable[RouteFilter] | None, refs: BackendRefs, *, alone: bool) -> Filters:
    """Return the filters of a backend, ``alone`` when its rule has no other; raises ``Unusable``."""
    filters = tuple(filters or ())
    for each in filters:
        if each.type in _AT_RULES_ONLY:
            raise Unusable(f"a filter {each.type} belongs to the rule, not to one of its backends")
    built = _Builder(refs).build(filters)
    if built.rewrite is not None and built.rewrite.path is not None:
        raise Unusable("a URLRewrite of the path belongs to the rule, not to one of its backends")
    if built.mirrors and not alone:
        raise Unusable("a filter RequestMirror belongs to the rule, not to one of several backends")
    return built


class _Builder:
    def __init__(self, refs: BackendRefs) -> None:
        self._refs = refs

    def build(self, filters: Iterable[RouteFilter]) -> Filters:
        by_type: dict[str, RouteFilter] = {}
        mirrors: list[Mirror] = []
        for each in filters:
            if each.type in by_type and each.type not in _MANY:
                raise Unusable(f"the filter {each.type} is there twice", reason="IncompatibleFilters")
            by_type[each.type] = each
            if each.request_mirror is not None:
                mirrors.append(self._mirror(each.request_mirror))
            elif not _is_known(each):
                raise Unusable(f"the filter {each.type} is not supported")
        if "RequestRedirect" in by_type and "URLRewrite" in by_type:
            raise Unusable("RequestRedirect and URLRewrite exclude each other", reason="IncompatibleFilters")
        of = {kind: by_type.get(kind, RouteFilter()) for kind in _KNOWN}
        return Filters(
            request_headers=_modifier(of["RequestHeaderModifier"].request_header_modifier),
            response_headers=_modifier(of["ResponseHeaderModifier"].response_header_modifier),
            redirect=_redirect(of["RequestRedirect"].request_redirect),
            rewrite=_rewrite(of["URLRewrite"].url_rewrite),
            mirrors=tuple(mirrors),
            cors=_cors(of["CORS"].cors),
        )

    def _mirror(self, mirror: MirrorFilter) -> Mirror:
        backend = self._refs.resolve(mirror.backend_ref)
        if mirror.percent is not None:
            return Mirror(backend, mirror.percent, 100)
        if mirror.fraction is not None:
            return Mirror(backend, mirror.fraction.numerator, mirror.fraction.denominator or 100)
        return Mirror(backend)


_KNOWN = ("RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect", "URLRewrite", "CORS")


def _is_known(each: RouteFilter) -> bool:
    """Return whether the field that belongs to the type of a filter is there."""
    fields = (
        each.request_header_modifier,
        each.response_header_modifier,
        each.request_redirect,
        each.url_rewrite,
        each.cors,
    )
    return any(kind == each.type and field is not None for kind, field in zip(_KNOWN, fields, strict=True))


def _modifier(modifier: HeaderFilter | None) -> HeaderModifier | None:
    if modifier is None:
        return None
    return HeaderModifier(
        set=_pairs(modifier.set),
        add=_pairs(modifier.add),
        remove=tuple(modifier.remove or ()),
    )


def _pairs(pairs: Iterable[HeaderPair] | None) -> tuple[HeaderValue, ...]:
    return tuple(HeaderValue(pair.name, pair.value) for pair in first_of_each_header(pairs))


def first_of_each_header(headers: Iterable[_Header] | None) -> Iterable[_Header]:
    """Return the first entry of each header: names that differ in case are of one header, as Gateway API says."""
    first: dict[str, _Header] = {}
    for header in headers or ():
        first.setdefault(header.name.lower(), header)
    return first.values()


def _redirect(redirect: RedirectFilter | None) -> Redirect | None:
    if redirect is None:
        return None
    scheme, code = redirect.scheme or "", redirect.status_code or 302
    match scheme:
        case "" | "http" | "https":
            pass
        case _:
            raise Unusable(f"RequestRedirect: the scheme {scheme!r} is neither http nor https")
    match code:
        case 301 | 302 | 303 | 307 | 308:
            pass
        case _:
            raise Unusable(f"RequestRedirect: {code} is no status code of a redirect; use 301, 302, 303, 307 or 308")
    return Redirect(
        scheme=scheme,
        hostname=redirect.hostname or "",
        path=_path(redirect.path),
        port=redirect.port or 0,
        status_code=code,
    )


def _rewrite(rewrite: RewriteFilter | None) -> Rewrite | None:
    return None if rewrite is None else Rewrite(rewrite.hostname or "", _path(rewrite.path))


def _path(modifier: PathModifierSpec | None) -> PathModifier | None:
    if modifier is None:
        return None
    match modifier.type:
        case "ReplaceFullPath":
            return PathModifier("ReplaceFullPath", modifier.replace_full_path or "")
        case "ReplacePrefixMatch":
            return PathModifier("ReplacePrefixMatch", modifier.replace_prefix_match or "")
        case _:
            raise Unusable(f"the path modifier {modifier.type} is not supported")


def _cors(cors: CorsFilter | None) -> Cors | None:
    if cors is None:
        return None
    return Cors(
        allow_origins=tuple(cors.allow_origins or ()),
        allow_methods=tuple(cors.allow_methods or ()),
        allow_headers=tuple(cors.allow_headers or ()),
        expose_headers=tuple(cors.expose_headers or ()),
        allow_credentials=bool(cors.allow_credentials),
        max_age=_CORS_MAX_AGE_S if cors.max_age is None else cors.max_age,
    )
