"""Usage of a hub: restarts neither lose nor repeat what proxies counted, and an idle hub writes nothing."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from hub_parts import intent_context

from fairlead.api.kubernetes import ConfigMap
from fairlead.api.meta import ObjectKey
from fairlead.api.names import ANNOTATION_ORIGIN, LABEL_USAGE
from fairlead.api.usage import HeldPeriod, OpenHours, UsageRow, unpacked
from fairlead.errors import AlreadyExists, Conflict, Forbidden, Invalid, NamespaceNotFound, NotFound, Unreachable
from fairlead.hub.intents import INTENTS
from fairlead.hub.intents.intent import Intents
from fairlead.hub.tenants.usage import READ_S, SAVE_S, Usage, keep_usage
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.machine import ProcessTraffic
from fairlead.model.observed import Counted, Reading, Totals
from fairlead.providers.envoy import traffic
from fairlead.providers.envoy.traffic import MachineTraffic, ReportedTraffic
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import tcp, tenant

WEB = Counted(LoadBalancerKey("TCPLoadBalancer", "tenant-east", "shop.web"))
API = Counted(LoadBalancerKey("TCPLoadBalancer", "tenant-east", "shop.api"))


class Maps:
    """ConfigMaps in memory; ``error`` is raised by each write, ``refusals`` by those to a namespace."""

    def __init__(self) -> None:
        self.maps: dict[ObjectKey, dict[str, Any]] = {}
        self.writes = 0
        self.error: Exception | None = None
        self.refusals: dict[str, Exception] = {}

    def read(self, key: ObjectKey) -> Any:
        if key not in self.maps:
            raise NotFound("there is none")
        return msgspec.convert(self.maps[key], ConfigMap)

    async def get(self, _resource: Any, namespace: str, name: str) -> Any:
        return self.read(ObjectKey(namespace, name))

    async def list(
        self, _resource: Any, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Any:
        _, _, content = label_selector.partition("=")
        name = field_selector.removeprefix("metadata.name=")
        return [
            self.read(key)
            for key, obj in self.maps.items()
            if (not namespace or key.namespace == namespace)
            and (not name or key.name == name)
            and (not content or obj["metadata"]["labels"][LABEL_USAGE] == content)
        ]

    async def create(self, _resource: Any, obj: dict[str, Any]) -> Any:
        if ObjectKey(obj["metadata"]["namespace"], obj["metadata"]["name"]) in self.maps:
            raise AlreadyExists("there is one")
        return self._write(obj, {"metadata": {}})

    async def merge_patch(
        self, _resource: Any, namespace: str, name: str, patch: dict[str, Any], *, manager: str
    ) -> Any:
        del manager
        key = ObjectKey(namespace, name)
        self.read(key)
        return self._write({**patch, "metadata": {**patch["metadata"], **key._asdict()}}, self.maps[key])

    async def delete(self, _resource: Any, namespace: str, name: str) -> bool:
        return self.maps.pop(ObjectKey(namespace, name), None) is not None

    def _write(self, obj: dict[str, Any], before: dict[str, Any]) -> Any:
        key = ObjectKey(obj["metadata"]["namespace"], obj["metadata"]["name"])
        if error := self.error or self.refusals.get(key.namespace):
            raise error
        version = obj["metadata"].get("resourceVersion")
        if version and version != before["metadata"]["resourceVersion"]:
            raise Conflict("changed meanwhile")
        self.writes += 1
        data = {**before.get("data", {}), **obj["data"]}
        self.maps[key] = {
            "metadata": {**before["metadata"], **obj["metadata"], "resourceVersion": str(self.writes)},
            "data": {name: text for name, text in data.items() if text is not None},
        }
        return self.read(key)

    def rows(self) -> list[UsageRow]:
        """Return all rows that are stored."""
        rows: list[UsageRow] = []
        for obj in self.maps.values():
            for text in obj["data"].values():
                if obj["metadata"]["labels"][LABEL_USAGE] == "open":
                    rows += (unpacked(text, OpenHours) or OpenHours()).rows
                elif obj["metadata"]["labels"][LABEL_USAGE] != "held":
                    rows += unpacked(text, list[UsageRow]) or []
        return rows

    @property
    def bytes_out(self) -> int:
        return sum(row.bytes_out for row in self.rows())


class Proxy:
    """An Envoy whose counters a test moves."""

    def __init__(self, clock: VirtualClock, name: str = "one") -> None:
        self.name = name
        self.sent: dict[Counted, int] = {}
        self.clock = clock
        self.began_s = clock.monotonic()
        self.last: dict[Counted, int] | None = None
        self.last_uptime_s = 0

    def restart(self) -> None:
        self.sent, self.began_s = {}, self.clock.monotonic()

    def read_anew(self) -> None:
        self.last = None

    @property
    def uptime_s(self) -> int:
        # Envoy shows it to five seconds.
        return int(self.clock.monotonic() - self.began_s) // 5 * 5

    def reading(self) -> Reading:
        totals = {key: Totals(1, bytes_out=sent) for key, sent in self.sent.items()}
        last, self.last = self.last, dict(self.sent)
        grown = None
        if last is not None:
            base = last if self.uptime_s >= self.last_uptime_s else {}
            grown = {key: Totals(bytes_out=sent - base.get(key, 0)) for key, sent in self.sent.items()}
        self.last_uptime_s = self.uptime_s
        return Reading(self.name, totals, grown=grown, uptime_s=self.uptime_s)


class World:
    """One API, one proxy, and a hub that is started again and again."""

    def __init__(self, *, start: datetime = datetime(2030, 1, 1, 12, 10, tzinfo=UTC)) -> None:
        self.clock = VirtualClock(start=start)
        self.maps = Maps()
        context = intent_context()
        self.inventory = context.inventory
        Intents(context, INTENTS)
        self.proxy = Proxy(self.clock)
        self.metering = True
        self.usage = self.hub()

    def hub(self) -> Usage:
        """Return the usage of a new hub process."""
        self.proxy.read_anew()
        cluster: Any = self.maps
        return Usage(
            cluster=cluster,
            inventory=self.inventory,
            clock=self.clock,
            name="hub",
            metering=lambda: self.metering,
            leading=lambda: self.metering,
        )

    async def read(self, seconds: float = READ_S) -> None:
        """Let time pass, read once and store what is due."""
        await self.clock.advance(seconds)
        self.usage.take([self.proxy.reading()])
        await self.usage.store()


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.req("F-32")
async def test_the_first_reading_of_a_young_proxy_counts(world: World) -> None:
    world.proxy.sent = {WEB: 1000}
    await world.read()
    assert world.maps.bytes_out == 1000
    old = World()
    old.proxy.began_s = -9000.0
    old.proxy.sent = {WEB: 1000}
    await old.read()
    assert old.maps.bytes_out == 0, "an Envoy that ran long before is a base"
    old.proxy.sent = {WEB: 1500}
    await old.read(SAVE_S)
    assert old.maps.bytes_out == 500


@pytest.mark.req("F-32")
async def test_an_idle_hub_writes_nothing(world: World) -> None:
    world.proxy.sent = {WEB: 1000}
    await world.read()
    writes = world.maps.writes
    for _ in range(20):
        await world.read()
    assert world.maps.writes == writes
    world.usage = world.hub()
    for _ in range(20):
        await world.read()
    assert world.maps.writes == writes, "nor does the next process of the hub"
    assert world.maps.bytes_out == 1000


@pytest.mark.req("F-32")
async def test_a_hub_that_dies_loses_nothing_that_a_proxy_counts_on(world: World) -> None:
    world.proxy.sent = {WEB: 1000, API: 7}
    await world.read()
    world.proxy.sent = {WEB: 2000, API: 7}
    await world.clock.advance(1)
    world.usage.take([world.proxy.reading()])  # counted, and not stored: the hub dies
    world.proxy.sent = {WEB: 5000, API: 8}
    world.usage = world.hub()
    await world.read(3600)
    assert world.maps.bytes_out == 5008


@pytest.mark.req("F-32")
@pytest.mark.parametrize("sent", [10, 5000])
@pytest.mark.parametrize("hub_too", [False, True])
async def test_a_proxy_that_dies_counts_from_zero(world: World, sent: int, hub_too: bool) -> None:
    await world.clock.advance(600)
    world.proxy.sent = {WEB: 1000}
    await world.read()
    await world.read()
    if hub_too:
        world.usage = world.hub()
    world.proxy.restart()
    world.proxy.sent = {WEB: sent}
    await world.read()
    await world.read(SAVE_S)
    assert world.maps.bytes_out == 1000 + sent


@pytest.mark.req("F-32")
async def test_a_proxy_that_was_replaced_long_ago_counts_from_zero(world: World) -> None:
    await world.clock.advance(100)
    world.proxy.sent = {WEB: 1000}
    await world.read()
    await world.clock.advance(7200)
    world.proxy.restart()
    world.proxy.sent = {WEB: 10}
    await world.clock.advance(3600)
    world.usage = world.hub()
    await world.read()
    await world.read(SAVE_S)
    assert world.maps.bytes_out == 1010


@pytest.mark.req("F-32")
async def test_a_removed_listener_adds_nothing(world: World) -> None:
    await world.clock.advance(600)
    world.proxy.sent = {WEB: 3000}
    await world.read()
    # One of its two ports is gone: the other has counted nothing since.
    world.usage.take([Reading("one", {WEB: Totals(1, bytes_out=1200)}, grown={WEB: Totals()}, uptime_s=620)])
    world.usage.take(
        [Reading("one", {WEB: Totals(1, bytes_out=1300)}, grown={WEB: Totals(bytes_out=100)}, uptime_s=625)]
    )
    await world.clock.advance(SAVE_S)
    await world.usage.store()
    assert world.maps.bytes_out == 3100
    # The same after a gap, when the statistics cannot be compared one by one.
    world.usage.take([Reading("one", problem="it does not answer")])
    world.usage.take([Reading("one", {WEB: Totals(1, bytes_out=900)}, uptime_s=640)])
    await world.usage.store()
    assert world.maps.bytes_out == 3100


@pytest.mark.req("F-32")
async def test_hours_are_stored_once_each_whatever_dies_between(world: World) -> None:
    world.proxy.sent = {WEB: 1000}
    await world.read()
    world.proxy.sent = {WEB: 1400}
    await world.clock.advance(3000)  # 13:00:08
    world.usage.take([world.proxy.reading()])
    world.maps.error = Unreachable("the API is gone")
    with pytest.raises(Unreachable):
        await world.usage.store()
    world.maps.error = None
    before = dict(world.maps.maps)
    await world.usage.store()
    month = {key: obj for key, obj in world.maps.maps.items() if key.name == "fairlead-usage-2030-01"}
    assert len(month) == 1
    # The hub died after it had stored the hour, and before it had stored that it is closed.
    world.maps.maps = before | month
    world.usage = world.hub()
    await world.read()
    rows = {(row.time, row.bytes_out) for row in world.maps.rows()}
    assert rows == {("2030-01-01T12", 1000), ("2030-01-01T13", 400)}
    assert world.maps.bytes_out == 1400


@pytest.mark.req("F-32")
async def test_another_replica_that_led_meanwhile_is_read_first(world: World) -> None:
    world.proxy.sent = {WEB: 1000}
    await world.read()
    other = world.hub()
    world.proxy.sent = {WEB: 1500}
    await world.clock.advance(SAVE_S)
    other.take([world.proxy.reading()])
    await other.store()
    world.proxy.sent = {WEB: 1600}
    world.proxy.read_anew()
    await world.clock.advance(SAVE_S)
    world.usage.take([world.proxy.reading()])
    with pytest.raises(Conflict):
        await world.usage.store()
    await world.usage.store()
    await world.read(SAVE_S)
    assert world.maps.bytes_out == 1600


@pytest.mark.req("F-32")
@pytest.mark.parametrize("uptime", [True, False])
async def test_a_replica_with_an_older_reading_counts_on_from_what_is_stored(world: World, uptime: bool) -> None:
    def reading() -> Reading:
        made = world.proxy.reading()
        return made if uptime else msgspec.structs.replace(made, uptime_s=None)

    await world.clock.advance(600)
    world.proxy.sent = {WEB: 1000, API: 5}
    follower = world.hub()
    follower.take([reading()])  # someone looked at the page of the follower
    world.proxy.read_anew()
    await world.usage.store()
    world.usage.take([reading()])
    await world.clock.advance(12)
    world.proxy.sent = {WEB: 3000, API: 5}
    world.usage.take([reading()])
    await world.usage.store()
    stored = world.maps.bytes_out
    # The follower leads, and has read less than what is stored.
    await follower.store()
    assert world.maps.bytes_out == stored
    world.proxy.sent = {WEB: 3100, API: 6}
    grown = {WEB: Totals(bytes_out=2100), API: Totals(bytes_out=1)}
    follower.take([msgspec.structs.replace(reading(), grown=grown)])
    await world.clock.advance(SAVE_S)
    await follower.store()
    assert world.maps.bytes_out == stored + 101


@pytest.mark.req("F-32")
async def test_an_age_that_lags_does_not_look_like_a_restart(world: World) -> None:
    await world.clock.advance(600)
    world.proxy.sent = {WEB: 1000}
    await world.read()
    # A busy Envoy updates its age late.
    world.proxy.began_s += 40
    world.proxy.sent = {WEB: 1500}
    world.usage = world.hub()
    await world.read(60)
    assert world.maps.bytes_out == 1500


@pytest.mark.req("F-32")
async def test_old_months_lose_their_hours_and_then_go() -> None:
    world = World(start=datetime(2030, 1, 1, 12, 10, tzinfo=UTC))
    for hour in range(3):
        world.proxy.sent = {WEB: 1000 * (hour + 1)}
        await world.read(3600)
    await world.read(3600)
    assert len(world.maps.rows()) == 3

    async def after(days: int) -> list[UsageRow]:
        await world.clock.advance(days * 86_400)
        await world.usage.store()
        return world.maps.rows()

    assert len(await after(40)) == 3
    assert [(row.time, row.bytes_out) for row in await after(30)] == [("2030-01-01", 3000)]
    assert await after(340) != []
    assert await after(31) == []


@pytest.mark.req("F-32")
async def test_the_last_seconds_are_stored_when_the_hub_stops(world: World) -> None:
    async def read() -> None:
        world.proxy.sent[WEB] = world.proxy.sent.get(WEB, 0) + 100
        world.usage.take([world.proxy.reading()])

    task = asyncio.create_task(world.usage.run(read))
    await world.clock.advance(60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert world.maps.bytes_out == world.proxy.sent[WEB] > 500


@pytest.mark.req("F-32")
async def test_addresses_are_held_by_the_load_balancers_of_a_tenant(world: World) -> None:
    shared = {"address": "192.0.2.1", "loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    objects: Any = world.inventory.intents["TCPLoadBalancer"].cache
    cast("Any", world.inventory.tenants)._store.put(tenant())
    for name, namespace in (("shop.a", "tenant-east"), ("shop.b", "tenant-east"), ("db", "edge")):
        objects._store.put(
            tcp(name, namespace=namespace, status=shared, annotations={ANNOTATION_ORIGIN: "east/shop/a"})
        )

    def held(namespace: str) -> list[tuple[str, float, int]]:
        obj = world.maps.maps[ObjectKey(namespace, "fairlead-usage-held")]
        periods = unpacked(obj["data"]["hub"], list[HeldPeriod]) or []
        return [(period.load_balancer.rpartition("/")[2], period.addresses, period.until) for period in periods]

    await world.usage.store()
    # A shared address counts once. Objects outside of tenants are stored at the hub.
    assert held("tenant-east") == [("shop.a", 1, 0)]
    assert held("fairlead-system") == [("db", 1, 0)]
    writes = world.maps.writes
    await world.read(3600)
    world.usage = world.hub()
    await world.usage.store()
    assert world.maps.writes == writes + 1, "the counts of the proxy, and no address"
    objects._store.remove(ObjectKey("tenant-east", "shop.a"))
    world.usage = world.hub()
    await world.usage.store()
    now = int(world.clock.now().timestamp())
    assert held("tenant-east") == [("shop.a", 1, now), ("shop.b", 1, 0)]


@pytest.mark.req("F-32")
async def test_the_usage_of_a_removed_tenant_is_kept_and_its_periods_end(world: World) -> None:
    cast("Any", world.inventory.tenants)._store.put(tenant())
    objects: Any = world.inventory.intents["TCPLoadBalancer"].cache
    status = {"address": "192.0.2.1", "loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    objects._store.put(tcp("shop.web", namespace="tenant-east", status=status))
    world.proxy.sent = {WEB: 1000}
    await world.read()
    await world.read(3600)
    cluster: Any = world.maps
    for _ in range(2):  # a hub that died between does it again
        await keep_usage(cluster, tenant(), world.clock.now())
    for key in [key for key in world.maps.maps if key.namespace == "tenant-east"]:
        del world.maps.maps[key]
    assert world.maps.bytes_out == 1000
    kept = [obj for obj in world.maps.maps.values() if obj["metadata"]["labels"].get("fairlead.dev/tenant") == "east"]
    (periods,) = [obj["data"]["hub"] for obj in kept if "held" in obj["metadata"]["name"]]
    (period,) = unpacked(periods, list[HeldPeriod]) or []
    assert period.until == int(world.clock.now().timestamp())
    # The next leader does not take it for its own.
    objects._store.remove(ObjectKey("tenant-east", "shop.web"))
    cast("Any", world.inventory.tenants)._store.remove(ObjectKey("", "east"))
    world.usage = world.hub()
    await world.read()
    assert world.maps.bytes_out == 1000


STATE = ObjectKey("fairlead-system", "fairlead-usage-hub")
HELD_OF_EAST = ObjectKey("tenant-east", "fairlead-usage-held")


def with_address(world: World, name: str = "shop.web", namespace: str = "tenant-east") -> None:
    """Give a load balancer of a tenant an address."""
    objects: Any = world.inventory.intents["TCPLoadBalancer"].cache
    tenants = cast("Any", world.inventory.tenants)
    tenants._store.put(tenant(namespace.removeprefix("tenant-")))
    address = f"192.0.2.{len(objects._store) + 1}"
    status = {"address": address, "loadBalancer": {"ingress": [{"ip": address}]}}
    objects._store.put(tcp(name, namespace=namespace, status=status))


@pytest.mark.req("F-32")
async def test_unreadable_texts_are_moved_and_never_replaced(world: World) -> None:
    with_address(world)
    world.proxy.sent = {WEB: 1000}
    await world.read()
    await world.read(3600)
    for obj in world.maps.maps.values():
        obj["data"] = {key: f"later release: {key}" for key in obj["data"]}
    texts = sorted(text for obj in world.maps.maps.values() for text in obj["data"].values())
    assert len(texts) == 3
    world.usage = world.hub()
    world.proxy.sent = {WEB: 1500}
    await world.read(3600)
    with_address(world, "shop.api")
    await world.clock.advance(3600)
    world.proxy.sent = {WEB: 1700}
    await world.read()
    await world.read(70 * 86_400)  # months become days
    kept = [text for obj in world.maps.maps.values() for key, text in obj["data"].items() if "unreadable" in key]
    assert sorted(kept) == texts
    assert world.maps.bytes_out == 200, "an old proxy is a base when its counts cannot be read"


@pytest.mark.req("F-32")
async def test_unreadable_texts_of_a_removed_tenant_are_copied(world: World) -> None:
    with_address(world)
    await world.usage.store()
    world.maps.maps[HELD_OF_EAST]["data"] = {"hub": "later release"}
    await keep_usage(cast("Any", world.maps), tenant(), world.clock.now())
    copies = [obj["data"] for key, obj in world.maps.maps.items() if key.name.startswith("fairlead-usage-held.")]
    assert copies == [{"hub": "later release"}]


@pytest.mark.req("F-32")
async def test_a_deleted_state_is_stored_again_and_nothing_counts_twice(world: World) -> None:
    world.proxy.sent = {WEB: 1000}
    await world.read()
    await world.read(3600)  # the hour of 1000 is in its month
    world.proxy.sent = {WEB: 1500}
    await world.read(SAVE_S)
    del world.maps.maps[STATE]
    world.proxy.sent = {WEB: 1600}
    with pytest.raises(NotFound):
        await world.read(SAVE_S)
    await world.read(SAVE_S)
    assert world.maps.bytes_out == 1600
    # Another replica leads, and then a person deletes the state.
    world.metering = False
    await world.usage.store()
    del world.maps.maps[STATE]
    world.metering = True
    world.proxy.sent = {WEB: 1700}
    await world.read(SAVE_S)
    world.proxy.sent = {WEB: 1800}
    await world.read(SAVE_S)
    assert 1000 < world.maps.bytes_out <= 1800


@pytest.mark.req("F-32")
async def test_deleted_periods_are_stored_again_with_their_beginning(world: World) -> None:
    with_address(world)
    await world.usage.store()
    began = int(world.clock.now().timestamp())
    await world.clock.advance(3600)
    del world.maps.maps[HELD_OF_EAST]
    with_address(world, "shop.api")
    world.usage._object_changed(tcp("shop.api", namespace="tenant-east"))
    await world.usage.store()
    periods = unpacked(world.maps.maps[HELD_OF_EAST]["data"]["hub"], list[HeldPeriod]) or []
    assert [period.since for period in periods] == [began + 3600, began]


@pytest.mark.req("F-32")
@pytest.mark.parametrize("error", [Forbidden("403"), Invalid("422"), Conflict("409"), NamespaceNotFound("404")])
async def test_one_namespace_does_not_stop_the_others(world: World, error: Exception) -> None:
    other = Counted(LoadBalancerKey("TCPLoadBalancer", "tenant-west", "shop.web"))
    with_address(world)
    with_address(world, namespace="tenant-west")
    world.maps.refusals["tenant-east"] = error
    world.proxy.sent = {WEB: 1000, other: 10}
    await world.clock.advance(READ_S)
    world.usage.take([world.proxy.reading()])
    with contextlib.suppress(type(error)):
        await world.usage.store()
    await world.clock.advance(3600)
    world.proxy.sent = {WEB: 1000, other: 17}
    world.usage.take([world.proxy.reading()])
    with pytest.raises(type(error)):
        await world.usage.store()
    west = {key.name for key in world.maps.maps if key.namespace == "tenant-west"}
    assert west == {"fairlead-usage-held", "fairlead-usage-2030-01"}
    assert world.maps.bytes_out == 1017, "the state has what the namespace refused"
    world.maps.refusals.clear()
    world.usage = world.hub()
    await world.read()
    assert world.maps.bytes_out == 1017
    assert {key.name for key in world.maps.maps if key.namespace == "tenant-east"} == west


@pytest.mark.req("F-32")
async def test_hours_that_a_namespace_refuses_do_not_fill_the_state(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.hub.tenants.usage.MOST_BYTES", 500)
    cast("Any", world.inventory.tenants)._store.put(tenant())
    world.maps.refusals["tenant-east"] = Forbidden("403")
    for hour in range(60):
        world.proxy.sent = {WEB: 1000 * (hour + 1)}
        await world.clock.advance(3600)
        world.usage.take([world.proxy.reading()])
        with contextlib.suppress(Forbidden):
            await world.usage.store()
    assert len(world.maps.maps[STATE]["data"]["state"]) < 600
    world.maps.refusals.clear()
    await world.read(3600)
    assert world.maps.bytes_out == 60_000


@pytest.mark.req("F-32")
async def test_hubs_that_share_a_month_stay_below_the_size_of_an_object(world: World) -> None:
    month = ObjectKey("fairlead-system", "fairlead-usage-2030-01")
    for hub in ("one", "two", "hub"):
        world.usage._name = hub
        rows = [
            UsageRow("2030-01-01T10", f"{hub}/{at}/{hash((hub, at))}", bytes_in=hash((at, hub))) for at in range(20_000)
        ]
        await world.usage._store_month(*month[:1], "2030-01", rows)
    world.usage._name = "one"
    await world.usage._store_month("fairlead-system", "2030-01", [UsageRow("2030-01-01T11", "a/b/c", bytes_in=1)])
    assert sum(map(len, world.maps.maps[month]["data"].values())) < 1024 * 1024


class Machine:
    """A proxy machine whose Envoy is restarted, and the reader of its reports at a hub that is restarted, too."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.traffic = MachineTraffic(world.clock)
        self.sent = 0
        self.number = 0
        self.start_envoy()
        self.start_hub()

    def start_envoy(self) -> None:
        self.number, self.sent, self.began_s = self.number + 1, 0, self.world.clock.monotonic()

    def start_hub(self) -> None:
        self.reader = ReportedTraffic(lambda: {"edge-1"})
        self.world.usage = self.world.hub()

    async def stats(self, _path: str) -> tuple[int, str]:
        uptime_s = int(self.world.clock.monotonic() - self.began_s)
        name = f"tcp.{WEB.load_balancer}/TCP/80"
        return 200, f"{name}.downstream_cx_tx_bytes_total: {self.sent}\nserver.uptime: {uptime_s}\n"

    async def report(self, *, arrives: bool = True, stored: bool = True) -> tuple[ProcessTraffic, ...]:
        present = {str(self.number)}
        await self.traffic.read(str(self.number), self.stats)
        self.traffic.ended(present)
        report = self.traffic.report()
        if arrives:
            self.reader.note("edge-1", report)
            self.traffic.taken(present)
            await self.world.clock.advance(SAVE_S)
            self.world.usage.take(await self.reader.read())
            if stored:
                await self.world.usage.store()
        return report


