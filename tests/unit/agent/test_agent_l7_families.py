"""The address families that an IngressClass or a Gateway requests."""

from __future__ import annotations

import pytest

from fairlead.agent.sources.http import annotation_problem, families_by_annotation, of_each_family, policy_of
from fairlead.api.meta import KubeObject, ObjectMeta


def annotated(text):
    return KubeObject(metadata=ObjectMeta(name="web", annotations={"fairlead.dev/ip-families": text}))


@pytest.mark.req("K-58")
@pytest.mark.parametrize(
    ("text", "families", "policy"),
    [
        ("", (), ""),
        ("IPv6", ("IPv6",), ""),
        ("IPv4,IPv6", ("IPv4", "IPv6"), "PreferDualStack"),
        (" ipv6 , IPv4,", ("IPv6", "IPv4"), "PreferDualStack"),
        ("both", None, ""),
        ("IPv4,IPv4", None, ""),
        ("IPv4,IPv5", None, ""),
    ],
)
def test_the_families_of_an_annotation(text, families, policy):
    obj = annotated(text)
    assert families_by_annotation(obj) == (families or ())
    assert policy_of(families_by_annotation(obj)) == policy
    assert (f"is {text!r}: it must be" in annotation_problem(obj)) == (families is None)


@pytest.mark.parametrize(
    ("addresses", "one_each"),
    [([], True), (["2001:db8::1", "192.0.2.1"], True), (["192.0.2.1", "192.0.2.2"], False), (["192.0.2.1", ""], False)],
)
def test_one_address_of_a_family_at_the_most(addresses, one_each):
    assert of_each_family(addresses) is one_each
    assert policy_of(("IPv4", "IPv6"), required=True) == "RequireDualStack"
