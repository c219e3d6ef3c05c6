"""The record of a load balancer itself: an entry for each provider, and the newest answer last."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from fairlead.api.intent import Provisioned, asked_of
from fairlead.api.meta import JSONObject, ObjectMeta
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancerStatus
from fairlead.errors import Conflict, Retry, Unreachable
from fairlead.kube.cluster import Cluster
from fairlead.ledger.frontends import FrontendRecords
from fairlead.ledger.records import record_name
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import UNFINISHED, Ensured
from fairlead.runtime.clock import settle
from fairlead.testing.ledger import resource_of

KEY = LoadBalancerKey("TCPLoadBalancer", "tenant-east", "shop.web")
SPEC = FrontendSpec(KEY, "tenant-east", (Listener(80),), parameters={"socket": "/s"})


class SlowStore:
    """An API that answers once ``answers`` is set; each manager owns what it applied last."""

    def __init__(self) -> None:
        self.status: JSONObject = {}
        self.applied: dict[str, JSONObject] = {}
        self.writes: list[str] = []
        self.refuses: list[Exception] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.called = asyncio.Event()
        self.version = 1

    async def get(self, resource: Any, _namespace: str, _name: str) -> Any:
        return resource.type(ObjectMeta(resource_version=str(self.version)))

    async def _write(self, what: str) -> None:
        self.called.set()
        await self.answers.wait()
        if self.refuses:
            raise self.refuses.pop(0)
        self.writes.append(what)

    async def apply(self, _resource: Any, obj: JSONObject, *, manager: str, subresource: str = "") -> Any:
        assert subresource == "status"
        await self._write(f"apply {manager}")
        if obj["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("another client wrote it meanwhile")
        self.version += 1
        (self.applied[manager],) = obj["status"]["provisioned"]

    async def merge_patch(
        self, _resource: Any, _namespace: str, _name: str, patch: JSONObject, *, subresource: str, manager: str
    ) -> Any:
        await self._write(f"patch {manager} {sorted(patch['status'])}")
        for field in patch["status"]:
            del self.status[field]

    def read(self) -> TCPLoadBalancerStatus:
        return msgspec.convert({**self.status, "provisioned": list(self.applied.values())}, TCPLoadBalancerStatus)


def records(
    store: SlowStore, provider: str = "haproxy", *, leads: Callable[[], bool] = lambda: True
) -> FrontendRecords:
    return FrontendRecords(cluster=cast("Cluster", store), provider=provider, resource_of=resource_of, leads=leads)


async def test_two_providers_have_an_entry_each() -> None:
    store = SlowStore()
    first, second = records(store), records(store, "webhook")
    await first.ensuring(SPEC)
    await first.ensured(SPEC, Ensured(("192.0.2.1",), info={"socket": "/s"}))
    await second.ensuring(SPEC)
    await second.ensured(SPEC, Ensured(("192.0.2.2",), epoch="7"))
    status, asked = store.read(), asked_of(SPEC)
    assert status.recorded == (
        Provisioned("haproxy", "Ensured", asked=asked, addresses=["192.0.2.1"], info={"socket": "/s"}),
        Provisioned("webhook", "Ensured", asked=asked, addresses=["192.0.2.2"], epoch="7"),
    )
    assert status.frontend_of("envoy") is None
    assert store.writes == ["apply fairlead-hub-ledger-haproxy"] * 2 + ["apply fairlead-hub-ledger-webhook"] * 2
    await second.ensuring(SPEC)
    await second.ensured(SPEC, Ensured(("192.0.2.2",), epoch="7"))
    assert len(store.writes) == 4, "nothing new"


@pytest.mark.parametrize("lag", [0, 1], ids=["the cache is right", "the cache is behind"])
async def test_the_first_write_is_rejected_on_an_old_cache_version(lag: int) -> None:
    store = SlowStore()
    store.version = 5
    known = TCP_LOAD_BALANCERS.type(ObjectMeta(resource_version=str(5 - lag)))
    asked: list[str] = []
    get = store.get

    async def read(resource: Any, namespace: str, name: str) -> Any:
        asked.append(name)
        return await get(resource, namespace, name)

    store.get = read  # type: ignore[method-assign]
    entries = FrontendRecords(
        cluster=cast("Cluster", store), provider="haproxy", resource_of=resource_of, known=lambda _key: known
    )
    await entries.ensured(SPEC, Ensured(("192.0.2.1",)))
    assert store.read().frontend_of("haproxy") is not None
    assert len(asked) == lag
    assert len(store.writes) == 1 + lag


async def test_the_provider_of_a_load_balancer_serves_it() -> None:
    store = SlowStore()
    await records(store).ensuring(SPEC)
    assert "serving" not in store.applied["fairlead-hub-ledger-haproxy"]
    await records(store).ensuring(msgspec.structs.replace(SPEC, key=LoadBalancerKey("LoadBalancer", "shop", "web")))
    assert store.applied["fairlead-hub-ledger-haproxy"]["serving"] is True


async def test_what_0_1_wrote_is_rewritten_once_and_gone_after_that() -> None:
    store = SlowStore()
    text = msgspec.json.encode(SPEC, order="sorted").decode()
    store.status = {"frontend": {"provider": "haproxy", "state": "Ensured", "ensured": text, "epoch": "7"}}
    before = store.read().frontend_of("haproxy")
    assert before is not None
    for crash in (True, False):
        entries, status = records(store), store.read()
        entries.load(KEY, before)
        entries.load_old(KEY, status.old_places("haproxy"))
        # The process dies between the two writes: both are there, and say the same.
        store.refuses = [Unreachable("503")] if not crash else []
        merge_patch = store.merge_patch
        if crash:
            store.merge_patch = refuse
        await entries.rewrite_old()
        if crash:
            store.merge_patch = merge_patch
            assert store.read().frontend_of("haproxy") == before
            assert store.read().old_places("haproxy") != {}
    assert "frontend" in store.status, "the API did not answer"
    await entries.rewrite_old()
    assert (store.status, store.read().frontend_of("haproxy")) == ({}, before)
    writes = len(store.writes)
    await entries.rewrite_old()
    await entries.ensuring(SPEC)
    await entries.ensured(SPEC, Ensured(epoch="7"))
    later = records(store)
    later.load(KEY, before)
    later.load_old(KEY, store.read().old_places("haproxy"))
    await later.rewrite_old()
    assert len(store.writes) == writes, "0 writes after that"


async def refuse(*_positional: Any, **_named: Any) -> Any:
    raise Unreachable("503")


async def test_a_new_answer_replaces_what_0_1_wrote_too() -> None:
    store = SlowStore()
    store.status = {"frontend": {"provider": "haproxy", "state": "Ensuring", "ensured": ""}}
    entries, status = records(store), store.read()
    entry = status.frontend_of("haproxy")
    assert entry is not None
    entries.load(KEY, entry)
    entries.load_old(KEY, status.old_places("haproxy"))
    await entries.ensured(SPEC, Ensured(("192.0.2.1",)))
    await entries.rewrite_old()
    assert store.status == {}
    assert store.writes == ["apply fairlead-hub-ledger-haproxy", "patch fairlead-hub-ledger ['frontend']"]


async def test_the_life_of_a_provider_does_not_undo_its_answer() -> None:
    """Both are written at the same time: neither may carry an older word of the other with it."""
    store = SlowStore()
    entries = records(store)
    await entries.ensuring(SPEC)
    store.answers.clear()
    store.called.clear()
    async with asyncio.timeout(180), asyncio.TaskGroup() as group:
        group.create_task(entries.ensured(SPEC, Ensured(("192.0.2.1",))))
        group.create_task(entries.set_epoch(KEY, "8@1"))
        await store.called.wait()
        await asyncio.sleep(0)
        store.answers.set()
    entry = store.read().frontend_of("haproxy")
    assert entry is not None
    assert (entry.state, entry.addresses, entry.epoch) == ("Ensured", ["192.0.2.1"], "8@1")


async def test_the_first_life_is_known_before_anything_is_registered_in_it() -> None:
    """Else a provider that restarts before it was read back for the first time would never be healed."""
    store = SlowStore()
    entries = records(store)
    await entries.ensured(SPEC, Ensured(epoch="7@1"))
    assert entries.get(KEY).epoch == "7@1"
    # Ensured again in another life, what was registered in the one before is still lost.
    await entries.ensured(SPEC, Ensured(("192.0.2.1",), epoch="8@1"))
    assert entries.get(KEY).epoch == "7@1"


@pytest.mark.req("T-2", "I-5")
async def test_a_former_leader_records_nothing() -> None:
    store, leads = SlowStore(), True
    entries = records(store, leads=lambda: leads)
    await entries.ensured(SPEC, Ensured(("192.0.2.1",), epoch="7"))
    entries.load_old(KEY, {"frontend": None})
    leads = False
    before = list(store.writes)
    with pytest.raises(Retry, match="does not lead"):
        await entries.set_epoch(KEY, "8")
    with pytest.raises(Retry, match="does not lead"):
        await entries.ensured(SPEC, Ensured(("192.0.2.9",)))
    with pytest.raises(Retry, match="does not lead"):
        await entries.ensuring(msgspec.structs.replace(SPEC, parameters={"socket": "/other"}))
    await entries.rewrite_old()
    assert store.writes == before


@pytest.mark.req("T-2", "I-5")
async def test_a_write_of_a_former_leader_that_is_sent_late_is_refused() -> None:
    """The former leader was suspended before it sent a write; meanwhile another one took over and wrote."""
    store, leads = SlowStore(), True
    former, new = records(store, leads=lambda: leads), records(store)
    await former.ensured(SPEC, Ensured(("192.0.2.1",), epoch="7"))
    store.answers.clear()
    store.called.clear()
    late = asyncio.create_task(former.set_epoch(KEY, "8"))
    async with asyncio.timeout(180):
        await store.called.wait()
    leads = False
    store.version += 1
    store.applied["fairlead-hub-ledger-haproxy"] = {
        "provider": "haproxy",
        "state": "Ensured",
        "addresses": ["192.0.2.2"],
    }
    store.answers.set()
    with pytest.raises(Retry, match="does not lead"):
        await late
    entry = store.read().frontend_of("haproxy")
    assert entry is not None
    assert (entry.addresses, entry.epoch) == (["192.0.2.2"], "")
    await new.ensured(SPEC, Ensured(("192.0.2.2",), epoch="8"))


@pytest.mark.req("T-2")
@pytest.mark.parametrize(("others", "written"), [(1, True), (3, True), (4, False)])
async def test_others_that_write_other_parts_of_the_object_are_waited_for_a_few_times(
    others: int, written: bool
) -> None:
    store = SlowStore()
    entries = records(store)
    left = others
    read = store.get

    async def overtaken(resource: Any, _namespace: str, _name: str) -> Any:
        nonlocal left
        answer = await read(resource, _namespace, _name)
        store.version += left > 0
        left -= 1
        return answer

    store.get = overtaken
    with contextlib.nullcontext() if written else pytest.raises(Conflict):
        await entries.ensured(SPEC, Ensured(("192.0.2.1",)))
    assert (store.read().frontend_of("haproxy") is not None) is written


def test_the_same_backend_of_two_providers_is_two_records() -> None:
    place = (KEY, Listener(80).key, TargetKey("10.0.0.1", 80))
    names = {record_name(*place), record_name(*place, provider="haproxy"), record_name(*place, provider="webhook")}
    assert len(names) == 3


async def test_unanswered_requests_are_kept_until_an_answer() -> None:
    store = SlowStore()
    entries = records(store, "zones")
    await entries.ensured(SPEC, Ensured(("192.0.2.1",), info={"zone": "a.test"}))
    asked = [msgspec.structs.replace(SPEC, parameters={"zone": zone}) for zone in ("a.test", "b.test", "c.test")]
    for each in (*asked, asked[1]):
        await entries.ensuring(each, keeps_unfinished=True)
    kept = entries.info(KEY)
    assert kept["zone"] == "a.test"
    assert msgspec.json.decode(kept[UNFINISHED]) == [{"zone": zone} for zone in ("a.test", "b.test", "c.test")]
    await entries.ensured(asked[1], Ensured((), info={"zone": "b.test"}))
    assert entries.info(KEY) == {"zone": "b.test"}


@pytest.mark.req("CORE-02")
@pytest.mark.parametrize("text", ["", "[", "{}", '[{"zone": 1}]', "[" * 3_000, "\ud800"])
async def test_unreadable_unfinished_entries_do_not_stop_later_ones(text: str) -> None:
    store = SlowStore()
    entries = records(store, "zones")
    await entries.ensured(SPEC, Ensured(("192.0.2.1",), info={"zone": "a.test", UNFINISHED: text}))
    asked = [msgspec.structs.replace(SPEC, parameters={"zone": zone}) for zone in ("b.test", "c.test")]
    for each in asked:
        await entries.ensuring(each, keeps_unfinished=True)
    kept = entries.info(KEY)
    assert kept["zone"] == "a.test"
    assert {"zone": "b.test"} in msgspec.json.decode(kept[UNFINISHED])


async def test_a_write_that_others_come_before_each_time_is_a_conflict() -> None:
    store = SlowStore()
    store.refuses = [Conflict("another client wrote it meanwhile") for _ in range(20)]
    entries = records(store)
    with pytest.raises(Conflict):
        await entries.ensured(SPEC, Ensured(("192.0.2.1",)))
    assert not entries.get(KEY).state


async def test_a_forgotten_load_balancer_has_one_write_at_a_time() -> None:
    store = SlowStore()
    entries = records(store)
    under_way, most = 0, 0
    write = store.apply

    async def counted(*args: Any, **named: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await write(*args, **named)
        finally:
            under_way -= 1

    store.apply = counted
    store.answers.clear()
    first = asyncio.create_task(entries.ensured(SPEC, Ensured(("192.0.2.1",))))
    await store.called.wait()
    entries.forget(KEY)
    second = asyncio.create_task(entries.ensured(SPEC, Ensured(("192.0.2.2",))))
    await settle()
    store.answers.set()
    await asyncio.gather(first, second)
    assert most == 1
    assert entries.get(KEY).addresses == ["192.0.2.2"]
