"""Protobuf encoding by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.providers.envoy.resources import varint


@given(st.integers(0, 2**63))
def test_varint(value: int) -> None:
    decoded = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(varint(value)))
    assert decoded == value
