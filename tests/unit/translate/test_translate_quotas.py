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
