"""Which family an address is of, and what a text of addresses asks for."""

from __future__ import annotations

import pytest

from fairlead.model.keys import by_family, family_of, in_order, requested_addresses


@pytest.mark.parametrize(
    ("address", "family"),
    [("192.0.2.1", "IPv4"), ("2001:db8::1", "IPv6"), ("lb.example.com", None), ("", None), ("1.2.3", None)],
)
def test_the_family_of_an_address(address, family):
    assert family_of(address) == family


def test_the_first_address_of_each_family():
    assert by_family(["x.example.com", "2001:db8::1", "192.0.2.1", "192.0.2.2"]) == {
        "IPv6": "2001:db8::1",
        "IPv4": "192.0.2.1",
    }


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("", []),
        ("192.0.2.1", ["192.0.2.1"]),
        (" 2001:DB8:0::1 ,192.0.2.1,", ["2001:db8::1", "192.0.2.1"]),
        ("x", ["x"]),
    ],
)
def test_what_a_text_asks_for(text, asked):
    assert requested_addresses(text) == asked


@pytest.mark.parametrize(
    ("families", "addresses"),
    [
        ((), ("192.0.2.1", "lb.example.com", "2001:db8::1")),
        (("IPv4",), ("192.0.2.1", "lb.example.com")),
        (("IPv6", "IPv4"), ("2001:db8::1", "192.0.2.1", "lb.example.com")),
    ],
)
def test_the_addresses_of_some_families_in_their_order(families, addresses):
    assert in_order(["192.0.2.1", "lb.example.com", "2001:db8::1"], families) == addresses
    assert in_order(["192.0.2.1"], ("IPv6",)) == ("192.0.2.1",)
