"""The usage of two tenants through a real Envoy, with SIGKILL of hub and Envoy between: bytes are right to 0.1 %."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import os
import signal
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from fairlead.api.kubernetes import CONFIG_MAPS_WITH_DATA, ENDPOINT_SLICES, NAMESPACES
from fairlead.api.meta import is_true
from fairlead.api.names import LABEL_USAGE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.api.usage import OpenHours, unpacked
from fairlead.errors import Forbidden, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.envoy_process import find_running
from fairlead.testing.builders import slice_body, tcp_body
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.loopback import free_network, free_port
from fairlead_demo.worlds.processes import fairlead, run_fairlead, wait_until

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

_MIB = 1024 * 1024
_CHUNK = bytes(64 * 1024)
#: What one transfer sends to the client, and what the client sends first.
_DOWN, _UP = 64 * _MIB, 8


@contextlib.asynccontextmanager
async def sender(address: str, port: int) -> AsyncGenerator[None]:
    """Serve a backend that answers eight bytes with as many as these say."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = int.from_bytes(await reader.readexactly(_UP), "big")
        while left:
            writer.write(_CHUNK[:left])
            left -= min(left, len(_CHUNK))
            await writer.drain()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # a health check sends nothing
            await serve(reader, writer)
        writer.close()

    async with await asyncio.start_server(answer, address, port):
        yield


async def transfer(address: str, size: int = _DOWN) -> None:
    """Get ``size`` bytes through a load balancer."""
    reader, writer = await asyncio.open_connection(address, 80)
    writer.write(size.to_bytes(_UP, "big"))
    got = 0
    while piece := await reader.read(1 << 20):
        got += len(piece)
    writer.close()
    assert got == size


async def served(cluster: Cluster, tenant: str, backend: str, port: int) -> str:
    """Make a load balancer of a tenant; return its address once it serves."""
    place = f"tenant-{tenant}"
    await cluster.create(TENANTS, {"metadata": {"name": tenant}, "spec": {"targetRanges": ["127.0.0.0/8"]}})

    async def exists() -> bool:
        try:
            return bool(await cluster.get(NAMESPACES, "", place))
        except NotFound:
            return False

    await wait_until(exists, f"{place} exists")
    body = tcp_body("shop.web", namespace=place, spec={"targets": "Pod"})
    body["metadata"]["annotations"] = {"fairlead.dev/origin": f"{tenant}/shop/web"}
    await cluster.create(TCP_LOAD_BALANCERS, body)
    ports = [{"port": port, "protocol": "TCP", "name": ""}]
    slices = slice_body("web", [backend], namespace=place, load_balancer="shop.web", ports=ports)
    await cluster.create(ENDPOINT_SLICES, slices)

    async def serves() -> bool:
        return is_true((await cluster.get(TCP_LOAD_BALANCERS, place, "shop.web")).status.conditions, "Serving")

    await wait_until(serves, "the load balancer serves")
    return (await cluster.get(TCP_LOAD_BALANCERS, place, "shop.web")).status.address


async def usage(directory: Path, *arguments: str) -> str:
    """Return what ``fairlead usage`` prints."""
    config = ("--kubeconfig", str(directory / "kubeconfig"))
    code, out, error = await run_fairlead("usage", *config, *arguments)
    assert code == 0, error
    return out


async def bytes_out(directory: Path) -> dict[str, int]:
    """Return the bytes that each tenant's clients received."""
    rows = json.loads(await usage(directory, "--by", "tenant", "-o", "json"))["usage"]
    return {row["tenant"]: row["bytesOut"] for row in rows}


async def all_is_stored(directory: Path, each: int) -> None:
    """Wait until the usage of both tenants is what was sent, to 0.1 %."""

    async def stored() -> bool:
        seen = await bytes_out(directory)
        assert all(count <= each * 1.001 for count in seen.values()), f"more than {each} was stored: {seen}"
        return sorted(seen) == ["east", "west"] and all(count >= each * 0.999 for count in seen.values())

    await wait_until(stored, f"{each} bytes of each tenant are stored")


