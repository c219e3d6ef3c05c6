"""The objects as a whole: order, names, and independence of the order of the input."""

from __future__ import annotations

import itertools

import pytest
from convert_builders import convert, ingress, path, routes

TLS = [{"hosts": ["a.example.com"], "secretName": "s"}]


@pytest.mark.req("E-35")
def test_the_order_of_the_input_changes_nothing() -> None:
    given = [
        ingress("a", default="other"),
        ingress("b", {"b.org": [path()]}, backend_protocol="HTTPS", tls=TLS),
        ingress("c", {"a.example.com": [path(service="next")]}, canary="true", canary_weight="1"),
    ]
    results = [convert(*order) for order in itertools.permutations(given)]
    assert all(each == results[0] for each in results)


def test_objects_are_ordered_as_they_are_applied() -> None:
    conversion = convert(ingress(tls=TLS, backend_protocol="HTTPS"))
    kinds = [resource.kind for resource, _ in conversion.objects]
    assert kinds == ["Gateway", "HTTPRoute", "HTTPRoute", "BackendTLSPolicy"]


def test_two_objects_never_have_one_name() -> None:
    first = ingress("a", {"b.org": [path()], "c.org": [path()]})
    second = ingress("a-b.org", {"d.org": [path()]})
    assert sorted(routes(convert(first, second))) == ["a-b.org", "a-b.org.2", "a-c.org"]


def test_canaries_alone_make_no_gateway() -> None:
    conversion = convert(ingress(canary="true"))
    assert conversion.objects == ()
    assert not conversion.lossless
