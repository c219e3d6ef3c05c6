"""The annotation with the hosts in maintenance."""

from __future__ import annotations

import json

import pytest

from fairlead.api.httploadbalancer import read_maintenance
from fairlead.api.names import ANNOTATION_MAINTENANCE
from fairlead.model.http import MAX_PAGE_BYTES

pytestmark = pytest.mark.req("F-22")

UNTIL = "2026-11-26T16:00:00Z"


def test_the_last_entry_of_a_host_counts() -> None:
    text = json.dumps([{"host": "A.example", "until": UNTIL, "status": 502}, {"host": "a.example", "until": UNTIL}])
    (entry,) = read_maintenance(text)
    assert (entry.host, entry.status, entry.until) == ("a.example", 503, UNTIL)
    assert read_maintenance("") == ()


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"until": "soon"}, "until"),
        ({}, "until"),
        ({"until": UNTIL, "status": 200}, "status"),
        ({"until": UNTIL, "page": "ü" * MAX_PAGE_BYTES}, "page"),
        ({"until": UNTIL, "allowedSources": ["10.0.0.1/8"]}, "allowedSources"),
        ({"until": UNTIL, "host": "a.*.example"}, "a.*.example"),
        ({"until": UNTIL, "retryAfter": 5}, "retryAfter"),
    ],
)
def test_a_problem_names_the_annotation_and_the_field(entry: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=ANNOTATION_MAINTENANCE) as error:
        read_maintenance(json.dumps([entry]))
    assert field in str(error.value)
    with pytest.raises(ValueError, match=ANNOTATION_MAINTENANCE):
        read_maintenance("[")
