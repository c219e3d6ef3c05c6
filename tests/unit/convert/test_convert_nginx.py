"""What annotations for a whole Ingress become: filters, redirects, retries, sessions, other hosts."""

from __future__ import annotations

from typing import Any

import pytest
from convert_builders import convert, ingress, remarks, routes, rules
from msgspec.structs import replace

from fairlead.api.gateway import CorsFilter, PathModifierSpec, RedirectFilter
from fairlead.api.names import ANNOTATION_BACKEND_TLS, ANNOTATION_CERTIFICATE_ISSUER, ANNOTATION_EXTERNAL_AUTH, GROUP
from fairlead.convert.ingresses import ConvertedIngresses


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
            {"temporal_redirect": "http://t.org/x", "permanent_redirect": "http://p.org/y"},
            RedirectFilter("http", "t.org", PathModifierSpec("ReplaceFullPath", "/x"), None, 302),
        ),
    ],
)
def test_redirects(annotations: dict[str, Any], expected: RedirectFilter) -> None:
    assert redirect(**annotations) == expected


@pytest.mark.req("L7-5", "L7-7")
@pytest.mark.parametrize(
    "url",
    [
        "https://$host/x", "https://b.org/x?y", "https://b.org:x/", "https://b.org/$uri", "https://u:p@b.org/",
        "https://b.org/x$request_uri", "https://b.org/a b", "https://my_host/",
    ],
)  # fmt: skip
def test_a_redirect_that_cannot_be_said_is_lost_and_the_backend_not_reached(url: str) -> None:
    conversion = convert(ingress(permanent_redirect=url))
    assert not conversion.lossless
    assert routes(conversion) == {}


@pytest.mark.req("L7-7")
@pytest.mark.parametrize("url", ["/x", "ftp://b.org/", "b.org"])
def test_a_redirect_that_nginx_ignores_is_none(url: str) -> None:
    conversion = convert(ingress(permanent_redirect=url))
    (rule,) = rules(conversion)
    assert rule.backend_refs
    assert not rule.filters
    assert "nginx ignores" in remarks(conversion, lost=False)[0]


def test_numbers_that_are_none_are_listed() -> None:
    conversion = convert(
        ingress(
            enable_cors="true", cors_max_age="soon", permanent_redirect="http://b.org", permanent_redirect_code="200"
        )
    )
    assert {each.partition(":")[0] for each in remarks(conversion)} == {"cors-max-age", "permanent-redirect-code"}


def test_cors_has_the_defaults_of_nginx() -> None:
    (rule,) = rules(convert(ingress(enable_cors="true", cors_allow_credentials="false", cors_expose_headers="x, y")))
    (cors,) = [each.cors for each in rule.filters or ()]
    assert cors is not None
    assert (cors.allow_origins, cors.allow_credentials, cors.max_age) == (["*"], False, 1_728_000)
    assert (cors.expose_headers, len(cors.allow_methods or ())) == (["x", "y"], 6)


def test_headers_hosts_retries_and_sessions() -> None:
    conversion = convert(
        ingress(
            upstream_vhost="inner", rewrite_target="/", x_forwarded_prefix="/p", proxy_next_upstream="error http_503",
            proxy_next_upstream_tries="5", affinity="cookie", session_cookie_expires="60", server_alias="b.org,~c",
        )
    )  # fmt: skip
    (rule,) = rules(conversion)
    assert [each.type for each in rule.filters or ()] == ["RequestHeaderModifier", "URLRewrite"]
    assert rule.retry is not None
    assert (rule.retry.codes, rule.retry.attempts) == ([503], 4)
    assert rule.session_persistence is not None
    assert rule.session_persistence.absolute_timeout == "1m"
    assert routes(conversion)["web"].spec.hostnames == ["a.example.com", "b.org"]
    assert len(remarks(conversion)) == 1


