"""ReferenceGrants: each of their fields counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.identity import gateway_load_balancer_name
from fairlead.agent.sources.gateway.plan import permits
from fairlead.api.gateway import GATEWAY_GROUP, GrantFrom, ReferenceGrant
from fairlead.publish.objects import NAME_LIMIT

FROM = {"group": GATEWAY_GROUP, "kind": "Gateway", "namespace": "infra"}
TO = {"group": "", "kind": "Secret", "name": "certificate"}


def grant(
    *, namespace: str = "backend", deleting: bool = False, source: dict[str, str] = FROM, target: dict[str, str] = TO
) -> ReferenceGrant:
    meta: dict[str, Any] = {"name": "grant", "namespace": namespace}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.convert({"metadata": meta, "spec": {"from": [source], "to": [target]}}, ReferenceGrant)


def permitted(*grants: ReferenceGrant, namespace: str = "infra") -> bool:
    origin = GrantFrom(GATEWAY_GROUP, "Gateway", namespace)
    return permits(grants, origin, ("", "Secret"), "backend", "certificate")


@pytest.mark.req("G-42")
def test_a_grant_is_for_a_name_or_for_all_of_a_kind() -> None:
    assert permitted(grant())
    assert permitted(grant(target={"group": "", "kind": "Secret"}))
    assert permitted(grant(target={"group": "", "kind": "Secret", "name": ""}))
    assert permitted(grant(namespace="infra"), grant())


@pytest.mark.req("G-41")
@pytest.mark.parametrize(
    "wrong",
    [
        grant(namespace="other"),
        grant(source={**FROM, "group": ""}),
        grant(source={**FROM, "kind": "HTTPRoute"}),
        grant(source={**FROM, "namespace": "other"}),
        grant(target={**TO, "group": "apps"}),
        grant(target={**TO, "kind": "Service"}),
        grant(target={**TO, "name": "other"}),
        grant(deleting=True),
        ReferenceGrant(),
    ],
)
def test_a_grant_that_differs_in_one_field_permits_nothing(wrong: ReferenceGrant) -> None:
    assert not permitted(wrong)


def test_within_a_namespace_no_grant_is_needed() -> None:
    assert permitted(namespace="backend")
    assert not permitted()


def test_a_gateway_has_a_load_balancer_of_its_own_name() -> None:
    assert gateway_load_balancer_name("infra", "main") == "gateway.infra.main"
    names = {gateway_load_balancer_name("infra", "long." * 48 + end) for end in ("a", "b")}
    assert len(names) == 2
    assert {len(name) <= NAME_LIMIT for name in names} == {True}
