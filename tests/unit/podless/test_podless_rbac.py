"""Policy rules."""

import pytest

from podless.auth.identity import User
from podless.auth.rbac import AccessRequest, PolicyRule


@pytest.mark.parametrize(
    ("ask", "allowed"),
    [
        (AccessRequest("get", "", "services"), True),
        (AccessRequest("get", "", "services", "status"), False),
        (AccessRequest("list", "", "services"), False),
        (AccessRequest("get", "apps", "services"), False),
    ],
)
def test_rules(ask: AccessRequest, allowed: bool) -> None:
    assert PolicyRule(("get",), ("",), ("services",)).allows(ask) is allowed


def test_rules_with_wildcards_names_and_urls() -> None:
    assert PolicyRule(("*",), ("*",), ("*/status",)).allows(AccessRequest("patch", "x", "services", "status"))
    assert not PolicyRule(("get",), ("",), ("services",), names=("a",)).allows(AccessRequest("get", "", "services"))
    assert PolicyRule(("get",), urls=("/api/*",)).allows(AccessRequest("get", path="/api/v1"))
    assert not PolicyRule(("get",), ("*",), ("*",)).allows(AccessRequest("get", path="/api"))
    assert not User("x", groups=("a",)).is_master
