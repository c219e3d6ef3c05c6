"""What annotations for a whole Ingress become: filters, redirects, retries, sessions, other hosts."""

from __future__ import annotations

from typing import Any

import pytest
from convert_builders import convert, ingress, remarks, routes, rules

from fairlead.api.gateway_routes import PathModifierSpec, RedirectFilter


def redirect(**annotations: Any) -> RedirectFilter | None:
    (rule,) = rules(convert(ingress(**annotations)))
    return next((each.request_redirect for each in rule.filters or () if each.request_redirect), None)


@pytest.mark.req("E-35")
@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (
            {"permanent_redirect": "https://b.org:8443/x"},
            RedirectFilter("https", "b.org", PathModifierSpec("ReplaceFullPath", "/x"), 8443, 301),
        ),
        (
            {"permanent_redirect": "https://b.org", "permanent_redirect_code": "308"},
            RedirectFilter("https", "b.org", PathModifierSpec("ReplaceFullPath", "/"), None, 308),
        ),
        ({"temporal_redirect": "http://b.org$request_uri"}, RedirectFilter("http", "b.org", None, None, 302)),
        (
            {"temporal_redirect": "/x", "permanent_redirect": "/y"},
            RedirectFilter(None, None, PathModifierSpec("ReplaceFullPath", "/x"), None, 302),
        ),
    ],
)
def test_redirects(annotations: dict[str, Any], expected: RedirectFilter) -> None:
    assert redirect(**annotations) == expected


@pytest.mark.parametrize("url", ["https://$host/x", "https://b.org/x?y", "ftp://b.org/", "https://b.org:x/"])
def test_a_redirect_that_cannot_be_said_is_lost(url: str) -> None:
    conversion = convert(ingress(permanent_redirect=url))
    assert [each.partition(":")[0] for each in remarks(conversion)] == ["permanent-redirect"]


def test_a_redirect_that_cannot_be_said_leaves_the_backend_unreached_no_other_way() -> None:
    (rule,) = rules(convert(ingress(permanent_redirect="https://b.org/$uri")))
    assert rule.backend_refs


def test_numbers_that_are_none_are_listed() -> None:
    conversion = convert(
        ingress(enable_cors="true", cors_max_age="soon", permanent_redirect="/", permanent_redirect_code="200")
    )
    assert [each.partition(":")[0] for each in remarks(conversion)] == ["cors-max-age", "permanent-redirect-code"]


def test_cors_has_the_defaults_of_nginx() -> None:
    (rule,) = rules(convert(ingress(enable_cors="true", cors_allow_credentials="false", cors_expose_headers="x, y")))
    (cors,) = [each.cors for each in rule.filters or ()]
    assert cors is not None
    assert (cors.allow_origins, cors.allow_credentials, cors.max_age) == (["*"], False, 1_728_000)
    assert (cors.expose_headers, len(cors.allow_methods or ())) == (["x", "y"], 6)


def test_headers_hosts_retries_and_sessions() -> None:
    conversion = convert(
        ingress(
            upstream_vhost="inner", x_forwarded_prefix="/p", proxy_next_upstream="error http_503",
            proxy_next_upstream_tries="5", affinity="cookie", session_cookie_expires="60", server_alias="b.org,~c",
        )
    )  # fmt: skip
    (rule,) = rules(conversion)
    assert [each.type for each in rule.filters or ()] == ["RequestHeaderModifier", "URLRewrite"]
    assert rule.retry is not None
    assert (rule.retry.codes, rule.retry.attempts) == ([503], 4)
    assert rule.session_persistence is not None
    assert rule.session_persistence.absolute_timeout == "60s"
    assert routes(conversion)["web"].spec.hostnames == ["a.example.com", "b.org"]
    assert len(remarks(conversion)) == 1


def test_a_session_without_an_age_ends_with_the_browser() -> None:
    (rule,) = rules(convert(ingress(affinity="cookie")))
    assert rule.session_persistence is not None
    assert rule.session_persistence.absolute_timeout is None
    assert rule.session_persistence.session_name == "INGRESSCOOKIE"
