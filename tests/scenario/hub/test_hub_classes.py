"""Classes: whose parameters count, what draining means, and that one in use does not vanish."""

from __future__ import annotations

import pytest
from shop_world import open_shop

from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import DEFAULT_CLASS, FINALIZER_CLEANUP, FINALIZER_IN_USE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import Invalid, NotFound


@pytest.fixture
async def shop(world):
    async with open_shop(world) as opened:
        await world.tenant()
        yield opened


async def says(shop, name, type_, status, *text):
    return await shop.says(LOAD_BALANCER_CLASSES, name, type_, status, *text)


# --- whose parameters count ---


@pytest.mark.req("L-36")
@pytest.mark.parametrize(
    ("field", "parameters", "names"),
    [
        ("parameters", {"url": "http://127.0.0.1:1/evil"}, ["spec.parameters.url", "'driven'", "the class counts"]),
        ("existing", {"url": "http://127.0.0.1:1/evil"}, ["spec.existing.url", "'driven'"]),
        (
            "parameters",
            {"credentials": "of-somebody-else"},
            ["spec.parameters.credentials", "only a LoadBalancerClass"],
        ),
        ("parameters", {"timeout.ensureBackend": "60s"}, ["spec.parameters.timeout.ensureBackend"]),
        ("existing", {"acceptDryRunCall": "true"}, ["spec.existing.acceptDryRunCall"]),
    ],
)
async def test_a_load_balancer_may_not_set_what_is_its_classs(shop, field, parameters, names):
    await shop.class_("driven")
    await shop.lb("mine", className="driven", **{field: {"lbID": "7", **parameters}})
    accepted = await shop.lb_says("Accepted", "False", *names, "create another LoadBalancer", name="mine")
    assert accepted.reason == "Invalid"
    await shop.warned("mine", "Invalid", names[0])
    await shop.world.quiet(20)
    assert shop.driver.calls == []
    with pytest.raises(Invalid, match=f"{field} is immutable: create another LoadBalancer"):
        await shop.api.merge_patch(LOAD_BALANCERS, "shop", "mine", {"spec": {field: {next(iter(parameters)): None}}})


async def test_a_parameter_that_says_the_same_as_the_class_is_fine(shop):
    await shop.class_("driven")
    await shop.lb("mine", className="driven", parameters={"lbID": "7", "url": shop.driver.url})
    await shop.lb_says("Programmed", "True", name="mine")
    assert [each["lbSpec"] for each in shop.driver.asked("createLoadBalancer")] == [{"lbID": "7"}]


@pytest.mark.req("L-36")
async def test_other_credentials_of_the_class_reach_what_lives(shop):
    """The one thing about the connection that has to change while it lives."""
    await shop.class_("driven")
    await shop.lb("mine", className="driven", parameters={"lbID": "7"})
    await shop.group("fixed", lbs=["mine"], static=["10.9.0.1:8080"])
    await shop.driver_has("10.9.0.1")
    await shop.class_("driven", parameters={"credentials": "not-mounted"})
    await shop.lb_says("Programmed", "False", "parameters.credentials", "not-mounted", name="mine")
    await shop.class_("driven")
    await shop.lb_says("Programmed", "True", name="mine")
    assert shop.at_driver() == {"10.9.0.1:8080"}
    with pytest.raises(Invalid, match="parameters is immutable, except credentials"):
        await shop.class_("driven", parameters={"url": "http://127.0.0.1:1/other"})


# --- draining ---


