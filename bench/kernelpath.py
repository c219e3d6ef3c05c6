"""The kernel data path next to Envoy and HAProxy: one machine, one target, the same client, one after the other.

Client, machine and target are in network namespaces. Each proxy has one thread. Figures are medians of rounds, in which
each path has its turn; ratios are medians of the ratios within a round. New connections a second are of eight
connections at a time that send and receive one byte; the times are of one at a time. The client is a Python program
and has the same two cores, so it limits the faster ones: ratios are lower bounds. The last row of each group is the
target itself, through the machine as a router.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from pathlib import Path

import msgspec

from bench.figures import Figure, percentile
from fairlead.errors import Terminal
from fairlead.machine.kernel import KernelPath
from fairlead.model.keys import Protocol
from fairlead.model.machine import ForwardedLoadBalancer, ForwardedPort, ForwardedTarget, ForwardingTable
from fairlead.providers.envoy.envoy_process import find_binary
from fairlead.runtime.file_limit import raise_file_limit
from fairlead_demo.worlds.forwarding import ADDRESS, ForwardingSite
from fairlead_demo.worlds.networks import inside
from fairlead_demo.worlds.processes import wait_until

KERNEL, ENVOY, HAPROXY = 80, 81, 82
TARGET_PORT = 8080
ROUNDS, SECONDS, AT_ONCE, IDLE = 5, 0.7, 8, 1000
SERVICES = 5000
_TCP_PROXY = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"


class Counted(msgspec.Struct, kw_only=True):
    """What the client counted."""

    seconds: float
    connections: int = 0
    times_ms: list[float] = []
    bytes_sent: int = 0
    proxy_cpu_s: float = 0.0


async def measured() -> AsyncIterator[Figure]:
    """Kernel, Envoy and HAProxy: new connections a second, times, throughput, memory, and programming 5,000."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("nft", "conntrack", "haproxy"))):
        raise Terminal("The case kernelpath needs root, nft, conntrack and haproxy: run .ci/nftables and .ci/haproxy.")
    with tempfile.TemporaryDirectory() as directory, contextlib.closing(ForwardingSite()) as site:
        site.start()
        async with _machine(site, Path(directory)) as processes:
            async for figure in _compared(site, processes):
                yield figure
        async for figure in _programmed(site, Path(directory)):
            yield figure


async def _compared(site: ForwardingSite, processes: dict[str, int]) -> AsyncIterator[Figure]:
    ports = {"kernel": KERNEL, "Envoy": ENVOY, "HAProxy": HAPROXY}
    places = {name: (ADDRESS, port) for name, port in ports.items()} | {"no load balancer": ("10.66.2.11", TARGET_PORT)}
    many = await _rounds(site, places, "connections", AT_ONCE, processes)
    for name, rounds in many.items():
        rates = [each.connections / each.seconds for each in rounds]
        used = sum(each.proxy_cpu_s for each in rounds) / sum(each.connections for each in rounds) * 1e6
        cost = f"; {used:.0f} µs of CPU of the proxy each" if used else ""
        times = [kernel.connections / each.connections for kernel, each in zip(many["kernel"], rounds, strict=True)]
        ratio = f"kernel: {statistics.median(times):.2f} x; load {os.getloadavg()[0]:.1f}"
        title = f"kernelpath, {name}: new connections a second"
        yield Figure(name=title, value=statistics.median(rates), unit="/s", compares_with=ratio + cost)
    single = await _rounds(site, places, "connections", 1, processes)
    for name, rounds in single.items():
        medians = [percentile(each.times_ms, 0.5) for each in rounds]
        kernels = [percentile(each.times_ms, 0.5) for each in single["kernel"]]
        times = [mine / kernel for mine, kernel in zip(medians, kernels, strict=True)]
        title, ratio = f"kernelpath, {name}: one connection", f"{statistics.median(times):.2f} x the kernel's"
        yield Figure(name=f"{title}, p50", value=statistics.median(medians), unit="ms", compares_with=ratio)
        p99s = [percentile(each.times_ms, 0.99) for each in rounds]
        yield Figure(name=f"{title}, p99", value=statistics.median(p99s), unit="ms")
    for name, rounds in (await _rounds(site, places, "bytes", 1, processes)).items():
        gbits = [each.bytes_sent * 8 / each.seconds / 1e9 for each in rounds]
        used = sum(each.proxy_cpu_s for each in rounds) / sum(each.seconds for each in rounds)
        per_core = statistics.mean(gbits) / used if used else 0.0
        cost = f"{per_core:.1f} Gbit/s for each core of the proxy" if used else "no process of its own"
        title = f"kernelpath, {name}: throughput of one connection"
        yield Figure(name=title, value=statistics.median(gbits), unit="Gbit/s", compares_with=cost)
    for name, pid in processes.items():
        before = _memory(pid)
        with _held(site, places[name]):
            grown = (_memory(pid) - before) / IDLE
        title = f"kernelpath, {name}: memory of an idle connection"
        yield Figure(name=title, value=grown / 1024, unit="KiB", compares_with=f"{IDLE} connections; no socket buffers")
    size = _entry_size()
    title = "kernelpath, kernel: memory of an idle connection"
    yield Figure(name=title, value=size / 1024, unit="KiB", compares_with="one conntrack entry")


