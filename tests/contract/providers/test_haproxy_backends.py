"""Which backend of a real HAProxy is whose: two installations, two hubs, two load balancers, moves."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.errors import BadConfiguration, Retry
from fairlead.model.change import DONE, Action, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.haproxy.provider import HAProxyProvider
from tests.contract.providers.haproxy_balanced import HTTP, KEY, Balanced


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
async def test_it_does_not_move_while_servers_of_ours_would_be_left_behind(balanced: Balanced) -> None:
    web = await balanced.web("one")
    await balanced.must(Action.REGISTER, web)
    answer = await balanced.provider.ensure(balanced.spec)
    elsewhere = msgspec.structs.replace(balanced.spec, parameters={**balanced.spec.parameters, "backend": "b0"})
    successor = HAProxyProvider()
    # What is on record as wanted is already the new place; where it is says the last answer.
    successor.restore(elsewhere, answer.info or {})
    for provider in (balanced.provider, successor):
        with pytest.raises(BadConfiguration, match=r"its 1 servers are in backend front .* and serve on"):
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


async def test_what_was_made_can_be_removed_though_its_class_has_changed_for_the_worse(balanced: Balanced) -> None:
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


async def test_what_was_never_answered_for_has_nothing_to_remove_wherever_its_haproxy_is() -> None:
    spec = FrontendSpec(KEY, "group", (Listener(80),), parameters={"socket": "/nowhere/admin.sock", "backend": "x"})
    row = TargetChange(KEY, HTTP, Target(TargetKey("127.0.0.1", 9)), Action.DEREGISTER, Reason.OWNER_DELETED)
    for parameters in (spec.parameters, {"bakend": "x"}):
        successor = HAProxyProvider()
        successor.restore(msgspec.structs.replace(spec, parameters=parameters), {})
        assert await successor.apply([row]) == [DONE]
        await successor.delete(KEY)