def test_a_session_without_an_age_ends_with_the_browser() -> None:
    (rule,) = rules(convert(ingress(affinity="cookie")))
    assert rule.session_persistence is not None
    assert rule.session_persistence.absolute_timeout is None
    assert rule.session_persistence.session_name == "INGRESSCOOKIE"


def cors_of(conversion: ConvertedIngresses) -> CorsFilter | None:
    (rule,) = rules(conversion)
    return next((each.cors for each in rule.filters or () if each.cors is not None), None)


@pytest.mark.req("L7-4")
@pytest.mark.parametrize("origins", [{}, {"cors_allow_origin": "*"}, {"cors_allow_origin": "https://a.org, *"}])
@pytest.mark.parametrize(
    "credentials", [{}, {"cors_allow_credentials": "true"}, {"cors_allow_credentials": "nonsense"}]
)
def test_every_origin_is_never_allowed_with_credentials(origins: dict[str, Any], credentials: dict[str, Any]) -> None:
    conversion = convert(ingress(enable_cors="true", **origins, **credentials))
    cors = cors_of(conversion)
    assert cors is not None
    assert (cors.allow_origins, cors.allow_credentials) == (["*"], False)
    assert conversion.lossless, "browsers refuse what nginx answers, too"


@pytest.mark.req("L7-4")
@pytest.mark.parametrize(("text", "allowed"), [("true", True), ("1", True), ("False", False), ("0", False), ("", True)])
def test_credentials_with_origins_are_as_go_reads_the_flag(text: str, allowed: bool) -> None:
    annotations: dict[str, Any] = {
        "enable_cors": "T",
        "cors_allow_origin": "https://a.org",
        "cors_allow_credentials": text,
    }
    cors = cors_of(convert(ingress(**annotations)))
    assert cors is not None
    assert (cors.allow_origins, cors.allow_credentials) == (["https://a.org"], allowed)


@pytest.mark.req("L7-4", "L7-5")
@pytest.mark.parametrize(
    ("annotation", "value", "field", "kept"),
    [
        ("cors_allow_origin", "https://*.ex.test,https://a.org", "allow_origins", ["https://a.org"]),
        ("cors_allow_origin", "null,https://a.org", "allow_origins", ["https://a.org"]),
        ("cors_allow_origin", "app://a.org,https://a.org:8443", "allow_origins", ["https://a.org:8443"]),
        ("cors_allow_methods", "get, PUT", "allow_methods", ["PUT"]),
        ("cors_allow_methods", "*", "allow_methods", None),
        ("cors_allow_headers", "*, X-A", "allow_headers", ["X-A"]),
        ("cors_expose_headers", "*", "expose_headers", None),
        ("cors_max_age", "0", "max_age", 1),
    ],
)
def test_what_a_cors_filter_would_admit_beyond_nginx_is_lost(
    annotation: str, value: str, field: str, kept: Any
) -> None:
    annotations: dict[str, Any] = {"enable_cors": "true", "cors_allow_origin": "https://a.org", annotation: value}
    conversion = convert(ingress(**annotations))
    assert getattr(cors_of(conversion), field) == kept
    assert annotation.replace("_", "-") in {each.partition(":")[0] for each in remarks(conversion)}


@pytest.mark.req("L7-4")
@pytest.mark.parametrize("origins", ["null", "https://*.ex.test", "ex.test"])
def test_without_an_origin_there_is_no_cors(origins: str) -> None:
    conversion = convert(ingress(enable_cors="true", cors_allow_origin=origins))
    assert cors_of(conversion) is None
    assert not conversion.lossless


@pytest.mark.req("L7-7")
@pytest.mark.parametrize(
    ("annotations", "what"),
    [
        ({"upstream_vhost": "$service_name.local"}, "upstream-vhost"),
        ({"upstream_vhost": "inner:8080"}, "upstream-vhost"),
        ({"app_root": "/$lang/"}, "app-root"),
        ({"app_root": "/a?b"}, "app-root"),
        ({"rewrite_target": "/", "x_forwarded_prefix": "/$1"}, "x-forwarded-prefix"),
    ],
)
def test_variables_and_queries_are_lost_and_not_copied(annotations: dict[str, Any], what: str) -> None:
    conversion = convert(ingress(**annotations))
    assert [each.partition(":")[0] for each in remarks(conversion)] == [what]
    assert "$" not in str(rules(conversion))


