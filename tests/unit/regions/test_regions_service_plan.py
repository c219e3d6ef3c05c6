"""What a Service as a whole needs."""

from __future__ import annotations

import pytest
from regions_builders import pool, service

from fairlead.regions.plan import plan_service


@pytest.mark.req("O-27", "O-32", "O-33", "O-9")
def test_what_a_service_needs() -> None:
    pools = [pool("a", app="deploy"), pool("b", app="deploy", deleting=True), pool("c")]
    plan = plan_service(service(), pools, [], remaining=0)
    assert (plan.finalizer, sorted(plan.wanted.pools)) == ("add", ["a"])
    held = service(finalizers=["fairlead.dev/pool-services"], deleting=True)
    assert plan_service(held, pools, ["a"], remaining=1).finalizer == ""
    assert plan_service(held, pools, [], remaining=0).finalizer == "remove"
    broken = plan_service(service(selector="a in ("), pools, ["c"], remaining=1)
    assert (list(broken.wanted.pools), broken.wanted.problem) == (["c"], "InvalidSelector")
