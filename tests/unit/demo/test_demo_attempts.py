"""What became of connections: failed ones, those that a move has cut, and the longest gap."""

from __future__ import annotations

import pytest

from fairlead_demo.worlds.attempts import Attempt, Outcome, outcome


def served(*times_s: float) -> list[Attempt]:
    return [Attempt(at, at + 0.001, answered=True, pod="web-1") for at in times_s]


def failed(*times_s: float) -> list[Attempt]:
    return [Attempt(at, 0.0, answered=False, pod="") for at in times_s]


def broken(at_s: float, *, connected_s: float) -> Attempt:
    return Attempt(at_s, connected_s, answered=False, pod="")


@pytest.mark.parametrize(
    ("attempts", "gap_s"),
    [
        (served(1.0, 1.1, 1.2), 0.0),
        ([*served(1.0), *failed(1.1, 1.2, 1.3), *served(1.4)], 0.3),
        # One of three next hops is lost: others answer in between.
        ([*failed(1.0, 1.3, 1.6), *served(1.1, 1.2, 1.4, 1.5, 1.7)], 0.7),
        # Two gaps: the longer one counts, not the time from the first to the second.
        ([*failed(1.0), *served(1.1, 2.0), *failed(3.0, 3.2), *served(3.1, 3.3)], 0.3),
        # Not over when counting ends.
        ([*served(0.9), *failed(1.0, 1.2)], 0.2),
        ([], 0.0),
    ],
)
def test_the_gap_is_from_a_failure_to_the_next_answer(attempts: list[Attempt], gap_s: float) -> None:
    assert outcome(attempts).gap_s == pytest.approx(gap_s)
    assert outcome(list(reversed(attempts))) == outcome(attempts)


def test_only_what_was_connected_before_the_move_is_cut_by_it() -> None:
    attempts = [*served(1.0, 3.0), broken(1.9, connected_s=1.95), broken(2.0, connected_s=2.1), *failed(1.9)]
    assert outcome(attempts, moved_s=2.0)[:3] == Outcome(tried=5, failed=2, cut=1, gap_s=0.0)[:3]
    assert outcome(attempts).failed == 3, "nothing moved"
