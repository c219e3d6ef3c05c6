"""Users read of records that cannot be written once that has lasted, and never where no zone is to have them."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from fairlead.api.hostname import Hostname
from fairlead.hub.names.controller import SHOWN_AFTER_S, problem, why_unpublished

SINCE = "2030-01-01T00:00:00Z"


def hostname(*conditions: tuple[str, str, str], **meta: str) -> Hostname:
    wire = [
        {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": SINCE}
        for kind, status, reason in conditions
    ]
    return msgspec.convert({"metadata": {"name": "a.com", **meta}, "status": {"conditions": wire}}, Hostname)


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        (None, None),
        (hostname(), None),
        (hostname(("Accepted", "True", "Accepted"), ("Programmed", "True", "Programmed")), None),
        (hostname(("Accepted", "False", "NoSuchZone"), ("Programmed", "False", "NoSuchZone")), None),
        (hostname(("Programmed", "False", "DNSRefused"), deletionTimestamp=SINCE), None),
        (hostname(("Programmed", "False", "DNSTimeout"), ("Accepted", "True", "Accepted")), "DNSTimeout"),
        (hostname(("Programmed", "False", "Pending"), ("ResolvedRefs", "False", "BackendRefused")), "BackendRefused"),
        (hostname(("Programmed", "False", "Invalid"), ("Accepted", "False", "Invalid")), "Invalid"),
    ],
)
def test_the_first_condition_that_says_why(obj: Hostname | None, reason: str | None):
    first = problem(obj)
    assert (first.reason if first is not None else None) == reason


def test_a_state_is_shown_once_it_has_lasted():
    obj = hostname(("Programmed", "False", "DNSTimeout"))
    assert why_unpublished(obj, datetime(2030, 1, 1, 0, 0, 10, tzinfo=UTC)) == ("", SHOWN_AFTER_S - 10)
    assert why_unpublished(obj, datetime(2030, 1, 1, 0, 1, tzinfo=UTC)) == ("DNSTimeout", 0.0)
    assert why_unpublished(hostname(), datetime(2030, 1, 1, tzinfo=UTC)) == ("", 0.0)
