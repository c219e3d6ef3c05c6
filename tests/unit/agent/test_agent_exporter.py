"""What has to be written for a Service: order, reasons, fixed points, and what is never touched."""

from __future__ import annotations

import msgspec
import pytest
from agent_builders import HUB_NAMESPACE, TENANT, endpoint, service, slice_of
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.agent.identity import service_of
from fairlead.agent.sources.service.plan import Ours, Scenario, ServiceView, Settings, build_export
from fairlead.publish.objects import Present, Publication, PublishPlan, plan_publication, plan_removal
from tests.published import stored_load_balancer, stored_slice

SETTINGS = Settings(tenant=TENANT, namespace=HUB_NAMESPACE)
KEY = ("shop", "web")


def export(target="Pod", *slices, **spec) -> Publication:
    of_member = service(annotations={"fairlead.dev/target": target}, **spec)
    view = ServiceView(service=of_member, slices=slices, node_addresses={"IPv4": {"a": "10.0.0.1", "b": "10.0.0.2"}})
    made = build_export(view, Ours(Scenario.IMPLEMENTED), SETTINGS)
    assert isinstance(made, Publication)
    return made


def is_ours(hub_object) -> bool:
    return service_of(hub_object, tenant=TENANT) == KEY


class Hub:
    """The hub's side, as a cache would show it."""

    def __init__(self):
        self.load_balancer = None
        self.slices = {}

    def rewrite(self, **metadata):
        """Have its load balancer show other metadata."""
        assert self.load_balancer is not None
        changed = msgspec.structs.replace(self.load_balancer.metadata, **metadata)
        self.load_balancer = msgspec.structs.replace(self.load_balancer, metadata=changed)

    def plan(self, wanted: Publication):
        return plan_publication(wanted, self.present(), is_ours=is_ours)

    def present(self) -> Present:
        return Present(self.load_balancer, tuple(self.slices.values()))

    def removal(self) -> PublishPlan:
        return plan_removal(self.present(), reason="gone", is_ours=is_ours)

    def apply(self, plan):
        return self.apply_some(plan.writes)

    def apply_some(self, writes):
        for write in writes:
            name = write.obj.metadata.name
            if hasattr(write.obj, "spec"):
                self.load_balancer = stored_load_balancer(write.obj) if write.action == "apply" else None
            elif write.action == "apply":
                self.slices[name] = stored_slice(write.obj)
            else:
                del self.slices[name]
        return [(write.action, write.obj.metadata.name) for write in writes]


POD_SLICES = (
    slice_of(endpoint("10.1.0.1", node="a"), name="one"),
    slice_of(endpoint("10.1.0.2", node="b"), name="two"),
)


@pytest.mark.req("I-9")
@pytest.mark.req("K-8")
def test_the_load_balancer_comes_first_and_deletes_come_last():
    hub = Hub()
    assert hub.apply(hub.plan(export("Pod", *POD_SLICES))) == [
        ("apply", "shop.web"),
        ("apply", "shop.web.pod.one"),
        ("apply", "shop.web.pod.two"),
    ]
    assert hub.apply(hub.plan(export("Node", *POD_SLICES, externalTrafficPolicy="Local"))) == [
        ("apply", "shop.web"),
        ("apply", "shop.web.local.0"),
        ("delete", "shop.web.pod.one"),
        ("delete", "shop.web.pod.two"),
    ]
    assert hub.apply(hub.removal()) == [("delete", "shop.web"), ("delete", "shop.web.local.0")]


@pytest.mark.req("KI-6")
@pytest.mark.req("I-10")
def test_every_write_has_a_change():
    hub = Hub()
    first = hub.plan(export("Pod", *POD_SLICES))
    assert [write.reason for write in first.writes] == ["new", "new", "new"]
    hub.apply(first)
    assert hub.plan(export("Pod", *POD_SLICES)).writes == ()
    more = slice_of(endpoint("10.1.0.3"), endpoint("10.1.0.4"), name="two")
    assert [w.reason for w in hub.plan(export("Pod", POD_SLICES[0], more)).writes] == [
        "endpoints changed: 2 added, 1 removed"
    ]
    assert [w.reason for w in hub.plan(export("Pod", *POD_SLICES, sessionAffinity="ClientIP")).writes] == [
        "changed: session_affinity"
    ]