@pytest.mark.req("F-32")
async def test_usage_is_right_over_kills_of_hub_and_envoy() -> None:
    network, port = free_network(), free_port()
    backends = {"east": f"{network}.1", "west": f"{network}.2"}
    with tempfile.TemporaryDirectory(prefix="fairlead-") as name:
        directory = Path(name) / "hub"
        command = fairlead("standalone", "--data-dir", str(directory), "--listen", "127.0.0.1:0")
        hub = HubProcess("standalone", command, envoy_directory=directory / "hub", log=Path(name) / "log")
        try:
            await hub.start_ready()
            async with sender(backends["east"], port), sender(backends["west"], port):
                async with Cluster.from_kubeconfig(directory / "kubeconfig", name="hub") as cluster:
                    addresses = [await served(cluster, each, host, port) for each, host in backends.items()]

                async def both(times: int) -> None:
                    for _ in range(times):
                        await asyncio.gather(*map(transfer, addresses))

                await both(2)
                await all_is_stored(directory, 2 * _DOWN)
                # The hub dies in the middle of a transfer, and Envoy goes on.
                transfers = asyncio.create_task(both(2))
                await asyncio.sleep(0)
                await hub.kill()
                await transfers
                await hub.start_ready()
                await all_is_stored(directory, 4 * _DOWN)
                # Envoy dies, and counts from zero past what its predecessor had counted.
                running = find_running(directory / "hub")
                assert running is not None
                os.kill(running.pid, signal.SIGKILL)
                await wait_until(lambda: again(addresses), "Envoy serves again")
                await both(4)
                await all_is_stored(directory, 8 * _DOWN)
                # Both die, one after the other. A restart shows in the age of Envoy, which has to be stored by then.
                await wait_until(lambda: age_is_stored(directory), "the age of Envoy is stored")
                await hub.kill()
                running = find_running(directory / "hub")
                assert running is not None
                os.kill(running.pid, signal.SIGKILL)
                await hub.start_ready()
                await wait_until(lambda: again(addresses), "Envoy serves again")
                await both(1)
                await all_is_stored(directory, 9 * _DOWN)
                rows = list(csv.DictReader((await usage(directory, "-o", "csv", "--since", "24h")).splitlines()))
                assert [(row["tenant"], row["namespace"]) for row in rows] == [("east", "shop"), ("west", "shop")]
                assert all(float(row["address_hours"]) > 0 for row in rows)
                await own_usage_only(directory)
                async with Cluster.from_kubeconfig(directory / "kubeconfig", name="hub") as cluster:
                    stored = await cluster.list(CONFIG_MAPS_WITH_DATA, label_selector=LABEL_USAGE)
                    assert sum(len(text) for each in stored for text in (each.data or {}).values()) < 10_000
                await usage_outlives_the_tenant(directory)
        finally:
            await hub.close()


async def age_is_stored(directory: Path) -> bool:
    """Return whether the hub has stored an age of each of its proxies."""
    async with Cluster.from_kubeconfig(directory / "kubeconfig", name="hub") as cluster:
        states = await cluster.list(CONFIG_MAPS_WITH_DATA, "fairlead-system", label_selector=f"{LABEL_USAGE}=open")
    hours = [unpacked(text, OpenHours) for state in states for text in (state.data or {}).values()]
    return bool(hours) and all(proxy.uptime_s > 0 for each in hours if each for proxy in each.proxies.values())


async def own_usage_only(directory: Path) -> None:
    """Ask with the key of a tenant's agent: it sees that tenant, and cannot change what is stored."""
    key = directory / "east.kubeconfig"
    config = ("--kubeconfig", str(directory / "kubeconfig"))
    code, _, error = await run_fairlead("tenant", "rotate", "east", *config, "--output", str(key))
    assert code == 0, error
    code, out, error = await run_fairlead("usage", "--kubeconfig", str(key), "-o", "json")
    assert code == 0, error
    assert {row["tenant"] for row in json.loads(out)["usage"]} == {"east"}
    async with Cluster.from_kubeconfig(key, name="hub") as cluster:
        held, *_ = await cluster.list(CONFIG_MAPS_WITH_DATA, "tenant-east", label_selector=LABEL_USAGE)
        with pytest.raises(Forbidden):
            await cluster.merge_patch(CONFIG_MAPS_WITH_DATA, *held.key, {"data": {}})
        with pytest.raises(Forbidden):
            await cluster.list(CONFIG_MAPS_WITH_DATA, "tenant-west", label_selector=LABEL_USAGE)


async def usage_outlives_the_tenant(directory: Path) -> None:
    """Remove a tenant: what it used is still listed, and it holds no address any longer."""
    config = ("--kubeconfig", str(directory / "kubeconfig"))
    code, _, error = await run_fairlead("tenant", "remove", "west", *config, "--stop-serving", "--timeout", "90s")
    assert code == 0, error

    async def rows() -> list[dict[str, float]]:
        return json.loads(await usage(directory, "tenant/west", "--by", "tenant", "-o", "json"))["usage"]

    (before,) = await rows()
    assert before["bytesOut"] >= 9 * _DOWN * 0.999
    await asyncio.sleep(5)
    (after,) = await rows()
    assert after["addressHours"] == before["addressHours"]


async def again(addresses: list[str]) -> bool:
    """Return whether a byte comes through each load balancer."""
    for address in addresses:
        try:
            await transfer(address, 1)
        except (OSError, AssertionError):
            return False
    return True
