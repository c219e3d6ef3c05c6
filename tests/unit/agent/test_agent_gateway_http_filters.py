"""Filters of HTTPRoutes and GRPCRoutes, at rules and at backends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.gateway.http_rules import BackendRefs, Unusable, build_backend_filters, build_filters
from fairlead.api.gateway import RouteFilter
from fairlead.model.http import Cors, Filters, HeaderModifier, HeaderValue, Mirror, PathModifier, Redirect, Rewrite
from tests.unit.agent.gateway_builders import ref, service

MODIFIER = {"set": [{"name": "a", "value": "1"}], "add": [{"name": "b", "value": "2"}], "remove": ["c"]}
MODIFIED = HeaderModifier((HeaderValue("a", "1"),), (HeaderValue("b", "2"),), ("c",))


def refs() -> BackendRefs:
    services = {("infra", "web"): service()}
    return BackendRefs(kind="HTTPRoute", namespace="infra", services=services, grants=(), policies={})


def converted(*filters: dict[str, Any]) -> list[RouteFilter]:
    return msgspec.convert(list(filters), list[RouteFilter])


def built(*filters: dict[str, Any]) -> Filters:
    return build_filters(converted(*filters), refs())


def mirror(**how: Any) -> dict[str, Any]:
    return {"type": "RequestMirror", "requestMirror": {"backendRef": ref(), **how}}


def redirect(**how: Any) -> dict[str, Any]:
    return {"type": "RequestRedirect", "requestRedirect": how}


@pytest.mark.req("G-59", "G-70")
def test_header_modifiers() -> None:
    both = built(
        {"type": "RequestHeaderModifier", "requestHeaderModifier": MODIFIER},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"remove": ["x"]}},
    )
    assert both == Filters(request_headers=MODIFIED, response_headers=HeaderModifier(remove=("x",)))


@pytest.mark.req("G-58", "G-72", "G-73")
def test_redirects() -> None:
    assert built(redirect()).redirect == Redirect()
    path = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}
    whole = redirect(scheme="https", hostname="b.com", path=path, port=8443, statusCode=308)
    assert built(whole).redirect == Redirect("https", "b.com", PathModifier("ReplacePrefixMatch", "/new"), 8443, 308)


@pytest.mark.req("G-74")
def test_rewrites() -> None:
    path = {"type": "ReplaceFullPath", "replaceFullPath": "/x"}
    rewritten = built({"type": "URLRewrite", "urlRewrite": {"hostname": "b.com", "path": path}}).rewrite
    assert rewritten == Rewrite("b.com", PathModifier("ReplaceFullPath", "/x"))


@pytest.mark.req("G-75")
def test_mirrors() -> None:
    mirrors = built(
        mirror(),
        mirror(percent=20),
        mirror(percent=0),
        mirror(fraction={"numerator": 25, "denominator": 50}),
        mirror(fraction={"numerator": 7}),
    ).mirrors
    name = "infra/web:80"
    shares = [(100, 100), (20, 100), (0, 100), (25, 50), (7, 100)]
    assert mirrors == tuple(Mirror(name, *share) for share in shares)


@pytest.mark.req("G-78")
def test_cors() -> None:
    assert built({"type": "CORS", "cors": {"allowOrigins": ["https://*.bar.com"]}}).cors == Cors(("https://*.bar.com",))
    lists = {"allowOrigins": ["*"], "allowMethods": ["PUT"], "allowHeaders": ["x"], "exposeHeaders": ["y"]}
    whole = built({"type": "CORS", "cors": {**lists, "allowCredentials": True, "maxAge": 0}}).cors
    assert whole == Cors(("*",), ("PUT",), ("x",), ("y",), allow_credentials=True, max_age=0)


@pytest.mark.req("G-20")
@pytest.mark.parametrize(
    ("filters", "reason", "sentence"),
    [
        (
            [{"type": "ExtensionRef", "extensionRef": {"name": "x"}}],
            "UnsupportedValue",
            "ExtensionRef is not supported",
        ),
        ([{"type": "ExternalAuth", "externalAuth": {}}], "UnsupportedValue", "protocol .. is not supported"),
        ([{"type": "Later"}], "UnsupportedValue", "Later is not supported"),
        ([{"type": "CORS"}], "UnsupportedValue", "CORS is not supported"),
        ([redirect(), redirect()], "IncompatibleFilters", "RequestRedirect is there twice"),
        ([redirect(), {"type": "URLRewrite", "urlRewrite": {}}], "IncompatibleFilters", "exclude each other"),
        ([redirect(scheme="ftp")], "UnsupportedValue", "neither http nor https"),
        ([redirect(statusCode=418)], "UnsupportedValue", "invalid redirect status code 418"),
        ([redirect(path={"type": "Later"})], "UnsupportedValue", "path modifier Later is not supported"),
    ],
)
def test_what_cannot_be_programmed(filters: list[dict[str, Any]], reason: str, sentence: str) -> None:
    with pytest.raises(Unusable, match=sentence) as caught:
        built(*filters)
    assert caught.value.reason == reason


@pytest.mark.req("G-71")
def test_filters_of_a_backend() -> None:
    modifier = {"type": "RequestHeaderModifier", "requestHeaderModifier": MODIFIER}
    assert build_backend_filters(converted(modifier), refs(), alone=False).request_headers == MODIFIED
    assert build_backend_filters(converted(mirror()), refs(), alone=True).mirrors == (Mirror("infra/web:80"),)
    hostname = {"type": "URLRewrite", "urlRewrite": {"hostname": "b.com"}}
    assert build_backend_filters(converted(hostname), refs(), alone=False).rewrite == Rewrite("b.com")


@pytest.mark.parametrize(
    ("backend_filter", "sentence"),
    [
        (redirect(), "RequestRedirect belongs to the rule"),
        ({"type": "CORS", "cors": {}}, "CORS belongs to the rule"),
        ({"type": "ExternalAuth", "externalAuth": {}}, "ExternalAuth belongs to the rule"),
        (mirror(), "RequestMirror belongs to the rule, not to one of several"),
        ({"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath"}}}, "path belongs to the rule"),
    ],
)
def test_what_a_backend_cannot_have(backend_filter: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Unusable, match=sentence):
        build_backend_filters(converted(backend_filter), refs(), alone=False)
