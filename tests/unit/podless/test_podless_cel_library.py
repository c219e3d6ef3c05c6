"""The functions that Kubernetes adds to CEL."""

import pytest
from podless_objects import node

from podless.failure import Cause
from podless.schema.rules import Rules, quantity


@pytest.mark.parametrize(("text", "number"), [("500m", 0.5), ("1Gi", 2**30), ("2k", 2000), ("3", 3), ("1e3", 1000)])
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("isIP(self.ip)", True),
        ("ip(self.ip).family() == 4", True),
        ("cidr('10.0.0.0/8').containsIP(self.ip)", True),
        ("quantity('1Gi').isGreaterThan(quantity('1Mi'))", True),
        ("url('https://a.b:1/c').getHostname() == 'a.b'", True),
        ("self.list.isSorted()", False),
        ("self.ip.find('[0-9]+') == '10'", True),
        ("self.list.indexOf('a') == 1", True),
    ],
)
def test_cel_library(rule: str, verdict: bool) -> None:
    schema = node(type="object", **{"x-kubernetes-validations": [{"rule": rule, "message": "no"}]})
    violations: list[Cause] = []
    Rules().evaluate({"ip": "10.0.0.1", "list": ["b", "a"]}, None, schema, "", violations)
    assert (violations == []) is verdict, violations
