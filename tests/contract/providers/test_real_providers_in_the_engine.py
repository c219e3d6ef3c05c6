"""The core's worker and tracker over real providers: what only both of them together can promise."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.errors import Retry
from fairlead.model.change import DONE, Action, Reason, TargetChange
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import Observed
from fairlead.providers.haproxy.provider import HAProxyProvider
from fairlead.providers.haproxy.runtime_api import RuntimeApi
from fairlead.providers.webhook.provider import WebhookProvider
from fairlead.runtime.clock import Clock, SystemClock, VirtualClock
from fairlead.runtime.queue import BACKOFF_LIMIT_S
from fairlead.runtime.telemetry import stop_listening
from fairlead.sync.history import Report
from fairlead.sync.plan import Tracker
from fairlead.sync.readback import Readback
from fairlead.sync.worker import Worker
from fairlead.testing.ledger import PersistentLedger
from tests.contract.providers.provider_processes import HAProxy
from tests.unit.providers.webhook.scripted_driver import ScriptedDriver

KEY = LoadBalancerKey("LoadBalancer", "shop", "engine")
HTTP = Listener(80).key
PATIENCE_S = 180.0


class ProviderRunner:
    """Tracker and worker of one process."""

    def __init__(self, provider: HAProxyProvider | WebhookProvider, clock: Clock | None = None) -> None:
        self.tracker = Tracker()
        self.reports: list[Report] = []
        self.worker = Worker(
            tracker=self.tracker,
            provider=provider,
            ledger=PersistentLedger(),
            clock=clock or SystemClock(),
            report=self.reports.append,
        )
        self._task = asyncio.ensure_future(self.worker.run())

    def put(self, desired: DesiredLoadBalancer) -> None:
        self.tracker.put(desired)
        self.worker.trigger()

    async def crash(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


@contextlib.asynccontextmanager
async def running(
    provider: HAProxyProvider | WebhookProvider, clock: Clock | None = None
) -> AsyncGenerator[ProviderRunner]:
    engine = ProviderRunner(provider, clock)
    try:
        yield engine
    finally:
        await engine.crash()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.005)


def desired_state(parameters: Mapping[str, str], *targets: Target) -> DesiredLoadBalancer:
    spec = FrontendSpec(KEY, "group", (Listener(80),), parameters=dict(parameters))
    return DesiredLoadBalancer(spec, {HTTP: {target.key: target for target in targets}})


TARGETS = [Target(TargetKey(f"127.0.0.{number}", 9), weight=5) for number in (1, 2, 3)]


def ours(haproxy: HAProxy, backend: str) -> dict[str, tuple[str, str]]:
    """Return (administrative state, weight) of our servers."""
    servers = haproxy.servers(backend)
    return {name: (at[2], at[3]) for name, at in servers.items() if name.startswith("fl-")}


async def test_servers_lost_in_a_reload_are_registered_again(haproxy: HAProxy) -> None:
    """The provider notices, the core asks its ledger; the servers of others are as they were."""
    backend = next(haproxy.backends)
    provider = HAProxyProvider(look_every_s=0.02)
    parameters = {"socket": str(haproxy.socket), "backend": backend}
    epochs: set[str] = set()
    looks: set[asyncio.Task[None]] = set()
    async with running(provider) as engine:

        async def look(key: LoadBalancerKey) -> None:
            seen = await provider.observe(key)
            if seen is not None and seen.epoch and seen.epoch not in epochs:
                epochs.add(seen.epoch)
                engine.tracker.mark_unknown(key)
                engine.worker.trigger()

        provider.on_change(lambda key: looks.add(asyncio.ensure_future(look(key))))
        await provider.start()
        try:
            engine.put(desired_state(parameters, *TARGETS))
            await until(lambda: list(ours(haproxy, backend).values()) == [("0", "5")] * 3)
            theirs = haproxy.servers(backend)["theirs"]
            await asyncio.to_thread(haproxy.reload)
            await until(lambda: list(ours(haproxy, backend).values()) == [("0", "5")] * 3)
            assert haproxy.servers(backend)["theirs"] == theirs
        finally:
            await provider.close()
            await asyncio.gather(*looks, return_exceptions=True)
            await provider.delete(KEY)


@contextlib.asynccontextmanager
async def reading_back(backends: int) -> AsyncGenerator[tuple[HAProxy, HAProxyProvider, ProviderRunner, Readback]]:
    """A HAProxy of its own, with the engine and what reads back."""
    with tempfile.TemporaryDirectory(prefix="fl-") as directory:
        haproxy = HAProxy(Path(directory), backends=backends)
        provider, epochs = HAProxyProvider(look_every_s=0.02), dict[LoadBalancerKey, str]()

        async def lives(key: LoadBalancerKey, epoch: str) -> None:
            epochs[key] = epoch

        async with running(provider) as engine:
            readback = Readback(
                provider=provider,
                tracker=engine.tracker,
                clock=SystemClock(),
                trigger=engine.worker.trigger,
                epoch_of=lambda key: epochs.get(key, ""),
                set_epoch=lives,
            )
            provider.on_change(readback.notice)
            await provider.start()
            reading = asyncio.ensure_future(readback.run())
            try:
                yield haproxy, provider, engine, readback
            finally:
                reading.cancel()
                await asyncio.wait({reading})
                await provider.close()
                haproxy.stop()


async def until_seen(provider: HAProxyProvider, condition: Callable[[Observed], bool]) -> Observed:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(Retry):
                seen = await provider.observe(KEY)
                if seen is not None and condition(seen):
                    return seen
            await asyncio.sleep(0.02)


def three_serve(haproxy: HAProxy, backend: str) -> bool:
    with contextlib.suppress(OSError):
        return list(ours(haproxy, backend).values()) == [("0", "5")] * 3
    return False


@pytest.mark.req("EDGE-01")
@pytest.mark.parametrize("retired", [False, True])
async def test_a_missing_backend_keeps_no_server_of_the_others_away(retired: bool) -> None:
    async with reading_back(2) as (haproxy, provider, engine, _):
        parameters = {"socket": str(haproxy.socket), "backend.80": "b0", "backend.443": "b1", "address": "192.0.2.1"}
        both = FrontendSpec(KEY, "group", (Listener(80), Listener(443)), parameters=parameters)
        targets = {target.key: target for target in TARGETS}
        engine.put(DesiredLoadBalancer(both, {listener.key: targets for listener in both.listeners}))
        await until(lambda: three_serve(haproxy, "b0") and three_serve(haproxy, "b1"))
        if retired:
            smaller = msgspec.structs.replace(both, listeners=(Listener(80),))
            engine.put(DesiredLoadBalancer(smaller, {HTTP: targets}))
            await until(lambda: not ours(haproxy, "b1"))
        first = await until_seen(provider, lambda seen: seen.programmed)
        await asyncio.to_thread(haproxy.reload_without, "b1")
        await until(lambda: three_serve(haproxy, "b0"))
        seen = await until_seen(provider, lambda seen: seen.epoch != first.epoch and seen.programmed is retired)
        assert len([target for target in seen.targets or () if target.listener == HTTP]) == 3
        assert ("b1" in seen.message) is not retired
        # A process that comes now serves the other listener as well, and says what is missing.
        successor = HAProxyProvider()
        answer = await successor.ensure(both)
        assert "b1" in answer.message
        row = TargetChange(KEY, HTTP, TARGETS[0], Action.REGISTER, Reason.NEW)
        assert await successor.apply([row]) == [DONE]


@pytest.mark.req("EDGE-01")
async def test_a_load_balancer_without_existing_backends_is_rejected(haproxy: HAProxy) -> None:
    parameters = {"socket": str(haproxy.socket), "backend.80": "none", "backend.443": "neither"}
    spec = FrontendSpec(KEY, "group", (Listener(80), Listener(443)), parameters=parameters)
    with pytest.raises(Retry) as refused:
        await HAProxyProvider().ensure(spec)
    assert refused.value.reason == "BackendNotFound"


@pytest.mark.req("EDGE-13")
async def test_an_unready_pod_during_a_reload_is_not_a_missing_server() -> None:
    async with reading_back(1) as (haproxy, provider, engine, readback):
        parameters = {"socket": str(haproxy.socket), "backend": "b0", "address": "192.0.2.1"}
        engine.put(desired_state(parameters, *TARGETS))
        await until(lambda: three_serve(haproxy, "b0"))
        engine.put(desired_state(parameters, msgspec.structs.replace(TARGETS[0], draining=True), *TARGETS[1:]))
        await until(lambda: sorted(ours(haproxy, "b0").values()) == [("0", "5")] * 2 + [("8", "5")])
        first = await until_seen(provider, lambda seen: seen.programmed)
        await asyncio.to_thread(haproxy.reload)
        await until(lambda: list(ours(haproxy, "b0").values()) == [("0", "5")] * 2)
        seen = await until_seen(provider, lambda seen: seen.epoch != first.epoch and seen.programmed)
        assert seen.message == ""
        await readback.look(KEY)
        assert readback.drifts[KEY].ours == 0, readback.drifts[KEY].sentence
        engine.put(desired_state(parameters, *TARGETS))
        await until(lambda: three_serve(haproxy, "b0"))


async def test_held_and_paused_backends_serve_after_reload_and_restart() -> None:
    """A guard and a pause keep backends in service until a person decides, whatever HAProxy has lost meanwhile."""
    with tempfile.TemporaryDirectory(prefix="fl-") as directory:
        haproxy = HAProxy(Path(directory), backends=2)
        provider, clock = HAProxyProvider(look_every_s=0.02), SystemClock()
        epochs: dict[LoadBalancerKey, str] = {}

        async def lives(key: LoadBalancerKey, epoch: str) -> None:
            epochs[key] = epoch

        held = desired_state({"socket": str(haproxy.socket), "backend": "b0"}, *TARGETS)
        paused = named("paused", {"socket": str(haproxy.socket), "backend": "b1"}, *TARGETS)

        def all_serve() -> bool:
            with contextlib.suppress(OSError):
                return all(list(ours(haproxy, backend).values()) == [("0", "5")] * 3 for backend in ("b0", "b1"))
            return False

        async with running(provider) as engine:
            readback = Readback(
                provider=provider,
                tracker=engine.tracker,
                clock=clock,
                trigger=engine.worker.trigger,
                epoch_of=lambda key: epochs.get(key, ""),
                set_epoch=lives,
            )
            provider.on_change(readback.notice)
            await provider.start()
            reading = asyncio.ensure_future(readback.run())
            try:
                engine.put(held)
                engine.put(paused)
                await until(lambda: all_serve() and len(epochs) == 2)
                engine.put(msgspec.structs.replace(held, targets={HTTP: {}}))
                other = Target(TargetKey("127.0.0.9", 9), weight=5)
                engine.put(msgspec.structs.replace(paused, targets={HTTP: {other.key: other}}, paused=True))
                await until(lambda: sum(len(report.held) >= 3 for report in engine.reports) >= 2)
                for lose in (haproxy.reload, haproxy.restart):
                    before = dict(epochs)
                    await asyncio.to_thread(lose)
                    await until(lambda before=before: all_serve() and not before.items() & epochs.items())
            finally:
                reading.cancel()
                await asyncio.wait({reading})
                await provider.close()
                haproxy.stop()


@pytest.mark.req("L-12", "L-13", "L-17")
async def test_a_manual_change_is_kept_through_resync_and_restart(haproxy: HAProxy) -> None:
    """LT-10: an operator drains one of ours and reweighs another; neither a resync nor a new process minds."""
    backend = next(haproxy.backends)
    provider = HAProxyProvider()
    desired = desired_state({"socket": str(haproxy.socket), "backend": backend}, *TARGETS)
    async with running(provider) as engine:
        engine.put(desired)
        await until(lambda: len(ours(haproxy, backend)) == 3)
        await asyncio.wait_for(engine.worker.settled(), PATIENCE_S)
        first, second, _ = sorted(ours(haproxy, backend))
        haproxy.ask(f"set server {backend}/{first} state drain", f"set server {backend}/{second} weight 77")
        by_hand = ours(haproxy, backend)
        assert sorted(by_hand.values()) == [("0", "5"), ("0", "77"), ("8", "5")]
        engine.tracker.touch([KEY])
        engine.worker.trigger()
        await asyncio.wait_for(engine.worker.settled(), PATIENCE_S)
        assert ours(haproxy, backend) == by_hand
        side = engine.tracker.state(KEY)
        assert side is not None
        stored = {listener: dict(targets) for listener, targets in side.recorded.items()}
    successor = HAProxyProvider()
    successor.restore(desired.spec, {})
    async with running(successor) as engine:
        engine.tracker.restore(desired.spec, stored, certain=True)
        engine.put(desired)
        await asyncio.wait_for(engine.worker.settled(), PATIENCE_S)
        assert engine.reports
        assert not any(report.done or report.failure for report in engine.reports)
        assert ours(haproxy, backend) == by_hand
    assert sum(api.exchanges for api in successor._apis.values()) == 0
    await successor.delete(KEY)


@pytest.mark.req("L-22", "L-23", "L-24")
async def test_delays_grow_to_a_limit_and_reset_after_success() -> None:
    """LT-35: never sooner than the driver asked for, one recordID, a retryID for each call."""
    clock = VirtualClock()
    driver = await ScriptedDriver().start()
    webhook = WebhookProvider(clock=clock)
    at_s: list[float] = []
    fail = {"status": "Fail", "minRetryDelayInSeconds": 3}
    replies: list[dict[str, Any]] = [
        *[fail] * 12,
        {"status": "Running", "minRetryDelayInSeconds": 40},
        {"status": "Succ"},
    ]

    def answer(_body: dict[str, Any]) -> dict[str, Any]:
        at_s.append(clock.monotonic())
        return replies.pop(0)

    driver.on("ensureBackend", answer)
    target = Target(TargetKey("10.0.0.1", 80))
    try:
        async with running(webhook, clock) as engine:
            engine.put(desired_state({"url": driver.url}, target))
            await clock.advance_until(lambda: not replies, step_s=2.0, limit_s=7200)
            delays = [later - sooner for sooner, later in itertools.pairwise(at_s)]
            assert min(delays) >= 3
            assert delays[11] >= BACKOFF_LIMIT_S / 2
            assert max(delays) <= BACKOFF_LIMIT_S + 2
            assert 40 <= delays[12] <= 44
            calls = driver.asked("ensureBackend")
            assert len({body["recordID"] for body in calls}) == 1
            assert len({body["retryID"] for body in calls}) == len(calls) == 14
            replies[:] = [fail, {"status": "Succ"}]
            engine.put(desired_state({"url": driver.url}, Target(target.key, weight=2)))
            await clock.advance_until(lambda: not replies, step_s=0.5)
            assert 3 <= at_s[-1] - at_s[-2] <= 4
    finally:
        await webhook.close()
        await driver.stop()


@pytest.mark.req("L-31", "L-32")
async def test_changes_are_ensured_in_place_and_once() -> None:
    """LT-12: no deregistration for a change of weight, parameters or attributes; and one call for each."""
    driver = await ScriptedDriver().start()
    webhook = WebhookProvider()
    try:
        async with running(webhook) as engine:
            first, two = Target(TargetKey("10.0.0.1", 80)), Target(TargetKey("10.0.0.2", 80))
            engine.put(desired_state({"url": driver.url}, first, two))
            await until(lambda: len(driver.asked("ensureBackend")) == 2)
            engine.put(desired_state({"url": driver.url}, Target(first.key, weight=9), two))
            await until(lambda: len(driver.asked("ensureBackend")) == 3)
            assert driver.asked("ensureBackend")[2]["parameters"] == {"weight": "9"}
            zone = Target(first.key, weight=9, parameters=(("zone", "a"),))
            engine.put(desired_state({"url": driver.url}, zone, two))
            await until(lambda: len(driver.asked("ensureBackend")) == 4)
            assert driver.asked("ensureBackend")[3]["parameters"] == {"zone": "a", "weight": "9"}
            other = desired_state({"url": driver.url}, zone, two)
            spec = msgspec.structs.replace(other.spec, attributes={"bandwidth": "20"})
            engine.put(msgspec.structs.replace(other, spec=spec))
            await until(lambda: len(driver.asked("ensureLoadBalancer")) == 1)
            assert driver.asked("ensureLoadBalancer")[0]["attributes"] == {"bandwidth": "20"}
            assert driver.asked("deregisterBackend") == []
            engine.put(msgspec.structs.replace(other, spec=spec, targets={HTTP: {zone.key: zone}}))
            await until(lambda: len(driver.asked("deregisterBackend")) == 1)
            assert driver.asked("deregisterBackend")[0]["backendAddr"] == "10.0.0.2:80"
            await asyncio.wait_for(engine.worker.settled(), PATIENCE_S)
            hooks = Counter(hook for hook, _ in driver.calls)
            assert hooks == {
                "createLoadBalancer": 1,
                "ensureBackend": 4,
                "ensureLoadBalancer": 1,
                "deregisterBackend": 1,
            }
    finally:
        await webhook.close()
        await driver.stop()


def named(name: str, parameters: Mapping[str, str], *targets: Target) -> DesiredLoadBalancer:
    """Return the desired state of another load balancer than ``KEY``."""
    desired = desired_state(parameters, *targets)
    key = LoadBalancerKey("LoadBalancer", "shop", name)
    return msgspec.structs.replace(desired, spec=msgspec.structs.replace(desired.spec, key=key))


#: More than all places of one failure domain; and less time than the providers of these tests wait for an answer.
MANY, AT_ONCE_S, ANSWER_S = 25, 30.0, 60


@pytest.mark.req("A-46", "I-7")
async def test_a_driver_that_never_answers_slows_no_other_driver() -> None:
    hung, well = await ScriptedDriver().start(), await ScriptedDriver().start()
    hung.gate.clear()
    provider = WebhookProvider()
    try:
        async with running(provider) as engine:
            for number in range(MANY):
                engine.put(named(f"hung-{number}", {"url": hung.url, "lbID": "x", "timeout": f"{ANSWER_S}s"}, *TARGETS))
            await until(lambda: hung.at_once > 0)
            async with asyncio.timeout(AT_ONCE_S):
                for count in (1, 2, 3):
                    engine.put(named("well", {"url": well.url, "lbID": "y"}, *TARGETS[:count]))
                    await until(lambda count=count: len(well.asked("ensureBackend")) >= count)
            assert hung.most_at_once <= 10
            assert all(hook == "createLoadBalancer" for hook, _ in hung.calls)
    finally:
        hung.gate.set()
        await provider.close()
        await hung.stop()
        await well.stop()


@pytest.mark.req("A-46", "I-7")
async def test_a_haproxy_that_never_answers_slows_no_other_haproxy(haproxy: HAProxy, tmp_path: Path) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await released.wait()
        finally:
            writer.close()

    released = asyncio.Event()
    dead = await asyncio.start_unix_server(say_nothing, tmp_path / "dead.sock")
    backend = next(haproxy.backends)
    provider = HAProxyProvider()
    provider._apis[str(tmp_path / "dead.sock")] = RuntimeApi(str(tmp_path / "dead.sock"), timeout_s=ANSWER_S)
    well = named("well", {"socket": str(haproxy.socket), "backend": backend})
    try:
        async with running(provider) as engine:
            for number in range(MANY):
                engine.put(named(f"dead-{number}", {"socket": str(tmp_path / "dead.sock"), "backend": "b"}, *TARGETS))
            async with asyncio.timeout(AT_ONCE_S):
                for count in (1, 2, 3):
                    engine.put(named("well", well.spec.parameters, *TARGETS[:count]))
                    await until(lambda count=count: len(ours(haproxy, backend)) == count)
            assert not [report for report in engine.reports if report.done and report.load_balancer != well.key]
    finally:
        released.set()
        await stop_listening(dead)
        await provider.delete(well.key)
        await provider.close()


def test_what_answers_as_one_is_one_failure_domain() -> None:
    haproxy, webhook = HAProxyProvider(), WebhookProvider()
    first, same, other = ({"socket": path, "backend": name} for path, name in (("/a", "x"), ("/a", "y"), ("/b", "x")))
    failure_domains = [haproxy.failure_domain(desired_state(parameters).spec) for parameters in (first, same, other)]
    assert (failure_domains[0] == failure_domains[1], failure_domains[0] == failure_domains[2]) == (True, False)
    urls = ("http://driver/v1", "http://driver/v1/", "http://other/v1")
    failure_domains = [webhook.failure_domain(desired_state({"url": url}).spec) for url in urls]
    assert (failure_domains[0] == failure_domains[1], failure_domains[0] == failure_domains[2]) == (True, False)
    assert (haproxy.failure_domain(desired_state({}).spec), webhook.failure_domain(desired_state({}).spec)) == (
        "",
        "",
    ), "and it never fails"
