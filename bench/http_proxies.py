"""Requests through Fairlead's configuration, compared with a minimal Envoy, nginx and HAProxy, one thread each.

The machine may be busy, so the proxies take turns in short rounds: only the ratios within a run count. The client is
``wrk``, the backend a HAProxy that answers by itself. What is not installed is left out, with a row that says so.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import statistics
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure
from bench.fleet import free_port, until_true
from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.http import Attachment, Backend, BackendRef, L7Config, L7Listener, Route, Rule
from fairlead.model.keys import LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.envoy.envoy_process import find_binary
from fairlead.providers.envoy.provider import create

ROUNDS, ROUND_S, CONNECTIONS = 7, 3, 50
HOST = "shop.example.com"
_ADDRESS = "127.99.3.1"
_UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


class Round(NamedTuple):
    """What one round of one proxy came to; ``cpu_us`` is the proxy's processor time for each request."""

    per_s: float
    p99_ms: float
    cpu_us: float


class Proxy(NamedTuple):
    """A proxy that listens at ``port`` of the bench's address; ``pids`` are its processes."""

    port: int
    pids: tuple[int, ...]


async def beside_others() -> AsyncIterator[Figure]:
    """Let the proxies take turns and compare the medians of their rounds."""
    if shutil.which("wrk") is None or shutil.which("haproxy") is None:
        yield Figure(
            name="requests through several proxies: left out, as wrk or haproxy is not installed", value=0, unit=""
        )
        return
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flp-", dir="/tmp")))
        backend = await stack.enter_async_context(_backend(directory))
        proxies: dict[str, Proxy] = {
            "ours": await stack.enter_async_context(_ours(directory, backend)),
            "Envoy, minimal": await stack.enter_async_context(_minimal(directory, backend)),
            "HAProxy": await stack.enter_async_context(_haproxy(directory, backend)),
        }
        if shutil.which("nginx") is not None:
            proxies["nginx"] = await stack.enter_async_context(_nginx(directory, backend))
        rounds: dict[str, list[Round]] = {name: [] for name in proxies}
        for number in range(ROUNDS + 1):
            for name, proxy in proxies.items():
                measured = await _round(proxy)
                if number:  # the first one opens connections and fills caches
                    rounds[name].append(measured)
    ours = rounds["ours"]
    for name, measured in rounds.items():
        what = f"requests through {name}, {CONNECTIONS} connections, one thread"
        compared = "" if name == "ours" else f"ours / {name}: {_ratio(ours, measured, 0):.2f}"
        per_s = statistics.median(each.per_s for each in measured)
        yield Figure(name=f"{what}: a second", value=per_s, unit="/s", compares_with=compared)
        p99 = statistics.median(each.p99_ms for each in measured)
        compared = "" if name == "ours" else f"ours / {name}: {_ratio(ours, measured, 1):.2f}"
        yield Figure(name=f"{what}: p99", value=p99, unit="ms", compares_with=compared)
        cpu = statistics.median(each.cpu_us for each in measured)
        compared = "" if name == "ours" else f"ours / {name}: {_ratio(ours, measured, 2):.2f}"
        yield Figure(name=f"{what}: processor time", value=cpu, unit="us a request", compares_with=compared)
    minimal = rounds["Envoy, minimal"]
    yield Figure(
        name="requests a second of the minimal Envoy against ours, median of the rounds",
        value=1 / _ratio(ours, minimal, 0), unit="x", limit=round(1 / 0.95, 3),
    )  # fmt: skip


def _ratio(ours: list[Round], theirs: list[Round], part: int) -> float:
    """Return the median of the ratios of rounds that were next to each other."""
    return statistics.median(mine[part] / other[part] for mine, other in zip(ours, theirs, strict=True))


