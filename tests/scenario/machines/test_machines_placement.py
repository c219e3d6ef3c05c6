"""Load balancers move between proxy machines step by step: recorded, acknowledged, announced, withdrawn."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from machines_world import TOKEN

from fairlead.api.intent import MachinePlacement
from fairlead.api.meta import condition_of
from fairlead.api.names import ANNOTATION_MACHINES
from fairlead.api.proxymachine import OF_THE_HUB, PROXY_GROUPS, PROXY_MACHINES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.tenant import TENANTS
from fairlead.errors import FairleadError
from fairlead.hub.app import Hub, HubConfig
from fairlead.hub.inspect.preview import preview
from fairlead.hub.machines import placement as placement_module
from fairlead.hub.machines.placement import MachineFacts, Placements
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.events import EventRecorder
from fairlead.model.keys import node_group
from fairlead.model.machine import AddressState, MachineReport
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.providers.envoy.resources import ResourceType
from fairlead.runtime.clock import SystemClock
from fairlead.standalone.hub_process import place_on_machines
from fairlead.status.plan_rows import rows_of
from fairlead.testing.builders import tcp_body
from fairlead.translate.addresses import AddressRanges
from podless import ApiServer
from tests.scenario.installed_kinds import server_with_kinds
from tests.unit.providers.envoy.fake_envoy import FakeEnvoy

LIMIT_S = 180.0
NAMESPACE = "tenant-east"


class QuietFleet(LocalFleet):
    """The hub's own Envoys do not run: a small proxy takes their place."""

    async def start(self) -> None:
        """Start nothing."""

    async def close(self) -> None:
        """End nothing."""