async def _rounds(
    site: ForwardingSite, places: dict[str, tuple[str, int]], what: str, at_once: int, processes: dict[str, int]
) -> dict[str, list[Counted]]:
    """Measure each place in turn, several times: other load on the machine changes from second to second."""
    done: dict[str, list[Counted]] = {name: [] for name in places}
    for _ in range(ROUNDS):
        for name, place in places.items():
            before_s = _cpu_s(processes.get(name, 0))
            counted = await _client(site, what, place, at_once)
            counted.proxy_cpu_s = _cpu_s(processes.get(name, 0)) - before_s
            done[name].append(counted)
    return done


async def _programmed(site: ForwardingSite, directory: Path) -> AsyncIterator[Figure]:
    file = directory / "many.json"
    with inside(site.machine):
        path = KernelPath(file, on_change=lambda: None)
        running = asyncio.create_task(path.run())
        try:
            for version, text in ((1, f"{SERVICES:,} Services x 3 targets"), (2, "one target of these changed")):
                yield Figure(
                    name=f"kernelpath, kernel: {text}, programmed",
                    value=await _program(path, version),
                    unit="s" if version == 1 else "ms",
                    compares_with=f"load {os.getloadavg()[0]:.1f}",
                )
        finally:
            running.cancel()
            await asyncio.wait({running})
        later = KernelPath(file, on_change=lambda: None)
        later.load()
        began_s = time.monotonic()
        running = asyncio.create_task(later.run())
        try:
            await _applied(later, "life-2")
            took_s = time.monotonic() - began_s
        finally:
            running.cancel()
            await asyncio.wait({running})
    yield Figure(name="kernelpath, kernel: the same read back at a restart", value=took_s, unit="s")


async def _program(path: KernelPath, version: int) -> float:
    """Send a table to the kernel; return how long it took, in seconds for a whole one and else in milliseconds."""
    numbers = range(SERVICES) if version == 1 else range(1)
    changed = tuple(_service(number, last=2 + version) for number in numbers)
    began_s = time.monotonic()
    path.update(ForwardingTable(version=f"life-{version}", whole=version == 1, load_balancers=changed))
    await _applied(path, f"life-{version}")
    return (time.monotonic() - began_s) * (1 if version == 1 else 1000)


async def _applied(path: KernelPath, version: str) -> None:
    async with asyncio.timeout(120):
        while path.state.version != version:
            await asyncio.sleep(0.001)


def _service(number: int, *, last: int) -> ForwardedLoadBalancer:
    targets = tuple(
        ForwardedTarget(address=f"10.{150 + number // 250}.{number % 250}.{each}", port=8080) for each in (1, 2, last)
    )
    ports = (ForwardedPort(protocol=Protocol.TCP, port=80, targets=targets),)
    address = f"10.{100 + number // 250}.0.{number % 250 + 1}"
    return ForwardedLoadBalancer(kind="K", name=f"n/{number}", addresses=(address,), ports=ports, checked=False)


