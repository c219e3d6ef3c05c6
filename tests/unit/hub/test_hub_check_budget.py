"""How much less often the targets of a member are checked whose checks are too many."""

from __future__ import annotations

import pytest

from fairlead.hub.intents.intent import CheckBudget
from fairlead.testing.builders import lb_key

WEB, API = lb_key("web"), lb_key("api")
SPACE, OTHER = WEB.namespace, "tenant-west"


@pytest.mark.req("F-11")
def test_checks_are_slowed_by_powers_of_two_and_faster_again_late():
    budget = CheckBudget()
    assert not budget.note(WEB, 90.0, limit=100)
    assert budget.note(API, 150.0, limit=100)
    assert (budget.limit_of(SPACE).slowdown, budget.limit_of(SPACE).per_s) == (4, 240.0)
    assert budget.limit_of(OTHER).slowdown == 1
    # Half would be enough; a rollout must not change every cluster twice.
    assert not budget.note(API, 80.0, limit=100)
    assert budget.note(API, 60.0, limit=100)
    assert budget.limit_of(SPACE).slowdown == 2
    assert budget.note(API, 0.0, limit=200)
    assert budget.limit_of(SPACE).slowdown == 1


@pytest.mark.req("F-11")
def test_without_a_limit_nothing_is_slowed():
    budget = CheckBudget()
    assert budget.note(WEB, 1000.0, limit=1)
    assert budget.note(WEB, 1000.0, limit=0)
    assert budget.limit_of(SPACE).slowdown == 1
    assert not budget.note(WEB, 0.0, limit=0)
