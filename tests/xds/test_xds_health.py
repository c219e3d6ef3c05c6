"""The health of targets as a real Envoy sees it: it dies, it comes back, and Envoy lives through all of it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol
from tests.xds.world import TIMEOUT_S, Backend, World, health, local_envoy

pytestmark = [pytest.mark.req("X-1"), pytest.mark.asyncio(loop_scope="session")]
HTTP = ListenerKey(Protocol.TCP, 80)


async def change(world: World, key: LoadBalancerKey, action: Action, *backends: Backend) -> None:
    changes = [TargetChange(key, HTTP, backend.target, action, Reason.NEW) for backend in backends]
    await world.provider.apply(changes)


async def test_backends_that_die_and_come_back_are_seen(world: World, addresses):
    key = LoadBalancerKey("TCPLoadBalancer", "health", "web")
    backends = [await Backend(name).start(addresses.take()) for name in ("one", "two")]
    envoy = local_envoy(world.provider)
    restarts = envoy.restarts
    notice = asyncio.Event()
    world.provider.on_change(lambda changed: notice.set() if changed == key else None)
    await world.provider.ensure(
        FrontendSpec(key=key, group="health", listeners=(Listener(80),), address=addresses.take())
    )
    try:
        await health(world, key, ConditionReason.NO_TARGETS, healthy=0)
        await change(world, key, Action.REGISTER, *backends)
        assert (await health(world, key, ConditionReason.SERVING, healthy=2)).unhealthy == ()
        await backends[0].stop()
        half = await health(world, key, ConditionReason.SERVING, healthy=1)
        assert half.unhealthy == (f"{backends[0].target.key} (TCP/80)",)
        notice.clear()
        await backends[1].stop()
        # A poll that sees the change first takes the notice, so do not poll until it has come.
        async with asyncio.timeout(TIMEOUT_S):
            await notice.wait()
        assert (await health(world, key, ConditionReason.NO_HEALTHY_TARGETS, healthy=0)).serving is False
        for backend in backends:
            await backend.start(backend.address)
        assert (await health(world, key, ConditionReason.SERVING, healthy=2)).serving is True
        # A specifier without targets ends Envoy 1.40: such a cluster must not be in it.
        await change(world, key, Action.DEREGISTER, *backends)
        await health(world, key, ConditionReason.NO_TARGETS, healthy=0)
        await change(world, key, Action.REGISTER, *backends)
        await health(world, key, ConditionReason.SERVING, healthy=2)
        assert envoy.restarts == restarts
    finally:
        await world.provider.delete(key)
        for backend in backends:
            await backend.stop()


async def test_unchecked_targets_are_reported(world: World, addresses):
    key = LoadBalancerKey("TCPLoadBalancer", "health", "unchecked")
    backend = await Backend("one").start(addresses.take())
    spec = FrontendSpec(key=key, group="health", listeners=(Listener(80),), address=addresses.take(), health_check=None)
    await world.provider.ensure(spec)
    try:
        await change(world, key, Action.REGISTER, backend)
        seen = await health(world, key, ConditionReason.NOT_CHECKED, healthy=0)
        assert seen.serving is None
        assert "health checks are off" in seen.message
    finally:
        await world.provider.delete(key)
        await backend.stop()


async def test_an_envoy_that_hangs_says_nothing_of_health_until_it_goes_on(world: World, addresses):
    key = LoadBalancerKey("TCPLoadBalancer", "health", "hung")
    backend = await Backend("one").start(addresses.take())
    spec = FrontendSpec(key=key, group="health", listeners=(Listener(80),), address=addresses.take())
    await world.provider.ensure(spec)
    running = local_envoy(world.provider).running
    assert running is not None
    pid = running.pid
    notice = asyncio.Event()
    world.provider.on_change(lambda changed: notice.set() if changed == key else None)
    try:
        await change(world, key, Action.REGISTER, backend)
        await health(world, key, ConditionReason.SERVING, healthy=1)
        notice.clear()
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(TIMEOUT_S):
            await notice.wait()
        seen = await health(world, key, ConditionReason.PROXIES_SILENT, healthy=0)
        assert (seen.serving, seen.total, seen.unknown) == (None, 0, 1)
        assert "the only proxy stopped reporting" in seen.message
        os.kill(pid, signal.SIGCONT)
        assert (await health(world, key, ConditionReason.SERVING, healthy=1)).serving is True
    finally:
        os.kill(pid, signal.SIGCONT)
        await world.provider.delete(key)
        await backend.stop()