@pytest.mark.req("L7-7")
@pytest.mark.parametrize(
    "annotations",
    [{"app_root": "http://b.org/"}, {"app_root": "x"}, {"x_forwarded_prefix": "/p"}, {"upstream_vhost": "$host"}],
)
def test_what_has_no_effect_in_nginx_has_none(annotations: dict[str, Any]) -> None:
    conversion = convert(ingress(**annotations))
    assert conversion.lossless
    assert [rule.filters for rule in rules(conversion)] == [None]


@pytest.mark.req("L7-5")
@pytest.mark.parametrize(
    ("age", "timeout"), [("172800", "48h"), ("90061", "25h1m1s"), ("0", None), ("360000000", None)]
)
def test_the_age_of_a_session_is_a_duration_of_gateway_api(age: str, timeout: str | None) -> None:
    conversion = convert(ingress(affinity="cookie", session_cookie_max_age=age))
    (rule,) = rules(conversion)
    assert rule.session_persistence is not None
    assert rule.session_persistence.absolute_timeout == timeout
    assert conversion.lossless == (age != "360000000")


ALLOWED, DENIED = "fairlead.dev/allowed-sources", "fairlead.dev/denied-sources"


def lists(conversion: ConvertedIngresses) -> list[dict[str, str]]:
    return [dict(each.metadata.annotations or {}) for each in routes(conversion).values()]


@pytest.mark.req("F-8")
@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"whitelist_source_range": "10.0.0.5/8, 192.0.2.7"}, {ALLOWED: "10.0.0.0/8,192.0.2.7/32"}),
        ({"allowlist_source_range": "2001:db8::/32"}, {ALLOWED: "2001:db8::/32"}),
        (
            {"whitelist_source_range": "10.0.0.0/8", "denylist_source_range": "10.1.0.0/16"},
            {ALLOWED: "10.0.0.0/8", DENIED: "10.1.0.0/16"},
        ),
        ({"whitelist_source_range": "0.0.0.0/0,::/0"}, {}),
        ({"whitelist_source_range": ""}, {}),
    ],
)
def test_source_ranges_become_our_lists(annotations: dict[str, Any], expected: dict[str, str]) -> None:
    conversion = convert(ingress(**annotations))
    assert lists(conversion) == [expected]
    assert conversion.lossless


@pytest.mark.req("F-8")
def test_an_invalid_source_range_refuses_all_clients_as_in_nginx() -> None:
    conversion = convert(ingress(whitelist_source_range="10.0.0.0/8,office"))
    (route,) = routes(conversion).values()
    assert not any(rule.backend_refs for rule in route.spec.rules or ())
    assert "office" in remarks(conversion)[0]


@pytest.mark.req("F-19", "F-20", "F-21")
def test_annotations_of_fairlead_are_taken_over_or_listed() -> None:
    """An Ingress that is protected must not become a route that is not."""
    kept = {
        f"{GROUP}/{name}": "x"
        for name in (
            "access-log",
            "allowed-sources",
            "denied-sources",
            "external-processor",
            "jwt",
            "requests-per-second",
        )
    }
    lost = dict.fromkeys((ANNOTATION_BACKEND_TLS, ANNOTATION_CERTIFICATE_ISSUER, ANNOTATION_EXTERNAL_AUTH), "y")
    of = ingress(whitelist_source_range="10.0.0.0/8")
    annotations = {**(of.metadata.annotations or {}), **kept, **lost}
    of = replace(of, metadata=replace(of.metadata, annotations=annotations))
    converted = convert(of)
    assert routes(converted)["web"].metadata.annotations == kept
    assert {remark.partition(":")[0] for remark in remarks(converted)} == {*lost, "paths"}
