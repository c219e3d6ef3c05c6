"""A real HAProxy with real traffic: rolling updates, drain, reloads, and servers of other people."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from fairlead.model.change import DONE, Action, OutcomeStatus, Reason, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.desired import ProxyProtocol, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import Counted, Health, Totals, with_health
from fairlead.runtime.telemetry import stop_listening
from tests.contract.providers.haproxy_balanced import HTTP, KEY, PATIENCE_S, Balanced, Web


@pytest.mark.req("L-10")
async def test_rolling_update_under_load_fails_no_request(balanced: Balanced) -> None:
    """B35: add before remove, drain before removal; each old pod stops right after it was deregistered."""
    old = [await balanced.web(f"old-{number}") for number in range(5)]
    await balanced.must(Action.REGISTER, *old)
    theirs = balanced.theirs()
    counts = {"good": 0, "failed": 0}
    stop = asyncio.Event()

    async def load() -> None:
        while not stop.is_set():
            counts["good" if await balanced.get() else "failed"] += 1

    users = [asyncio.ensure_future(load()) for _ in range(8)]
    for number, web in enumerate(old):
        new = await balanced.web(f"new-{number}")
        await balanced.must(Action.REGISTER, new)
        served = new.answered
        await balanced.must(Action.DRAIN, web)
        await balanced.removed(web, Reason.TERMINATING)
        await web.stop()
        await balanced.until(lambda new=new, served=served: new.answered > served)
    stop.set()
    await asyncio.gather(*users)
    print(f"rolling update of {len(old)}: {counts}")
    assert counts["failed"] == 0
    assert counts["good"]
    assert balanced.theirs() == theirs


async def test_a_ready_target_is_up_when_its_registration_is_done(balanced: Balanced) -> None:
    for number in range(10):
        web = await balanced.web(str(number))
        await balanced.must(Action.REGISTER, web)
        assert balanced.haproxy.stat("front", balanced.name(web), "status").startswith("UP")


async def test_drain_waits_for_sessions(balanced: Balanced) -> None:
    """A session that began before lives on; no new session comes; then the server goes."""
    old, new = await balanced.web("old"), await balanced.web("new")
    await balanced.must(Action.REGISTER, old)
    request = asyncio.ensure_future(balanced.get("/hang"))
    await asyncio.wait_for(old.hung.wait(), PATIENCE_S)
    await balanced.must(Action.REGISTER, new)
    (waiting,) = await balanced.apply(Action.DEREGISTER, old)
    assert waiting.status is OutcomeStatus.RUNNING
    assert "the 1 open ones" in waiting.message
    assert {await balanced.get() for _ in range(6)} == {"new"}
    (waiting,) = await balanced.apply(Action.DEREGISTER, old)
    assert waiting.status is OutcomeStatus.RUNNING
    assert not request.done()
    old.hanging.set()
    assert await request == "old"
    await balanced.until(lambda: balanced.haproxy.stat("front", balanced.name(old), "scur") == "0")
    await balanced.must(Action.DEREGISTER, old)
    assert balanced.name(old) not in balanced.haproxy.servers("front")


async def test_a_backend_with_the_name_of_its_frontend_is_drained_and_emptied(balanced: Balanced) -> None:
    """HAProxy takes that name for the frontend's when it is asked for sessions; it does so after a reload, too."""
    webs = [await balanced.web(str(number)) for number in range(3)]
    parameters = {**balanced.spec.parameters, "backend": "same"}
    spec = msgspec.structs.replace(balanced.spec, parameters=parameters, key=LoadBalancerKey("L", "shop", "same"))
    await balanced.provider.ensure(spec)
    rows = [TargetChange(spec.key, HTTP, Target(web.key), Action.REGISTER, Reason.NEW) for web in webs]
    gone = [msgspec.structs.replace(row, action=Action.DEREGISTER, reason=Reason.ABSENT) for row in rows]
    for reloads in (True, False):
        assert await balanced.provider.apply(rows) == [DONE] * 3
        assert await balanced.provider.apply(gone) == [DONE] * 3
        assert balanced.haproxy.servers("same") == {}
        if reloads:
            await asyncio.to_thread(balanced.haproxy.reload)
    await balanced.provider.delete(spec.key)


