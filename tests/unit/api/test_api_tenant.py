"""The sub-tenants of a Tenant and their limits."""

from __future__ import annotations

import pytest

from fairlead.api.names import LABEL_ORIGIN_NAMESPACE, LABEL_SUBTENANT
from fairlead.api.tenant import SubtenantLimits, SubtenantUsed, TenantUsed, subtenant_of
from fairlead.testing.builders import tcp, tenant


@pytest.mark.req("F-33")
@pytest.mark.parametrize(
    ("labels", "subtenant"),
    [
        ({}, ""),
        ({LABEL_SUBTENANT: "payments"}, ""),
        ({LABEL_ORIGIN_NAMESPACE: "shop"}, "shop"),
        ({LABEL_ORIGIN_NAMESPACE: "shop", LABEL_SUBTENANT: "payments"}, "payments"),
    ],
)
def test_a_namespace_without_the_label_is_a_sub_tenant_itself(labels: dict[str, str], subtenant: str) -> None:
    assert subtenant_of(tcp(labels=labels)) == subtenant


@pytest.mark.req("F-33")
def test_a_sub_tenant_has_its_own_limits_or_those_of_all_others() -> None:
    limits = [{"name": "payments", "maxRoutes": 2}, {"name": "*", "maxRoutes": 1}]
    limited = tenant(spec={"subtenants": limits})
    assert [limited.limits_of(name).max_routes for name in ("payments", "shop", "")] == [2, 1, 0]
    assert tenant().limits_of("shop") == SubtenantLimits("shop")
    used = TenantUsed(subtenants=[SubtenantUsed("shop", routes=3)])
    assert (used.of_subtenant("shop").routes, used.of_subtenant("payments").routes) == (3, 0)
