"""Names of Envoy resources never collide, and are read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol
from fairlead.providers.envoy.resources import NAME_PART, load_balancer_of, resource_name

part = st.from_regex(NAME_PART, fullmatch=True)


@given(part, part, part, part, st.integers(1, 65_535), st.integers(1, 65_535))
@pytest.mark.req("KI-5")
def test_names_never_collide(first: str, two: str, three: str, four: str, port: int, other: int) -> None:
    keys = [LoadBalancerKey("K", first, two), LoadBalancerKey("K", three, four)]
    names = {
        resource_name(key, ListenerKey(protocol, number))
        for key in keys
        for protocol in Protocol
        for number in (port, other)
    }
    assert len(names) == len(set(keys)) * 2 * len({port, other})
    assert {load_balancer_of(name) for name in names} == set(keys)
    assert load_balancer_of("another-cluster") is None