async def test_sessions_are_cut_when_their_time_is_over(balanced: Balanced) -> None:
    web = await balanced.web("old")
    await balanced.must(Action.REGISTER, web)
    request = asyncio.ensure_future(balanced.get("/hang"))
    await asyncio.wait_for(web.hung.wait(), PATIENCE_S)
    await balanced.removed(web, Reason.DRAINED)
    assert balanced.name(web) not in balanced.haproxy.servers("front")
    assert await request == ""


@pytest.mark.req("L-10")
async def test_a_reload_is_noticed_and_healed_from_the_ledger(balanced: Balanced) -> None:
    """Servers added at run time are lost; the ledger's are back after one notice, and nothing else is touched."""
    webs = [await balanced.web(str(number)) for number in range(3)]
    ledger = [TargetChange(KEY, HTTP, Target(web.key, 5), Action.REGISTER, Reason.NEW) for web in webs]
    assert {outcome.status for outcome in await balanced.provider.apply(ledger)} == {OutcomeStatus.DONE}
    before = await balanced.provider.observe(KEY)
    assert before is not None
    assert before.programmed
    theirs = balanced.theirs()
    await asyncio.sleep(0)
    balanced.noticed.clear()
    await asyncio.to_thread(balanced.haproxy.reload)
    began_s = time.perf_counter()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await balanced.noticed.wait()
            balanced.noticed.clear()
            lost = await balanced.provider.observe(KEY)
            if lost is not None and lost.epoch != before.epoch:
                break
    assert (lost.programmed, lost.targets) == (False, ())
    assert "3 of our servers are missing" in lost.message
    assert await balanced.get() == ""
    assert {outcome.status for outcome in await balanced.provider.apply(ledger)} == {OutcomeStatus.DONE}
    healed_ms = (time.perf_counter() - began_s) * 1000
    print(f"reload until healed: {healed_ms:.0f} ms")
    assert {await balanced.get() for _ in range(6)} == {"0", "1", "2"}
    healed = await balanced.provider.observe(KEY)
    assert healed is not None
    assert (healed.programmed, [target.weight for target in healed.targets or ()]) == (True, [5, 5, 5])
    assert balanced.theirs() == theirs


async def test_a_manual_change_is_reported_and_kept(balanced: Balanced) -> None:
    """LT-10: looking, and ensuring the frontend, repairs nothing; only the core may ask for that."""
    web = await balanced.web("one")
    await balanced.must(Action.REGISTER, web)
    path = f"front/{balanced.name(web)}"
    balanced.haproxy.ask(f"set server {path} weight 77", f"set server {path} state drain")
    async with asyncio.timeout(PATIENCE_S):
        while True:
            seen = await balanced.provider.observe(KEY)
            if seen is not None and seen.targets and seen.targets[0].weight == 77:
                break
    await balanced.provider.ensure(balanced.spec)
    assert seen.targets[0].draining
    fields = balanced.haproxy.servers("front")[balanced.name(web)]
    assert (fields[2], fields[3]) == ("8", "77")
    await balanced.must(Action.UPDATE, web)
    fields = balanced.haproxy.servers("front")[balanced.name(web)]
    assert (fields[2], fields[3]) == ("0", "1")


@pytest.mark.req("L-16")
async def test_half_added_servers_are_finished(balanced: Balanced) -> None:
    """Killed between "add server" and "enable server": the next register finishes, the next deregister removes."""
    web, other = await balanced.web("one"), await balanced.web("two")
    for half in (web, other):
        balanced.haproxy.ask(
            f"add server front/{balanced.name(half)} 127.0.0.1:{half.key.port} weight 1 check inter 2s"
        )
    await balanced.must(Action.REGISTER, web)
    assert balanced.haproxy.stat("front", balanced.name(web), "status").startswith("UP")
    assert await balanced.get() == "one"
    await balanced.must(Action.DEREGISTER, other)
    assert balanced.name(other) not in balanced.haproxy.servers("front")


