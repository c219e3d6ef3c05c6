"""What a class, load balancer or route may ask its access log for."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fairlead.api.access_log import AccessLog, read_access_log

pytestmark = pytest.mark.req("F-14")


def test_a_word_or_an_object() -> None:
    assert read_access_log("off").format == "off"
    assert read_access_log("json") == AccessLog()
    log = read_access_log('{"sampling": 0.5, "keepErrors": true, "minStatus": 400, "slowerThan": "2s"}')
    assert (log.sampling, log.keep_errors, log.min_status, log.slower_than_ms) == (0.5, True, 400, 2000)


@pytest.mark.parametrize(
    ("log", "field"),
    [
        ({"sampling": 101}, "sampling"),
        ({"sampling": -1}, "sampling"),
        ({"minStatus": 600}, "minStatus"),
        ({"sample": 10}, "sample"),
        ({"format": "xml"}, "format"),
        ({"format": "template"}, "template"),
        ({"template": "%PROTOCOL%"}, "template"),
        ({"format": "template", "template": "%REQ(COOKIE)%"}, "COOKIE"),
        ({"format": "template", "template": "%REQ(x?authorization)%"}, "authorization"),
        ({"format": "template", "template": "100%"}, "template"),
        ({"format": "template", "template": "%ENVIRONMENT(HOME)%"}, "ENVIRONMENT"),
        ({"format": "template", "template": "%FILTER_STATE(x)%"}, "FILTER_STATE"),
        ({"addFields": {"cookie": "%RESP(Set-Cookie)%"}}, "Set-Cookie"),
        ({"addFields": {"a b": "x"}}, "addFields"),
        ({"removeFields": ["nothing"]}, "removeFields"),
        ({"headers": ["Authorization"]}, "Authorization"),
        ({"headers": ["proxy-authorization"]}, "proxy-authorization"),
        ({"headers": ["a b"]}, "headers"),
        ({"slowerThan": "soon"}, "slowerThan"),
    ],
)
def test_a_problem_names_the_field(log: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=re.escape(field)):
        read_access_log(json.dumps(log))


@pytest.mark.parametrize("text", ["xml", "", "[]", "{", '"json"', "JSON"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_access_log(text)