class World:
    """The API, a hub with the Envoy provider, and machines with small proxies that may be slow."""

    def __init__(self, server: ApiServer, directory: Path) -> None:
        self.server = server
        self.user = self.connect("user")
        self.cluster = self.connect("hub")
        self.fleet = QuietFleet(data_dir=directory)
        self.provider = EnvoyProvider(fleet=self.fleet, xds_address=f"unix:{directory}/xds.sock", hold_unknown_s=0.0)
        self.hub = Hub(
            cluster=self.cluster,
            providers={"envoy": self.provider},
            config=HubConfig(
                identity="hub-0",
                # Of this machine, so that the hub's own proxies can serve them.
                address_pool=AddressRanges.parse("127.200.7.0/26"),
                workers=2,
                reclaim_lease=True,
                machines=True,
            ),
        )
        assert self.hub.inventory.machines is not None
        self.facts: dict[str, MachineFacts] = {}
        self.paused = False
        self.placements = Placements(
            cluster=self.cluster,
            inventory=self.hub.inventory,
            machines=self.hub.inventory.machines,
            proxies=self.provider,
            facts=lambda: self.facts,
            leading=lambda: self.hub.leading and not self.paused,
            events=EventRecorder(self.cluster, component="fairlead-hub"),
            clock=SystemClock(),
        )
        place_on_machines(self.placements, self.provider, self.fleet)
        self.proxies: dict[str, FakeEnvoy] = {}
        self.slow: set[str] = set()

    def connect(self, name: str) -> Cluster:
        return Cluster(ClusterConfig(server=self.server.url, sign_in=bearer(TOKEN)), name=name, qps=0)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.hub.run())
            await self.hub.publication.wait()
            group.create_task(self.placements.run())
            group.create_task(self._pump())

    async def _pump(self) -> None:
        while True:
            for name, proxy in list(self.proxies.items()):
                if name not in self.slow:
                    proxy.now = time.monotonic()
                    for _ in range(50):
                        proxy.pump()
                        if not (proxy.hear() or proxy.say()):
                            break
            await asyncio.sleep(0.01)

    def proxy(self, name: str, group: str) -> None:
        proxy = FakeEnvoy(self.provider.store.group(group), strict=False, on_progress=self.provider._progressed)
        self.provider.server.sessions.append(proxy.session)
        self.proxies[name] = proxy

    async def join(self, *names: str, labels: dict[str, str] | None = None, group: str = "default") -> None:
        for name in names:
            meta = {"name": name, "labels": labels or {}}
            await self.user.create(PROXY_MACHINES, {"metadata": meta, "spec": {"group": group}})
            self.proxy(name, node_group(name))
            self.facts[name] = MachineFacts(MachineReport(machine=name))

    async def drain(self, name: str, *, drained: bool = True) -> None:
        patch = {"spec": {"drained": drained}}
        await self.user.merge_patch(PROXY_MACHINES, "", name, patch, manager="kubectl")

    async def balancer(self, *names: str, annotations: dict[str, str] | None = None) -> None:
        for name in names:
            body = tcp_body(name, ports=[{"port": 80}], spec={"targets": "Pod"}, annotations=annotations)

            async def made(body: Any = body) -> bool:
                with contextlib.suppress(FairleadError):
                    await self.user.apply(TCP_LOAD_BALANCERS, body, manager="kubectl")
                    return True
                return False

            await self.until(made, f"load balancer {name}")

    async def get(self, name: str = "web") -> TCPLoadBalancer:
        return await self.user.get(TCP_LOAD_BALANCERS, NAMESPACE, name)

    async def record(self, name: str = "web") -> MachinePlacement | None:
        return (await self.get(name)).status.placement

    async def placed(self, *machines: str, name: str = "web", leaving: Iterable[str] = ()) -> MachinePlacement:
        """Wait until a load balancer is on these machines, and none joins."""

        async def check() -> MachinePlacement | None:
            record = await self.record(name)
            if record is None or record.joining or set(record.machines) != set(machines):
                return None
            return record if set(record.leaving) <= set(leaving) else None

        return await self.until(check, f"{name} on {machines}")

    async def announce(self, *machines: str) -> None:
        """Report that these machines announce the address of every load balancer."""
        addresses = [obj.status.allocation.address for _, obj in self.hub.inventory.objects()]
        states = tuple(AddressState(address=address, announced=True) for address in addresses if address)
        for name in self.facts:
            report = MachineReport(machine=name, addresses=states if name in machines else ())
            self.facts[name] = MachineFacts(report)
        self.placements.reported()

    def serves(self, name: str) -> bool:
        return bool(self.proxies[name].has[ResourceType.LISTENER])

    async def until(self, check: Callable[[], Any], what: str) -> Any:
        end_s = time.monotonic() + LIMIT_S
        while True:
            last = check()
            if isinstance(last, Awaitable):
                last = await last
            if last:
                return last
            assert time.monotonic() < end_s, f"not within {LIMIT_S} s: {what}"
            await asyncio.sleep(0.03)


@pytest.fixture
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    server = await server_with_kinds(admin_token=TOKEN)
    await server.start()
    made = World(server, tmp_path_factory.mktemp("w"))
    running = asyncio.create_task(made.run())
    try:
        await made.until(lambda: made.hub.leading and made.hub.publication.is_done, "the hub leads")
        made.proxy("hub", "local")
        await made.user.apply(TENANTS, {"metadata": {"name": "east"}, "spec": {}}, manager="kubectl")
        yield made
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await made.provider.server.stop()
        await made.cluster.aclose()
        await made.user.aclose()
        await server.stop()


@pytest.mark.req("P-8")
async def test_a_new_load_balancer_is_recorded_before_any_proxy_has_it(world: World):
    await world.join("a", "b")
    await world.balancer("web")
    record = await world.placed("a", "b")
    assert record.leaving == ()
    await world.until(lambda: world.serves("a") and world.serves("b"), "both machines serve")
    assert not world.serves("hub")  # the hub's own proxies never had it
    obj = await world.get()
    await world.until(
        lambda: (
            world.placements.by_address(world.placements.load_balancers())[obj.status.allocation.address]
            == record.machines
        ),
        "plan",
    )


