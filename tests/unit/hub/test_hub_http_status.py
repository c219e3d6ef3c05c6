"""The status of an HTTPLoadBalancer: what the proxies refuse is in it, and stays while they say nothing."""

from __future__ import annotations

from fairlead.api.httploadbalancer import RefusedPart
from fairlead.api.meta import WireCondition
from fairlead.hub.intents.http.status import REFUSED_SHOWN, refused_parts
from fairlead.model.observed import Observed
from fairlead.model.observed import RefusedPart as SeenPart

BEFORE = (RefusedPart("route", "a", "bad"),)


def test_what_is_refused_now_takes_the_place_of_what_was() -> None:
    assert refused_parts(None, BEFORE) == BEFORE
    assert refused_parts(Observed(), BEFORE) == ()
    reading = WireCondition(type="ResolvedRefs", status="False", reason="Pending", message="it has not been read yet")
    unread = Observed(refused=(SeenPart("listener", "https", "it has no usable certificate"),))
    assert refused_parts(unread, BEFORE, [reading]) == BEFORE, "its certificate comes in a moment"
    assert refused_parts(Observed(refused=(SeenPart("route", "b", "worse"),)), BEFORE) == (
        RefusedPart("route", "b", "worse"),
    )


def test_a_long_list_is_cut() -> None:
    many = tuple(SeenPart("route", f"r{number}", "bad") for number in range(REFUSED_SHOWN + 1))
    assert len(refused_parts(Observed(refused=many), ())) == REFUSED_SHOWN
