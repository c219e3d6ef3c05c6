"""The address families that a load balancer needs, contradictory requests, and missing families."""

from __future__ import annotations

import pytest

from fairlead.model.keys import ANY_FAMILY, WantedFamilies
from fairlead.testing.builders import tcp
from fairlead.translate.member import families_problem, missing_families, wanted_families

pytestmark = pytest.mark.req("K-58")


def spec(*families, policy="", address=""):
    return tcp(spec={"ipFamilies": list(families), "ipFamilyPolicy": policy, "address": address}).spec


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (spec(), WantedFamilies(("IPv4",))),
        (spec(address="2001:db8::1"), ANY_FAMILY),
        (spec("IPv6"), WantedFamilies(("IPv6",))),
        (spec("IPv6", address="2001:db8::1"), WantedFamilies(("IPv6",))),
        (spec("IPv6", "IPv4", policy="PreferDualStack"), WantedFamilies(("IPv6", "IPv4"))),
        (spec("IPv4", "IPv6", policy="RequireDualStack"), WantedFamilies(("IPv4", "IPv6"), all_required=True)),
    ],
)
def test_desired_values(asked, wanted):
    assert wanted_families(asked, ("IPv4",)) == wanted


@pytest.mark.parametrize(
    ("asked", "ipv6", "problem"),
    [
        (spec(), False, ""),
        (spec("IPv4"), False, ""),
        (spec("IPv4", "IPv6", policy="PreferDualStack"), False, ""),
        (spec("IPv4", "IPv6", policy="RequireDualStack"), True, ""),
        (spec("IPv4", "IPv6", policy="RequireDualStack"), False, "does not serve IPv6"),
        (spec("IPv6"), False, "does not serve IPv6"),
        (spec("IPv6", "IPv6"), True, "IPv6 is there twice"),
        (spec("IPv4", policy="RequireDualStack"), True, "RequireDualStack needs both families"),
        (spec(policy="RequireDualStack"), True, "RequireDualStack needs both families"),
    ],
)
def test_what_contradicts_itself(asked, ipv6, problem):
    assert problem in families_problem(asked, ipv6=ipv6)
    assert bool(problem) == bool(families_problem(asked, ipv6=ipv6))
    assert not problem or families_problem(asked, ipv6=ipv6).startswith("spec.ipFamil")


BOTH = ("IPv4", "IPv6")


@pytest.mark.parametrize(
    ("wanted", "addresses", "problem"),
    [
        (ANY_FAMILY, ["192.0.2.1"], ""),
        (WantedFamilies(("IPv6",)), ["192.0.2.1"], "no address of IPv6"),
        (WantedFamilies(("IPv6",)), ["2001:db8::1", "192.0.2.1"], ""),
        (WantedFamilies(("IPv6",)), [], ""),
        (WantedFamilies(BOTH), ["192.0.2.1"], ""),
        (WantedFamilies(BOTH, all_required=True), ["192.0.2.1"], "192.0.2.1 and no address of IPv6"),
        (WantedFamilies(BOTH, all_required=True), ["2001:db8::1", "192.0.2.1"], ""),
        (WantedFamilies(BOTH, all_required=True), ["lb.example.com"], ""),
    ],
)
def test_missing_parts(wanted, addresses, problem):
    assert problem in missing_families(wanted, addresses)
    assert bool(problem) == bool(missing_families(wanted, addresses))
