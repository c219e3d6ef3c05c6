"""Which pools serve which load balancer, in which order, and what is wrong with an AddressPool."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.addresspool import AddressPool
from fairlead.testing.builders import lb_key
from fairlead.translate.addresses import OWN_POOL, AddressClaimant, AddressRanges, describe, usable_pools

pytestmark = pytest.mark.req("K-58")

OWN = AddressRanges.parse("127.0.0.0/24")


def pool(name, *addresses, created="2026-01-01T00:00:00Z", deleting=False, **spec):
    metadata = {"name": name, "creationTimestamp": created}
    if deleting:
        metadata |= {"deletionTimestamp": created, "finalizers": ["example.com/x"]}
    body = {"metadata": metadata, "spec": {"addresses": list(addresses), **spec}}
    return msgspec.convert(body, AddressPool)


def usable(*objects, own=None, region=""):
    return usable_pools(own, objects, region=region)


def refusal(*objects, own=None):
    """Return the name of the one pool that is refused, and why."""
    _, conditions = usable(*objects, own=own)
    [unmet] = [(name, condition.message) for name, condition in conditions.items() if not condition.status]
    return unmet


EAST = AddressClaimant(lb_key("default.web"), "east", "gold")


def test_pools_for_some_come_before_pools_for_all_then_the_older_first():
    pools, conditions = usable(
        pool("b", "192.0.2.0/29", created="2026-01-02T00:00:00Z"),
        pool("a", "192.0.2.8/29", created="2026-01-03T00:00:00Z"),
        pool("gold", "192.0.2.16/29", classes=["gold"], created="2026-01-04T00:00:00Z"),
        pool("east", "192.0.2.24/29", tenants=["east"], created="2026-01-05T00:00:00Z"),
        pool("west", "192.0.2.32/29", tenants=["west"]),
        own=OWN,
    )
    assert [each.name for each in pools.serving(EAST)] == ["east", "gold", OWN_POOL, "b", "a"]
    assert [each.name for each in pools.serving(AddressClaimant(lb_key("x"), "north", "plain"))] == [OWN_POOL, "b", "a"]
    assert all(condition.status for condition in conditions.values())
    assert "192.0.2.33" in pools
    assert "192.0.2.41" not in pools


def test_the_younger_of_two_that_overlap_is_not_used():
    old = pool("old", "192.0.2.0/24")
    young = pool("young", "198.51.100.0/24", "192.0.2.7", created="2026-02-01T00:00:00Z")
    name, message = refusal(young, old)
    assert name == "young"
    assert "192.0.2.7/32 overlaps 192.0.2.0/24 of AddressPool old (192.0.2.0/24), which is older" in message
    pools, _ = usable(young, old)
    assert [each.name for each in pools.pools] == ["old"]


def test_the_pool_of_the_flag_counts_as_older_than_every_object():
    name, message = refusal(pool("a", "127.0.0.9", tenants=["east"]), own=OWN)
    assert name == "a"
    assert "of the hub's address pool (127.0.0.0/24), which comes first; no address is given from this pool" in message


def test_a_pool_that_is_refused_still_keeps_a_younger_one_off_its_addresses():
    _, conditions = usable(
        pool("old", "192.0.2.0/28"),
        pool("middle", "192.0.2.0/24", created="2026-02-01T00:00:00Z"),
        pool("young", "192.0.2.128/25", created="2026-03-01T00:00:00Z"),
    )
    assert {name for name, condition in conditions.items() if not condition.status} == {"middle", "young"}


@pytest.mark.parametrize(
    "edit",
    [
        {"addresses": ["192.0.2.0/240"]},
        {"addresses": ["192.0.2.0/28", "192.0.2.O"]},
        {"avoid": ["nonsense"]},
        {"reservations": [{"address": "192.0.2.300", "tenant": "east"}]},
    ],
)
def test_an_older_pool_that_a_typo_made_invalid_holds_what_it_had(edit):
    """Else a younger pool that overlaps it would give its free and its reserved addresses to others at once."""
    young = pool("young", "192.0.2.0/24", created="2026-02-01T00:00:00Z")
    apart = pool("apart", "198.51.100.0/28", created="2026-03-01T00:00:00Z")
    before, _ = usable(good := pool("old", "192.0.2.0/28"), young, apart)
    spans = before.pools[0].ranges.spans
    assert spans == ["192.0.2.1-192.0.2.14"]
    status = msgspec.structs.replace(good.status, accepted_addresses=spans)
    other_fields = {name: value for name, value in edit.items() if name != "addresses"}
    edited = pool("old", *edit.get("addresses", ["192.0.2.0/28"]), **other_fields)
    broken = msgspec.structs.replace(edited, status=status)
    pools, conditions = usable(broken, young, apart)
    assert [each.name for each in pools.pools] == ["apart"]
    assert "of AddressPool old (192.0.2.1-192.0.2.14), which is older" in conditions["young"].message
    # One that never was valid holds nothing.
    never, _ = usable(pool("old", "192.0.2.0/240"), young, apart)
    assert [each.name for each in never.pools] == ["young", "apart"]


def test_what_a_pool_avoids_it_does_not_hold_either():
    spans = usable(pool("old", "192.0.2.0/29", avoid=["192.0.2.3"]))[0].pools[0].ranges.spans
    assert spans == ["192.0.2.1-192.0.2.2", "192.0.2.4-192.0.2.6"]
    broken = pool("old", "nonsense")
    held = msgspec.structs.replace(broken, status=msgspec.structs.replace(broken.status, accepted_addresses=spans))
    pools, _ = usable(held, pool("young", "192.0.2.3", created="2026-02-01T00:00:00Z"))
    assert [each.name for each in pools.pools] == ["young"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"addresses": ["nonsense"]}, "spec.addresses: 'nonsense' is not"),
        ({"addresses": ["192.0.2.0/24"], "avoid": ["x"]}, "spec.avoid: 'x' is not"),
        ({"addresses": ["192.0.2.0/24"], "avoid": ["192.0.2.0/23"]}, "nothing is left"),
        ({"reservations": [{"address": "web", "tenant": "east"}]}, "spec.reservations[0].address: 'web'"),
        ({"reservations": [{"address": "10.0.0.1", "tenant": "east"}]}, "10.0.0.1 is not in spec.addresses"),
        ({"reservations": [{"address": "192.0.2.1"}]}, "names neither a tenant nor a load balancer"),
        ({"reservations": [{"address": "192.0.2.1", "loadBalancer": "web"}]}, "names neither a tenant"),
    ],
)
def test_problems_are_named_with_their_field(spec, message):
    addresses = spec.pop("addresses", ["192.0.2.0/24"])
    assert message in refusal(pool("a", *addresses, **spec))[1]


def test_pools_of_other_regions_and_those_that_are_deleted_are_not_used():
    north, leaving = pool("n", "192.0.2.0/28", region="north"), pool("d", "192.0.2.0/28", deleting=True)
    assert usable(north, leaving) == (usable()[0], {})
    pools, conditions = usable(north, leaving, region="north")
    assert [each.name for each in pools.pools] == list(conditions) == ["n"]


@pytest.mark.parametrize(
    ("reservation", "claimant", "may", "kept"),
    [
        ({"tenant": "east", "loadBalancer": "default/web"}, EAST, True, True),
        ({"tenant": "east", "loadBalancer": "default.web"}, EAST, True, True),
        ({"tenant": "east", "loadBalancer": "default/api"}, EAST, False, False),
        ({"tenant": "east"}, EAST, True, False),
        ({"tenant": "west", "loadBalancer": "default/web"}, EAST, False, False),
        ({"tenant": "west"}, EAST, False, False),
        ({"loadBalancer": "infra/api"}, AddressClaimant(lb_key("api", namespace="infra")), True, True),
        ({"loadBalancer": "infra/api"}, AddressClaimant(lb_key("api", namespace="other")), False, False),
        ({"loadBalancer": "infra/api"}, EAST, False, False),
    ],
)
def test_who_a_reservation_is_for(reservation, claimant, may, kept):
    pools, _ = usable(pool("a", "192.0.2.0/24", reservations=[{"address": "192.0.2.9", **reservation}]))
    [made] = pools.pools
    assert made.may_have(claimant, "192.0.2.9") is may
    assert made.kept_for(claimant) == (["192.0.2.9"] if kept else [])
    assert made.may_have(claimant, "192.0.2.10")


def test_how_messages_name_a_pool():
    pools, _ = usable(pool("edge", "192.0.2.0/24"), own=OWN)
    assert [describe(each) for each in pools.pools] == [
        "the hub's address pool (127.0.0.0/24)",
        "AddressPool edge (192.0.2.0/24)",
    ]


@pytest.mark.req("L4-7")
def test_a_range_with_host_bits_is_used_and_named():
    pools, conditions = usable(pool("edge", "127.206.0.200/28"))
    assert "127.206.0.193" in pools
    assert conditions["edge"].status
    assert "127.206.0.192/28" in conditions["edge"].message
