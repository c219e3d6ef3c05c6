"""Which changes of a status have an Event of their own."""

from __future__ import annotations

import pytest

from fairlead.api.meta import Transition
from fairlead.hub.intents.status_changes import is_said_by_references
from fairlead.translate.conditions import no_ready
from tests.fleet_objects import condition

NO_READY = no_ready("endpoint", "TCP/80")


@pytest.mark.parametrize(
    ("message", "reason", "said"),
    [
        (NO_READY, "NoTargets", True),
        (NO_READY, "NoHealthyTargets", False),
        (f"a backend of Ingress shop/web cannot be resolved; {NO_READY}", "NoTargets", False),
        ("a backend of Ingress shop/web cannot be resolved", "NoTargets", False),
    ],
)
def test_that_no_endpoint_is_ready_is_said_once(message: str, reason: str, said: bool) -> None:
    references = condition("ResolvedRefs", "False", "BackendNotFound", message)
    change = Transition(condition("Serving", "False", reason), condition("Serving", "True", "Serving"))
    assert is_said_by_references(change, [references, change.condition]) is said
    assert not is_said_by_references(change, [condition("ResolvedRefs", "True"), change.condition])
