"""The history of a bucket is bounded."""

import pytest
from podless_objects import event

from podless.store import bucket as history
from podless.store.bucket import EventHistory


def test_history_is_bounded_and_knows_what_it_forgot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_EVENTS", 3)
    kept = EventHistory(0)
    for rv in range(1, 6):
        kept.add(event(rv))
    assert kept.after(1) is None
    assert [e.rv for e in kept.after(2) or []] == [3, 4, 5]
    assert kept.after(5) == []
    kept.compact(4)
    assert (kept.after(3), [e.rv for e in kept.after(4) or []]) == (None, [5])
