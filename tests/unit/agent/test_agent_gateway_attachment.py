"""Which listeners take a route: parentRefs, namespaces, kinds, hostnames."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.gateway.plan import ListenerPlan, ParentKey
from fairlead.agent.sources.gateway.routes import Acceptance, Candidate, accept, hostnames_at, intersection, parent_key
from fairlead.api.gateway import ParentReference
from tests.unit.agent.gateway_builders import GATEWAY, SET, listener


def accepted(
    *listeners: ListenerPlan,
    parent: ParentKey = GATEWAY,
    hostnames: tuple[str, ...] = (),
    kind: str = "HTTPRoute",
    namespace: str = "infra",
    **reference: Any,
) -> Acceptance:
    return accept(Candidate(kind, namespace, hostnames), msgspec.convert(reference, ParentReference), parent, listeners)


def names(acceptance: Acceptance) -> list[str]:
    return [each.listener.name for each in acceptance.taken_by]


@pytest.mark.req("G-26")
@pytest.mark.parametrize(
    ("first", "other", "both"),
    [
        ("a.com", "", "a.com"),
        ("a.com", "a.com", "a.com"),
        ("A.com", "a.COM", "a.com"),
        ("x.a.com", "*.a.com", "x.a.com"),
        ("x.y.a.com", "*.a.com", "x.y.a.com"),
        ("a.com", "*.a.com", ""),
        ("*.a.com", "a.com", ""),
        ("ba.com", "*.a.com", ""),
        ("*.a.com", "x.a.com", "x.a.com"),
        ("*.a.com", "*.b.a.com", "*.b.a.com"),
        ("*.b.a.com", "*.a.com", "*.b.a.com"),
        ("*.a.com", "*.b.com", ""),
        ("a.com", "b.com", ""),
    ],
)
def test_intersection_of_hostnames(first: str, other: str, both: str) -> None:
    assert intersection(first, other) == both


@pytest.mark.req("G-26")
def test_hostnames_at_a_listener() -> None:
    assert hostnames_at(listener(), ()) == ()
    assert hostnames_at(listener(hostname="a.com"), ()) == ("a.com",)
    assert hostnames_at(listener(hostname="*.a.com"), ("x.a.com", "b.com", "*.a.com")) == ("x.a.com", "*.a.com")
    assert hostnames_at(listener(hostname="*.a.com"), ("b.com",)) is None
    assert hostnames_at(listener(protocol="TCP", hostname="a.com"), ()) == ()


@pytest.mark.req("G-25", "G-68")
def test_section_name_and_port_must_be_those_of_one_listener() -> None:
    two = (listener("a", port=80), listener("b", port=8080))
    assert names(accepted(*two)) == ["a", "b"]
    assert names(accepted(*two, sectionName="b")) == ["b"]
    assert names(accepted(*two, port=80)) == ["a"]
    assert names(accepted(*two, sectionName="b", port=8080)) == ["b"]
    wrong = (accepted(*two, sectionName="c"), accepted(*two, port=81), accepted(*two, sectionName="a", port=8080))
    for refusal in (each.judgement for each in wrong):
        assert (refusal.status, refusal.reason) == ("False", "NoMatchingParent")


@pytest.mark.req("G-25", "G-106")
def test_a_gateway_has_not_the_listeners_of_its_sets() -> None:
    both = (listener("a"), listener("b", parent=SET))
    assert names(accepted(*both)) == ["a"]
    assert names(accepted(*both, parent=SET)) == ["b"]
    assert accepted(*both, sectionName="b").judgement.reason == "NoMatchingParent"


def test_a_parent_that_is_not_accepted_says_why() -> None:
    candidate = Candidate("HTTPRoute", "infra", ())
    refusal = "Gateway infra/main allows no ListenerSets"
    refused = accept(candidate, ParentReference(), SET, [listener()], refusal=refusal).judgement
    assert (refused.reason, refused.message) == (
        "NoMatchingParent",
        f"ListenerSet infra/more is not accepted: {refusal}",
    )


@pytest.mark.req("G-20", "G-53", "G-80")
def test_reasons_in_their_order() -> None:
    strict = listener(kinds=("TLSRoute",), namespaces=frozenset({"shop"}), hostname="a.com")
    other = ("b.com",)
    assert accepted(strict, sectionName="none", hostnames=other).judgement.reason == "NoMatchingParent"
    assert accepted(strict, hostnames=other).judgement.reason == "NotAllowedByListeners"
    assert accepted(strict, kind="TLSRoute", hostnames=other).judgement.reason == "NotAllowedByListeners"
    assert accepted(strict, namespace="shop", hostnames=other).judgement.reason == "NotAllowedByListeners"
    last = accepted(strict, kind="TLSRoute", namespace="shop", hostnames=other).judgement
    assert last.reason == "NoMatchingListenerHostname"
    assert last.message == "none of the hostnames b.com is within those of the listeners: a.com"
    assert accepted(strict, kind="TLSRoute", namespace="shop").judgement.status == "True"


@pytest.mark.req("G-20", "G-23")
def test_a_listener_that_takes_the_route_is_enough_even_if_it_is_not_served() -> None:
    taken = accepted(
        listener("a", hostname="x.com"), listener("b", hostname="b.com", served=False), hostnames=("b.com",)
    )
    assert (names(taken), taken.judgement.status) == (["b"], "True")


@pytest.mark.parametrize(
    ("reference", "key"),
    [
        ({"name": "main"}, ("Gateway", "shop", "main")),
        ({"name": "main", "namespace": "infra"}, GATEWAY),
        ({"name": "more", "kind": "ListenerSet", "namespace": "infra"}, SET),
        ({"name": "web", "kind": "Service", "group": ""}, None),
        ({"name": "main", "group": "example.com"}, None),
    ],
)
def test_what_a_parent_reference_names(reference: dict[str, Any], key: tuple[str, str, str] | None) -> None:
    assert parent_key(msgspec.convert(reference, ParentReference), "shop") == key