async def test_many_changes_are_few_conversations(balanced: Balanced) -> None:
    targets = [Target(TargetKey(f"127.1.{number // 250}.{number % 250 + 1}", 9)) for number in range(500)]
    rows = [TargetChange(KEY, HTTP, target, Action.REGISTER, Reason.NEW) for target in targets]
    api = balanced.provider._api(balanced.provider._settings[KEY].socket)
    await balanced.provider._watch.close()  # its conversations are more, the longer this takes
    for action in (Action.REGISTER, Action.DEREGISTER):
        before = api.exchanges
        outcomes = await balanced.provider.apply([msgspec.structs.replace(row, action=action) for row in rows])
        print(f"{action} 500: {api.exchanges - before} conversations")
        assert {outcome.status for outcome in outcomes} == {OutcomeStatus.DONE}
        assert api.exchanges - before < 40


async def test_haproxys_own_words_are_passed_on(balanced: Balanced) -> None:
    """One reason for a whole backend is asked for a few times, not for each of its targets."""
    parameters = {**balanced.spec.parameters, "backend": "sticky"}
    spec = msgspec.structs.replace(balanced.spec, parameters=parameters, key=LoadBalancerKey("L", "shop", "sticky"))
    await balanced.provider.ensure(spec)
    rows = [
        TargetChange(spec.key, HTTP, Target(TargetKey(f"127.0.0.{number}", 9)), Action.REGISTER, Reason.NEW)
        for number in range(1, 100)
    ]
    outcomes = await balanced.provider.apply(rows)
    assert {outcome.status for outcome in outcomes} == {OutcomeStatus.RETRY}
    assert all("dynamic load balancing" in outcome.message for outcome in outcomes)
    await balanced.provider.delete(spec.key)


async def test_a_haproxy_that_is_gone_holds_up_no_other(balanced: Balanced, session_dir: Path) -> None:
    web = await balanced.web("one")
    gone = LoadBalancerKey("L", "shop", "gone")
    parameters = {"socket": str(session_dir / "nobody.sock"), "backend": "front"}
    ensured = await balanced.provider.ensure(balanced.spec)
    assert ensured.info is not None
    info = {**ensured.info, **parameters}
    balanced.provider.restore(msgspec.structs.replace(balanced.spec, key=gone, parameters=parameters), info)
    row = TargetChange(KEY, HTTP, Target(web.key), Action.REGISTER, Reason.NEW)
    lost, done = await balanced.provider.apply([msgspec.structs.replace(row, load_balancer=gone), row])
    assert (lost.status, done) == (OutcomeStatus.RETRY, DONE)
    assert "nobody.sock" in lost.message


async def test_health_is_read_back(balanced: Balanced) -> None:
    web = await balanced.web("one")
    assert balanced.spec.health_check is not None
    check = msgspec.structs.replace(balanced.spec.health_check, interval_s=0.05)
    await balanced.provider.ensure(msgspec.structs.replace(balanced.spec, health_check=check))
    await balanced.must(Action.REGISTER, web)
    await web.stop()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            seen = await balanced.provider.observe(KEY)
            if seen is not None and seen.targets and seen.targets[0].healthy is False:
                break
            await asyncio.sleep(0.01)
    assert seen.programmed


