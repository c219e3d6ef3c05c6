"""The runners of one hub: which exist, which term they are in, and what they start from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from hub_parts import intent_context
from structlog.testing import capture_logs

from fairlead.api.backendgroup import BackendRecord
from fairlead.api.meta import JSONObject
from fairlead.errors import Retry
from fairlead.hub.app import Hub as HubProcess
from fairlead.hub.app import HubConfig
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.tcp import TCPObjects
from fairlead.model.contract import AllocationKind
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import settle
from fairlead.sync.history import Report
from fairlead.testing.builders import HTTP, decoded, desired, lb_key, target, tcp
from tests.unit.kube.kube_scripted import ScriptedApi, is_list

KEY = lb_key()


class Starting(MemoryProvider):
    """A provider with a life of its own."""

    started = closed = 0

    async def start(self):
        self.started += 1

    async def close(self):
        self.closed += 1


class Hub:
    """A registry with one served provider, and with ``memory``, ``broken`` and ``other`` to be opened."""

    def __init__(self, cluster=None):
        self.made = {}
        self.context: IntentContext = intent_context(
            served={"proxies": MemoryProvider(cloud=MemoryCloud())},
            factories={name: self._factory(name) for name in ("memory", "other", "broken")},
            cluster=cluster,
        )
        self.registry, self.inventory = self.context.providers, self.context.inventory
        self.objects = TCPObjects(self.context.cluster, self.inventory)
        self.changed, self.reports = [], []
        self.leads = True
        self.registry._changed = self.changed.append
        self.registry._report = self.reports.append
        self.registry._is_leader = lambda: self.leads

    def _factory(self, name):
        def make():
            if name == "broken":
                raise ImportError("no module named vendor")
            self.made[name] = Starting(cloud=MemoryCloud(clock=self.context.clock))
            return self.made[name]

        return make


@pytest.fixture
async def hub() -> Hub:
    return Hub()


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi() as server:
        yield server


@pytest.fixture
async def served_hub(api: ScriptedApi) -> AsyncIterator[Hub]:
    """A hub with an API server behind it."""
    async with api.cluster(name="hub") as cluster:
        yield Hub(cluster)


def record_body(name="r", *, provider="memory", load_balancer="web", state="Registered") -> JSONObject:
    return {
        "metadata": {"name": name, "namespace": KEY.namespace, "uid": f"uid-{name}"},
        "spec": {
            "loadBalancer": {
                "kind": KEY.kind, "namespace": KEY.namespace, "name": load_balancer, "provider": provider,
            },
            "listener": {"port": 80, "protocol": "TCP"},
            "target": {"address": "10.0.0.1", "port": 8080},
        },
        "status": {"state": state},
    }  # fmt: skip


def record(**more) -> BackendRecord:
    return decoded(record_body(**more), BackendRecord)


def stored(obj):
    return msgspec.json.decode(msgspec.json.encode(obj))


def test_the_registry_maps_running_providers_and_knows_available_ones(hub):
    assert (list(hub.registry), len(hub.registry)) == (["proxies"], 1)
    assert hub.registry.open("memory")
    assert (list(hub.registry), len(hub.registry)) == (["proxies", "memory"], 2)
    assert hub.registry["memory"].durable
    assert not hub.registry["proxies"].durable
    assert hub.registry.known == {"proxies", "memory", "other", "broken"}
    assert hub.registry.capabilities["memory"].allocation is AllocationKind.NONE
    assert set(hub.registry.capabilities) == {"proxies", "memory"}


def test_a_provider_is_made_once_and_only_when_it_is_installed(hub):
    assert hub.registry.open("memory")
    assert not hub.registry.open("memory")
    assert not hub.registry.open("proxies")
    assert not hub.registry.open("nothing")
    assert list(hub.made) == ["memory"]


def test_a_provider_that_cannot_be_made_is_a_problem_of_its_own(hub):
    with capture_logs() as logs:
        assert hub.registry.open("broken"), "the load balancers that ask for it get a condition"
        assert not hub.registry.open("broken"), "its package has to be mended first"
    assert [line["provider"] for line in logs] == ["broken"]
    assert "broken" not in hub.registry
    assert hub.registry.problems["broken"].startswith(
        "provider 'broken' cannot be started (ImportError: no module named vendor); fix its package"
    )
    assert hub.registry.open("memory")


def test_a_provider_that_a_record_names_is_opened(hub):
    hub.registry.record_changed(None, record(provider="other"))
    assert "other" in hub.registry
    hub.registry.record_changed(record(provider="memory"), None)
    assert "memory" not in hub.registry, "of what is gone nothing has to be released"


def test_reports_carry_the_name_of_the_provider(hub):
    hub.registry._report_of("proxies")(Report(KEY, failure="x"))
    assert [(report.provider, report.failure) for report in hub.reports] == [("proxies", "x")]


async def test_a_term_begins_from_what_is_on_record(served_hub, api):
    served_hub.registry.open("memory")
    served_hub.registry.open("other")
    api.put("backendrecords", record_body())
    api.put("backendrecords", record_body("of-another", provider="other", load_balancer="api"))
    frontend = {"provider": "memory", "state": "Ensured", "info": {"id": "lb-7"}}
    api.put("tcploadbalancers", stored(tcp("web", status={"provisioned": [frontend]})))
    assert not served_hub.registry["memory"].loaded
    await served_hub.registry.load()
    memory, other = served_hub.registry.durable["memory"], served_hub.registry.durable["other"]
    assert memory.loaded
    assert memory.ledger.frontends.info(KEY) == {"id": "lb-7"}
    assert target("1").key in memory.tracker.state(KEY).recorded[HTTP]
    assert list(other.tracker) == [lb_key("api")]
    assert sorted(served_hub.registry.restored()) == [lb_key("api"), KEY]


@pytest.mark.req("CORE-04")
async def test_an_epoch_is_above_all_on_record_and_everything_is_read_after_it(served_hub, api):
    served_hub.registry.open("memory")
    written = record_body()
    written["spec"]["epoch"] = 4
    api.put("backendrecords", written)
    await served_hub.registry.load()
    assert served_hub.registry._epoch() == 5
    reads = [seen.path for seen in api.seen if is_list(seen) and "backendrecords" in seen.path]
    assert len(reads) == 2, "another leader may have written until the epoch was raised"


@pytest.mark.req("CORE-04")
@pytest.mark.parametrize("epoch", [2**31 - 1, 2**63, -4, 1.5])
async def test_an_epoch_that_no_leader_can_have_stops_no_term(served_hub, api, epoch):
    registry = served_hub.registry
    registry.open("memory")
    written = record_body()
    written["spec"]["epoch"] = epoch
    api.put("backendrecords", written)
    await registry.load()
    assert registry._epoch() == 1
    for present in registry._inventory.records.values():
        registry["memory"].ledger._fence(present, 1)


@pytest.mark.req("CORE-04")
async def test_a_record_with_a_higher_epoch_in_a_term_raises_that_of_the_term(served_hub):
    registry = served_hub.registry
    registry.open("memory")
    await registry.load()
    running = asyncio.create_task(registry.run())
    try:
        await settle()
        fenced = msgspec.structs.replace(record(), spec=msgspec.structs.replace(record().spec, epoch=7))
        with pytest.raises(Retry):
            registry["memory"].ledger._fence(fenced, 1)
        await settle()
        assert registry._epoch() == 8
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.req("CORE-04")
@pytest.mark.parametrize("since", ["2000-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "soon"])
async def test_a_drain_counts_only_time_that_this_process_observed(served_hub, api, since):
    """The record has the time of another leader's clock, or of ours before it jumped."""
    registry, clock = served_hub.registry, served_hub.context.clock
    registry.open("memory")
    draining = record_body(state="Draining")
    draining["status"]["since"] = since
    api.put("backendrecords", draining)

    def drained_since_s() -> float:
        (registered,) = registry["memory"].tracker.state(KEY).recorded[HTTP].values()
        assert registered.target.draining
        return registered.draining_since

    started_s = clock.monotonic()
    await registry.load()
    first_s = drained_since_s()
    assert started_s <= first_s <= clock.monotonic()
    registry["memory"].end()
    await registry.load()
    assert drained_since_s() == first_s, "the next term of the same process goes on counting"
    body = api.put("backendrecords", {**draining, "status": {"state": "Registered"}}, notify=False)
    registry["memory"].record_changed(None, decoded(body, BackendRecord))
    api.put("backendrecords", draining, notify=False)
    await registry.load()
    assert drained_since_s() >= first_s