@pytest.mark.req("L-38")
async def test_a_draining_class_takes_nothing_new_and_what_lives_goes_on(shop, world):
    """LT-31."""
    await shop.pod("web-0", "10.1.0.1")
    await shop.group("old", static=["10.9.0.1:8080"])
    await shop.group("empty", pods={"byLabel": {"selector": {"app": "late"}}, "ports": [{"port": 8080}]})
    await shop.until("10.9.0.1")
    await shop.group_says("empty", "Accepted", "True")
    await shop.open(draining=True)
    await shop.lb("late")
    accepted = await shop.lb_says("Accepted", "False", "'edge' is draining", "choose another", name="late")
    assert accepted.reason == "ClassDraining"
    await shop.warned("late", "ClassDraining")
    await shop.group("new", static=["10.9.0.9:8080"])
    accepted = await shop.group_says("new", "Accepted", "False", "shop/shared", "'edge' is draining")
    await shop.warned("new", "ClassDraining")
    # What was there is still updated: another backend, another pod, another attribute.
    await shop.group("old", static=["10.9.0.1:8080", "10.9.0.2:8080"])
    await shop.pod("late-0", "10.1.0.7", labels={"app": "late"})
    await shop.lb("shared", attributes={"a": "b"})
    await shop.until("10.9.0.1", "10.9.0.2", "10.1.0.7")
    await shop.lb_says("Accepted", "True")
    # And through a restart.
    await world.stop(world.hubs[0])
    await world.start(identity="hub-1")
    await shop.group("old", static=["10.9.0.1:8080"])
    await shop.until("10.9.0.1", "10.1.0.7")
    await shop.open(draining=False)
    await shop.until("10.9.0.1", "10.1.0.7", "10.9.0.9")
    await shop.lb_says("Accepted", "True", name="late")


@pytest.mark.req("L-38")
async def test_a_draining_class_serves_members_load_balancers_that_it_has_and_no_others(shop, world):
    await world.lb("old")
    await world.slice("old", "10.1.0.1")
    await world.programmed("old")
    await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "envoy", {"spec": {"draining": True}})
    await world.quiet()
    await world.lb("new")
    accepted = await world.said("Accepted", "False", name="new")
    assert (accepted.reason, "'envoy' is draining" in accepted.message) == ("ClassDraining", True)
    await world.slice("old", "10.1.0.2")
    await world.until(lambda: world.at_cloud("old") == {"10.1.0.2:8080"})
    assert (await world.condition("Accepted", "old")).status == "True"


# --- in use ---


@pytest.mark.req("L-38")
async def test_a_class_in_use_is_counted_and_does_not_vanish(shop, world):
    """LT-31: and it goes when the last user goes."""
    await shop.lb("another")
    await says(shop, "edge", "InUse", "True", "used by 2, first LoadBalancer shop/another")
    edge = await shop.api.get(LOAD_BALANCER_CLASSES, "", "edge")
    assert (edge.status.load_balancers, edge.metadata.finalizers) == (2, [FINALIZER_IN_USE])
    await shop.api.delete(LOAD_BALANCER_CLASSES, "", "edge")
    await says(shop, "edge", "InUse", "True", "kept until nothing uses it", "used by 2")
    await shop.warned("edge", "InUse", "used by 2", namespace="default")
    await shop.lb("late")
    await shop.lb_says("Accepted", "False", "is being deleted and accepts nothing new", name="late")
    await shop.group("fixed", static=["10.9.0.1:8080"])
    await shop.group_says("fixed", "Accepted", "False", "is being deleted")
    for name in ("another", "late"):
        await shop.api.delete(LOAD_BALANCERS, "shop", name)
    await says(shop, "edge", "InUse", "True", "used by LoadBalancer shop/shared")
    await shop.api.delete(LOAD_BALANCERS, "shop", "shared")

    async def gone():
        return await world.find(LOAD_BALANCER_CLASSES, "", "edge") is None

    await world.until(gone)


@pytest.mark.req("L-38")
async def test_a_class_that_is_deleted_while_no_hub_runs_is_finished_by_the_next(shop, world):
    await world.lb("old")
    await world.slice("old", "10.1.0.1")
    await world.programmed("old")
    await world.quiet()
    await world.stop(world.hubs[0])
    await world.user.delete(LOAD_BALANCER_CLASSES, "", "envoy")
    await world.start(identity="hub-1")

    async def again():
        stored = await world.find(LOAD_BALANCER_CLASSES, "", "envoy")
        return stored is not None and not stored.deleting

    await world.until(again, what="the default class is made again")
    await says(shop, "envoy", "InUse", "True", "TCPLoadBalancer tenant-east/old")
    await world.slice("old", "10.1.0.2")
    await world.until(lambda: world.at_cloud("old") == {"10.1.0.2:8080"})
    await world.delete_lb("old")

    async def gone():
        return await world.find(TCP_LOAD_BALANCERS, "tenant-east", "old") is None

    await world.until(gone)
    assert await again(), "what is deleted in it is no reason to delete the class"


