"""Which pod answered how often is one short line that leaves nothing out."""

from __future__ import annotations

import pytest

from fairlead_demo.stories.context import answers_by_pod


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({}, ""),
        ({"web-1": 5}, "web-1: 5"),
        ({"web-2": 7, "web-10": 1, "web-1": 5, "web-9": 2}, "web-1,2,9,10: 5 7 2 1"),
        ({"web-3": 6, "web-1": 5, "web-2": 7}, "web-1..3: 5 7 6"),
        ({"b-1": 1, "a-1": 2, "a-2": 3}, "a-1..2: 2 3  b-1: 1"),
        ({"nginx": 4}, "nginx: 4"),
    ],
)
def test_pods_are_listed_by_number(answers: dict[str, int], text: str) -> None:
    assert answers_by_pod(answers) == text
