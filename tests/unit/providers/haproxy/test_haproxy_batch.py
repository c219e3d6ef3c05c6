"""Many changes in few conversations: what is read back decides, and HAProxy's messages say why."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.errors import Retry
from fairlead.model.change import DONE, Action, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import ProxyProtocol, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.providers.haproxy.commands import ServerChange, run_batch
from fairlead.providers.haproxy.runtime_api import RuntimeApi
from fairlead.providers.haproxy.settings import HAProxySettings
from fairlead.providers.haproxy.snapshot import observe_load_balancer, server_name
from tests.unit.providers.haproxy.fake_haproxy import DRAIN, FakeHAProxy, FakeServer, fake_haproxy

KEY = LoadBalancerKey("LoadBalancer", "shop", "web")
HTTP = ListenerKey(Protocol.TCP, 80)
SETTINGS = HAProxySettings("/s", {HTTP: "b"}, 30.0, None, ProxyProtocol.NONE, ())


@pytest.fixture
async def haproxy() -> AsyncIterator[FakeHAProxy]:
    directory = Path(tempfile.mkdtemp(prefix="fl-", dir="/tmp"))
    async with fake_haproxy(directory) as haproxy:
        yield haproxy
    shutil.rmtree(directory)


@pytest.fixture
def api(haproxy: FakeHAProxy) -> RuntimeApi:
    return RuntimeApi(str(haproxy.socket))


def change(number: int, action: Action = Action.REGISTER, *, drain_over: bool = False) -> ServerChange:
    target = Target(TargetKey(f"10.0.0.{number}", 8080))
    row = TargetChange(KEY, HTTP, target, action, Reason.NEW)
    return ServerChange(row, SETTINGS, "b", f"s{number}", drain_over)


async def test_many_additions_are_two_conversations(haproxy: FakeHAProxy, api: RuntimeApi) -> None:
    changes = [change(number) for number in range(1, 51)]
    assert await run_batch(api, "b", changes) == [DONE] * 50
    assert len(haproxy.servers) == 50
    assert api.exchanges == 2
    assert await run_batch(api, "b", changes) == [DONE] * 50
    assert api.exchanges == 3, "nothing to change: it is only read"


async def test_the_same_refusal_is_asked_for_three_times_only(haproxy: FakeHAProxy, api: RuntimeApi) -> None:
    haproxy.refusal = "backend 'b' uses dynamic load balancing"
    outcomes = await run_batch(api, "b", [change(number) for number in range(1, 11)])
    assert {outcome.status for outcome in outcomes} == {OutcomeStatus.RETRY}
    assert all("dynamic load balancing" in outcome.message for outcome in outcomes)
    assert "10.0.0.10:8080 on LoadBalancer/shop/web: Register" in outcomes[9].message
    assert api.exchanges == 2 + 3 * 2


async def test_a_removal_waits_for_open_sessions(haproxy: FakeHAProxy, api: RuntimeApi) -> None:
    haproxy.servers["s1"] = FakeServer("10.0.0.1", 8080, admin=0, sessions=2)
    (waiting,) = await run_batch(api, "b", [change(1, Action.DEREGISTER)])
    assert (waiting.status, waiting.retry_after_s) == (OutcomeStatus.RUNNING, 0.5)
    assert "the 2 open ones" in waiting.message
    assert haproxy.servers["s1"].admin == DRAIN
    haproxy.servers["s1"].sessions = 0
    assert await run_batch(api, "b", [change(1, Action.DEREGISTER)]) == [DONE]
    assert haproxy.servers == {}


async def test_sessions_are_cut_when_their_time_is_over(haproxy: FakeHAProxy, api: RuntimeApi) -> None:
    haproxy.servers["s1"] = FakeServer("10.0.0.1", 8080, admin=DRAIN, sessions=2)
    assert await run_batch(api, "b", [change(1, Action.DEREGISTER, drain_over=True)]) == [DONE]
    assert "shutdown sessions server b/s1" in haproxy.commands


@pytest.mark.req("T-survivors")
async def test_a_reload_during_a_batch_fails_all_of_it(haproxy: FakeHAProxy, api: RuntimeApi) -> None:
    haproxy.reload_after = 3
    with pytest.raises(Retry, match="was reloaded") as caught:
        await run_batch(api, "b", [change(1)])
    assert caught.value.reason == "HAProxyReloaded"


async def test_a_backend_that_is_not_there_needs_no_removal(api: RuntimeApi) -> None:
    done, missing = await run_batch(api, "other", [change(1, Action.DEREGISTER), change(1)])
    assert done == DONE
    assert missing.status is OutcomeStatus.RETRY
    assert "has no backend other" in missing.message


async def test_ours_are_observed_by_their_names_and_others_only_named(haproxy: FakeHAProxy, api: RuntimeApi) -> None:
    target = TargetKey("10.0.0.1", 8080)
    haproxy.servers[server_name("", KEY, HTTP, target)] = FakeServer("10.0.0.1", 8080, weight=7, admin=0)
    haproxy.servers["static"] = FakeServer("10.0.0.9", 80, admin=0)
    missing = TargetKey("10.0.0.2", 8080)
    seen = await observe_load_balancer(api, KEY, SETTINGS, registered=frozenset({(HTTP, target), (HTTP, missing)}))
    assert (seen.foreign, seen.epoch, seen.programmed) == (("b/static",), "7@9", False)
    assert [(observed.key, observed.weight) for observed in seen.targets or ()] == [(target, 7)]
    assert seen.message.startswith("1 of our servers are missing")
    seen = await observe_load_balancer(api, KEY, SETTINGS, registered=frozenset({(HTTP, target)}))
    assert seen.programmed
    assert "the class has no address" in seen.message
