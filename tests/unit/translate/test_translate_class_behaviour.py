"""What of a class and of annotations decides how a load balancer is kept: repairs, guard and checks."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.names import ANNOTATION_REPAIR
from fairlead.model.desired import GuardPolicy
from fairlead.translate.view import behaviour_of_class, repair_asked, repair_s
from tests.unit.translate.translate_builders import class_, decoded, lb


def asking(request, answered=""):
    meta = {"name": "shared", "namespace": "shop", "annotations": {ANNOTATION_REPAIR: request} if request else {}}
    spec = {"className": "edge", "listeners": [{"port": 80}]}
    return decoded({"metadata": meta, "spec": spec, "status": {"repaired": answered}}, LoadBalancer)


@pytest.mark.parametrize(
    ("request_", "answered", "asked"),
    [("", "", ""), ("one", "", "one"), ("one", "one", ""), ("two", "one", "two"), ("", "one", "")],
)
def test_a_request_for_a_repair_is_kept_until_answered(request_, answered, asked):
    assert repair_asked(asking(request_, answered)) == asked


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        ({"policy": "Always", "minPeriod": "2m"}, 120.0),
        ({"policy": "Always", "minPeriod": "1s"}, 30.0),
        ({"policy": "IfNotSucc", "minPeriod": "2m"}, 0.0),
    ],
)
def test_only_always_repairs_by_the_clock_and_no_more_often_than_every_30_s(policy, seconds):
    assert repair_s(lb(ensurePolicy=policy).spec.ensure_policy) == seconds


def test_the_guard_and_the_check_are_those_of_the_class():
    spec = class_(guard={"maxRemovalPercent": 20, "minBackends": 3}, healthCheck={"disabled": True}).spec
    assert behaviour_of_class(spec).guard == GuardPolicy(max_removal_percent=20, min_targets=3)
    assert behaviour_of_class(spec).health_check is None
    spec = msgspec.structs.replace(spec, health_check=msgspec.structs.replace(spec.health_check, disabled=False))
    assert behaviour_of_class(spec).health_check.interval_s == 5.0
