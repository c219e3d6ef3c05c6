"""What an operator's text of addresses means, and what is wrong with it."""

from __future__ import annotations

import pytest

from fairlead.errors import BadConfiguration
from fairlead.translate.addresses import AddressRanges

POOL = AddressRanges.parse("192.0.2.0/24")


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("192.0.2.7/32", ["192.0.2.7"]),
        ("192.0.2.6/31", ["192.0.2.6", "192.0.2.7"]),
        ("192.0.2.4/30", ["192.0.2.5", "192.0.2.6"]),
        ("192.0.2.7", ["192.0.2.7"]),
        ("192.0.2.5/30", ["192.0.2.5", "192.0.2.6"]),
        ("192.0.2.0/32, 198.51.100.8/30 ,", ["192.0.2.0", "198.51.100.9", "198.51.100.10"]),
        ("192.0.2.8 - 192.0.2.10", ["192.0.2.8", "192.0.2.9", "192.0.2.10"]),
        ("192.0.2.255-192.0.3.0", ["192.0.2.255", "192.0.3.0"]),
    ],
    ids=["32", "31", "30", "no-length", "host-bits", "several", "range", "range-with-edges"],
)
def test_the_addresses_of_a_pool(text, addresses):
    pool = AddressRanges.parse(text)
    assert [*pool] == addresses
    assert pool.size == len(addresses)
    assert all(address in pool for address in addresses)
    with pytest.raises(IndexError):
        pool[pool.size]


@pytest.mark.parametrize("other", ["192.0.2.0", "192.0.2.255", "192.0.3.1", "web", 7, None, "2001:db8::1"])
def test_addresses_outside_of_a_pool(other):
    assert other not in POOL


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["--address-pool", "is empty", "192.0.2.0/24"]),
        (" , ", ["is empty"]),
        ("192.0.2.0/33", ["--address-pool", "'192.0.2.0/33'", "not a CIDR such as"]),
        ("10.0.0.0/8,nonsense", ["'nonsense'"]),
        ("fe80::/64", ["'fe80::/64'", "link-local"]),
        ("fe80::1%eth0", ["link-local"]),
        ("ff02::/112", ["multicast"]),
        ("192.0.2.1-2001:db8::1", ["begins with one family"]),
        ("2001:db8::/64,2001:db8::5", ["'2001:db8::5'", "overlaps"]),
        ("10.0.0.0/8,10.1.0.0/16", ["'10.1.0.0/16'", "overlaps"]),
        ("192.0.2.9-192.0.2.3", ["'192.0.2.9-192.0.2.3'", "ends before it begins"]),
        ("192.0.2.9-", ["'192.0.2.9-'", "is not"]),
        ("192.0.2.0/24,192.0.2.9-192.0.2.10", ["overlaps"]),
    ],
)
def test_a_bad_pool_is_named(text, parts):
    with pytest.raises(BadConfiguration) as caught:
        AddressRanges.parse(text)
    for word in parts:
        assert word in caught.value.sentence


@pytest.mark.req("K-58")
@pytest.mark.parametrize(
    ("text", "first", "last", "size"),
    [
        ("2001:db8::/64", "2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", 2**64 - 1),
        ("2001:db8::/126", "2001:db8::1", "2001:db8::3", 3),
        ("2001:db8::/127", "2001:db8::", "2001:db8::1", 2),
        ("::1/128", "::1", "::1", 1),
        ("2001:DB8::a-2001:db8:0::c", "2001:db8::a", "2001:db8::c", 3),
    ],
)
def test_the_addresses_of_a_pool_of_ipv6(text, first, last, size):
    pool = AddressRanges.parse(text)
    assert (pool.size, pool[0], pool[size - 1], pool.families) == (size, first, last, ("IPv6",))
    assert first in pool
    assert last.upper() in pool
    assert "192.0.2.1" not in pool


@pytest.mark.req("K-58")
def test_a_pool_of_both_families_keeps_them_apart():
    avoid = AddressRanges.whole("2001:db8::-2001:db8::ff,192.0.2.0/30", field="spec.avoid")
    pool = AddressRanges.parse("192.0.2.0/29,2001:db8::/64", avoid=avoid)
    assert pool.families == ("IPv4", "IPv6")
    assert [pool.of("IPv4")[index] for index in range(3)] == ["192.0.2.4", "192.0.2.5", "192.0.2.6"]
    assert (pool.of("IPv6")[0], pool.of("IPv6").size) == ("2001:db8::100", 2**64 - 256)
    # The number of 0.0.0.5 is that of ::5, too.
    assert AddressRanges.parse("0.0.0.5").overlap(AddressRanges.parse("::5")) is None
    assert AddressRanges.parse("::1/128,127.0.0.9").loopback


def test_a_pool_says_what_it_is():
    assert str(AddressRanges.parse("10.0.0.1/8, 192.0.2.0/24")) == "10.0.0.0/8,192.0.2.0/24"
    assert str(AddressRanges.parse("192.0.2.3-192.0.2.4")) == "192.0.2.3-192.0.2.4"


@pytest.mark.req("K-58")
@pytest.mark.parametrize(
    ("avoid", "left"),
    [
        ("", [1, 2, 3, 4, 5, 6]),
        ("192.0.2.1", [2, 3, 4, 5, 6]),
        ("192.0.2.6", [1, 2, 3, 4, 5]),
        ("192.0.2.3-192.0.2.4", [1, 2, 5, 6]),
        ("192.0.2.5, 192.0.2.2", [1, 3, 4, 6]),
        ("192.0.2.2/31,192.0.2.3-192.0.2.5", [1, 6]),
        ("198.51.100.0/24", [1, 2, 3, 4, 5, 6]),
    ],
)
def test_avoided_addresses_are_not_in_the_pool(avoid, left):
    pool = AddressRanges.parse("192.0.2.0/29", avoid=AddressRanges.whole(avoid, field="spec.avoid"))
    assert [*pool] == [f"192.0.2.{number}" for number in left]
    assert str(pool) == "192.0.2.0/29"


@pytest.mark.req("K-58")
def test_a_pool_that_avoids_all_addresses_is_rejected():
    with pytest.raises(BadConfiguration, match=r"spec\.addresses: nothing is left of 192\.0\.2\.0/29"):
        AddressRanges.parse(
            "192.0.2.0/29", field="spec.addresses", avoid=AddressRanges.whole("192.0.2.0/24", field="spec.avoid")
        )


@pytest.mark.parametrize(("text", "loopback"), [("127.1.0.0/24", True), ("127.0.0.9,192.0.2.1", False)])
def test_whether_only_this_machine_reaches_it(text, loopback):
    assert AddressRanges.parse(text).loopback is loopback


def test_which_ranges_overlap():
    other = AddressRanges.parse("10.0.0.1,192.0.2.250-192.0.3.1")
    assert POOL.overlap(other) == ("192.0.2.0/24", "192.0.2.250-192.0.3.1")
    assert POOL.overlap(AddressRanges.parse("192.0.3.0/24")) is None
