"""Readiness gates of pods: what is published for them, and when their condition becomes True."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agent_l7_objects import ingress, ingress_class, path
from agent_world import HUB_NAMESPACE, World, until, writes

from fairlead.agent import readiness
from fairlead.agent.identity import Key
from fairlead.agent.readiness import GateReason
from fairlead.agent.sources.ingress.source import IngressSource
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kubernetes import ENDPOINT_SLICES, PODS, READINESS_GATES_FIELD, Endpoint, PodCondition
from fairlead.api.meta import Resource
from fairlead.api.names import CONDITION_SERVING, LABEL_READINESS_GATE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS

POD_TARGETS = {"fairlead.dev/target": "Pod"}
NOT_READY = {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}
NODE_LOST = {"type": "Ready", "status": "False", "reason": "NodeNotReady"}
READY = {"type": "Ready", "status": "True"}


async def pod(world: World, name: str = "web-1", *, ready: dict[str, str] = NOT_READY, app: str = "web") -> str:
    """Create a pod with the gate whose containers are ready, as a kubelet reports it; return its uid."""
    meta = {"name": name, "namespace": "shop"}
    labels = {"app": app, LABEL_READINESS_GATE: "enabled"}
    spec = {"containers": [{"name": "web", "image": "web"}], "readinessGates": [{"conditionType": CONDITION_SERVING}]}
    made = await world.member.apply(PODS, {"metadata": {**meta, "labels": labels}, "spec": spec}, manager="kubelet")
    status = {"phase": "Running", "podIP": "10.1.0.1", "conditions": [{**READY, "type": "ContainersReady"}, ready]}
    await world.member.apply(PODS, {"metadata": meta, "status": status}, manager="kubelet", subresource="status")
    return made.metadata.uid


async def listed(world: World, uid: str, *, ready: bool = False) -> None:
    """Write the EndpointSlice that the endpoint controller would."""
    conditions = {"ready": ready, "serving": ready, "terminating": False}
    body = {
        "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.0.1"], "conditions": conditions, "targetRef": {"kind": "Pod", "uid": uid}}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }
    await world.member.apply(ENDPOINT_SLICES, body, manager="endpointslice-controller")


async def says(
    world: World,
    time: str = "2030-01-01T00:00:00Z",
    *,
    of: Resource[Any] = TCP_LOAD_BALANCERS,
    name: str = "shop.web",
    **uids: list[str],
) -> None:
    """Write what the hub says of pods that wait."""
    status = {"gatedPods": {**uids, "time": time}}
    await world.hub.merge_patch(of, HUB_NAMESPACE, name, {"status": status}, subresource="status", manager="hub")


async def gate(world: World, name: str = "web-1") -> PodCondition | None:
    return (await world.member.get(PODS, "shop", name)).condition(CONDITION_SERVING)


async def opened(world: World, reason: GateReason, *, status: str = "True") -> None:
    async def check() -> bool:
        condition = await gate(world)
        return condition is not None and (condition.status, condition.reason) == (status, reason)

    await until(check, what=f"{status} {reason}")


async def published(world: World) -> Endpoint | None:
    slices = (await world.slices()).values()
    return next((endpoint for each in slices for endpoint in each.endpoints or ()), None)


async def is_published(world: World, *, ready: bool, marked: bool) -> None:
    async def check() -> bool:
        endpoint = await published(world)
        return endpoint is not None and (endpoint.ready, endpoint.awaits_gate) == (ready, marked)

    await until(check, what=f"ready {ready}, marked {marked}")


@pytest.mark.req("F-1")
async def test_a_gate_opens_once_every_load_balancer_serves_the_pod(world: World) -> None:
    await world.service(annotations=POD_TARGETS)
    agent = await world.start(readiness_gates=True)
    uid = await pod(world)
    await listed(world, uid)
    await is_published(world, ready=True, marked=True)
    await says(world, waiting=[uid])

    async def heard() -> bool:
        return any(obj.status.gated_pods is not None for obj in agent.caches.load_balancers.values())

    await until(heard, what="the agent hears it")
    assert await gate(world) is None
    await says(world, serving=[uid], waiting=[])
    await opened(world, GateReason.SERVING)
    # The kubelet and the endpoint controller take their time; the pod stays listed meanwhile.
    await is_published(world, ready=True, marked=False)
    await pod(world, ready=READY)
    await listed(world, uid, ready=True)
    await world.settled(agent)
    endpoint = await published(world)
    assert endpoint is not None
    assert (endpoint.ready, endpoint.target_ref and endpoint.target_ref.field_path) == (True, "")
    # An open gate stays open, and a pod whose node is lost is not listed as ready for the sake of its gate.
    await pod(world, ready=NODE_LOST)
    await listed(world, uid)
    await is_published(world, ready=False, marked=False)
    await opened(world, GateReason.SERVING)


@pytest.mark.req("F-1", "F-2")
async def test_a_pod_waits_for_a_load_balancer_that_is_not_published_yet(world: World) -> None:
    """An agent that starts sees Service and pod at once."""
    await world.service(annotations=POD_TARGETS)
    uid = await pod(world)
    await listed(world, uid)
    agent = await world.start(readiness_gates=True)
    await is_published(world, ready=True, marked=True)
    await world.settled(agent)
    assert await gate(world) is None
    await says(world, serving=[uid], waiting=[])
    await opened(world, GateReason.SERVING)


@pytest.mark.req("F-1", "F-2")
async def test_a_pod_waits_for_routes_of_an_ingress_that_are_not_published_yet(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_answers, translate = asyncio.Event(), IngressSource.publish

    async def publish(source: IngressSource, key: Key) -> bool:
        await hub_answers.wait()
        return await translate(source, key)

    monkeypatch.setattr(IngressSource, "publish", publish)
    await world.service(kind="ClusterIP")
    await ingress_class(world)
    await ingress(world, "shop", path())
    uid = await pod(world)
    await listed(world, uid)
    agent = await world.start(readiness_gates=True, target="Pod")
    for _ in range(40):
        await asyncio.sleep(0.05)
        assert await gate(world) is None, "the hub does not have the routes yet"
    hub_answers.set()
    await world.settled(agent)
    assert await gate(world) is None
    await says(world, of=HTTP_LOAD_BALANCERS, name="ingressclass.fairlead", serving=[uid], waiting=[])
    await opened(world, GateReason.SERVING)


@pytest.mark.req("F-2")
async def test_a_pod_in_no_load_balancer_waits_for_nothing(world: World) -> None:
    await world.service(annotations={"fairlead.dev/target": "Node"})
    await world.start(readiness_gates=True)
    await pod(world)
    await opened(world, GateReason.NO_LOAD_BALANCER)


@pytest.mark.req("F-2")
async def test_a_silent_hub_opens_gates_with_a_warning(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "SILENT_S", 1.0)
    await world.service(annotations=POD_TARGETS)
    await world.start(readiness_gates=True)
    await listed(world, await pod(world))
    await opened(world, GateReason.NOT_KNOWN)
    assert "readiness" in (await world.event("NotKnown", "web-1")).lower()


@pytest.mark.req("F-2")
async def test_an_answer_that_is_not_renewed_counts_as_silence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "SILENT_S", 1.5)
    monkeypatch.setattr(readiness, "_EXPLAIN_S", 0.0)
    await world.service(annotations=POD_TARGETS)
    await world.start(readiness_gates=True)
    uid = await pod(world)
    await listed(world, uid)
    await is_published(world, ready=True, marked=True)
    await says(world, waiting=[uid])
    await opened(world, GateReason.WAITING, status="False")
    await opened(world, GateReason.NOT_KNOWN)


@pytest.mark.req("F-2")
async def test_gates_open_while_the_hub_cannot_be_reached(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "SILENT_S", 0.3)
    monkeypatch.setattr(readiness, "_NOT_LEADING_S", 0.3)
    await world.service(annotations=POD_TARGETS)
    await world.start(exporting=False, readiness_gates=True, hub_url="http://127.0.0.1:1")
    await listed(world, await pod(world))
    await opened(world, GateReason.NOT_KNOWN)


@pytest.mark.req("F-3")
async def test_pods_cost_nothing_without_the_option(world: World) -> None:
    await world.service(annotations=POD_TARGETS)
    agent = await world.start()
    uid = await pod(world)
    await listed(world, uid)
    await is_published(world, ready=False, marked=False)
    await world.settled(agent)
    assert agent.caches.pods is None
    assert await gate(world) is None


@pytest.mark.req("F-3")
async def test_a_hundred_gates_open_in_one_answer(world: World) -> None:
    await world.service(annotations=POD_TARGETS)
    agent = await world.start(readiness_gates=True)
    names = [f"web-{number}" for number in range(100)]
    uids = [await pod(world, name) for name in names]
    endpoints: list[dict[str, Any]] = [
        {
            "addresses": [f"10.1.{number // 50}.{number % 50 + 1}"],
            "conditions": {"ready": False},
            "targetRef": {"uid": uid},
        }
        for number, uid in enumerate(uids)
    ]
    body = {
        "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }
    await world.member.apply(ENDPOINT_SLICES, body, manager="endpointslice-controller")

    async def all_marked() -> bool:
        return sum(each.awaits_gate for made in (await world.slices()).values() for each in made.endpoints or ()) == 100

    await until(all_marked, what="all are marked")
    hub_writes = writes(agent)
    await says(world, serving=uids)

    async def all_open() -> bool:
        pods = await world.member.list(PODS, "shop")
        return all(each.is_open(CONDITION_SERVING) for each in pods)

    await until(all_open, what="all are open")
    await world.settled(agent)
    # The marks go in few writes, not in one for each pod.
    assert writes(agent) - hub_writes <= 12


def test_the_mark_is_a_field_of_pods() -> None:
    assert READINESS_GATES_FIELD == "spec.readinessGates"
