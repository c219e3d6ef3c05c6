"""Names in a real BIND: a hub in this process, its API and the name server in processes of their own.

In: routes of Ingresses, as an agent writes them at the hub. Out: how long until the zone's server answers, in how many
updates, and what standing still and a restart cost. The records of a name are its address and its mark.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import dns.exception
import msgspec

from bench.figures import Figure, percentile
from bench.fleet import until, until_namespace, until_true
from bench.records import api
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import NAMESPACES, SECRETS
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.tenant import TENANTS
from fairlead.hub.app import Hub, HubConfig
from fairlead.kube.cluster import Cluster
from fairlead.model.contract import AllocationKind
from fairlead.providers.memory import MemoryProvider
from fairlead.providers.zones.rfc2136.provider import create
from fairlead.runtime.clock import SystemClock
from fairlead.testing.builders import ABLE
from fairlead.testing.faults import FaultyProvider
from fairlead.translate.addresses import AddressRanges
from fairlead_demo.worlds.name_servers import Bind

ZONE = "example.test"
MEMBER, SPACE = "east", "tenant-east"
_AT_ONCE = 32
_ALLOCATES = msgspec.structs.replace(ABLE, allocation=AllocationKind.ADDRESS, ipv6=False)


@asynccontextmanager
async def hub(base: Cluster) -> AsyncGenerator[Hub]:
    """Run a hub that serves load balancers in memory, and names at the zone's server."""
    async with Cluster(base.config, name="hub", qps=10_000) as cluster:
        made = Hub(
            cluster=cluster,
            providers={"envoy": FaultyProvider(MemoryProvider(), clock=SystemClock(), capabilities=_ALLOCATES)},
            config=HubConfig(
                identity="bench", reclaim_lease=True, address_pool=AddressRanges.parse("192.0.2.0/24"), workers=8
            ),
            factories={"rfc2136": lambda: create(cluster=cluster)},
        )
        task = asyncio.create_task(made.run())
        try:
            await until(lambda: made.leading, what="the hub leads")
            yield made
        finally:
            task.cancel()
            await asyncio.wait((task,))


async def prepare(cluster: Cluster, bind: Bind) -> None:
    """Make the zone, a member, and the load balancer of its Ingresses."""
    await cluster.apply(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}}, manager="bench")
    secret = {
        "metadata": {"name": "key", "namespace": SYSTEM_NAMESPACE},
        "stringData": {"tsig-secret": bind.secrets["fairlead"]},
    }
    await cluster.apply(SECRETS, secret, manager="bench")
    parameters = {"server": bind.server, "keyName": "fairlead", "credentials": "key", "maxRecords": "1000"}
    zone = {"zone": ZONE, "provider": "rfc2136", "parameters": parameters}
    await cluster.apply(DNS_ZONES, {"metadata": {"name": "bench"}, "spec": zone}, manager="bench")
    await cluster.apply(
        TENANTS,
        {"metadata": {"name": MEMBER}, "spec": {"domain": f"{MEMBER}.{ZONE}", "maxHostnames": 100_000}},
        manager="bench",
    )
    await until_namespace(cluster, SPACE)
    gateway = {
        "metadata": {"name": "ingress", "namespace": SPACE},
        "spec": {"listeners": [{"name": "http", "port": 80}]},
    }
    await cluster.apply(HTTP_LOAD_BALANCERS, gateway, manager="bench")

    async def addressed() -> bool:
        return bool((await cluster.get(HTTP_LOAD_BALANCERS, SPACE, "ingress")).status.address)

    await _until(addressed, "the address of the load balancer")


async def ingress(cluster: Cluster, name: str) -> str:
    """Write the route of an Ingress; returns its host."""
    host = f"{name}.{ZONE}"
    spec = {
        "loadBalancer": "ingress",
        "attachments": [{"listener": "http", "hostnames": [host]}],
        "rules": [{"matches": [{"path": {"value": "/"}}]}],
        "origin": {"kind": "IngressRoute", "namespace": "shop", "name": name, "uid": name},
    }
    body = {"metadata": {"name": f"shop.{name}", "namespace": SPACE}, "spec": spec}
    await cluster.apply(LOAD_BALANCER_ROUTES, body, manager="agent")
    return host


async def ingresses(cluster: Cluster, names: Sequence[str]) -> None:
    """Write many, some at once."""
    window = asyncio.Semaphore(_AT_ONCE)

    async def write(name: str) -> None:
        async with window:
            await ingress(cluster, name)

    await asyncio.gather(*(write(name) for name in names))


