"""Every annotation is converted, listed as lost, or known to be without effect."""

from __future__ import annotations

from typing import Any

import pytest
from convert_builders import convert, ingress, remarks, routes

from fairlead.api.kubernetes import IngressObject
from fairlead.convert.annotations import (
    LOST,
    PREFIX,
    READ,
    WITHOUT_EFFECT,
    Remarks,
    nginx_annotations,
    of_other_controllers,
    protecting,
    protecting_any,
)


def test_an_annotation_is_in_one_of_the_three_tables_only() -> None:
    assert not READ & LOST.keys()
    assert not READ & WITHOUT_EFFECT
    assert not LOST.keys() & WITHOUT_EFFECT


@pytest.mark.req("E-35")
def test_what_cannot_be_said_is_listed_with_what_to_do() -> None:
    conversion = convert(ingress(auth_url="https://a", limit_rps="1", configuration_snippet="x"))
    assert not conversion.lossless
    lost = remarks(conversion)
    assert [each.partition(":")[0] for each in lost] == ["auth-url", "configuration-snippet", "limit-rps", "paths"]
    assert "in front of the backend" in lost[0]


def test_tuning_annotations_are_not_a_loss() -> None:
    conversion = convert(ingress(proxy_buffering="on"))
    assert conversion.lossless
    assert remarks(conversion, lost=False) == ["proxy-buffering: only tunes nginx; dropped"]


def test_an_annotation_that_is_not_known_is_lost() -> None:
    assert remarks(convert(ingress(new_thing="1"))) == ["new-thing: this version does not know the annotation"]


def test_those_of_others_are_not_looked_at() -> None:
    made = ingress(app_root=" /x ")
    made.metadata.annotations["example.com/x"] = "y"  # type: ignore[index]
    noted = Remarks()
    assert nginx_annotations(made, noted) == {"app-root": "/x"}
    assert noted.all() == ()


@pytest.mark.req("L7-12")
@pytest.mark.parametrize(
    ("ranges", "protects"),
    [("0.0.0.0/0,::/0", False), ("::/0, 10.0.0.0/8, 0.0.0.0/0", False), ("0.0.0.0/0", True), ("10.0.0.0/8", True)],
)
def test_source_ranges_of_all_addresses_keep_no_request_out(ranges: str, protects: bool) -> None:
    assert bool(protecting({"whitelist-source-range": ranges})) is protects
    assert protecting({"denylist-source-range": ranges})


def with_annotation(key: str, value: str, of: IngressObject | None = None, **annotations: Any) -> IngressObject:
    made = of or ingress(**annotations)
    made.metadata.annotations[key] = value  # type: ignore[index]
    return made


@pytest.mark.req("L7-4")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fairlead.dev/allowed-sources", "192.0.2.0/24"),
        ("fairlead.dev/requests-per-second", "5"),
        ("external-dns.alpha.kubernetes.io/ttl", "60"),
    ],
)
def test_annotations_that_routes_have_too_are_kept(key: str, value: str) -> None:
    conversion = convert(with_annotation(key, value, whitelist_source_range="10.0.0.0/8"))
    (route,) = routes(conversion).values()
    assert (route.metadata.annotations or {})[key] == value
    assert conversion.lossless


@pytest.mark.req("L7-4", "L7-12")
@pytest.mark.parametrize(
    "key",
    [
        "fairlead.dev/external-auth", "fairlead.dev/certificate-issuer", "cert-manager.io/cluster-issuer",
        "kubernetes.io/tls-acme", "external-dns.alpha.kubernetes.io/target",
        "traefik.ingress.kubernetes.io/router.middlewares", "haproxy.org/allow-list", "nginx.org/jwt-key",
        "alb.ingress.kubernetes.io/inbound-cidrs", "ingress.kubernetes.io/auth-url", "konghq.com/plugins",
        "kubernetes.io/ingress.allow-http", "haproxy-ingress.github.io/auth-url",
    ],
)  # fmt: skip
def test_annotations_that_only_an_ingress_has_are_lost(key: str) -> None:
    lost = [remark.partition(":")[0] for remark in remarks(convert(with_annotation(key, "x")))]
    assert [name for name in lost if name != "paths"] == [key]


_PROTECTIONS = [
    "nginx.ingress.kubernetes.io/auth-url", "nginx.ingress.kubernetes.io/auth-tls-secret",
    "nginx.ingress.kubernetes.io/enable-modsecurity", "fairlead.dev/external-auth", "konghq.com/plugins",
    "haproxy-ingress.github.io/auth-url", "traefik.ingress.kubernetes.io/router.middlewares",
]  # fmt: skip


@pytest.mark.req("L7-4", "L7-12")
@pytest.mark.parametrize("key", _PROTECTIONS)
def test_what_loses_its_protection_reaches_no_backend_and_keeps_its_path(key: str) -> None:
    conversion = convert(with_annotation(key, "true"))
    (route,) = routes(conversion).values()
    assert [rule.matches is not None and not rule.backend_refs for rule in route.spec.rules or ()] == [True]
    assert not conversion.lossless


@pytest.mark.req("L7-4", "L7-12")
@pytest.mark.parametrize(
    ("key", "own", "value"),
    [
        *((key, "fairlead.dev/ignored-annotations", key.removeprefix(PREFIX)) for key in _PROTECTIONS),
        (f"{PREFIX}enable-modsecurity", "fairlead.dev/external-processor", "{}"),
    ],
)
def test_a_protection_may_be_ignored_or_replaced(key: str, own: str, value: str) -> None:
    (route,) = routes(convert(with_annotation(own, value, of=with_annotation(key, "true")))).values()
    assert all(rule.backend_refs for rule in route.spec.rules or ())


@pytest.mark.parametrize(
    "annotations",
    [{"auth_url": ""}, {"enable_modsecurity": "false"}, {"proxy_body_size": "0"}, {"proxy_redirect_from": "off"}],
)
def test_a_disabled_annotation_is_not_lost(annotations: dict[str, Any]) -> None:
    assert convert(ingress(**annotations)).lossless


@pytest.mark.parametrize("ranges", [",", "010.0.0.0/8", "fe80::1%eth0", "10.0.0.0/8 192.0.2.0/24"])
def test_a_list_that_nginx_cannot_read_admits_no_client(ranges: str) -> None:
    (route,) = routes(convert(ingress(whitelist_source_range=ranges))).values()
    assert not any(rule.backend_refs for rule in route.spec.rules or ())


def test_a_mapped_address_is_one_of_ipv4() -> None:
    (route,) = routes(convert(ingress(whitelist_source_range="::ffff:10.0.0.5, 10.0.0.0, fd00::"))).values()
    assert route.metadata.annotations == {"fairlead.dev/allowed-sources": "10.0.0.5/32,10.0.0.0/32,fd00::/128"}


@pytest.mark.req("L7-12")
@pytest.mark.parametrize(
    "key",
    [
        "alb.ingress.kubernetes.io/inbound-cidrs", "alb.ingress.kubernetes.io/wafv2-acl-arn", "konghq.com/plugins",
        "traefik.ingress.kubernetes.io/router.middlewares", "nginx.org/policies", "haproxy-ingress.github.io/oauth",
    ],
)  # fmt: skip
def test_restrictions_of_other_controllers_are_known(key: str) -> None:
    assert protecting_any({key: "x"}) == (key,)
    assert of_other_controllers({key: "x", "example.com/x": "y", "kubernetes.io/ingress.class": "z"}) == (key,)
