"""Two groups that select one address own it together."""

from __future__ import annotations

import pytest

from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.testing.builders import HTTP, target
from fairlead.translate.loadbalancer import decide_loadbalancer
from fairlead.translate.view import GroupView
from tests.unit.translate.translate_builders import group, pod, view


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_groups_with_other_parameters_for_one_address(order):
    both = [GroupView(group("a", parameters={"weight": "5"})), GroupView(group("b", parameters={"weight": "2"}))]
    result = decide_loadbalancer(view(groups=[both[index] for index in order]))
    (merged,) = result.desired.targets[HTTP].values()
    assert (merged.weight, merged.owners) == (5, ("BackendGroup/shop/a", "BackendGroup/shop/b"))
    conflicts = {
        name: [item.reason for item in conditions if item.type is ConditionType.CONFLICTED]
        for (_, name), conditions in result.groups.items()
    }
    assert conflicts == {"a": [], "b": [ConditionReason.PARAMETERS_DIFFER]}


@pytest.mark.parametrize(
    ("first", "second", "draining"), [(True, True, True), (True, False, False), (False, True, False)]
)
@pytest.mark.req("T-survivors")
def test_a_backend_of_two_groups_drains_only_when_both_drain_it(first, second, draining):
    pods = {"ports": [{"port": 8080}], "byLabel": {"selector": {"app": "web"}}}
    groups = [
        GroupView(group(name, pods=pods), pods=(pod(f"p-{name}", "10.0.0.1", ready=not deleting, deleting=deleting),))
        for name, deleting in (("a", first), ("b", second))
    ]
    result = decide_loadbalancer(view(groups=groups, recorded=frozenset({(HTTP, target("1").key)})))
    (merged,) = result.desired.targets[HTTP].values()
    assert merged.draining is draining
    assert merged.source == "Pod/shop/p-a/uid-p-a", "of the first group by name"


def test_only_groups_whose_parameters_differ_from_the_first_are_in_conflict():
    groups = [
        GroupView(group(name, parameters={"weight": weight})) for name, weight in (("a", "5"), ("b", "5"), ("c", "1"))
    ]
    result = decide_loadbalancer(view(groups=groups))
    conflicts = {
        name for (_, name), conditions in result.groups.items() for item in conditions if item.type == "Conflicted"
    }
    assert conflicts == {"c"}
    (merged,) = result.desired.targets[HTTP].values()
    assert merged.owners == tuple(f"BackendGroup/shop/{name}" for name in "abc")


def test_the_source_is_that_of_the_first_group_that_has_one():
    of_pods = GroupView(
        group("b", pods={"ports": [{"port": 8080}], "byLabel": {"selector": {"app": "web"}}}),
        pods=(pod("p", "10.0.0.1"),),
    )
    result = decide_loadbalancer(view(groups=[GroupView(group("a")), of_pods]))
    (merged,) = result.desired.targets[HTTP].values()
    assert merged.source == "Pod/shop/p/uid-p"


@pytest.mark.req("L4-1")
@pytest.mark.parametrize("other_ready", [False, True])
def test_a_terminating_pod_serves_while_no_group_of_its_listener_has_a_ready_one(other_ready):
    pods = {"ports": [{"port": 8080}], "byLabel": {"selector": {"app": "web"}}}
    groups = [
        GroupView(group("a", pods=pods), pods=(pod("a", "10.0.0.1", deleting=True),)),
        GroupView(group("b", pods=pods), pods=(pod("b", "10.0.0.2", ready=other_ready),)),
        GroupView(group("c", static=["10.0.0.3:8080"], draining=["10.0.0.3:8080"])),
    ]
    recorded = frozenset({(HTTP, target("1").key)})
    targets = decide_loadbalancer(view(groups=groups, recorded=recorded)).desired.targets[HTTP]
    serving = {key for key, each in targets.items() if not each.draining}
    assert serving == {target("2" if other_ready else "1").key}
    assert targets[target("1").key].terminating is not other_ready
    assert not targets[target("3").key].terminating
