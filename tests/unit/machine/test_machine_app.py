"""The process on a proxy machine: the addresses of xDS servers."""

from __future__ import annotations

from fairlead.machine.app import xds_addresses


def test_xds_is_at_the_next_port_of_each_hub() -> None:
    assert xds_addresses(["hub.example:7443", "[2001:db8::1]:7443"]) == ("hub.example:7444", "[2001:db8::1]:7444")
