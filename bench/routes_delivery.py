"""Ways to deliver thousands of virtual hosts to one Envoy: RDS, RDS in shards, VHDS by push or on demand, and SRDS.

There is no hub. The control plane sends hosts that the case chooses, so the figures are those of Envoy.
Source: https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/http/http_routing
"""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import grpc
from grpc import aio

from bench.figures import Figure, percentile
from bench.fleet import Process, until_true
from bench.load import start_pod
from fairlead.providers.envoy.bootstrap import ENVOY_FLAGS, Bootstrap, bootstrap_json
from fairlead.providers.envoy.envoy_process import find_binary
from fairlead.providers.envoy.resources import TYPE_URL_PREFIX, Fields, delimited, packaged_schema, text
from fairlead_demo.worlds.loopback import free_port

RDS, SHARDED, VHDS, ON_DEMAND, SRDS = WAYS = ("RDS", "RDS in 16 shards", "VHDS", "VHDS on demand", "SRDS")
CHANGES, SHARDS = 20, 16
ROUTES, HOST = "envoy.config.route.v3.RouteConfiguration", "envoy.config.route.v3.VirtualHost"
SCOPE = "envoy.config.route.v3.ScopedRouteConfiguration"
_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_EXTENSIONS = "type.googleapis.com/envoy.extensions."
_ADS: dict[str, object] = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
_POD = ("127.98.2.1", 8080)
_POD_ENDPOINT = {"endpoint": {"address": {"socket_address": {"address": _POD[0], "port_value": _POD[1]}}}}
_POD_CLUSTER = {
    "name": "pod",
    "type": "STATIC",
    "load_assignment": {"cluster_name": "pod", "endpoints": [{"lb_endpoints": [_POD_ENDPOINT]}]},
}


