"""CIDRs are read as kube-apiserver reads those of old fields: what it accepts, warns of and refuses."""

from __future__ import annotations

import pytest

from fairlead.api.annotations import parse_cidr, parse_network


@pytest.mark.req("L4-7")
@pytest.mark.parametrize(
    ("text", "network", "doubtful"),
    [
        ("10.0.0.0/8", "10.0.0.0/8", False),
        (" 10.0.0.0/8 ", "10.0.0.0/8", False),
        ("0.0.0.0/0", "0.0.0.0/0", False),
        ("10.0.0.5/24", "10.0.0.0/24", True),
        ("10.0.0.5/32", "10.0.0.5/32", False),
        ("010.0.0.0/8", "10.0.0.0/8", True),
        ("10.0.0.0/08", "10.0.0.0/8", True),
        ("2001:db8::/32", "2001:db8::/32", False),
        ("2001:DB8::/32", "2001:db8::/32", True),
        ("2001:db8::1/32", "2001:db8::/32", True),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8", True),
        ("::ffff:10.0.0.5/120", "10.0.0.0/24", True),
    ],
)
def test_accepted(text: str, network: str, doubtful: bool) -> None:
    cidr = parse_cidr(text)
    assert cidr is not None
    assert str(cidr.network) == network
    assert bool(cidr.warnings) is doubtful
    assert all(network in warning for warning in cidr.warnings)


@pytest.mark.req("L4-7")
@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.5", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/255.0.0.0", "10.0.0/8",
     "::/129", "fe80::1%eth0/64", "10.0.0.0/8/8", "all", "10.0.0.0/\u0668", "1.2.3.4.5/8", "10.0.0.0/99999999999"],
)  # fmt: skip
def test_refused(text: str) -> None:
    assert parse_cidr(text) is None


@pytest.mark.req("L4-7")
@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.0.0.5", "10.0.0.5/32"),
        (" 2001:db8::1 ", "2001:db8::1/128"),
        ("10.0.0.5/24", "10.0.0.0/24"),
        ("10.0.0.0/255.0.0.0", "None"),
        ("all", "None"),
    ],
)
def test_where_an_address_alone_is_a_network(text: str, network: str) -> None:
    assert str(parse_network(text)) == network