async def _round(proxy: Proxy) -> Round:
    before = sum(map(_cpu_s, proxy.pids))
    process = await asyncio.create_subprocess_exec(
        "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{ROUND_S}s", "--latency", "-H", f"Host: {HOST}",
        f"http://{_ADDRESS}:{proxy.port}/", stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out = (await process.communicate())[0].decode()
    if process.returncode or "Non-2xx" in out or "Socket errors" in out:
        raise RuntimeError(f"wrk: {out}")
    cpu_s = sum(map(_cpu_s, proxy.pids)) - before
    requests = re.search(r"(\d+) requests in", out)
    per_s, p99 = re.search(r"Requests/sec:\s+([\d.]+)", out), re.search(r"99%\s+([\d.]+)(us|ms|s)", out)
    if requests is None or per_s is None or p99 is None:
        raise RuntimeError(f"wrk printed something else: {out}")
    return Round(float(per_s[1]), float(p99[1]) * _UNITS_MS[p99[2]], cpu_s * 1e6 / int(requests[1]))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- the proxies ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _ours(directory: Path, backend: int) -> AsyncGenerator[Proxy]:
    provider = create(data_dir=directory / "ours", concurrency=1)
    await provider.start()
    try:
        key, port = LoadBalancerKey("HTTPLoadBalancer", "bench", "shop"), free_port()
        rule = Rule(backends=(BackendRef("shop"),))
        config = L7Config(
            (L7Listener("http", port),),
            (Route("shop", "HTTP", (Attachment("http", (HOST,)),), (rule,)),),
            (Backend("shop"),),
            {},
        )
        spec = FrontendSpec(
            key=key, group="bench", listeners=(Listener(port),), address=_ADDRESS, health_check=None, l7=config
        )
        await provider.ensure(spec)
        target = Target(TargetKey(_ADDRESS, backend))
        await provider.apply([TargetChange(key, backend_key("shop"), target, Action.REGISTER, Reason.CHANGED)])
        provider.publish()
        await _answers(port)
        yield Proxy(port, tuple(_envoys(directory / "ours")))
    finally:
        await provider.stop()


def _envoys(directory: Path) -> list[int]:
    """Return the Envoys that were started with a path in ``directory``."""
    paths = ((int(each.name), each / "cmdline") for each in Path("/proc").iterdir() if each.name.isdigit())
    pids: list[int] = []
    for pid, path in paths:
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if str(directory).encode() in command and b"envoy" in command.split(b"\0")[0]:
            pids.append(pid)
    return pids


@asynccontextmanager
async def _minimal(directory: Path, backend: int) -> AsyncGenerator[Proxy]:
    port = free_port()
    manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
    config = directory / "minimal.yaml"
    config.write_text(
        f"""
static_resources:
  listeners:
  - address: {{socket_address: {{address: {_ADDRESS}, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {manager}
          stat_prefix: minimal
          route_config:
            virtual_hosts:
            - {{name: shop, domains: [{HOST}], routes: [{{match: {{prefix: /}}, route: {{cluster: shop}}}}]}}
          http_filters:
          - {{name: envoy.filters.http.router, typed_config: {{"@type": {router}}}}}
  clusters:
  - name: shop
    type: STATIC
    load_assignment:
      cluster_name: shop
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: {_ADDRESS}, port_value: {backend}}}}}}}
"""
    )
    command = (str(find_binary()), "-c", str(config), "--concurrency", "1", "--use-dynamic-base-id", "-l", "error")
    async with _process(port, *command) as pid:
        yield Proxy(port, (pid,))


@asynccontextmanager
async def _haproxy(directory: Path, backend: int) -> AsyncGenerator[Proxy]:
    port, config = free_port(), directory / "proxy.cfg"
    config.write_text(
        "global\n  nbthread 1\ndefaults\n  mode http\n  timeout connect 2s\n  timeout client 30s\n"
        f"  timeout server 30s\n  http-reuse always\nfrontend f\n  bind {_ADDRESS}:{port}\n"
        f"  use_backend b if {{ hdr(host) -i {HOST} }}\nbackend b\n  server s {_ADDRESS}:{backend}\n"
    )
    async with _process(port, "haproxy", "-db", "-q", "-f", str(config)) as pid:
        yield Proxy(port, (pid,))


@asynccontextmanager
async def _nginx(directory: Path, backend: int) -> AsyncGenerator[Proxy]:
    port, config = free_port(), directory / "nginx.conf"
    config.write_text(
        f"daemon off;\nmaster_process off;\npid {directory}/nginx.pid;\nerror_log {directory}/nginx.log;\n"
        "events { worker_connections 1024; }\nhttp {\n  access_log off;\n  keepalive_requests 1000000;\n"
        f"  client_body_temp_path {directory}/b; proxy_temp_path {directory}/p; fastcgi_temp_path {directory}/f;\n"
        f"  uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;\n"
        f"  upstream shop {{ server {_ADDRESS}:{backend}; keepalive 64; keepalive_requests 1000000; }}\n"
        f"  server {{ listen {_ADDRESS}:{port}; server_name {HOST};\n"
        '    location / { proxy_pass http://shop; proxy_http_version 1.1; proxy_set_header Connection ""; } }\n}\n'
    )
    async with _process(port, "nginx", "-c", str(config), "-p", str(directory)) as pid:
        yield Proxy(port, (pid,))


@asynccontextmanager
async def _backend(directory: Path) -> AsyncGenerator[int]:
    port, config = free_port(), directory / "backend.cfg"
    config.write_text(
        "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 30s\n"
        f"frontend f\n  bind {_ADDRESS}:{port}\n  http-request return status 200 content-type text/plain string ok\n"
    )
    async with _process(port, "haproxy", "-db", "-q", "-f", str(config)):
        yield port


@asynccontextmanager
async def _process(port: int, *command: str) -> AsyncGenerator[int]:
    # In a session of its own, as our Envoy: Linux shares processor time between sessions first, so a proxy in the
    # session of the client would have its share of a busy machine at the cost of the client's.
    process = await asyncio.create_subprocess_exec(*command, start_new_session=True)
    try:
        await _answers(port)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _answers(port: int) -> None:
    async def answers() -> bool:
        try:
            reader, writer = await asyncio.open_connection(_ADDRESS, port)
        except OSError:
            return False
        writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
        head = await reader.readline()
        writer.close()
        return b" 200 " in head

    await until_true(answers, what=f"a proxy at port {port} answers", timeout_s=60)
