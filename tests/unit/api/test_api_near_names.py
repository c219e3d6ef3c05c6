"""The name that was meant."""

from __future__ import annotations

import pytest

from fairlead.api.names import did_you_mean, near_annotation


@pytest.mark.parametrize(
    ("typed", "hint"), [("eest", " Did you mean 'east'?"), ("EAST", " Did you mean 'east'?"), ("paris", "")]
)
def test_the_nearest_name_is_offered(typed: str, hint: str) -> None:
    assert did_you_mean(typed, ("east", "north")) == hint


def test_several_are_offered_where_they_are_as_near() -> None:
    said = did_you_mean("eest", ("west", "east", "north"), most=3)
    assert said in (" Did you mean 'east' or 'west'?", " Did you mean 'west' or 'east'?")


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("fairlead.dev/proxy-protocoll", " Did you mean 'fairlead.dev/proxy-protocol'?"),
        ("fairlead.dev/Target", " Did you mean 'fairlead.dev/target'?"),
        ("fairlead.dev/zzz", ""),
    ],
)
def test_annotations_are_compared_by_what_follows_the_group(key: str, hint: str) -> None:
    assert near_annotation(key) == hint