@pytest.mark.parametrize(
    ("version", "begins"), [(ProxyProtocol.V1, b"PROXY TCP4 "), (ProxyProtocol.V2, b"\r\n\r\n\0\r\nQUIT")]
)
async def test_the_proxy_header_is_sent(balanced: Balanced, version: ProxyProtocol, begins: bytes) -> None:
    heads: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.put_nowait(await reader.readexactly(11))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    at = TargetKey("127.0.0.1", server.sockets[0].getsockname()[1])
    spec = msgspec.structs.replace(balanced.spec, proxy_protocol=version, health_check=None)
    await balanced.provider.ensure(spec)
    row = TargetChange(KEY, HTTP, Target(at), Action.REGISTER, Reason.NEW)
    assert await balanced.provider.apply([row]) == [DONE]
    request = asyncio.ensure_future(balanced.get())
    assert (await asyncio.wait_for(heads.get(), PATIENCE_S)).startswith(begins[:11])
    await request
    await stop_listening(server)


async def test_a_moved_server_is_moved_back_when_the_core_says_so(balanced: Balanced) -> None:
    """One of ours was given another address by hand: that is drift, and one update mends it."""
    web = await balanced.web("one")
    await balanced.must(Action.REGISTER, web)
    balanced.haproxy.ask(f"set server front/{balanced.name(web)} addr 127.0.0.9 port 99")
    seen = await balanced.provider.observe(KEY)
    assert seen is not None
    assert (seen.programmed, [target.key for target in seen.targets or ()]) == (False, [TargetKey("127.0.0.9", 99)])
    await balanced.must(Action.UPDATE, web)
    assert await balanced.get() == "one"


@pytest.mark.req("X-1")
async def test_a_server_that_haproxy_sees_down_is_not_serving_in_the_next_look(balanced: Balanced) -> None:
    webs = [await balanced.web("one"), await balanced.web("two")]
    assert balanced.spec.health_check is not None
    check = msgspec.structs.replace(balanced.spec.health_check, interval_s=0.05)
    await balanced.provider.ensure(msgspec.structs.replace(balanced.spec, health_check=check))
    await balanced.must(Action.REGISTER, *webs)

    async def health() -> Health:
        observed = await balanced.provider.observe(KEY)
        assert observed is not None
        seen = with_health(observed).health
        assert seen is not None
        return seen

    async def noticed(web: Web, state: str) -> Health:
        """Wait until HAProxy itself says so, and then for the provider's notice."""
        await balanced.until(lambda: balanced.haproxy.stat("front", balanced.name(web), "status") == state)
        async with asyncio.timeout(PATIENCE_S):
            await balanced.noticed.wait()
        return await health()

    await balanced.until(lambda: balanced.haproxy.stat("front", balanced.name(webs[1]), "status") == "UP")
    assert (await health()).reason is ConditionReason.SERVING
    for web, (serving, reason, healthy) in zip(
        webs, [(True, ConditionReason.SERVING, 1), (False, ConditionReason.NO_HEALTHY_TARGETS, 0)], strict=True
    ):
        balanced.noticed.clear()
        await web.stop()
        seen = await noticed(web, "DOWN")
        assert (seen.serving, seen.reason, seen.healthy) == (serving, reason, healthy)
        assert any(target.startswith(f"{web.key} ") for target in seen.unhealthy)


@pytest.mark.req("OP-11")
async def test_traffic_is_counted_through_a_reload(balanced: Balanced) -> None:
    web = await balanced.web("one")
    await balanced.must(Action.REGISTER, web)
    reader, counted = balanced.provider.traffic, Counted(KEY)

    async def connections() -> Totals:
        (reading,) = await reader.read()
        assert not reading.problem
        return reading.totals.get(counted, Totals())

    assert (await connections()).connections == 0
    for expected in (3, 6):
        for _ in range(3):
            assert await balanced.get() == "one"
        totals = await connections()
        assert (totals.connections, totals.requests[1]) == (expected, expected)
        assert totals.bytes_out > totals.bytes_in > 0
    await connections()
    assert await connections() == Totals()
    await asyncio.to_thread(balanced.haproxy.reload)
    await connections()
    await balanced.must(Action.REGISTER, web)
    assert await balanced.get() == "one"
    assert (await connections()).connections == 1