class ControlPlane:
    """A delta xDS server that sends what it holds, and answers on-demand requests for hosts."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, bytes]] = {ROUTES: {}, HOST: {}, SCOPE: {}}
        #: Hosts that are sent only when Envoy asks for them.
        self.on_demand: dict[str, bytes] = {}
        self.errors: list[str] = []
        self.sent_bytes = 0
        self._numbers = itertools.count(1)
        self._streams: dict[str, Any] = {}
        self._writing = asyncio.Lock()

    async def push(self, kind: str, contents: dict[str, bytes], removed: Sequence[str] = ()) -> None:
        """Send resources to the stream of this kind; before there is one they wait for it."""
        self.held[kind] |= contents
        for name in removed:
            self.held[kind].pop(name, None)
        if kind in self._streams and (contents or removed):
            await self._send(kind, [self._resource(kind, name, contents[name]) for name in contents], removed)

    async def serve(self, _requests: object, context: aio.ServicerContext[bytes, bytes]) -> None:
        """Follow one stream."""
        while isinstance(message := cast("object", await context.read()), bytes):
            request = packaged_schema().read_request(message)
            kind = request.type_url.removeprefix(TYPE_URL_PREFIX)
            if request.error is not None:
                self.errors.append(request.error)
            if self._streams.get(kind) is not context:
                self._streams[kind] = context
                names = request.subscribe if kind == ROUTES else self.held[kind]
                await self._send(kind, [self._resource(kind, name, self.held[kind][name]) for name in names])
            elif request.subscribe:
                await self._send(kind, [self._answer(kind, name) for name in request.subscribe])

    def _answer(self, kind: str, name: str) -> bytes:
        if kind != HOST:
            return self._resource(kind, name, self.held[kind][name])
        if name not in self.on_demand:  # a resource without content: there is no such host
            return text(1, "none") + text(3, name) + text(4, name)
        return self._resource(kind, name, self.on_demand[name]) + text(4, name)

    def _resource(self, kind: str, name: str, content: bytes) -> bytes:
        body = text(1, TYPE_URL_PREFIX + kind) + delimited(2, content)
        return text(1, str(next(self._numbers))) + delimited(2, body) + text(3, name)

    async def _send(self, kind: str, resources: Sequence[bytes], removed: Sequence[str] = ()) -> None:
        parts = [delimited(2, resource) for resource in resources] + [text(6, name) for name in removed]
        message = b"".join([text(4, TYPE_URL_PREFIX + kind), text(5, str(next(self._numbers))), *parts])
        self.sent_bytes += len(message)
        async with self._writing:
            await self._streams[kind].write(message)


def host_name(number: int) -> str:
    return f"host-{number:05}.bench.example"


def host_fields(name: str, *domains: str) -> Fields:
    """Return a virtual host with one route."""
    action = {"cluster": "pod", "timeout": {"seconds": 15}, "retry_policy": {"retry_on": "connect-failure"}}
    route = {"name": f"HTTPRoute/tenant-bench/{name}", "match": {"path_separated_prefix": "/shop"}, "route": action}
    rest = {"match": {"prefix": "/"}, "route": action}
    return {"name": name, "domains": domains or (name,), "routes": [route, rest]}


class Delivery:
    """One way to deliver virtual hosts, to one running Envoy."""

    def __init__(self, way: str, envoy: Process, ports: Sequence[int]) -> None:
        self.way = way
        self.envoy = envoy
        self.ports = ports
        self.plane = ControlPlane()
        self.started = False
        self._numbers: list[int] = []

    async def deliver(self, added: Sequence[int] = (), removed: Sequence[int] = ()) -> None:
        """Deliver these hosts in addition to those that are there, and remove these."""
        encode, new, gone = packaged_schema().encode, list(map(host_name, added)), list(map(host_name, removed))
        if self.way == SRDS:
            await self.plane.push(SCOPE, {name: encode(SCOPE, scope_fields(name)) for name in new}, gone)
        elif self.way in {VHDS, ON_DEMAND}:
            # Envoy removes by the name of the virtual host, so that has to be the name of the resource.
            hosts = {f"routes-0/{name}": encode(HOST, host_fields(f"routes-0/{name}", name)) for name in new}
            if self.way == ON_DEMAND and self.started:
                self.plane.on_demand, hosts = hosts, {}
            await self.plane.push(HOST, hosts, [f"routes-0/{name}" for name in gone])
        else:
            self._numbers = sorted({*self._numbers, *added} - {*removed})
            for shard in {number % len(self.ports) for number in (*added, *removed)}:
                hosts = [host_fields(host_name(each)) for each in self._numbers if each % len(self.ports) == shard]
                fields = {"name": f"routes-{shard}", "virtual_hosts": hosts}
                await self.plane.push(ROUTES, {f"routes-{shard}": encode(ROUTES, fields)})

    async def status(self, host: str, *, port: int) -> int:
        """Return the status of the answer to one request."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return int((await reader.readline()).split()[1])
        finally:
            writer.close()

    async def serves(self) -> bool:
        """Return whether the first host is served."""
        with suppress(OSError):
            return await self.status(host_name(0), port=self.ports[0]) == 200
        return False

    async def until_answered(self, number: int, status: int) -> float:
        """Return the milliseconds until a host answers with this status."""
        began_s, port = time.perf_counter(), self.ports[number % len(self.ports)]
        async with asyncio.timeout(30):
            while await self.status(host_name(number), port=port) != status:
                if self.plane.errors:
                    raise RuntimeError(self.plane.errors[0])
                await asyncio.sleep(0.002)
        return (time.perf_counter() - began_s) * 1e3


def scope_fields(name: str) -> Fields:
    """Return a scope with the routes of one host, chosen by the Host header."""
    key = {"fragments": [{"string_key": name}]}
    routes = {"name": name, "virtual_hosts": [host_fields(name, "*")]}
    return {"name": name, "key": key, "route_configuration": routes}


@asynccontextmanager
async def delivery(way: str, count: int) -> AsyncGenerator[Delivery]:
    """Run an Envoy that has got so many hosts in this way."""
    with tempfile.TemporaryDirectory(prefix="flb-") as directory:
        socket, config = Path(directory) / "xds.sock", Path(directory) / "envoy.json"
        ports = [free_port() for _ in range(SHARDS if way == SHARDED else 1)]
        config.write_text(json.dumps(_bootstrap(way, str(socket), ports)), encoding="utf-8")
        options = ("-c", str(config), "--concurrency", "1", "--disable-hot-restart", *ENVOY_FLAGS)
        envoy = Process("envoy", *options, directory=Path(directory), program=(str(find_binary()),))
        delivered = Delivery(way, envoy, ports)
        if way in {VHDS, ON_DEMAND}:
            source: dict[str, object] = {"ads": {}, "resource_api_version": "V3"}
            routes = {"name": "routes-0", "vhds": {"config_source": source}}
            await delivered.plane.push(ROUTES, {"routes-0": packaged_schema().encode(ROUTES, routes)})
        await delivered.deliver(range(count))
        delivered.started = True
        server = aio.server(options=[("grpc.max_send_message_length", -1)])
        handler = cast("Any", grpc).stream_stream_rpc_method_handler(delivered.plane.serve)
        methods = {"DeltaAggregatedResources": handler}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, methods),))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        pod, _ = await start_pod(*_POD)
        await envoy.start()
        try:
            yield delivered
        finally:
            await envoy.kill()
            await server.stop(grace=0)
            pod.close()


