"""Which routes the hosts of an Ingress become."""

from __future__ import annotations

from typing import Any

import pytest
from convert_builders import convert, ingress, of_kind, path, remarks, routes, rules

from fairlead.convert.ingresses import ConvertedIngresses

TLS = [{"hosts": ["a.example.com"], "secretName": "s"}]


def sections(conversion: ConvertedIngresses, name: str) -> list[str | None]:
    return [each.section_name for each in routes(conversion)[name].spec.parent_refs or ()]


@pytest.mark.req("E-35", "GI-5")
def test_a_host_with_tls_is_redirected_unless_that_is_off() -> None:
    conversion = convert(ingress(tls=TLS))
    assert sections(conversion, "web") == ["https-a.example.com"]
    assert sections(conversion, "web-to-https") == ["http"]
    (rule,) = rules(conversion, "web-to-https")
    (redirect,) = [each.request_redirect for each in rule.filters or ()]
    assert redirect is not None
    assert (redirect.scheme, redirect.status_code) == ("https", 308)
    off = convert(ingress(tls=TLS, ssl_redirect="false"))
    assert list(routes(off)) == ["web"]
    assert sections(off, "web") == ["http", "https-a.example.com"]


def test_a_forced_redirect_without_a_certificate_is_lost() -> None:
    conversion = convert(ingress(force_ssl_redirect="true"))
    assert [each.partition(":")[0] for each in remarks(conversion)] == ["force-ssl-redirect"]


def test_the_default_backend_is_behind_the_paths_of_each_host_and_for_all_others() -> None:
    conversion = convert(ingress(default="other", tls=TLS, hosts={"a.example.com": [path("/a")]}, ssl_redirect="false"))
    backends = [[ref.name for ref in rule.backend_refs or ()] for rule in rules(conversion, "web-a.example.com")]
    assert backends == [["web"], ["other"]]
    assert sections(conversion, "web-default") == ["http"]
    assert not routes(conversion)["web-default"].spec.hostnames


def test_paths_of_every_host_follow_those_of_a_certified_host() -> None:
    hosts = {"": [path("/a", "every"), path("/b", "every")], "a.example.com": [path("/a")]}
    conversion = convert(ingress(hosts=hosts, tls=TLS, ssl_redirect="false"))
    (rule,) = rules(conversion, "web-default-a.example.com-https")
    (match,) = rule.matches or []
    assert match.path is not None
    assert match.path.value == "/b"


def test_of_two_ingresses_with_one_path_the_older_keeps_it() -> None:
    old, new = ingress("z", created="2026-01-01T00:00:00Z"), ingress("a", created="2026-02-01T00:00:00Z")
    conversion = convert(new, old)
    assert list(routes(conversion)) == ["z"]
    assert "Ingress default/z is older" in remarks(conversion, lost=False)[0]


def test_more_rules_than_a_route_may_have_are_in_several() -> None:
    conversion = convert(ingress(hosts={"a.example.com": [path(f"/{number}") for number in range(40)]}))
    assert {name: len(route.spec.rules or ()) for name, route in routes(conversion).items()} == {
        "web": 16, "web-02": 16, "web-03": 8
    }  # fmt: skip


def test_more_matches_than_a_rule_may_have_are_in_several() -> None:
    conversion = convert(ingress(hosts={"a.example.com": [path(f"/{number}") for number in range(70)]}, tls=TLS))
    assert [len(rule.matches or ()) for rule in rules(conversion, "web-to-https")] == [64, 6]


