"""Load balancers that BackendGroups share: what is refused, what lives on, and what each group brings."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.kubernetes import Node, Service
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind
from fairlead.model.keys import LoadBalancerKey
from fairlead.testing.builders import ABLE, HTTP, decoded, target
from fairlead.translate.backendgroup import weight_of
from fairlead.translate.loadbalancer import frontend_of, merged_parameters, translate_loadbalancer
from fairlead.translate.view import GroupView, LoadBalancerView

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")
CAPABLE = msgspec.structs.replace(ABLE, class_parameters=frozenset({"socket", "timeout."}))


def class_(parameters=None, *, metadata=None, **spec):
    meta = {"name": "edge", **(metadata or {})}
    body = {"metadata": meta, "spec": {"provider": "p", "parameters": parameters or {}, **spec}}
    return decoded(body, LoadBalancerClass)


def lb(**spec):
    spec = {"className": "edge", "listeners": [{"port": 80}], **spec}
    return decoded({"metadata": {"name": "shared", "namespace": "shop", "uid": "u"}, "spec": spec}, LoadBalancer)


def group(name="web", *, parameters=None, **spec):
    spec = {"loadBalancers": ["shared"], "parameters": parameters or {}, **(spec or {"static": ["10.0.0.1:8080"]})}
    return decoded({"metadata": {"name": name, "namespace": "shop"}, "spec": spec}, BackendGroup)


def view(load_balancer=None, found=None, groups=(), **words):
    return LoadBalancerView(KEY, load_balancer or lb(), found or class_(), {"p": CAPABLE}, tuple(groups), **words)


def accepted(built):
    return next(one for one in built.conditions if one.type is ConditionType.ACCEPTED)


@pytest.mark.parametrize(
    ("of_class", "spec", "field"),
    [
        ({"url": "a"}, {"parameters": {"url": "b"}}, "spec.parameters.url"),
        ({"url": "a"}, {"existing": {"url": "b"}}, "spec.existing.url"),
        ({}, {"parameters": {"socket": "/s"}}, "spec.parameters.socket"),
        ({}, {"existing": {"timeout.ensureBackend": "9s"}}, "spec.existing.timeout.ensureBackend"),
        ({"url": "a"}, {"parameters": {"url": "a", "size": "s"}}, ""),
        ({"socket": "/s"}, {"existing": {"socket": "/s"}}, ""),
    ],
)
def test_what_a_class_sets_is_not_a_load_balancers_to_set(of_class, spec, field):
    found, one = class_(of_class), lb(**spec)
    built = translate_loadbalancer(view(one, found))
    if not field:
        assert built.desired.spec.parameters == {**of_class, **spec.get("parameters", {}), **spec.get("existing", {})}
        return
    assert (built.desired, accepted(built).status) == (None, False)
    assert accepted(built).message.startswith(f"{field}: ")
    assert "create another LoadBalancer" in accepted(built).message
    assert of_class.items() <= merged_parameters(one, found).items(), "the class counts in any case"


@pytest.mark.req("L-38")
@pytest.mark.parametrize("closed", [{"draining": True}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}])
def test_a_closed_class_takes_nothing_new(closed):
    new = GroupView(group())
    old = GroupView(group("old", static=["10.0.0.2:8080"]), accepted={})
    built = translate_loadbalancer(view(found=class_(**closed), groups=[new, old]))
    assert accepted(built).reason is ConditionReason.CLASS_DRAINING
    assert built.desired is None
    built = translate_loadbalancer(view(found=class_(**closed), groups=[new, old], living=True))
    assert list(built.desired.targets[HTTP]) == [target("2").key]
    assert [one.reason for one in built.groups["shop", "web"] if not one.status] == [ConditionReason.CLASS_DRAINING]
    assert all(one.status for one in built.groups["shop", "old"])


NO = Condition(ConditionType.ACCEPTED, False, ConditionReason.REFUSED_BY_PROVIDER, "too large")


@pytest.mark.req("L-37")
def test_what_a_provider_refuses_is_not_asked_of_it_and_all_else_goes_on():
    before = frontend_of(view(lb(attributes={"size": "s"}), class_({"credentials": "old"})))
    now = lb(attributes={"size": "l"}, listeners=[{"port": 80}, {"port": 81}])
    one = view(now, class_({"credentials": "new"}), [GroupView(group())], living=True, accepted=before, verdict=NO)
    built = translate_loadbalancer(one)
    assert (built.desired.spec.attributes, [at.port for at in built.desired.spec.listeners]) == ({"size": "s"}, [80])
    assert built.desired.spec.parameters == {"credentials": "new"}
    assert set(built.desired.targets[HTTP]) == {target("1").key}
    assert accepted(built).message == "too large; the last accepted version is served until then"
    assert translate_loadbalancer(msgspec.structs.replace(one, accepted=None)).desired is None


@pytest.mark.req("I-7")
def test_a_load_balancer_whose_class_is_gone_is_served_as_it_was_accepted():
    before = frontend_of(view(lb(attributes={"size": "s"}), class_({"a": "b"})))
    one = view(lb(attributes={"size": "l"}), None, [GroupView(group())], living=True, accepted=before, provider="p")
    built = translate_loadbalancer(msgspec.structs.replace(one, load_balancer_class=None))
    assert (built.desired.spec, built.provider) == (before, "p")
    assert set(built.desired.targets[HTTP]) == {target("1").key}
    assert accepted(built).reason is ConditionReason.NO_SUCH_CLASS


@pytest.mark.req("L-37")
def test_a_refused_group_brings_what_it_brought_with_the_parameters_of_then():
    one = GroupView(group(parameters={"zone": "b"}), accepted={"zone": "a"}, verdict=NO)
    built = translate_loadbalancer(view(groups=[one]))
    (found,) = built.desired.targets[HTTP].values()
    assert (found.parameters, dict(built.taken)) == ((("zone", "a"),), {})
    built = translate_loadbalancer(view(groups=[msgspec.structs.replace(one, accepted=None)]))
    assert built.desired.targets[HTTP] == {}
    assert built.desired.owners == {"BackendGroup/shop/web"}, "it is there, though nobody has accepted it"


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        ("0", 0), ("1", 1), ("256", 256), ("007", 7),
        ("257", None), ("-1", None), ("1.0", None), ("", None), (" 5", None), ("٣", None), ("9" * 5000, None),
    ],
)  # fmt: skip
def test_weights(text, weight):
    assert weight_of({"weight": text}) == weight
    built = translate_loadbalancer(view(groups=[GroupView(group(parameters={"weight": text}))]))
    assert [one.weight for one in built.desired.targets[HTTP].values()] == ([] if weight is None else [weight])


def test_a_weight_where_there_are_none_is_refused():
    capable = msgspec.structs.replace(CAPABLE, weights=False)
    for weight, taken in (("1", True), ("2", False)):
        one = view(groups=[GroupView(group(parameters={"weight": weight}))])
        built = translate_loadbalancer(msgspec.structs.replace(one, providers={"p": capable}))
        assert bool(built.desired.targets[HTTP]) is taken


def node(name, address, *, ready=True):
    conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
    status = {"addresses": [{"type": "InternalIP", "address": address}], "conditions": conditions}
    return decoded({"metadata": {"name": name}, "status": status}, Node)


SERVICE = decoded(
    {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"ports": [{"port": 80, "nodePort": 30200}]}}, Service
)


@pytest.mark.parametrize(
    ("ready", "recorded", "wanted"),
    [
        ("12", "", "12"),
        ("1", "12", "1"),
        ("1", "2", "1"),
        ("", "12", "12"),
        ("", "1", "1"),
        ("", "", ""),
    ],
)
def test_nodes_that_are_not_ready(ready, recorded, wanted):
    nodes = tuple(node(f"n{one}", f"10.0.0.{one}", ready=one in ready) for one in "12")
    spec = {"service": {"name": "web", "port": {"port": 80}}}
    known = frozenset((HTTP, target(one, 30200).key) for one in recorded)
    built = translate_loadbalancer(
        view(groups=[GroupView(group(**spec), service=SERVICE, nodes=nodes)], recorded=known)
    )
    assert set(built.desired.targets[HTTP]) == {target(one, 30200).key for one in wanted}
    stale = [one for one in built.conditions if one.type is ConditionType.STALE]
    assert [one.reason for one in stale] == ([] if ready else [ConditionReason.ALL_NODES_NOT_READY])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_groups_with_other_parameters_for_one_address(order):
    both = [GroupView(group("a", parameters={"weight": "5"})), GroupView(group("b", parameters={"weight": "2"}))]
    built = translate_loadbalancer(view(groups=[both[one] for one in order]))
    (found,) = built.desired.targets[HTTP].values()
    assert (found.weight, found.owners) == (5, ("BackendGroup/shop/a", "BackendGroup/shop/b"))
    told = {
        name: [one.reason for one in words if one.type is ConditionType.CONFLICTED]
        for (_, name), words in built.groups.items()
    }
    assert told == {"a": [], "b": [ConditionReason.PARAMETERS_DIFFER]}


@pytest.mark.parametrize("written", ["10.0.0.9", "10.0.0.9:http", "127.0.0.1:80", "10.0.0.9:70000"])
def test_an_address_that_may_not_be_a_backend_is_told_as_it_was_written(written):
    good, bad = GroupView(group("good")), GroupView(group("bad", static=[written, "10.0.0.2:8080"]))
    built = translate_loadbalancer(view(groups=[good, bad]))
    assert set(built.desired.targets[HTTP]) == {target("1").key, target("2").key}
    (wrong,) = [one for one in built.groups["shop", "bad"] if not one.status]
    assert (wrong.type, wrong.reason) == (ConditionType.RESOLVED_REFS, ConditionReason.INVALID)
    assert wrong.message.startswith(f"spec.static: no backend can be at {written}; ")
    assert all(one.status for one in built.groups["shop", "good"])
    assert any(written in one.message for one in built.conditions if not one.status)


def test_a_class_of_the_hubs_own_proxies_is_for_services():
    ours = msgspec.structs.replace(CAPABLE, allocation=AllocationKind.ADDRESS)
    built = translate_loadbalancer(msgspec.structs.replace(view(), providers={"p": ours}))
    assert built.desired is None
    assert (accepted(built).status, accepted(built).reason) == (False, ConditionReason.INVALID)
    assert accepted(built).message.startswith("spec.className: LoadBalancerClass 'edge' is for Services")
