"""Load balancers that BackendGroups share: what is refused, what is kept, and the backends of each group."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.intent import Allocation
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind
from fairlead.testing.builders import HTTP, target
from fairlead.translate.loadbalancer import accepted_frontend, decide_loadbalancer, frontend_of
from fairlead.translate.view import GroupView
from tests.unit.translate.translate_builders import CAPABLE, accepted, class_, group, lb, view


@pytest.mark.req("L-38")
@pytest.mark.parametrize("closed", [{"draining": True}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}])
def test_a_closed_class_takes_nothing_new(closed):
    new = GroupView(group())
    old = GroupView(group("old", static=["10.0.0.2:8080"]), accepted={})
    result = decide_loadbalancer(view(load_balancer_class=class_(**closed), groups=[new, old]))
    assert accepted(result).reason is ConditionReason.CLASS_DRAINING
    assert result.desired is None
    result = decide_loadbalancer(view(load_balancer_class=class_(**closed), groups=[new, old], living=True))
    assert list(result.desired.targets[HTTP]) == [target("2").key]
    assert [item.reason for item in result.groups["shop", "web"] if not item.status] == [ConditionReason.CLASS_DRAINING]
    assert all(item.status for item in result.groups["shop", "old"])


NO = Condition(ConditionType.ACCEPTED, False, ConditionReason.REFUSED_BY_PROVIDER, "too large")


@pytest.mark.req("L-37")
def test_what_a_provider_refuses_is_not_asked_of_it_and_all_else_goes_on():
    before = frontend_of(view(lb(attributes={"size": "s"}), class_({"credentials": "old"})))
    now = lb(attributes={"size": "l"}, listeners=[{"port": 80}, {"port": 81}])
    the_view = view(now, class_({"credentials": "new"}), [GroupView(group())], living=True, accepted=before, verdict=NO)
    result = decide_loadbalancer(the_view)
    assert (result.desired.spec.attributes, [listener.port for listener in result.desired.spec.listeners]) == (
        {"size": "s"},
        [80],
    )
    assert result.desired.spec.parameters == {"credentials": "new"}
    assert set(result.desired.targets[HTTP]) == {target("1").key}
    assert accepted(result).message == "too large; the last accepted version is served until then"
    assert decide_loadbalancer(msgspec.structs.replace(the_view, accepted=None)).desired is None


@pytest.mark.req("I-7")
def test_a_load_balancer_whose_class_is_gone_is_served_as_it_was_accepted():
    before = frontend_of(view(lb(attributes={"size": "s"}), class_({"a": "b"})))
    the_view = view(
        lb(attributes={"size": "l"}), None, [GroupView(group())], living=True, accepted=before, provider="p"
    )
    result = decide_loadbalancer(msgspec.structs.replace(the_view, load_balancer_class=None))
    assert (result.desired.spec, result.provider) == (before, "p")
    assert set(result.desired.targets[HTTP]) == {target("1").key}
    assert accepted(result).reason is ConditionReason.NO_SUCH_CLASS


@pytest.mark.req("L-37")
def test_a_refused_group_brings_what_it_brought_with_the_parameters_of_then():
    refused = GroupView(group(parameters={"zone": "b"}), accepted={"zone": "a"}, verdict=NO)
    result = decide_loadbalancer(view(groups=[refused]))
    (merged,) = result.desired.targets[HTTP].values()
    assert (merged.parameters, dict(result.taken)) == ((("zone", "a"),), {})
    result = decide_loadbalancer(view(groups=[msgspec.structs.replace(refused, accepted=None)]))
    assert result.desired.targets[HTTP] == {}
    assert set().union(*result.desired.owners.values()) == {"BackendGroup/shop/web"}, (
        "it is there, though it was never accepted"
    )


@pytest.mark.req("C-60")
def test_what_proxies_of_the_hub_serve_is_on_record_while_its_spec_is_refused():
    asked = lb(clusterName="blue", attributes={"size": "s"}, parameters={"zone": "a"})
    able = msgspec.structs.replace(CAPABLE, allocation=AllocationKind.ADDRESS)
    first = msgspec.structs.replace(view(asked), providers={"p": able}, allocation=Allocation("192.0.2.1"))
    recorded = accepted_frontend(first, decide_loadbalancer(first))
    assert recorded is not None
    assert (recorded.provider, recorded.listeners, recorded.attributes) == ("p", asked.spec.listeners, {"size": "s"})
    assert recorded.parameters == {"zone": "a"}
    changed = lb(clusterName="blue", attributes={"size": "l"})
    status = msgspec.structs.replace(changed.status, accepted=recorded)
    changed = msgspec.structs.replace(changed, status=status)
    later = msgspec.structs.replace(first, load_balancer=changed, verdict=NO)
    result = decide_loadbalancer(later)
    assert result.desired is not None
    assert (result.desired.spec.attributes, result.desired.spec.address) == ({"size": "s"}, "192.0.2.1")
    assert accepted_frontend(later, result) == recorded
    never = msgspec.structs.replace(first, verdict=NO)
    assert decide_loadbalancer(never).desired is None