@pytest.mark.req("I-6")
@pytest.mark.req("KI-6")
def test_a_recreated_service_takes_over_the_same_object():
    hub = Hub()
    hub.apply(hub.plan(export("Pod", *POD_SLICES)))
    plan = hub.plan(export("Pod", *POD_SLICES, uid="uid-2"))
    # Its slices say whose they are: until they do, the hub serves none of those that it has.
    assert [(w.action, w.reason) for w in plan.writes] == [
        ("apply", "changed: origin"),
        *(("apply", "labels changed") for _ in plan.of_slices),
    ]


@pytest.mark.req("B24")
@pytest.mark.req("KI-2")
def test_nothing_is_applied_to_an_object_that_is_being_deleted():
    hub = Hub()
    hub.apply(hub.plan(export("Pod", *POD_SLICES)))
    hub.rewrite(deletion_timestamp="2030-01-01T00:00:00Z")
    plan = hub.plan(export("Pod", sessionAffinity="ClientIP"))
    assert plan.writes == ()
    assert plan.conflict == ""
    hub.slices.clear()
    assert hub.removal().writes == ()


@pytest.mark.req("I-4")
@pytest.mark.req("B25")
@pytest.mark.req("B29")
def test_a_foreign_object_of_our_name_is_left_alone():
    hub = Hub()
    hub.apply(hub.plan(export("Pod", *POD_SLICES)))
    hub.rewrite(labels={})
    plan = hub.plan(export("Pod"))
    assert plan.writes == ()
    assert "shop.web" in plan.conflict
    hub.slices.clear()
    assert hub.removal().writes == ()


@pytest.mark.req("I-4")
def test_a_foreign_slice_of_our_name_is_left_alone():
    hub = Hub()
    wanted = export("Pod", *POD_SLICES)
    foreign = stored_slice(wanted.slices[0])
    bare = msgspec.structs.replace(foreign.metadata, labels={})
    hub.slices[foreign.metadata.name] = msgspec.structs.replace(foreign, metadata=bare)
    plan = hub.plan(wanted)
    assert [write.obj.metadata.name for write in plan.writes] == ["shop.web"]
    assert foreign.metadata.name in plan.conflict


@pytest.mark.req("B04")
@pytest.mark.req("I-1")
def test_slices_that_are_to_be_kept_are_kept():
    hub = Hub()
    hub.apply(hub.plan(export("Pod", *POD_SLICES)))
    wanted = msgspec.structs.replace(export("Pod"), slices=None)
    assert hub.plan(wanted).writes == ()


@pytest.mark.req("B34")
@pytest.mark.parametrize("what", ["labels", "finalizers", "annotations"])
def test_manual_changes_are_reverted_once(what):
    hub = Hub()
    hub.apply(hub.plan(export("Pod", *POD_SLICES)))
    labels = {**(hub.load_balancer.metadata.labels or {}), "fairlead.dev/origin-kind": "Service"}
    kept = {"labels": labels, "finalizers": [], "annotations": {}}
    if what == "labels":
        mirrored = hub.slices["shop.web.pod.one"]
        fewer = {
            key: value for key, value in mirrored.metadata.labels.items() if "managed-by" not in key or "app." in key
        }
        hub.slices["shop.web.pod.one"] = msgspec.structs.replace(
            mirrored, metadata=msgspec.structs.replace(mirrored.metadata, labels=fewer)
        )
    hub.rewrite(**{what: kept[what]})
    plan = hub.plan(export("Pod", *POD_SLICES))
    assert len(plan.writes) == 1
    hub.apply(plan)
    assert hub.plan(export("Pod", *POD_SLICES)).writes == ()


steps = st.lists(
    st.tuples(
        st.sampled_from(["Node", "Pod"]),
        st.sampled_from(["Cluster", "Local"]),
        st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["a", "b", "gone", ""]), st.booleans()), max_size=4),
    ),
    max_size=5,
)


@pytest.mark.req("B34")
@pytest.mark.req("K-8")
@given(steps=steps, data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_history_reaches_a_fixed_point_after_any_crash(steps, data):
    hub = Hub()
    for target, policy, pods in steps:
        endpoints = [endpoint(f"10.1.0.{i}", node=node, ready=ready) for i, node, ready in pods]
        half = data.draw(st.integers(0, len(endpoints)))
        slices = (slice_of(*endpoints[:half], name="x"), slice_of(*endpoints[half:], name="y"))
        wanted = export(target, *slices, externalTrafficPolicy=policy)
        plan = hub.plan(wanted)
        # A crash after any number of writes: the next agent plans from what is there.
        hub.apply_some(plan.writes[: data.draw(st.integers(0, len(plan.writes)))])
        hub.apply(hub.plan(wanted))
        assert hub.plan(wanted).writes == ()
        assert set(hub.slices) == {each.metadata.name for each in wanted.slices}
