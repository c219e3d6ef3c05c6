"""How much of its limits a member uses."""

from __future__ import annotations

import pytest

from fairlead.testing.builders import tenant
from fairlead.translate.tenant import has_limits, quota_rows

_USED = {"loadBalancers": 2, "ports": 3, "targets": 7, "routes": 80, "certificates": 3, "hostnames": 1}


@pytest.mark.req("F-31")
def test_each_limit_is_compared_with_what_is_used() -> None:
    limits = {"maxLoadBalancers": 4, "maxPorts": 10, "maxTargets": 8, "maxRoutes": 100, "maxCertificates": 1}
    limited = tenant(spec=limits, status={"used": _USED})
    assert has_limits(limited)
    rows = {row.resource: row for row in quota_rows(limited)}
    used = {resource: (row.used, row.limit, row.percent, row.is_near) for resource, row in rows.items()}
    assert used == {
        "load balancers": (2, 4, 50, False),
        "ports": (3, 10, 30, False),
        "targets": (7, 8, 88, True),
        "routes": (80, 100, 80, True),
        "certificates": (3, 1, 300, True),
        "host names": (1, 2000, 0, False),
        "addresses": (0, None, None, False),
    }
    assert rows["routes"].field == "spec.maxRoutes"


@pytest.mark.req("F-31")
def test_a_tenant_without_limits_is_near_none() -> None:
    unlimited = tenant(status={"used": _USED})
    assert not has_limits(unlimited)
    rows = quota_rows(unlimited)
    assert [row.resource for row in rows if row.limit is not None] == ["host names"]
    assert not any(row.is_near for row in rows)
    assert quota_rows(tenant()) == []


@pytest.mark.req("F-31")
def test_the_limit_of_a_class_has_a_row() -> None:
    used = {**_USED, "classes": [{"name": "edge", "loadBalancers": 4, "limit": 5}]}
    limited = tenant(status={"used": used})
    assert has_limits(limited)
    row = next(row for row in quota_rows(limited) if row.resource == "load balancers of class edge")
    assert (row.used, row.limit, row.is_near, row.field) == (4, 5, True, "spec.maxPerTenant of the class")


@pytest.mark.req("F-33")
def test_limits_of_sub_tenants_have_rows_of_their_own() -> None:
    limits = [{"name": "payments", "maxRoutes": 10, "maxPorts": 4, "maxCertificates": 2, "maxHostnames": 9}]
    limits.append({"name": "*", "maxLoadBalancers": 2, "maxTargets": 4})
    counted = [
        {"name": "payments", "routes": 9, "loadBalancers": 5, "ports": 4, "certificates": 1, "hostnames": 2},
        {"name": "shop", "loadBalancers": 1},
    ]
    limited = tenant(spec={"subtenants": limits}, status={"used": {**_USED, "subtenants": counted}})
    assert has_limits(limited)
    rows = [row for row in quota_rows(limited) if row.subtenant]
    assert [(row.subtenant, row.resource, row.used, row.limit, row.is_near, row.field) for row in rows] == [
        ("payments", "ports", 4, 4, True, "spec.subtenants[payments].maxPorts"),
        ("payments", "routes", 9, 10, True, "spec.subtenants[payments].maxRoutes"),
        ("payments", "certificates", 1, 2, False, "spec.subtenants[payments].maxCertificates"),
        ("payments", "host names", 2, 9, False, "spec.subtenants[payments].maxHostnames"),
        ("shop", "load balancers", 1, 2, False, "spec.subtenants[*].maxLoadBalancers"),
        ("shop", "targets", 0, 4, False, "spec.subtenants[*].maxTargets"),
    ]
