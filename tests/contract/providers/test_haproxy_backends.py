"""Which backend of a real HAProxy is whose: two installations, two hubs, two load balancers, moves."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from fairlead.errors import BadConfiguration, Retry
from fairlead.model.change import DONE, Action, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, ProxyProtocol, Target
from fairlead.model.health import HealthCheck
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.haproxy.provider import HAProxyProvider
from tests.contract.providers.haproxy_balanced import HTTP, KEY, PATIENCE_S, Balanced


@pytest.mark.req("L-11")
async def test_two_installations_on_one_backend_do_not_meet(balanced: Balanced) -> None:
    web = await balanced.web("one")
    other = HAProxyProvider(installation="another cluster")
    await other.ensure(balanced.spec)
    row = TargetChange(KEY, HTTP, Target(web.key), Action.REGISTER, Reason.NEW)
    await balanced.must(Action.REGISTER, web)
    assert (await other.apply([row]))[0].status is OutcomeStatus.DONE
    await other.delete(KEY)
    assert list(balanced.haproxy.servers("front").keys() - balanced.theirs().keys()) == [balanced.name(web)]


@pytest.mark.req("L-11")
async def test_two_hubs_on_one_backend_are_distinguished_by_the_class(balanced: Balanced) -> None:
    web = await balanced.web("one")
    other = HAProxyProvider()
    parameters = {**balanced.spec.parameters, "installation": "hub-two"}
    await other.ensure(msgspec.structs.replace(balanced.spec, parameters=parameters))
    row = TargetChange(KEY, HTTP, Target(web.key), Action.REGISTER, Reason.NEW)
    await balanced.must(Action.REGISTER, web)
    assert await other.apply([row]) == [DONE]
    seen = await other.observe(KEY)
    assert seen is not None
    assert seen.foreign == ("front/" + balanced.name(web), "front/theirs")
    await other.delete(KEY)
    assert list(balanced.haproxy.servers("front").keys() - balanced.theirs().keys()) == [balanced.name(web)]


@pytest.mark.req("I-4")
async def test_b29_two_load_balancers_never_share_a_backend(balanced: Balanced) -> None:
    """The second is refused until the first has gone; a restart knows who was first."""
    second = msgspec.structs.replace(balanced.spec, key=LoadBalancerKey("LoadBalancer", "shop", "another"))
    with pytest.raises(Retry, match=rf"backend front .* serves {KEY} already"):
        await balanced.provider.ensure(second)
    again = HAProxyProvider()
    again.restore(second, {})
    again.restore(balanced.spec, (await balanced.provider.ensure(balanced.spec)).info or {})
    with pytest.raises(Retry, match="already"):
        await again.ensure(second)
    await again.ensure(balanced.spec)
    await again.delete(KEY)
    await again.ensure(second)
    # A load balancer that stays where it is is only released; that is gone as well.
    again.release(second.key)
    assert await again.observe(second.key) is None
    await again.ensure(balanced.spec)
    await again.delete(KEY)


@pytest.mark.req("I-2")
async def test_the_frontend_moves_only_without_remaining_servers(balanced: Balanced) -> None:
    web = await balanced.web("one")
    await balanced.must(Action.REGISTER, web)
    answer = await balanced.provider.ensure(balanced.spec)
    elsewhere = msgspec.structs.replace(balanced.spec, parameters={**balanced.spec.parameters, "backend": "b0"})
    successor = HAProxyProvider()
    # What is on record as wanted is already the new place; where it is says the last answer.
    successor.restore(elsewhere, answer.info or {})
    for provider in (balanced.provider, successor):
        with pytest.raises(BadConfiguration, match=r"1 servers .* backend front .*Revert the change"):
            await provider.ensure(elsewhere)
        seen = await provider.observe(KEY)
        assert seen is not None
        assert [target.key for target in seen.targets or ()] == [web.key]
    assert await balanced.get() == "one"
    await balanced.removed(web, Reason.ABSENT)
    await balanced.provider.ensure(elsewhere)
    await balanced.must(Action.REGISTER, web)
    assert balanced.name(web) in balanced.haproxy.servers("b0")
    await balanced.removed(web, Reason.ABSENT)


async def test_a_removed_listener_is_still_known_to_be_emptied(balanced: Balanced) -> None:
    both = {"backend.80": "front", "backend.443": "b0", "socket": str(balanced.haproxy.socket)}
    spec = msgspec.structs.replace(balanced.spec, listeners=(Listener(80), Listener(443)), parameters=both)
    answer = await balanced.provider.ensure(spec)
    target = Target(TargetKey("127.0.0.1", 9))
    row = TargetChange(KEY, Listener(443).key, target, Action.REGISTER, Reason.NEW)
    assert (await balanced.provider.apply([row]))[0].status is OutcomeStatus.DONE
    assert len(balanced.haproxy.servers("b0")) == 2
    smaller = msgspec.structs.replace(spec, listeners=(Listener(80),))
    gone = msgspec.structs.replace(row, action=Action.DEREGISTER, reason=Reason.LISTENER_REMOVED)
    # A process that was there, and one that has never seen that listener.
    successor = HAProxyProvider()
    successor.restore(smaller, answer.info or {})
    assert await successor.apply([gone]) == [DONE]
    assert len(balanced.haproxy.servers("b0")) == 1
    assert await balanced.provider.apply([row]) == [DONE]
    await balanced.provider.ensure(smaller)
    assert await balanced.provider.apply([gone]) == [DONE]
    assert len(balanced.haproxy.servers("b0")) == 1


async def test_created_parts_are_removed_despite_an_invalid_class(balanced: Balanced) -> None:
    web = await balanced.web("one")
    await balanced.must(Action.REGISTER, web)
    answer = await balanced.provider.ensure(balanced.spec)
    worse = {**balanced.spec.parameters, "allowedBackends": "other", "drainTimeout": "soon"}
    successor = HAProxyProvider()
    successor.restore(msgspec.structs.replace(balanced.spec, parameters=worse), answer.info or {})
    seen = await successor.observe(KEY)
    assert seen is not None
    assert [target.key for target in seen.targets or ()] == [web.key]
    await successor.delete(KEY)
    assert balanced.haproxy.servers("front") == balanced.theirs()


async def test_unanswered_parts_have_nothing_to_remove() -> None:
    spec = FrontendSpec(KEY, "group", (Listener(80),), parameters={"socket": "/nowhere/admin.sock", "backend": "x"})
    row = TargetChange(KEY, HTTP, Target(TargetKey("127.0.0.1", 9)), Action.DEREGISTER, Reason.OWNER_DELETED)
    for parameters in (spec.parameters, {"bakend": "x"}):
        successor = HAProxyProvider()
        successor.restore(msgspec.structs.replace(spec, parameters=parameters), {})
        assert await successor.apply([row]) == [DONE]
        await successor.delete(KEY)


@pytest.mark.req("EDGE-05")
@pytest.mark.parametrize(
    "changed",
    [
        {"proxy_protocol": ProxyProtocol.V1},
        {"health_check": HealthCheck(interval_s=0.1, unhealthy_threshold=7, healthy_threshold=3)},
    ],
    ids=["proxy-protocol", "health-check"],
)
async def test_a_changed_check_or_protocol_reaches_servers_that_are_there(
    balanced: Balanced, changed: dict[str, Any]
) -> None:
    web = await balanced.web("one")
    await balanced.must(Action.REGISTER, web)
    first = await balanced.provider.observe(KEY)
    waiting = asyncio.ensure_future(balanced.get("/hang"))
    await web.hung.wait()
    answer = await balanced.provider.ensure(msgspec.structs.replace(balanced.spec, **changed))
    between = await balanced.provider.observe(KEY)
    first_servers = balanced.haproxy.servers("front")
    assert first is not None
    assert between is not None
    assert answer.epoch == between.epoch != first.epoch
    assert first.programmed
    assert not between.programmed
    assert [target.key for target in between.targets or ()] == [web.key]
    async with asyncio.timeout(PATIENCE_S):
        while (outcome := (await balanced.apply(Action.REGISTER, web))[0]).status is not OutcomeStatus.DONE:
            assert outcome.status is OutcomeStatus.RUNNING, outcome.message
            # The request that is on its way keeps the earlier server, and new ones have the new one.
            if not await balanced.get():
                pytest.fail("a request failed meanwhile")
            servers = balanced.haproxy.servers("front").keys() - balanced.theirs().keys()
            if len(servers) == 2 and sum(at[2] == "0" for at in balanced.haproxy.servers("front").values()) == 1:
                web.hanging.set()
            await asyncio.sleep(0.01)
    assert await waiting == "one"
    after = await balanced.provider.observe(KEY)
    assert after is not None
    assert after.programmed
    (server,) = balanced.haproxy.servers("front").keys() - balanced.theirs().keys()
    assert server not in first_servers
    assert await balanced.get() == "one"
    if "proxy_protocol" in changed:
        assert web.heads[-1].startswith(b"PROXY TCP4 ")
    else:
        assert balanced.haproxy.stat("front", server, "check_fall") == "7"
        assert balanced.haproxy.stat("front", server, "check_rise") == "3"
    # Another process finds the same server by what was stored, and removes it.
    successor = HAProxyProvider()
    successor.restore(msgspec.structs.replace(balanced.spec, **changed), answer.info or {})
    seen = await successor.observe(KEY)
    assert seen is not None
    assert (seen.epoch, seen.foreign) == (after.epoch, ("front/theirs",))
    await balanced.removed(web, Reason.ABSENT)
    assert balanced.haproxy.servers("front") == balanced.theirs()


@pytest.mark.req("EDGE-05")
async def test_servers_of_an_earlier_version_stay_until_their_options_change(balanced: Balanced) -> None:
    web = await balanced.web("one")
    checked = msgspec.structs.replace(balanced.spec, health_check=HealthCheck(interval_s=5.0))
    earlier = HAProxyProvider()
    await earlier.ensure(checked)
    row = TargetChange(KEY, HTTP, Target(web.key), Action.REGISTER, Reason.NEW)
    assert await earlier.apply([row]) == [DONE]
    stored = {"socket": balanced.spec.parameters["socket"], "backend.80": "front"}
    successor = HAProxyProvider()
    successor.restore(checked, stored)
    before = balanced.haproxy.servers("front")
    await successor.ensure(checked)
    assert await successor.apply([row]) == [DONE]
    assert balanced.haproxy.servers("front") == before
    await successor.ensure(msgspec.structs.replace(checked, health_check=None))
    async with asyncio.timeout(PATIENCE_S):
        while await successor.apply([row]) != [DONE]:  # noqa: ASYNC110 (HAProxy does not notify)
            await asyncio.sleep(0.01)
    assert not balanced.haproxy.servers("front").keys() & before.keys() - {"theirs"}
    await successor.delete(KEY)


@pytest.mark.req("EDGE-01")
async def test_a_deletion_that_waits_for_one_backend_empties_the_others(balanced: Balanced) -> None:
    both = {**balanced.spec.parameters, "backend.80": "front", "backend.443": "b0"}
    spec = msgspec.structs.replace(balanced.spec, listeners=(Listener(80), Listener(443)), parameters=both)
    await balanced.provider.ensure(spec)
    web = await balanced.web("one")
    rows = [
        TargetChange(KEY, listener.key, Target(web.key), Action.REGISTER, Reason.NEW) for listener in spec.listeners
    ]
    assert await balanced.provider.apply(rows) == [DONE, DONE]
    waiting = asyncio.ensure_future(balanced.get("/hang"))
    await web.hung.wait()
    with pytest.raises(Retry):
        await balanced.provider.delete(KEY)
    assert list(balanced.haproxy.servers("b0")) == ["theirs"]
    assert balanced.name(web) in balanced.haproxy.servers("front")
    web.hanging.set()
    assert await waiting == "one"
    async with asyncio.timeout(PATIENCE_S):
        while balanced.haproxy.servers("front") != balanced.theirs():
            with contextlib.suppress(Retry):
                await balanced.provider.delete(KEY)