@pytest.mark.req("L-38")
async def test_records_alone_keep_their_class(shop, world):
    """The object was torn away; the driver still has the backend, and does not release it yet."""
    await shop.class_("driven")
    await shop.lb("mine", className="driven", parameters={"lbID": "7"})
    await shop.group("fixed", lbs=["mine"], static=["10.9.0.1:8080"])
    await shop.driver_has("10.9.0.1")
    await shop.registered(1)
    await says(shop, "driven", "InUse", "True", "LoadBalancer shop/mine")
    shop.driver.on("deregisterBackend", {"status": "Running"})
    await shop.api.delete(LOAD_BALANCERS, "shop", "mine")
    await shop.api.delete(LOAD_BALANCER_CLASSES, "", "driven")
    mine = await shop.api.get(LOAD_BALANCERS, "shop", "mine")
    assert mine.metadata.finalizers == [FINALIZER_CLEANUP]
    await shop.api.merge_patch(LOAD_BALANCERS, "shop", "mine", {"metadata": {"finalizers": None}})
    await says(shop, "driven", "InUse", "True", "kept until nothing uses it", "used by BackendRecord shop/")
    assert (await shop.api.get(LOAD_BALANCER_CLASSES, "", "driven")).status.load_balancers == 0
    shop.driver.on("deregisterBackend", shop.driver._deregister)

    async def gone():
        return await world.find(LOAD_BALANCER_CLASSES, "", "driven") is None

    await world.until(gone)
    assert shop.at_driver() == set()


async def test_an_unused_class_goes_at_once_and_one_without_a_provider_says_so(shop, world):
    body = {"metadata": {"name": "strange"}, "spec": {"provider": "elsewhere"}}
    await shop.api.create(LOAD_BALANCER_CLASSES, body)
    accepted = await says(shop, "strange", "Accepted", "False", "'elsewhere'", "it runs: ", "webhook")
    assert accepted.reason == "NoSuchProvider"
    await says(shop, "strange", "InUse", "False", "nothing uses it")
    await shop.api.delete(LOAD_BALANCER_CLASSES, "", "strange")
    assert await world.find(LOAD_BALANCER_CLASSES, "", "strange") is None


@pytest.mark.req("X-12")
async def test_the_default_class_is_made_again_as_it_was(shop):
    """Deleted, in use or not, it is there again with what its operator had set, and says so."""
    patch = {"metadata": {"annotations": {"fairlead.dev/paused": "true"}}, "spec": {"drain": "7s"}}
    await shop.api.merge_patch(LOAD_BALANCER_CLASSES, "", DEFAULT_CLASS, patch)
    await shop.world.lb("web")
    before = await shop.api.get(LOAD_BALANCER_CLASSES, "", DEFAULT_CLASS)
    await shop.api.delete(LOAD_BALANCER_CLASSES, "", DEFAULT_CLASS)

    async def again():
        try:
            now = await shop.api.get(LOAD_BALANCER_CLASSES, "", DEFAULT_CLASS)
        except NotFound:
            return False
        same = (now.spec, now.annotation("fairlead.dev/paused")) == (before.spec, "true")
        return same and now.metadata.uid != before.metadata.uid and not now.deleting

    await shop.world.until(again, what="the default class is there again, as it was")


@pytest.mark.req("X-12")
async def test_another_class_that_was_deleted_in_use_says_how_to_undo_that(shop):
    await shop.class_("driven")
    await shop.lb("mine", className="driven", parameters={"lbID": "7"})
    await shop.lb_says("Programmed", "True", name="mine")
    await shop.api.delete(LOAD_BALANCER_CLASSES, "", "driven")
    await says(shop, "driven", "InUse", "True", "undo", "kubectl get lbc driven -o yaml", "remove the finalizers")
