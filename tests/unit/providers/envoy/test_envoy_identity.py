"""Node groups in certificates, and addresses that only this machine reaches."""

from __future__ import annotations

import pytest

from fairlead.providers.envoy.fleet import group_from_certificate, group_from_spiffe, is_local, peer_place


@pytest.mark.parametrize(
    ("uri", "group"),
    [
        ("spiffe://fleet.example/group/tenant-a", "tenant-a"),
        ("spiffe://fleet.example/ns/x/group/tenant-a", "tenant-a"),
        ("spiffe://fleet.example/group/", ""),
        ("spiffe://fleet.example/tenant-a", ""),
        ("spiffe:///group/tenant-a", ""),
        ("https://fleet.example/group/tenant-a", ""),
    ],
)
def test_group_is_what_the_certificate_says(uri: str, group: str) -> None:
    assert group_from_spiffe(uri) == group
    assert group_from_certificate({"peer_spiffe_id": [uri.encode()]}) == group
    assert group_from_certificate({"x509_subject_alternative_name": [b"host.example", uri.encode()]}) == group


def test_the_address_of_a_peer_with_a_port_of_its_own() -> None:
    assert peer_place("ipv4:10.0.0.7:40312", 8003) == "10.0.0.7:8003"
    assert peer_place("ipv6:%5Bfd00::7%5D:40312", 8003) == "[fd00::7]:8003"
    assert peer_place("unix:", 8003) == ""


def test_addresses_that_only_this_machine_reaches() -> None:
    assert all(map(is_local, ["unix:/run/x", "unix-abstract:x", "127.0.0.1:1", "[::1]:1", "localhost:1"]))
    assert not any(map(is_local, ["0.0.0.0:1", "10.0.0.1:1", "hub.example:1", "[::]:1"]))
