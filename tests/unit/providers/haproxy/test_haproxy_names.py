"""Names of servers: which are ours, and what they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.providers.haproxy.snapshot import prefix, server_name, target_of

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")
HTTP = ListenerKey(Protocol.TCP, 80)


@given(st.ip_addresses(), st.integers(1, 65535))
def test_names_say_what_they_stand_for(address: object, port: int) -> None:
    target = TargetKey(str(address).split("%", maxsplit=1)[0], port)
    name = server_name("", KEY, HTTP, target)
    assert target_of(name, prefix("", KEY, HTTP)) == target
    assert target_of(name, prefix("other", KEY, HTTP)) is None
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789-._:")


def test_no_two_owners_share_a_prefix() -> None:
    """B32: separators inside names move nothing from one part into another."""
    keys = [LoadBalancerKey("k", "a", "b-c"), LoadBalancerKey("k", "a-b", "c"), LoadBalancerKey("k", "a", "B-c")]
    ports = [HTTP, ListenerKey(Protocol.TCP, 8080), ListenerKey(Protocol.UDP, 80)]
    prefixes = {prefix(installation, key, port) for installation in ("", "k") for key in keys for port in ports}
    assert len(prefixes) == 18


@pytest.mark.parametrize(
    "name", ["theirs", "fl-", "fl-1234567890-10.0.0.1_80", "fl-1234567890-", "fl-xx-10.0.0.1_80", "fl-10.0.0.1_80"]
)
def test_other_names_are_foreign(name: str) -> None:
    assert target_of(name, prefix("", KEY, HTTP)) is None
