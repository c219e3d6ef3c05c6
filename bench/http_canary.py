"""Counts failed requests of an HTTPRoute: a canary from 0 to 100 % in ten steps, and 20 pods rolled, under load."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence

from bench.figures import Figure, percentile
from bench.fleet import Fleet, fleet, until_true
from bench.gateway_objects import gateway, install_gateway_api, meta, route_spec
from bench.load import POD_PORT, RATE_PER_S, load, start_pod
from bench.objects import endpoint_slice
from fairlead.api.gateway import GATEWAYS, HTTP_ROUTES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kubernetes import ENDPOINT_SLICES, SERVICES
from fairlead.api.meta import JSONObject

HOST = "shop.example.com"
PORT = 8080
STEPS, PODS, WAVE = 10, 20, 5
STEP_S = 1.0
#: How long a pod that is being deleted still answers: a preStop hook.
GRACE_S = 3.0


async def canary_and_roll() -> AsyncIterator[Figure]:
    """Shift the weights of an HTTPRoute in steps, then replace the pods of the new version, some at a time."""
    stable = ["127.95.0.1", "127.95.0.2"]
    old = [f"127.95.1.{number + 1}" for number in range(PODS)]
    new = [f"127.95.2.{number + 1}" for number in range(PODS)]
    servers = {each: await start_pod(each) for each in (*stable, *old)}
    counts: Counter[str] = Counter()
    latencies_ms: list[float] = []
    async with fleet(target="Pod") as running:
        address = await _served(running, stable, old)
        stop, began_s = asyncio.Event(), time.perf_counter()
        sending = asyncio.create_task(load(address, PORT, counts, latencies_ms, stop, HOST))
        await asyncio.sleep(1)
        for step in range(1, STEPS + 1):
            await _route(running, 100 * step // STEPS)
            await asyncio.sleep(STEP_S)
        after_canary = _failed(counts)
        ending: list[asyncio.Task[None]] = []

        async def end(pods: Sequence[str]) -> None:
            await asyncio.sleep(GRACE_S)
            for each in pods:
                server, connections = servers.pop(each)
                server.close()
                for connection in list(connections):
                    connection.close()

        for start in range(0, PODS, WAVE):
            coming, leaving = new[start : start + WAVE], old[start : start + WAVE]
            servers |= {each: await start_pod(each) for each in coming}
            there = [*new[: start + WAVE], *old[start:]]
            await _endpoints(running, there)
            await asyncio.sleep(0.5)
            await _endpoints(running, [each for each in there if each not in leaving], leaving)
            ending.append(asyncio.create_task(end(leaving)))
            await asyncio.sleep(1)
        await asyncio.gather(*ending)
        await _endpoints(running, new)
        await asyncio.sleep(1)
        stop.set()
        took_s = time.perf_counter() - began_s
        await sending
    for server, _ in servers.values():
        server.close()
    of = f"of {counts['sent']:,}; {counts['good'] / took_s:,.0f}/s of {RATE_PER_S:,}/s reached by an asyncio generator"
    yield Figure(
        name=f"requests failed in a canary of {STEPS} steps", value=after_canary, unit="", limit=0, compares_with=of
    )
    yield Figure(
        name=f"requests failed while {PODS} pods are rolled, {WAVE} at a time",
        value=_failed(counts) - after_canary, unit="", limit=0, compares_with=of,
    )  # fmt: skip
    yield Figure(name="latency of those requests, p99", value=percentile(latencies_ms, 0.99), unit="ms")


def _failed(counts: Counter[str]) -> int:
    return counts["failed"]


async def _served(running: Fleet, stable: Sequence[str], canary: Sequence[str]) -> str:
    """Serve two Services behind a Gateway; returns its address once it answers."""
    member = running.member_cluster
    await install_gateway_api(member)
    await member.create(GATEWAYS, gateway("web", port=PORT))
    for name, pods in (("stable", stable), ("canary", canary)):
        ports = [{"name": "http", "port": 80, "targetPort": POD_PORT}]
        await member.create(SERVICES, {**meta(name), "spec": {"type": "ClusterIP", "ports": ports}})
        await member.create(ENDPOINT_SLICES, endpoint_slice(name, list(pods), port=POD_PORT))
    await member.create(HTTP_ROUTES, {**meta("web"), "spec": _spec(0)})
    await running.agent.start()

    async def programmed() -> bool:
        addresses = [each.status.address for each in await running.hub_cluster.list(HTTP_LOAD_BALANCERS)]
        return bool(addresses and addresses[0]) and await _answers(addresses[0])

    await until_true(programmed, what="the Gateway answers", timeout_s=120, every_s=0.2)
    (load_balancer,) = await running.hub_cluster.list(HTTP_LOAD_BALANCERS)
    return load_balancer.status.address


async def _answers(address: str) -> bool:
    try:
        reader, writer = await asyncio.open_connection(address, PORT)
    except OSError:
        return False
    writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
    head = await reader.readline()
    writer.close()
    return b" 200 " in head


async def _route(running: Fleet, percent: int) -> None:
    await running.member_cluster.merge_patch(HTTP_ROUTES, "default", "web", {"spec": _spec(percent)})


def _spec(percent: int) -> JSONObject:
    return route_spec("web", HOST, {"stable": 100 - percent, "canary": percent})


async def _endpoints(running: Fleet, ready: Sequence[str], leaving: Sequence[str] = ()) -> None:
    going = {"ready": False, "serving": True, "terminating": True}
    endpoints = [{"addresses": [each], "conditions": {"ready": True}} for each in ready]
    endpoints += [{"addresses": [each], "conditions": going} for each in leaving]
    await running.member_cluster.merge_patch(ENDPOINT_SLICES, "default", "canary-1", {"endpoints": endpoints})