async def test_what_cannot_be_read_is_read_again_and_nothing_is_decided_before(served_hub, api):
    served_hub.registry.open("memory")
    api.answer(lambda seen: is_list(seen) and "backendrecords" in seen.path, 403, "Forbidden", "not yet")
    clock = served_hub.context.clock
    with capture_logs() as logs:
        loading = asyncio.create_task(served_hub.registry.load())
        await api.until(lambda: clock.sleepers == 1)
        assert not served_hub.registry["memory"].loaded
        await clock.advance(2)
        await loading
    assert [line["event"] for line in logs] == ["records cannot be read; nothing is decided before"]
    assert served_hub.registry["memory"].loaded


async def test_an_object_that_cannot_be_decoded_holds_up_nothing_else(served_hub, api):
    served_hub.registry.open("memory")
    api.put("backendrecords", record_body())
    broken = record_body("bad")
    broken["spec"]["listener"]["port"] = "eighty"
    api.put("backendrecords", broken)
    with capture_logs() as logs:
        await served_hub.registry.load()
    assert list(served_hub.registry["memory"].tracker) == [KEY]
    (line,) = logs
    assert line["log_level"] == "error"
    assert "bad" in line["key"]


async def test_a_hub_of_one_region_takes_what_its_own_objects_have_on_record(served_hub, api):
    served_hub.inventory.region = "east"
    served_hub.registry.open("memory")
    for name, region in (("web", "east"), ("far", "west")):
        frontend = {"provider": "memory", "state": "Ensured"}
        api.put("tcploadbalancers", stored(tcp(name, spec={"region": region}, status={"provisioned": [frontend]})))
        api.put("backendrecords", record_body(f"of-{name}", load_balancer=name))
    api.put("backendrecords", record_body("orphan", load_balancer="gone"))
    await served_hub.registry.load()
    memory = served_hub.registry.durable["memory"]
    assert list(memory.tracker) == [KEY]
    served_hub.registry.record_changed(None, record(name="new", load_balancer="far"))
    assert list(memory.tracker) == [KEY]
    served_hub.objects.cache._store.put(tcp("near", spec={"region": "east"}))
    served_hub.registry.record_changed(None, record(name="new", load_balancer="near"))
    assert sorted(memory.tracker) == [lb_key("near"), KEY]