@contextlib.asynccontextmanager
async def _machine(site: ForwardingSite, directory: Path) -> AsyncGenerator[dict[str, int]]:
    """Run the target and the three data paths; yield the process of each proxy."""
    target = site.add_target(1)
    children: list[subprocess.Popen[bytes]] = []

    def start(namespace: str, *command: str) -> int:
        child = subprocess.Popen(
            ("ip", "netns", "exec", namespace, *command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        children.append(child)
        return child.pid  # ip replaces itself

    envoy, haproxy = directory / "envoy.json", directory / "haproxy.cfg"
    envoy.write_bytes(msgspec.json.encode(_envoy(target)))
    haproxy.write_text(
        "global\n  nbthread 1\n  maxconn 4000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1m\n"
        f"  timeout server 1m\nlisten all\n  bind {ADDRESS}:{HAPROXY}\n  server target {target}:{TARGET_PORT}\n"
    )
    try:
        start(site.targets, sys.executable, "-m", "bench.kernelpath", "target", target)
        processes = {
            "Envoy": start(
                site.machine, str(find_binary()), "-c", str(envoy), "--concurrency", "1", "--use-dynamic-base-id"
            ),
            "HAProxy": start(site.machine, "haproxy", "-db", "-f", str(haproxy)),
        }
        with inside(site.machine):
            path = KernelPath(directory / "forwarding.json", on_change=lambda: None)
            running = asyncio.create_task(path.run())
            try:
                targets = (ForwardedTarget(address=target, port=TARGET_PORT),)
                ports = (ForwardedPort(protocol=Protocol.TCP, port=KERNEL, targets=targets),)
                entry = ForwardedLoadBalancer(kind="K", name="n/web", addresses=(ADDRESS,), ports=ports)
                path.update(ForwardingTable(version="life-1", load_balancers=(entry,)))
                for port in (KERNEL, ENVOY, HAPROXY):
                    await wait_until(lambda port=port: _answers(site, port), f"port {port} answers")
                # Checks of health would be part of the figures.
                running.cancel()
                await asyncio.wait({running})
                yield processes
            finally:
                running.cancel()
                await asyncio.wait({running})
    finally:
        for child in children:
            child.kill()
            child.wait()


async def _answers(site: ForwardingSite, port: int) -> bool:
    with contextlib.suppress(OSError), site.socket_at(site.client) as client:
        async with asyncio.timeout(1):
            await asyncio.get_running_loop().sock_connect(client, (ADDRESS, port))
            await asyncio.get_running_loop().sock_sendall(client, b"p")
            return bool(await asyncio.get_running_loop().sock_recv(client, 1))
    return False


def _envoy(target: str) -> dict[str, object]:
    def address(host: str, port: int) -> dict[str, object]:
        return {"address": {"socket_address": {"address": host, "port_value": port}}}

    proxy = {"@type": _TCP_PROXY, "stat_prefix": "all", "cluster": "target"}
    filters = [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}]
    endpoints = [{"endpoint": address(target, TARGET_PORT)}]
    limits = {"thresholds": [{"max_connections": 20_000, "max_pending_requests": 20_000}]}
    return {
        "static_resources": {
            "listeners": [{"name": "all", **address(ADDRESS, ENVOY), "filter_chains": [{"filters": filters}]}],
            "clusters": [
                {
                    "name": "target",
                    "type": "STATIC",
                    "circuit_breakers": limits,
                    "load_assignment": {"cluster_name": "target", "endpoints": [{"lb_endpoints": endpoints}]},
                }
            ],
        }
    }


async def _client(site: ForwardingSite, what: str, place: tuple[str, int], at_once: int) -> Counted:
    """Run the client to its end; return what it counted."""
    command = (sys.executable, "-m", "bench.kernelpath", what, place[0], str(place[1]), str(at_once))
    process = await asyncio.create_subprocess_exec(
        "ip", "netns", "exec", site.client, *command, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return msgspec.json.decode(output, type=Counted)


@contextlib.contextmanager
def _held(site: ForwardingSite, place: tuple[str, int]) -> Generator[None]:
    """Hold idle connections that were answered once."""
    with contextlib.ExitStack() as held:
        clients = [held.enter_context(site.socket_at(site.client)) for _ in range(IDLE)]
        for client in clients:
            client.setblocking(True)
            client.connect(place)
            client.sendall(b"p")
            client.recv(1)
        yield


def _cpu_s(pid: int) -> float:
    if not pid:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def _entry_size() -> int:
    for line in Path("/proc/slabinfo").read_text().splitlines():
        if line.startswith("nf_conntrack "):
            return int(line.split()[3])
    raise Terminal("/proc/slabinfo does not show the size of a conntrack entry.")


# --- the programs in the namespaces -----------------------------------------------------------------------------------


class _Target(asyncio.Protocol):
    """Answers each byte ``p``, and drops everything else."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data[:1] == b"p":
            self._transport.write(b"p")


async def _serve(address: str) -> None:
    server = await asyncio.get_running_loop().create_server(_Target, address, TARGET_PORT, backlog=1024)
    await server.serve_forever()


async def _connections(place: tuple[str, int], at_once: int) -> Counted:
    loop, times_ms, end_s = asyncio.get_running_loop(), list[float](), time.monotonic() + SECONDS

    async def one_after_another() -> None:
        while time.monotonic() < end_s:
            began_s = time.perf_counter()
            with socket.socket() as client:
                client.setblocking(False)
                # No TIME_WAIT: source ports would run out.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                await loop.sock_connect(client, place)
                await loop.sock_sendall(client, b"p")
                await loop.sock_recv(client, 1)
            times_ms.append((time.perf_counter() - began_s) * 1000)

    began_s = time.monotonic()
    await asyncio.gather(*(one_after_another() for _ in range(at_once)))
    return Counted(connections=len(times_ms), seconds=time.monotonic() - began_s, times_ms=times_ms)


def _bytes(place: tuple[str, int]) -> Counted:
    sent, block = 0, b"s" * 262_144
    with socket.create_connection(place) as client:
        began_s = time.monotonic()
        while time.monotonic() - began_s < SECONDS:
            client.sendall(block)
            sent += len(block)
    return Counted(bytes_sent=sent, seconds=time.monotonic() - began_s)


if __name__ == "__main__":
    raise_file_limit()
    program, host, *numbers = sys.argv[1:]
    if program == "target":
        asyncio.run(_serve(host))
    elif program == "connections":
        print(msgspec.json.encode(asyncio.run(_connections((host, int(numbers[0])), int(numbers[1])))).decode())
    else:
        print(msgspec.json.encode(_bytes((host, int(numbers[0])))).decode())
