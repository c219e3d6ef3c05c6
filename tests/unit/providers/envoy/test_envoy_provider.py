"""One load balancer in several node groups: what each proxy gets, and what their answers come to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead.errors import FairleadError, Retry, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.health import HealthCheck
from fairlead.model.http import Attachment, Backend, BackendRef, L7Config, L7Listener, Route, Rule
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey, backend_key, machine_of, node_group
from fairlead.model.observed import Observed
from fairlead.providers.envoy import provider as provider_module
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.http.names import routes_name
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.providers.envoy.resources import DeltaRequest, ResourceType
from tests.unit.providers.envoy.fake_envoy import FakeEnvoy

TCP = LoadBalancerKey("TCPLoadBalancer", "shop", "web")
HTTP = LoadBalancerKey("HTTPLoadBalancer", "shop", "pages")
A, B, C = map(node_group, "abc")


class MovableFleet(LocalFleet):
    """A fleet whose load balancers are where the test says; each group has room for four listeners."""

    groups: tuple[str, ...] = (A, B)

    def groups_of(self, spec: FrontendSpec) -> tuple[str, ...]:
        return self.groups

    def refuse(self, *, group: str, listeners: int) -> str:
        return f"{group} is full" if listeners > 4 else ""


class World:
    """A provider without a server, and a small proxy in each group that connects."""

    def __init__(self, directory: Path) -> None:
        self.fleet = MovableFleet(data_dir=directory)
        self.provider = EnvoyProvider(fleet=self.fleet, xds_address=f"unix:{self.fleet.xds_socket}")
        self.proxies: dict[str, FakeEnvoy] = {}

    def connect(self, *groups: str) -> None:
        for group in groups:
            proxy = FakeEnvoy(self.provider.store.group(group), strict=False, on_progress=self.provider._progressed)
            # The small proxy takes the routes of a listener to have its name.
            routes = (routes_name(HTTP, 80, None),)
            proxy.outbox.append(DeltaRequest(type_url=ResourceType.ROUTES.value, subscribe=routes))
            self.provider.server.sessions.append(proxy.session)
            self.proxies[group] = proxy

    def disconnect(self, group: str) -> None:
        proxy = self.proxies.pop(group)
        proxy.session.close()
        self.provider.server.sessions.remove(proxy.session)

    def settle(self, *groups: str) -> None:
        for group in groups or tuple(self.proxies):
            self.proxies[group].settle()

    async def observe(self, key: LoadBalancerKey = TCP) -> Observed:
        observed = await self.provider.observe(key)
        assert observed is not None
        return observed

    async def serve(self, *specs: FrontendSpec) -> None:
        for spec in specs:
            await self.provider.ensure(spec)
            listener = ListenerKey(Protocol.TCP, 80) if spec.l7 is None else backend_key("shop")
            await self.provider.apply([register(spec.key, listener)])
        self.provider.publish()

    def names(self, group: str) -> set[str]:
        return set(self.proxies[group].has[ResourceType.LISTENER])


def register(key: LoadBalancerKey, listener: ListenerKey, address: str = "10.0.0.1") -> TargetChange:
    return TargetChange(key, listener, Target(TargetKey(address, 8080)), Action.REGISTER, Reason.NEW)


def tcp(name: str = "web", address: str = "192.0.2.1") -> FrontendSpec:
    key = LoadBalancerKey("TCPLoadBalancer", "shop", name)
    return FrontendSpec(key=key, group="t", listeners=(Listener(80),), address=address, health_check=HealthCheck())


def http() -> FrontendSpec:
    route = Route("r", "HTTP", (Attachment("http"),), (Rule(backends=(BackendRef("shop"),)),))
    l7 = L7Config((L7Listener("http", 80),), (route,), (Backend("shop"),))
    return FrontendSpec(key=HTTP, group="t", listeners=(Listener(80),), address="192.0.2.2", l7=l7)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    yield World(tmp_path)
    await asyncio.sleep(0)


def test_the_group_of_a_machine_names_it_and_no_other_group_does() -> None:
    assert (machine_of(node_group("edge-1")), machine_of("local"), machine_of("")) == ("edge-1", "", "")


@pytest.mark.req("P-19")
async def test_all_groups_share_the_bytes_of_each_resource(world: World) -> None:
    await world.serve(tcp(), http())
    a, b = map(world.provider.store.group, (A, B))
    for kind in ResourceType:
        assert set(a.names(kind)) == set(b.names(kind))
        assert all(a.wanted(kind, name) is b.wanted(kind, name) for name in a.names(kind))
    checks = [world.provider._health._checks(group).current() for group in (A, B)]
    assert checks[0].keys() == checks[1].keys() != set()
    assert all(checks[0][name] is checks[1][name] for name in checks[0])


@pytest.mark.req("P-9")
async def test_programmed_waits_for_reachable_machines_only(world: World) -> None:
    await world.serve(tcp())
    assert not (await world.observe()).programmed  # no proxy is connected
    world.connect(A, B)
    world.settle(A)
    status = await world.observe()
    assert (status.programmed, status.proxies, status.acknowledged) == (False, 2, 1)
    world.disconnect(B)
    assert (await world.observe()).programmed
    world.disconnect(A)
    assert not (await world.observe()).programmed


async def test_a_refusal_names_the_machine_until_that_is_unreachable(world: World) -> None:
    await world.serve(tcp())
    world.connect(A, B)
    world.settle()
    assert (await world.observe()).programmed
    group = world.provider.store.group(B)
    (name,) = group.names(ResourceType.LISTENER)
    listener = group.wanted(ResourceType.LISTENER, name)
    assert listener is not None
    group.refuse(ResourceType.LISTENER, name, listener.version, "cannot bind: in use", now=0.0)
    status = await world.observe()
    assert not status.programmed
    assert status.rejected.startswith("machine b: port TCP/80: ")
    world.disconnect(B)
    assert (await world.observe()).programmed


@pytest.mark.req("P-9")
@pytest.mark.parametrize("spec", [tcp(), http()], ids=["L4", "L7"])
async def test_a_machine_that_joins_gets_everything_and_shares_it(world: World, spec: FrontendSpec) -> None:
    world.fleet.groups = (A,)
    await world.serve(spec)
    world.connect(A, B, C)
    world.settle()
    before = world.proxies[A].changes_received
    world.fleet.groups = (A, B)
    await world.provider.ensure(spec)
    assert not (await world.observe(spec.key)).programmed
    world.settle()
    assert (await world.observe(spec.key)).programmed
    assert world.proxies[A].has == world.proxies[B].has
    assert world.proxies[A].changes_received == before  # the move costs the first machine nothing
    a, b = map(world.provider.store.group, (A, B))
    assert all(a.wanted(kind, name) is b.wanted(kind, name) for kind in ResourceType for name in a.names(kind))
    world.fleet.groups = (B,)
    await world.provider.ensure(spec)
    world.settle()
    assert world.names(A) == set()
    assert world.names(B) != set()
    assert world.provider._health._checks(A).current() == {}  # what it does not serve it does not check
    await world.provider.apply(
        [register(spec.key, next(iter(world.provider._frontends.get(spec.key).ports)), "10.0.0.2")]
    )
    world.settle()
    assert (await world.observe(spec.key)).programmed
    await world.provider.delete(spec.key)
    world.settle()
    assert (world.names(A), world.names(B), world.names(C)) == (set(), set(), set())


@pytest.mark.req("P-9")
async def test_without_any_machine_targets_are_kept_and_nothing_is_programmed(world: World) -> None:
    world.connect(A)
    world.fleet.groups = (A,)
    await world.serve(http())
    world.settle()
    world.fleet.groups = ()
    await world.provider.ensure(http())
    world.settle()
    assert not (await world.observe(HTTP)).programmed
    await world.provider.apply([register(HTTP, backend_key("shop"), "10.0.0.2")])
    world.fleet.groups = (A,)
    await world.provider.ensure(http())
    world.settle()
    assert (await world.observe(HTTP)).programmed
    (endpoints,) = world.proxies[A].has[ResourceType.ENDPOINTS].values()
    assert b"10.0.0.1" in endpoints[1]
    assert b"10.0.0.2" in endpoints[1]


@pytest.mark.req("P-10")
async def test_conflicts_and_limits_count_for_each_group(world: World) -> None:
    first = tcp()
    await world.serve(first)
    world.fleet.groups = (B, C)
    with pytest.raises(Terminal) as conflict:
        await world.provider.ensure(tcp("other"))
    assert conflict.value.reason is ConditionReason.PORT_CONFLICT
    world.fleet.groups = (C,)
    await world.provider.ensure(tcp("other"))  # the same address at another machine
    await world.provider.ensure(
        msgspec.structs.replace(tcp("third", "192.0.2.3"), listeners=tuple(map(Listener, (1, 2, 3))))
    )
    with pytest.raises(Terminal) as full:
        await world.provider.ensure(tcp("fourth", "192.0.2.4"))
    assert full.value.reason is ConditionReason.QUOTA_EXCEEDED
    world.fleet.groups = (A, B)
    await world.provider.ensure(tcp("fourth", "192.0.2.4"))


@pytest.mark.req("L-36")
@pytest.mark.parametrize(
    ("name", "value"),
    [("accessLog", "jsn"), ("acessLog", "json"), ("accessLogSink", "collector:4317"), ("connections", "many"),
     ("bandwidth", "10M"), ("trustedHops", "-1"), ("escapedSlashes", "yes"), ("http3", "on")],
)  # fmt: skip
def test_a_class_with_an_invalid_parameter_names_it(tmp_path: Path, name: str, value: str) -> None:
    assert World(tmp_path).provider.class_problem({name: value}).startswith(f"parameters.{name}")


def test_a_class_may_annotate_the_services_of_its_envoys(tmp_path: Path) -> None:
    parameters = {"serviceAnnotation/cloud.example/type": "nlb", "loadBalancerClass": "cloud.example/lb"}
    assert World(tmp_path).provider.class_problem(parameters) == ""


@pytest.mark.req("F-23")
async def test_the_key_of_sessions_is_that_of_all_hubs_or_the_own_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Secret that cannot be read, or has no key, ends sessions and stops no hub."""
    answers: list[str | FairleadError] = ["a" * 64, "", Retry("The API does not answer")]

    async def shared(*_: object) -> str:
        answer = answers.pop(0)
        if isinstance(answer, FairleadError):
            raise answer
        return answer

    monkeypatch.setattr(provider_module, "shared_key", shared)
    provider = World(tmp_path).provider
    first = provider._frontends.session_key
    cluster = Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub")
    await provider._read_session_key(cluster)
    assert provider._frontends.session_key == b"a" * 64 != first
    for _ in range(2):
        await provider._read_session_key(cluster)
        assert provider._frontends.session_key == b"a" * 64