@pytest.mark.req("F-32")
async def test_a_machine_reports_what_its_envoys_counted_while_no_hub_listened(world: World) -> None:
    machine = Machine(world)
    machine.sent = 1000
    await machine.report()
    assert world.maps.bytes_out == 1000
    machine.sent = 5000
    await machine.report(arrives=False)
    machine.start_envoy()
    machine.sent = 300
    await machine.report(arrives=False)
    machine.start_hub()
    await machine.report()
    assert world.maps.bytes_out == 5300
    machine.sent = 900
    await machine.report(stored=False)
    machine.start_hub()
    await machine.report()
    assert world.maps.bytes_out == 5900, "a hub that has not stored a report gets the counts once more"
    machine.sent = 100
    await machine.report()
    assert world.maps.bytes_out == 6000, "a listener that was replaced counts from zero"
    await world.clock.advance(300.0)
    await machine.report()
    assert [len(process.counts) for process in await machine.report()] == [0], "the ended Envoy is forgotten"
    assert world.maps.bytes_out == 6000


@pytest.mark.req("F-32", "F-4")
async def test_a_machine_reports_failed_connections_and_backends(world: World) -> None:
    machine, hub = MachineTraffic(world.clock), ReportedTraffic(lambda: {"edge-1"})
    web = LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "shop")
    lines = {
        "cluster.TCPLoadBalancer/tenant-east/shop.web/TCP/80.upstream_cx_none_healthy": 3,
        f"http.{web}/TCP/80.downstream_rq_2xx": 9,
        f"cluster.{web}/backend/shop/web:80.upstream_rq_5xx": 2,
    }

    async def stats(_path: str) -> tuple[int, str]:
        return 200, "".join(f"{name}: {count}\n" for name, count in lines.items())

    await machine.read("1", stats)
    hub.note("edge-1", msgspec.json.decode(msgspec.json.encode(machine.report()), type=tuple[ProcessTraffic, ...]))
    readings = await hub.read()
    counts = [(of, total.failed, total.requests) for reading in readings for of, total in reading.totals.items()]
    assert {of: (failed, requests) for of, failed, requests in counts} == {
        WEB: (3, (0, 0, 0, 0, 0)),
        Counted(web): (0, (0, 9, 0, 0, 0)),
        Counted(web, "shop/web:80"): (0, (0, 0, 0, 0, 2)),
    }


@pytest.mark.req("F-32")
async def test_a_report_has_a_bounded_number_of_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "_MOST_REPORTED", 2)
    machine = MachineTraffic(world.clock)
    names = [f"TCPLoadBalancer/tenant-east/web-{number}" for number in range(5)]

    async def stats(_path: str) -> tuple[int, str]:
        return 200, "".join(f"tcp.{name}/TCP/80.downstream_cx_total: 1\n" for name in names)

    await machine.read("1", stats)
    reported: list[str] = []
    for _ in range(3):
        await world.clock.advance(5.0)
        reported += [count.load_balancer for process in machine.report() for count in process.counts]
        machine.taken({"1"})
    assert set(reported) == set(names)
