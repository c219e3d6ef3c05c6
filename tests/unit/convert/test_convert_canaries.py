"""How canaries change the rules of the Ingress that they belong to."""

from __future__ import annotations

import re
from typing import Any

import pytest
from convert_builders import convert, ingress, path, remarks, rules

from fairlead.api.gateway import HTTPRule

HOSTS = {"a.example.com": [path(service="next")]}


def parts(rule: HTTPRule) -> tuple[str, list[tuple[str, int | None]]]:
    """Return the headers of a rule's match, and its backends with weights."""
    (match,) = rule.matches or []
    headers = ",".join(f"{each.name}{'~' if each.type else '='}{each.value}" for each in match.headers or ())
    return headers, [(each.name, each.weight) for each in rule.backend_refs or ()]


@pytest.mark.req("E-35")
@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"canary_weight": "20"}, [("", [("web", 80), ("next", 20)])]),
        ({"canary_weight": "2", "canary_weight_total": "300"}, [("", [("web", 298), ("next", 2)])]),
        ({}, [("", [("web", None)])]),
        ({"canary_by_header": "x", "canary_by_header_value": "1"}, [("x=1", [("next", None)]), ("", [("web", None)])]),
        (
            {"canary_by_header": "x"},
            [("x=always", [("next", None)]), ("x=never", [("web", None)]), ("", [("web", None)])],
        ),
        (
            {"canary_by_header": "x", "canary_by_header_pattern": "a|b"},
            [("x~.*(?:a|b).*", [("next", None)]), ("", [("web", None)])],
        ),
    ],
)
def test_canaries(annotations: dict[str, Any], expected: list[tuple[str, list[tuple[str, int | None]]]]) -> None:
    conversion = convert(ingress(), ingress("canary", HOSTS, canary="true", **annotations))
    assert [parts(rule) for rule in rules(conversion)] == expected
    assert conversion.lossless


def test_the_pattern_of_a_cookie() -> None:
    always, never, last = rules(convert(ingress(), ingress("c", HOSTS, canary="true", canary_by_cookie="c.1")))
    assert [parts(rule)[1][0][0] for rule in (always, never, last)] == ["next", "web", "web"]
    (match,) = always.matches or []
    (header,) = match.headers or []
    for cookie, fits in (
        ("c.1=always", True),
        ("a=b; c.1=always; d=e", True),
        ("cx1=always", False),
        ("xc.1=always", False),
    ):
        assert bool(re.fullmatch(header.value, cookie)) is fits, cookie


def test_a_canary_of_nothing_and_a_weight_that_is_none_are_listed() -> None:
    alone = convert(ingress(), ingress("canary", {"b.org": [path()]}, canary="true"))
    assert remarks(alone)[0].startswith("canary of b.org/")
    odd = convert(ingress(), ingress("canary", HOSTS, canary="true", canary_weight="half"))
    assert remarks(odd) == ["canary-weight: 'half' is not a number: 0 is used"]


def test_a_canary_of_another_namespace_is_not_taken() -> None:
    conversion = convert(ingress(), ingress("canary", HOSTS, namespace="other", canary="true", canary_weight="50"))
    assert [parts(rule) for rule in rules(conversion)] == [("", [("web", None)])]


@pytest.mark.req("L7-5")
@pytest.mark.parametrize("pattern", ["(?=x)", "(a)\\1", "(", "a++"])
def test_a_pattern_that_no_gateway_compiles_is_lost(pattern: str) -> None:
    annotations: dict[str, Any] = {"canary_by_header": "Region", "canary_by_header_pattern": pattern}
    conversion = convert(ingress(), ingress("canary", HOSTS, canary="true", **annotations))
    assert [each.partition(":")[0] for each in remarks(conversion)] == ["canary-by-header-pattern"]
    assert [parts(rule) for rule in rules(conversion)] == [("", [("web", None)])]


@pytest.mark.parametrize(
    ("weight", "total", "shares"), [("10", "0", [90, 10]), ("10", "50", [90, 10]), ("50", "200", [150, 50])]
)
def test_a_total_below_100_is_100(weight: str, total: str, shares: list[int]) -> None:
    canary = ingress("c", canary="true", canary_weight=weight, canary_weight_total=total)
    (rule,) = rules(convert(ingress(), canary))
    assert [ref.weight for ref in rule.backend_refs or ()] == shares


def test_the_oldest_canary_of_a_path_is_the_one() -> None:
    first, second = (
        ingress(name, {"a.example.com": [path(service=name)]}, canary="true", canary_weight="10") for name in ("c", "d")
    )
    conversion = convert(ingress(), first, second)
    (rule,) = rules(conversion)
    assert [(ref.name, ref.weight) for ref in rule.backend_refs or ()] == [("web", 90), ("c", 10)]
    assert any(remark.startswith("canary of a.example.com/") for remark in remarks(conversion, lost=False))


def test_a_canary_of_the_default_backend_is_lost() -> None:
    canary = ingress("c", {}, default="can", canary="true", canary_weight="10")
    assert any("default backend" in remark for remark in remarks(convert(ingress(default="web"), canary)))
