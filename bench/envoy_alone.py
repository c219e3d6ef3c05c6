"""What Envoy alone needs to start with so many load balancers, from a file and without a hub.

A cold start with a new Envoy is never shorter than that: it compares each new listener with all that it has.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from bench.figures import Figure
from bench.fleet import Process, until_true
from fairlead.providers.envoy.envoy_process import admin_get, find_binary

BACKENDS = 5
_TCP_PROXY = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"


async def starts(many: int = int(os.environ.get("LOAD_BALANCERS", "16000"))) -> AsyncIterator[Figure]:
    """Start Envoy with half as many listeners, with all of them, and with their clusters alone."""
    for listeners, clusters in ((many // 2, many // 2), (many, many), (0, many)):
        seconds, cpu_s, memory_mb = await _start(listeners, clusters)
        what = f"{listeners:,} listeners, {clusters:,} clusters x {BACKENDS} endpoints"
        beside = f"{cpu_s:.1f} s of CPU, {memory_mb:,.0f} MB"
        yield Figure(name=f"Envoy alone, {what}: until it is ready", value=seconds, unit="s", compares_with=beside)


async def _start(listeners: int, clusters: int) -> tuple[float, float, float]:
    """Return seconds until Envoy is ready, its processor time in seconds, and its memory in MB."""
    with tempfile.TemporaryDirectory(prefix="flb-") as name:
        socket, config = Path(name) / "admin.sock", Path(name) / "envoy.json"
        content = {
            "admin": {"address": {"pipe": {"path": str(socket), "mode": 0o600}}},
            # As ours: most counters are made when they are used.
            "deferred_stat_options": {"enable_deferred_creation_stats": True},
            "static_resources": {
                "listeners": [_listener(number) for number in range(listeners)],
                "clusters": [_cluster(number) for number in range(clusters)],
            },
        }
        config.write_text(json.dumps(content), encoding="utf-8")
        options = ("-c", str(config), "--concurrency", "1", "--disable-hot-restart", "-l", "off")
        envoy = Process("envoy", *options, directory=Path(name), program=(str(find_binary()),))

        async def ready() -> bool:
            with suppress(OSError):
                return (await admin_get(socket, "/ready"))[0] == 200
            return False

        started_s = time.perf_counter()
        await envoy.start()
        try:
            await until_true(ready, what="Envoy is ready", timeout_s=600, every_s=0.1)
            return time.perf_counter() - started_s, envoy.cpu_s, envoy.rss_mb
        finally:
            await envoy.kill()


def _name(number: int) -> str:
    return f"TCPLoadBalancer/tenant-bench/shop.web-{number:05}/TCP/80"


def _address(address: str, port: int) -> dict[str, object]:
    return {"socket_address": {"address": address, "port_value": port}}


def _listener(number: int) -> dict[str, object]:
    name = _name(number)
    proxy = {"@type": _TCP_PROXY, "stat_prefix": name, "cluster": name}
    return {
        "name": name,
        "address": _address(f"127.150.{number // 250}.{number % 250 + 1}", 8080),
        "enable_reuse_port": False,
        "filter_chains": [{"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}]}],
    }


def _cluster(number: int) -> dict[str, object]:
    endpoints = [{"endpoint": {"address": _address(f"127.99.0.{last}", 8080)}} for last in range(1, BACKENDS + 1)]
    return {
        "name": _name(number),
        "type": "STATIC",
        "load_assignment": {"cluster_name": _name(number), "endpoints": [{"lb_endpoints": endpoints}]},
    }
