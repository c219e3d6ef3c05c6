"""Addresses of DNS servers as a DNSZone names them."""

from __future__ import annotations

import pytest

from fairlead.errors import BadConfiguration
from fairlead.providers.zones.settings import server_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.53", ("192.0.2.53", 53)),
        ("ns.example.com:5353", ("ns.example.com", 5353)),
        ("[2001:db8::53]:53", ("2001:db8::53", 53)),
        ("2001:db8::53", ("2001:db8::53", 53)),
    ],
)
def test_a_server_has_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert server_address(text) == address


@pytest.mark.parametrize("port", ["0", "65536", "000001999999", "²", "x", ""])
def test_an_invalid_port_is_rejected(port: str) -> None:
    with pytest.raises(BadConfiguration, match="host:port"):
        server_address(f"192.0.2.53:{port}")