def test_app_root_and_www() -> None:
    conversion = convert(ingress(app_root="/app", from_to_www_redirect="true", tls=TLS))
    first = rules(conversion)[0]
    (redirect,) = [each.request_redirect for each in first.filters or ()]
    assert redirect is not None
    assert redirect.path is not None
    assert redirect.path.replace_full_path == "/app"
    assert routes(conversion)["web-www"].spec.hostnames == ["www.a.example.com"]
    assert "no certificate for www.a.example.com" in remarks(conversion, lost=False)[0]
    back = convert(ingress(hosts={"www.b.org": [path()]}, from_to_www_redirect="true"))
    assert routes(back)["web-www"].spec.hostnames == ["b.org"]
    other = ingress("other", {"www.a.example.com": [path("/x")]})
    assert "web-www" not in routes(convert(ingress(from_to_www_redirect="true"), other)), "nginx does not redirect it"


@pytest.mark.req("L7-10")
@pytest.mark.parametrize(
    ("annotations", "tls", "redirected"),
    [
        ({"force_ssl_redirect": "true"}, [], True),
        ({}, TLS, True),
        ({"ssl_redirect": "false"}, TLS, False),
        ({}, [], False),
    ],
)
def test_plain_requests_are_never_sent_to_a_backend_of_tls(
    annotations: dict[str, Any], tls: list[dict[str, Any]], redirected: bool
) -> None:
    hosts = {"a.example.com": [path(), path("/b", "other")]}
    conversion = convert(ingress(ssl_passthrough="true", backend_protocol="HTTPS", hosts=hosts, tls=tls, **annotations))
    (route,) = of_kind(conversion, "TLSRoute")
    assert [each.section_name for each in route.spec.parent_refs] == ["tls-a.example.com"]
    assert "paths cannot be seen" in remarks(conversion, lost=False)[-1]
    plain = [rule for each in routes(conversion).values() for rule in each.spec.rules or ()]
    assert all(rule.filters and rule.filters[0].request_redirect and not rule.backend_refs for rule in plain)
    assert (bool(plain), conversion.lossless) == (redirected, redirected)
    assert not of_kind(conversion, "BackendTLSPolicy"), "nothing but the client speaks TLS"


@pytest.mark.req("L7-10")
def test_options_are_not_dropped_with_passthrough() -> None:
    conversion = convert(
        ingress(ssl_passthrough="true", force_ssl_redirect="true", from_to_www_redirect="true", server_alias="b.org")
    )
    assert "web-www" in routes(conversion)
    assert [each.partition(":")[0] for each in remarks(conversion)] == ["server-alias b.org"]


@pytest.mark.req("L7-5")
def test_more_than_a_route_may_have_is_in_several() -> None:
    aliases = [f"a{number}.org" for number in range(40)]
    hosts = {"a.example.com": [path(f"/{number}") for number in range(150)]}
    conversion = convert(ingress(hosts=hosts, tls=TLS, server_alias=",".join(aliases)))
    made = routes(conversion).values()
    assert max(len(each.spec.hostnames or ()) for each in made) == 16
    assert max(sum(len(rule.matches or ()) for rule in each.spec.rules or ()) for each in made) == 128
    assert {name for each in made for name in each.spec.hostnames or ()} == {"a.example.com", *aliases}
    many = [ingress(f"i{at}", {f"h{at}.org": [path()]}, namespace="theirs", tls=[{"hosts": [f"h{at}.org"],
            "secretName": f"s{at}"}]) for at in range(20)]  # fmt: skip
    grants = of_kind(convert(*many), "ReferenceGrant")
    assert [len(each.spec.to) for each in grants] == [16, 4]


def test_an_alias_that_is_the_host_of_another_ingress_is_ignored() -> None:
    conversion = convert(ingress(server_alias="b.org,c.org"), ingress("b", {"b.org": [path()]}))
    assert routes(conversion)["web"].spec.hostnames == ["a.example.com", "c.org"]


def test_an_alias_without_a_certificate_is_listed_and_a_star_is_too() -> None:
    conversion = convert(ingress(server_alias="b.org", tls=TLS, hosts={"a.example.com": [path()], "*.c.org": [path()]}))
    assert sorted({each.partition(":")[0] for each in remarks(conversion)}) == ["host *.c.org", "server-alias b.org"]