async def all_resolve(bind: Bind, names: Sequence[str]) -> None:
    """Wait until the zone's server answers an address of each; asks for one name at a time, which costs little."""
    for name in names:

        async def answered(host: str = f"{name}.{ZONE}") -> bool:
            return await _resolves(bind, host)

        await until_true(answered, what=f"{name} resolves", timeout_s=900.0, every_s=0.05)


async def quiet(bind: Bind) -> int:
    """Wait until no update has come for three seconds; returns the serial."""
    serial = -1
    while serial != (serial := await bind.serial()):
        await asyncio.sleep(3.0)
    return serial


async def measured(
    cold: int = 1_000, present: int = 5_000, samples: int = 200, idle_s: float = 60.0
) -> AsyncIterator[Figure]:
    """Names from cold, one name next to many, idle, and a restart."""
    with tempfile.TemporaryDirectory(prefix="flb-", dir="/tmp") as directory:
        bind = Bind(Path(directory) / "bind", ZONE)
        await bind.start()
        try:
            async with api(()) as cluster:
                async for figure in _measured(cluster, bind, cold, present, samples, idle_s):
                    yield figure
        finally:
            await bind.kill()


async def _measured(
    cluster: Cluster, bind: Bind, cold: int, present: int, samples: int, idle_s: float
) -> AsyncIterator[Figure]:
    async with hub(cluster):
        await prepare(cluster, bind)
        before = await quiet(bind)
        began_s, busy_s = time.perf_counter(), time.process_time()
        await ingresses(cluster, names := [f"n{number}" for number in range(cold)])
        await all_resolve(bind, names)
        took_s, busy_s = time.perf_counter() - began_s, time.process_time() - busy_s
        yield Figure(name=f"{cold:,} names from cold, until the server answers all", value=took_s, unit="s", limit=10)
        yield Figure(name="CPU of the hub, and of what measures, for it", value=busy_s, unit="s")
        updates = await quiet(bind) - before
        yield Figure(name=f"updates for these {cold:,} names", value=updates, unit="updates", limit=20)

        await ingresses(cluster, more := [f"n{number}" for number in range(cold, present)])
        await all_resolve(bind, more)
        await quiet(bind)
        waits_ms = [await _change(cluster, bind, f"nlate{number}") for number in range(samples)]
        records = f"{2 * present:,} records"
        for share, limit in ((0.5, None), (0.99, 300.0)):
            name = f"route of an Ingress written to its name resolving, {records} present, p{round(share * 100)}"
            yield Figure(name=name, value=percentile(waits_ms, share), unit="ms", limit=limit)
        serial = await quiet(bind)
        await asyncio.sleep(idle_s)
        name = f"updates in {idle_s:g} s of idling with {records}"
        yield Figure(name=name, value=await bind.serial() - serial, unit="updates", limit=0)
        before = await written(cluster)
    async with hub(cluster) as again:
        engine = again.providers.durable["rfc2136"]
        await until(lambda: engine.loaded and not engine.worker.pending, what="the second hub is ready", timeout_s=300)
        await asyncio.sleep(15.0)  # the time in which it would write what it takes for different
        yield Figure(name="updates by a restart", value=await bind.serial() - serial, unit="updates", limit=0)
        changed = sum(before[name] != version for name, version in (await versions(cluster)).items())
        yield Figure(name="Hostnames changed by a restart", value=changed, unit="objects", limit=0)


async def _change(cluster: Cluster, bind: Bind, name: str) -> float:
    """Write one route; returns the milliseconds until the server answers its name."""
    began_s = time.perf_counter()
    host = await ingress(cluster, name)
    while not await _resolves(bind, host):
        await asyncio.sleep(0.005)
    return (time.perf_counter() - began_s) * 1000


async def _resolves(bind: Bind, host: str) -> bool:
    try:
        return bool(await bind.ask(host, "A"))
    except dns.exception.Timeout:  # this process had no turn for that long
        return False


async def versions(cluster: Cluster) -> dict[str, str]:
    """Return the resourceVersion of each Hostname."""
    return {
        each.metadata.name: each.metadata.resource_version for each in await cluster.list(HOSTNAMES, SYSTEM_NAMESPACE)
    }


async def written(cluster: Cluster) -> dict[str, str]:
    """Wait until no Hostname was written for five seconds; returns the resourceVersion of each."""
    there: dict[str, str] = {}
    while there != (there := await versions(cluster)):
        await asyncio.sleep(5.0)
    return there


async def _until(check: Callable[[], Awaitable[bool]], what: str) -> None:
    # Each look at the whole zone costs this process more than a name does.
    await until_true(check, what=what, timeout_s=900.0, every_s=1.0)