async def test_work_runs_only_while_leading(served_hub):
    registry = served_hub.registry
    registry.open("memory")
    await registry.load()
    running = asyncio.create_task(registry.run())
    await settle()
    assert served_hub.made["memory"].started == 1
    assert registry._epoch() == 1
    served_hub.leads = False
    assert registry._epoch() is None
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    served_hub.leads = True
    assert registry._epoch() is None
    assert not registry["memory"].loaded
    await registry.close()
    assert served_hub.made["memory"].closed == 1


async def test_a_provider_that_is_named_in_the_middle_of_a_term_catches_up(served_hub, api):
    registry = served_hub.registry
    api.put("backendrecords", record_body())
    frontend = {"provider": "other", "state": "Ensured"}
    api.put("tcploadbalancers", stored(tcp("api", status={"provisioned": [frontend]})))
    await registry.load()
    running = asyncio.create_task(registry.run())
    await settle()
    registry.open("memory")
    try:
        await api.until(lambda: "memory" in registry and registry["memory"].loaded and bool(served_hub.changed))
        await api.until(lambda: served_hub.made["memory"].started == 1)
        assert set(served_hub.changed) == {KEY, lb_key("api")}
        assert list(registry["memory"].tracker) == [KEY]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_only_the_leader_calls_a_durable_provider(served_hub):
    registry = served_hub.registry
    registry.open("memory")
    await registry.load()
    served_hub.leads = False
    worker = registry["memory"].worker
    registry["memory"].tracker.put(desired([target("1")]))
    worker.trigger()
    working = asyncio.create_task(worker.run())
    await settle()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert served_hub.made["memory"].calls == {}
    assert [report.failure_reason for report in served_hub.reports] == ["NotLeading"]


async def test_a_provider_that_fails_to_close_keeps_no_other_open(served_hub):
    class Failing(Starting):
        async def close(self):
            await super().close()
            raise RuntimeError("a bug of a third party")

    served_hub.registry._factories = {"failing": lambda: Failing(cloud=MemoryCloud()), **served_hub.registry._factories}
    assert all(served_hub.registry.open(name) for name in ("failing", "memory"))
    with capture_logs() as logs:
        await served_hub.registry.close()
    assert served_hub.made["memory"].closed == 1
    assert [(entry["event"], entry["what"]) for entry in logs] == [("not closed", "failing")]


async def test_a_hub_that_ends_closes_each_of_its_providers(served_hub):
    class Proxies(Starting):
        fails = False

        def publish(self):
            return

        async def close(self):
            await super().close()
            if self.fails:
                raise RuntimeError("the proxies are away")

    served = {name: Proxies(cloud=MemoryCloud()) for name in ("first", "second")}
    served["first"].fails = True
    hub = HubProcess(cluster=served_hub.context.cluster, providers=served, config=HubConfig(identity="hub-1"))
    closed = asyncio.Event()

    async def close_durable():
        closed.set()

    async def prepared():
        return

    hub.providers.close = close_durable
    hub.prepare = prepared
    running = asyncio.create_task(hub.run())
    await settle()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [each.closed for each in served.values()] == [1, 1]
    assert closed.is_set()
