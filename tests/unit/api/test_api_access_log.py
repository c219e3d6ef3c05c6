"""What a class, load balancer or route may ask its access log and its traces for."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fairlead.api.annotations import AccessLog, Fraction, read_access_log, read_route_tracing
from tests.xds.collector import FILTERS

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
        ({"addFields": {"member": "other"}}, "addFields: field member"),
        ({"addFields": {"load_balancer": "other"}}, "addFields: field load_balancer"),
        # Envoy would refuse the listener because of these.
        ({"format": "template", "template": "%RESPONSE_CODE:5%"}, "RESPONSE_CODE takes no length"),
        ({"format": "template", "template": "%START_TIME:5%"}, "START_TIME takes no length"),
        ({"addFields": {"a": "%REQ(A?B?C)%"}}, "addFields.a"),
        ({"addFields": {"a": "%REQ(A B)%"}}, "addFields.a"),
        ({"addFields": {"a": "%RESP(A:B)%"}}, "addFields.a"),
        ({"addFields": {"a": "%TRAILER( )%"}}, "addFields.a"),
        ({"addFields": {"a": "%TRAILER(x?Set-Cookie):9%"}}, "Set-Cookie"),
        ({"removeFields": ["nothing"]}, "removeFields"),
        ({"headers": ["Authorization"]}, "Authorization"),
        ({"headers": ["proxy-authorization"]}, "proxy-authorization"),
        ({"headers": ["a b"]}, "headers"),
        ({"slowerThan": "soon"}, "slowerThan"),
        *(
            ({"filter": text}, "filter")
            for text in (
                "response.code",
                "response.code >= '400'",
                "response.code >= 4.5",
                "response.code >= 400 &&",
                "(response.code >= 400",
                "response.code >= 400)",
                "()",
                ")",
                "&& response.code > 1",
                "1 == 1",
                "response.code > 1 response.code > 1",
                "request.path == 'a\\\\'",
                "request.path == 'a' 'b'",
                "!request.path.contains('a')",
                "request.path < 'a'",
                "request.path.matches('(a+)+')",
                "true",
                "request.headers['Cookie'].contains('a')",
                "request.headers['a'",
                "request.path == 'ü'",
                "(" * 17 + "response.code > 1" + ")" * 17,
                " || ".join(["response.code > 1"] * 33),
                " ",
            )
        ),
    ],
)
def test_a_problem_names_the_field(log: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=re.escape(field)):
        read_access_log(json.dumps(log))


@pytest.mark.parametrize("text", FILTERS)
def test_a_filter_is_a_subset_of_cel(text: str) -> None:
    assert read_access_log(json.dumps({"filter": text})).filter == text


@pytest.mark.parametrize("text", ["xml", "", "[]", "{", '"json"', "JSON"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_access_log(text)


@pytest.mark.req("F-15")
def test_a_route_may_choose_the_share_that_is_traced() -> None:
    assert read_route_tracing("off") == Fraction(0)
    assert read_route_tracing('{"samplingRate": {"numerator": 1, "denominator": 1000}}') == Fraction(1, 1000)


@pytest.mark.req("F-15")
@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("on", "samplingRate"),
        ("{}", "samplingRate"),
        ('{"samplingRate": {"numerator": 101}}', "numerator 101"),
        ('{"samplingRate": {"numerator": -1}}', "numerator"),
        ('{"samplingRate": {"numerator": 0, "denominator": 0}}', "denominator"),
        # The service and its collector are those of the class.
        ('{"samplingRate": {"numerator": 1}, "serviceName": "x"}', "serviceName"),
    ],
)
def test_an_invalid_share_is_named(text: str, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        read_route_tracing(text)


@pytest.mark.parametrize("text", ["%REQ(X-A?:AUTHORITY):20%", "%RESP(x_a.b)%", "%TRAILER(A):5%", "%START_TIME(1f)%"])
def test_operators_with_an_argument_or_length_are_accepted(text: str) -> None:
    assert read_access_log(json.dumps({"addFields": {"a": text}})).add_fields == {"a": text}