@pytest.mark.req("P-9")
async def test_a_load_balancer_moves_from_the_hub_once_a_machine_has_all_of_it(world: World):
    await world.balancer("web")
    await world.until(lambda: world.serves("hub"), "the hub's own proxies serve")
    world.slow.add("a")
    await world.join("a")

    async def joining() -> bool:
        record = await world.record()
        return record is not None and record.joining == ("a",)

    await world.until(joining, "a is to serve it")
    assert world.serves("hub")
    assert not any(world.placements.by_address(world.placements.load_balancers()).values())
    world.slow.clear()
    await world.placed("a")
    await world.until(lambda: world.serves("a") and not world.serves("hub"), "only a serves")


@pytest.mark.req("P-9")
async def test_the_machine_of_the_hub_has_what_has_no_record(world: World):
    world.provider.machine = world.fleet.machine = "host"
    await world.user.create(PROXY_MACHINES, {"metadata": {"name": "host"}, "spec": {}})
    body: Any = {"metadata": {"name": "host"}, "status": {"certificate": {"serial": OF_THE_HUB}}}
    await world.user.apply(PROXY_MACHINES, body, manager="hub", subresource="status")
    await world.balancer("web")
    await world.until(lambda: world.serves("hub"), "the hub's own proxies serve")

    def announcing() -> set[tuple[str, ...]]:
        return set(world.placements.by_address(world.placements.load_balancers()).values())

    await world.until(lambda: announcing() == {("host",)}, "the machine of the hub announces")
    assert await world.record() is None

    # Another machine: nothing is withdrawn before it has everything.
    world.slow.add("a")
    await world.join("a")

    async def joining() -> bool:
        record = await world.record()
        return record is not None and (record.machines, record.joining) == (("host",), ("a",))

    await world.until(joining, "a is to serve it")
    assert announcing() == {("host",)}
    world.slow.clear()
    await world.placed("host", "a")
    await world.until(lambda: world.serves("a"), "a serves")
    assert world.serves("hub")

    # The other machine is removed: the record goes, and the hub serves on.
    await world.user.delete(PROXY_MACHINES, "", "a")

    async def forgotten() -> bool:
        return await world.record() is None and announcing() == {("host",)}

    await world.until(forgotten, "one machine needs no record")
    assert world.serves("hub")
    assert not any(rows_of(lb) for lb in await preview(world.user))


