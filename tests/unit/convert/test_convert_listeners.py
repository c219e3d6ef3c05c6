"""Which Gateway, ListenerSets and grants there are for the certificates of Ingresses."""

from __future__ import annotations

import pytest
from convert_builders import convert, ingress, of_kind, path, remarks, routes


def tls(secret: str, *hosts: str) -> list[dict[str, object]]:
    return [{"hosts": list(hosts), "secretName": secret}]


@pytest.mark.req("E-35", "GI-5")
def test_each_host_with_a_certificate_has_a_listener() -> None:
    conversion = convert(ingress(tls=tls("s", "a.example.com", "*.b.org")))
    (gateway,) = of_kind(conversion, "Gateway")
    listeners = [(each.name, each.port, each.protocol, each.hostname) for each in gateway.spec.listeners]
    assert listeners == [
        ("http", 80, "HTTP", ""),
        ("https-a.example.com", 443, "HTTPS", "a.example.com"),
        ("https-wildcard.b.org", 443, "HTTPS", "*.b.org"),
    ]
    assert gateway.spec.listeners[1].allowed_routes is None


def test_an_entry_without_hosts_uses_those_of_the_rules() -> None:
    conversion = convert(ingress(tls=[{"secretName": "s"}, {"hosts": ["b.org"]}]))
    (gateway,) = of_kind(conversion, "Gateway")
    assert [each.hostname for each in gateway.spec.listeners] == ["", "a.example.com"]
    assert [each.partition(":")[0] for each in remarks(conversion)] == ["tls of b.org"]


def test_other_namespaces_are_let_in_and_grant_their_secrets() -> None:
    mine, theirs = ingress(), ingress("b", {"b.org": [path()]}, namespace="theirs", tls=tls("s", "b.org"))
    conversion = convert(mine, theirs)
    (grant,) = of_kind(conversion, "ReferenceGrant")
    assert (grant.metadata.namespace, [each.name for each in grant.spec.to]) == ("theirs", ["s"])
    assert [(each.kind, each.namespace) for each in grant.spec.from_] == [("Gateway", "default")]
    (gateway,) = of_kind(conversion, "Gateway")
    assert {each.allowed_routes.namespaces.from_ for each in gateway.spec.listeners} == {"All"}
    assert {each.namespace for each in routes(conversion)["web"].spec.parent_refs or ()} == {"default"}


def test_the_certificate_of_the_older_ingress_counts() -> None:
    old = ingress("z", tls=tls("old", "a.example.com"), created="2026-01-01T00:00:00Z")
    new = ingress("a", {"a.example.com": [path("/n")]}, tls=tls("new", "a.example.com"), created="2026-02-01T00:00:00Z")
    conversion = convert(new, old)
    (gateway,) = of_kind(conversion, "Gateway")
    assert [each.name for each in gateway.spec.listeners[1].tls.certificate_refs] == ["old"]
    assert "of an older Ingress is used" in remarks(conversion, lost=False)[0]


def test_more_than_64_listeners_are_in_listener_sets() -> None:
    hosts = {f"h{number:03}.org": [path()] for number in range(130)}
    conversion = convert(ingress(hosts=hosts, tls=tls("s", *hosts)))
    (gateway,) = of_kind(conversion, "Gateway")
    sets = of_kind(conversion, "ListenerSet")
    counts = [len(each.spec.listeners) for each in (gateway, *sets)]
    assert (counts, gateway.spec.allowed_listeners.namespaces.from_) == ([64, 64, 3], "Same")
    (parent,) = routes(conversion)["web-h129.org"].spec.parent_refs or []
    assert (parent.kind, parent.name, parent.section_name) == ("ListenerSet", "ingress-3", "https-h129.org")