def _bootstrap(way: str, socket: str, ports: Sequence[int]) -> dict[str, object]:
    settings = Bootstrap(node_id="bench", group="bench", xds_address=socket, admin_socket=f"{socket}.admin")
    ours = {name: part for name, part in bootstrap_json(settings).items() if name != "hds_config"}
    clusters = [*cast("dict[str, Any]", ours["static_resources"])["clusters"], _POD_CLUSTER]
    listeners = [_listener(way, number, port) for number, port in enumerate(ports)]
    dynamic = {"ads_config": cast("dict[str, Any]", ours["dynamic_resources"])["ads_config"]}
    return ours | {"dynamic_resources": dynamic, "static_resources": {"listeners": listeners, "clusters": clusters}}


def _listener(way: str, number: int, port: int) -> dict[str, object]:
    filters = [("on_demand", "OnDemand"), ("router", "Router")][way != ON_DEMAND :]
    manager: dict[str, object] = {
        "@type": f"{_EXTENSIONS}filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "http_filters": [
            {"name": name, "typed_config": {"@type": f"{_EXTENSIONS}filters.http.{name}.v3.{message}"}}
            for name, message in filters
        ],
    }
    if way == SRDS:
        by_host = {"name": ":authority", "element_separator": ":", "index": 0}
        manager["scoped_routes"] = {
            "name": "scopes",
            "scope_key_builder": {"fragments": [{"header_value_extractor": by_host}]},
            "rds_config_source": _ADS,
            "scoped_rds": {"scoped_rds_config_source": _ADS},
        }
    else:
        manager["rds"] = {"route_config_name": f"routes-{number}", "config_source": _ADS}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    return {"name": f"listener-{number}", "address": address, "filter_chains": [chain]}


async def measured() -> AsyncIterator[Figure]:
    """Add virtual hosts one at a time to 1,000 and 5,000 of one Envoy, by RDS, VHDS and SRDS."""
    for count, way in itertools.product((1000, 5000), WAYS):
        async with delivery(way, count) as delivered:
            what, envoy = f"{way}, {count:,} hosts", delivered.envoy
            await until_true(delivered.serves, what=f"{what} are served", timeout_s=300, every_s=0.05)
            await asyncio.sleep(2)
            yield Figure(name=f"{what}: memory of Envoy", value=envoy.rss_mb, unit="MB")
            for step, status in (("one more", 200), ("one removed", 404), ("unknown host", 404)):
                cpu_s, sent_bytes, waited_ms = envoy.cpu_s, delivered.plane.sent_bytes, list[float]()
                for number in range(count, count + CHANGES):
                    if step == "unknown host":
                        waited_ms.append(await delivered.until_answered(number + CHANGES, status))
                        continue
                    await delivered.deliver(*([number],) if status == 200 else ((), [number]))
                    waited_ms.append(await delivered.until_answered(number, status))
                await asyncio.sleep(0.5)
                cpu_ms = (envoy.cpu_s - cpu_s) / CHANGES * 1e3
                sent_kb = (delivered.plane.sent_bytes - sent_bytes) / CHANGES / 1e3
                beside = f"{sent_kb:.1f} kB sent; answered in {percentile(waited_ms, 0.5):.1f} ms (p50)"
                yield Figure(name=f"{what}: {step}, CPU of Envoy", value=cpu_ms, unit="ms", compares_with=beside)
            yield Figure(name=f"{what}: memory of Envoy after that", value=envoy.rss_mb, unit="MB")