@pytest.mark.req("P-9")
@pytest.mark.req("P-6")
async def test_a_drained_machine_is_replaced_before_it_withdraws(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(placement_module, "_NOTICED_S", 0.2)
    await world.user.create(
        PROXY_GROUPS, {"metadata": {"name": "default"}, "spec": {"mode": "Replicas", "replicas": 1}}
    )
    await world.join("a")
    await world.balancer("web", "shop")
    await world.placed("a")
    await world.placed("a", name="shop")
    await world.announce("a")
    world.slow.add("b")
    await world.join("b")
    await world.drain("a")

    async def joining() -> bool:
        records = [await world.record(name) for name in ("web", "shop")]
        return all(record is not None and record.joining == ("b",) for record in records)

    await world.until(joining, "b is to serve both")
    assert set(world.placements.by_address(world.placements.load_balancers()).values()) == {("a",)}
    world.slow.clear()
    await world.until(
        lambda: set(world.placements.by_address(world.placements.load_balancers()).values()) == {("b", "a")},
        "both announce",
    )
    await asyncio.sleep(0.3)
    assert set(world.placements.by_address(world.placements.load_balancers()).values()) == {("b", "a")}
    await world.announce("a", "b")
    record = await world.placed("b", leaving="a")
    assert record.leaving == ("a",)  # connections stay there until it is removed
    assert world.serves("a")
    await world.user.delete(PROXY_MACHINES, "", "a")
    assert (await world.placed("b")).leaving == ()
    await world.until(lambda: not world.serves("a"), "a serves nothing")


@pytest.mark.req("P-8")
@pytest.mark.req("P-10")
async def test_pins_and_full_machines_have_the_last_word_with_a_reason(world: World):
    await world.user.create(
        PROXY_GROUPS, {"metadata": {"name": "default"}, "spec": {"mode": "Replicas", "replicas": 1}}
    )
    await world.join("a", "b")
    await world.balancer("pinned", annotations={ANNOTATION_MACHINES: "b, a"})
    record = await world.placed("a", "b", name="pinned")
    assert record.machines == ("b", "a")
    full = MachineReport(machine="b", max_listeners=9, files=9, max_files=10)
    world.facts.update(a=MachineFacts(MachineReport(machine="a", max_listeners=1)), b=MachineFacts(full))
    world.placements.changed()
    await world.balancer("web")

    async def refused() -> str:
        record = await world.record()
        return record.message if record is not None else ""

    assert "no room" in await world.until(refused, "the reason why it has no machine")
    assert (await world.record()) == MachinePlacement(message=await refused())
    await world.join("c")
    assert (await world.placed("c")).message == ""


@pytest.mark.req("P-8")
async def test_a_plan_shows_what_moves_before_it_does(world: World):
    await world.join("a", "b")
    await world.balancer("web", "shop")
    for name in ("web", "shop"):
        await world.placed("a", "b", name=name)

    async def settled() -> bool:
        return not any(rows_of(lb) for lb in await preview(world.user))

    await world.until(settled, "a plan without rows")
    world.paused = True
    patch = {"metadata": {"annotations": {ANNOTATION_MACHINES: "b"}}}
    await world.user.merge_patch(TCP_LOAD_BALANCERS, NAMESPACE, "web", patch, manager="kubectl")
    rows = {lb.key.name: rows_of(lb) for lb in await preview(world.user)}
    assert rows["shop"] == []
    (row,) = rows["web"]
    ((field, now, there, wanted),) = [(f.field, f.ledger, f.there, f.wanted) for f in row.fields]
    assert (field, set(now.split(", ")), now == there, wanted) == ("machines", {"a", "b"}, True, "b")
    world.paused = False
    world.placements.changed()
    await world.placed("b", leaving="a")


@pytest.mark.req("P-7")
async def test_a_group_without_machines_says_so_and_what_serves_goes_on(world: World):
    await world.join("a", labels={"rack": "1"})
    await world.balancer("web")
    await world.placed("a")
    spec: dict[str, Any] = {"machines": {"matchLabels": {"rack": "2"}}}
    await world.user.create(PROXY_GROUPS, {"metadata": {"name": "edge"}, "spec": spec})

    async def ready(status: str) -> Any:
        group = await world.user.get(PROXY_GROUPS, "", "edge")
        condition = condition_of(group.status.conditions, "Ready")
        return (group, condition) if condition is not None and condition.status == status else None

    group, condition = await world.until(lambda: ready("False"), "the group is not ready")
    assert (condition.reason, group.status.machines, group.status.load_balancers) == ("NoMachines", 0, 1)
    assert "edge" in condition.message
    record = await world.record()
    assert record is not None
    assert (record.machines, record.joining) == (("a",), ())
    assert "group edge" in record.message
    assert world.serves("a")
    await world.join("b", labels={"rack": "2"})
    await world.announce("a", "b")
    await world.until(lambda: ready("True"), "the group is ready")
    await world.placed("b", leaving="a")


@pytest.mark.req("P-8")
async def test_a_hub_that_starts_again_changes_no_record(world: World):
    await world.join("a", "b", "c")
    await world.balancer("web", "shop")
    before = [await world.placed("a", "b", "c", name=name) for name in ("web", "shop")]
    world.placements._since.clear()
    world.placements.changed()
    fresh = Placements(
        cluster=world.cluster,
        inventory=world.hub.inventory,
        machines=world.placements._machines,
        proxies=world.provider,
        facts=dict[str, MachineFacts],
        leading=lambda: True,
        events=EventRecorder(world.cluster, component="fairlead-hub"),
        clock=SystemClock(),
    )
    assert not await fresh._record(fresh._next())
    assert [await world.record(name) for name in ("web", "shop")] == before
    assert msgspec.to_builtins(before) == msgspec.to_builtins([await world.record(name) for name in ("web", "shop")])
