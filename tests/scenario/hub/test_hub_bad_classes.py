"""Classes whose parameters are wrong: named once they are written, and no load balancer of theirs stays forever."""

from __future__ import annotations

import asyncio

import pytest
from hub_world import NAMESPACE, HubWorld

from fairlead.api.backendgroup import BACKEND_RECORDS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import WireCondition
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.model.desired import FrontendSpec
from fairlead.model.observed import Ensured
from fairlead.providers.haproxy.provider import HAProxyProvider
from fairlead.providers.webhook.provider import WebhookProvider

#: By class: its provider and its parameters.
BAD = {
    "typo": ("haproxy", {"socket": "/nowhere/admin.sock", "bakend": "x"}),
    "no-socket": ("haproxy", {"backend": "x"}),
    "no-driver": ("webhook", {}),
    "driver-down": ("webhook", {"url": "http://127.0.0.1:1"}),
    "nowhere": ("haproxy", {"socket": "/nowhere/admin.sock", "backend": "x"}),
}


@pytest.fixture
async def bad(world: HubWorld):
    world.factories["haproxy"] = lambda: HAProxyProvider(clock=world.clock)
    world.factories["webhook"] = lambda: WebhookProvider(clock=world.clock)
    return world


async def class_(world: HubWorld, name: str, provider: str, parameters: dict[str, str], **more: object) -> None:
    spec = {"provider": provider, "drain": "0s", "parameters": parameters, **more}
    await world.user.apply(LOAD_BALANCER_CLASSES, {"metadata": {"name": name}, "spec": spec}, manager="kubectl")


async def load_balancer(world: HubWorld, class_name: str) -> None:
    listeners = [{"name": "http", "port": 80, "protocol": "TCP"}]
    spec = {"className": class_name, "listeners": listeners}
    body = {"metadata": {"name": "mine", "namespace": NAMESPACE}, "spec": spec}
    await world.user.apply(LOAD_BALANCERS, body, manager="kubectl")


async def said(world: HubWorld, name: str, status: str) -> WireCondition:
    """Wait until class ``name`` is Accepted, or not, as it is now; returns that condition."""

    async def check() -> WireCondition | None:
        given = await world.user.get(LOAD_BALANCER_CLASSES, "", name)
        for condition in given.status.conditions or ():
            if (condition.type, condition.status) == ("Accepted", status):
                return condition if condition.observed_generation == given.metadata.generation else None
        return None

    return await world.until(check, what=f"Accepted={status} of {name}")


async def gone(world: HubWorld, resource, namespace: str, name: str) -> None:
    await world.user.delete(resource, namespace, name)

    async def check() -> bool:
        return await world.find(resource, namespace, name) is None

    await world.until(check, what=f"{name} is gone")


@pytest.mark.parametrize("restarts", [0, 2])
@pytest.mark.parametrize("name", BAD)
async def test_parts_never_created_are_deleted_with_their_class(bad: HubWorld, name: str, restarts: int):
    hub = await bad.start()
    await bad.tenant()
    await class_(bad, name, *BAD[name])
    await bad.lb("web", spec={"className": name})
    await bad.slice("web", "10.1.0.1", "10.1.0.2")
    await load_balancer(bad, name)
    await bad.quiet(20)
    for _ in range(restarts):
        await bad.stop(hub)
        hub = await bad.start()
        await bad.quiet(20)
    assert await bad.user.list(BACKEND_RECORDS, NAMESPACE) == []
    await gone(bad, LOAD_BALANCERS, NAMESPACE, "mine")
    await gone(bad, TCP_LOAD_BALANCERS, NAMESPACE, "web")
    await gone(bad, LOAD_BALANCER_CLASSES, "", name)


async def test_a_hub_that_is_killed_before_it_reaches_a_driver_has_recorded_nothing(bad: HubWorld):
    class Killed(WebhookProvider):
        async def ensure(self, spec: FrontendSpec) -> Ensured:
            await asyncio.Event().wait()
            raise AssertionError(spec)

    bad.factories["webhook"] = lambda: Killed(clock=bad.clock)
    hub = await bad.start()
    await bad.tenant()
    await class_(bad, "driver-down", *BAD["driver-down"])
    await bad.lb("web", spec={"className": "driver-down"})
    await bad.quiet(20)
    await bad.stop(hub)
    assert (await bad.user.get(TCP_LOAD_BALANCERS, NAMESPACE, "web")).status.recorded_providers == frozenset()
    bad.factories["webhook"] = lambda: WebhookProvider(clock=bad.clock)
    await bad.start()
    await gone(bad, TCP_LOAD_BALANCERS, NAMESPACE, "web")
    await gone(bad, LOAD_BALANCER_CLASSES, "", "driver-down")


@pytest.mark.parametrize(
    ("name", "reason", "said_of_it"),
    [
        ("typo", "Invalid", ["spec.parameters.bakend", "did you mean backend?", "create another class"]),
        ("no-socket", "Invalid", ["spec.parameters.socket is missing", "create another class"]),
        ("no-driver", "Invalid", ["spec.parameters.url is missing", "create another class"]),
        ("nowhere", "ClassNotUsable", ["is for several members", "parameters.backend 'x'", "spec.tenants"]),
    ],
)
async def test_problems_of_a_class_are_reported_before_use(bad, name, reason, said_of_it):
    await bad.start()
    await class_(bad, name, *BAD[name])
    accepted = await said(bad, name, "False")
    assert accepted.reason == reason
    assert [text for text in said_of_it if text not in accepted.message] == []


async def test_a_class_is_judged_again_when_it_changes(bad: HubWorld):
    await bad.start()
    parameters = {"socket": "/nowhere/admin.sock", "backend": "{member}_{namespace}_{name}"}
    await class_(bad, "edge", "haproxy", parameters)
    await said(bad, "edge", "True")
    await class_(bad, "edge", "haproxy", {**parameters, "drainTimeout": "soon"})
    accepted = await said(bad, "edge", "False")
    assert "spec.parameters.drainTimeout" in accepted.message
    assert accepted.message.endswith("; correct it")
    await class_(bad, "edge", "haproxy", {**parameters, "drainTimeout": "5s"})
    await said(bad, "edge", "True")


async def test_a_shared_place_is_allowed_for_one_member_or_the_hub(bad: HubWorld):
    await bad.start()
    provider, parameters = BAD["nowhere"]
    await class_(bad, "of-one", provider, parameters, tenants=["east"])
    await said(bad, "of-one", "True")
    await bad.tenant()
    await class_(bad, "of-the-hub", provider, parameters)
    await said(bad, "of-the-hub", "False")
    await load_balancer(bad, "of-the-hub")
    await said(bad, "of-the-hub", "True")
