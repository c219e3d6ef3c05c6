"""A refused response is split until the bad resource is alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.providers.envoy.store import split_refused


def test_named_resources_stand_alone() -> None:
    names = ["k/n/a/TCP/80", "k/n/a/TCP/8080", "k/n/b/TCP/80"]
    message = "Error adding/updating listener(s) k/n/a/TCP/80: cannot bind: Address already in use"
    assert split_refused(names, message) == [("k/n/a/TCP/8080", "k/n/b/TCP/80"), ("k/n/a/TCP/80",)]
    assert split_refused(names, "no idea") == [("k/n/a/TCP/80",), ("k/n/a/TCP/8080", "k/n/b/TCP/80")]


@given(st.lists(st.from_regex(r"[a-z]{1,4}/[0-9]{1,3}", fullmatch=True), min_size=2, unique=True), st.text(max_size=40))
def test_nothing_is_lost_and_every_part_is_smaller(names: list[str], message: str) -> None:
    parts = split_refused(names, message)
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert all(part for part in parts)
    assert len(parts) > 1
