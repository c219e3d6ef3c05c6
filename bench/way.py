"""The way of one change through the code: source files that run and API writes, for four changes.

Hub and agent run in this process under ``sys.setprofile``, with an API server for each and a real Envoy. The files of
the embedded API are not counted. A file is *beyond idling* when it runs for the change and not during a quiet second.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import fairlead
from bench.figures import Figure
from bench.gateway_objects import gateway, install_gateway_api, meta, route_spec
from bench.objects import endpoint_slice, service
from fairlead.agent.app import Agent
from fairlead.agent.config import AgentConfig
from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.gateway import GATEWAYS, HTTP_ROUTES
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import ENDPOINT_SLICES, NAMESPACES, PODS, SERVICES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import AnyResource, JSONObject, condition_of
from fairlead.api.names import DEFAULT_CLASS
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.errors import FairleadError
from fairlead.hub.app import Hub, HubConfig
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import Access, ClusterConfig, SignIn
from fairlead.kube.discovery import install_crds
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.logs import configure_logging
from fairlead.translate.addresses import AddressRanges
from fairlead_demo.worlds.pod_server import PodServer
from podless import ApiServer
from podless.metrics import WRITE_VERBS

#: The sources of the distribution ``fairlead`` only, not of Podless and the demo.
_SOURCE = f"{Path(fairlead.__file__).parent}/"
_USER = "kubectl"
_FAIRLEAD = "fairlead"
_QUIET_S = 1.0
_PODS = 40
_POD_PORT = 18080


class Trace:
    """The source files that have run since the last ``take``."""

    def __init__(self) -> None:
        self._files: set[str] = set()

    @contextmanager
    def running(self) -> Generator[None]:
        """Collect files until the end of the block."""
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)

    def take(self) -> frozenset[str]:
        """Return the counted files that ran, and begin again."""
        files, self._files = self._files, set()
        return frozenset(file for file in files if file.startswith(_SOURCE))

    def _called(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self._files.add(frame.f_code.co_filename)


class House:
    """One hub and one agent with their APIs; ``user`` writes as a person does."""

    def __init__(self, member: ApiServer, hub: ApiServer, at_member: Cluster, at_hub: Cluster) -> None:
        self._servers = (member, hub)
        self.member = at_member
        self.hub = at_hub

    def writes(self) -> Counter[str]:
        """Return the writes of agent and hub so far by verb and kind, without leases and Events."""
        writes: Counter[str] = Counter()
        for server in self._servers:
            for (verb, resource), count in server.requests(_FAIRLEAD).items():
                if verb in WRITE_VERBS and resource not in {"leases", "events"}:
                    writes[f"{verb} {resource}"] += count
        return writes

    async def settle(self) -> None:
        """Wait until a quiet second has passed without a write."""
        before = None
        while (now := self.writes()) != before:
            before = now
            await asyncio.sleep(_QUIET_S)


async def measured() -> AsyncIterator[Figure]:
    """Yield files and writes for a Service, an HTTPRoute, a BackendGroup, an endpoint; and writes for 40 pods."""
    configure_logging("warning")
    for figure in _house_figures():
        yield figure
    trace = Trace()
    with trace.running():
        async with _house() as house:
            await house.settle()
            trace.take()
            await asyncio.sleep(_QUIET_S)
            idle = trace.take()
            for name, change in _CHANGES.items():
                async for figure in _figures_of(house, trace, idle, name, change):
                    yield figure
            before = house.writes()
            for number in range(_PODS):
                await _pod(house, f"many-{number}", number + 10)
                await asyncio.sleep(0.02)
            await house.settle()
            written = house.writes() - before
            groups = sum(count for what, count in written.items() if "backendgroup" in what)
            yield Figure(name=f"{_PODS} pods one by one: BackendGroup writes", value=groups, unit="writes", limit=5)


def _house_figures() -> Iterator[Figure]:
    """Yield what the sources alone show: files, lines, and how often types are given up or asked for."""
    files = [path.read_text(encoding="utf-8") for path in Path(_SOURCE).rglob("*.py")]
    text = "\n".join(files)
    readme = Path(__file__).parents[1] / "README.md"
    yield Figure(name="source files", value=len(files), unit="files", limit=480)
    yield Figure(name="source lines", value=text.count("\n"), unit="lines", limit=80_000)
    for word, limit in (("Any", 300), ("isinstance", 200)):
        yield Figure(
            name=f"`{word}` in the sources", value=len(re.findall(rf"\b{word}\b", text)), unit="times", limit=limit
        )
    yield Figure(name="README", value=len(readme.read_text(encoding="utf-8").splitlines()), unit="lines", limit=90)


async def _figures_of(
    house: House, trace: Trace, idle: frozenset[str], name: str, change: Callable[[House], Awaitable[None]]
) -> AsyncIterator[Figure]:
    before = house.writes()
    trace.take()
    await change(house)
    await house.settle()
    files = trace.take()
    written = house.writes() - before
    by_kind = ", ".join(f"{count} {what}" for what, count in sorted(written.items()))
    limits = _LIMITS.get(name, (None, None))
    yield Figure(name=f"{name}: files", value=len(files), unit="files")
    yield Figure(name=f"{name}: files beyond idling", value=len(files - idle), unit="files", limit=limits[0])
    yield Figure(
        name=f"{name}: writes", value=sum(written.values()), unit="writes", limit=limits[1], compares_with=by_kind
    )


async def _service(house: House) -> None:
    await house.member.create(ENDPOINT_SLICES, endpoint_slice("web", ["127.0.0.1"], port=_POD_PORT))
    await house.member.apply(SERVICES, service("web"), manager=_USER)
    await _until(lambda: _has_address(house), "the Service has an address")
    await _until(lambda: _serves(house), "the targets have passed their first check")


async def _route(house: House) -> None:
    body = {**meta("shop"), "spec": route_spec("edge", "shop.example.com", {"web": 1})}
    await house.member.create(HTTP_ROUTES, body)


async def _group(house: House) -> None:
    await _pod(house, "one", 1)
    spec = {"loadBalancers": ["shared"], "pods": {"byLabel": {"selector": {"app": "group"}}, "ports": [{"port": 8080}]}}
    await house.hub.create(BACKEND_GROUPS, {"metadata": {"namespace": "default", "name": "group"}, "spec": spec})


async def _endpoint(house: House) -> None:
    body = endpoint_slice("web", ["127.0.0.1", "127.0.0.2"], port=_POD_PORT)
    await house.member.apply(ENDPOINT_SLICES, body, manager=_USER)


_CHANGES: dict[str, Callable[[House], Awaitable[None]]] = {
    "Service created": _service,
    "HTTPRoute created": _route,
    "BackendGroup with one pod": _group,
    "endpoint changed": _endpoint,
}
#: Files beyond idling and writes that each change may take.
_LIMITS: dict[str, tuple[float, float]] = {
    "Service created": (75, 6),
    "HTTPRoute created": (100, 6),
    "BackendGroup with one pod": (70, 7),
}


async def _pod(house: House, name: str, number: int) -> None:
    body: JSONObject = {
        "metadata": {"namespace": "default", "name": name, "labels": {"app": "group"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    }
    await house.hub.create(PODS, body)
    ready = {"type": "Ready", "status": "True"}
    status = {"podIP": f"127.1.0.{number}", "podIPs": [{"ip": f"127.1.0.{number}"}], "conditions": [ready]}
    await house.hub.merge_patch(PODS, "default", name, {"status": status}, subresource="status")


async def _has_address(house: House) -> bool:
    service: Any = await house.member.get(SERVICES, "default", "web")
    return bool(service.status.load_balancer.ingress)


async def _serves(house: House) -> bool:
    load_balancer: Any = await house.hub.get(TCP_LOAD_BALANCERS, "tenant-east", "default.web")
    condition = condition_of(load_balancer.status.conditions, "Serving")
    return condition is not None and condition.status == "True"


async def _gateway_is_programmed(house: House) -> bool:
    edge: Any = await house.member.get(GATEWAYS, "default", "edge")
    condition = condition_of(edge.status.conditions, "Programmed")
    return condition is not None and condition.status == "True"


async def _exists(cluster: Cluster, resource: AnyResource, name: str) -> bool:
    await cluster.get(resource, "", name)
    return True


async def _until(check: Callable[[], Awaitable[bool]], what: str) -> None:
    async with asyncio.timeout(60):
        while True:
            with suppress(FairleadError):
                if await check():
                    return
            await asyncio.sleep(0.05)
    raise TimeoutError(what)


@asynccontextmanager
async def _house() -> AsyncGenerator[House]:
    member, hub = ApiServer(), ApiServer()
    with tempfile.TemporaryDirectory(prefix="flw-", dir="/tmp") as directory:
        fleet = LocalFleet(data_dir=Path(directory), concurrency=1)
        provider = EnvoyProvider(fleet=fleet, xds_address=f"unix:{fleet.xds_socket}", hold_unknown_s=0.0)
        await member.start()
        await hub.start()
        try:
            async with (
                _cluster(member, _USER) as at_member,
                _cluster(hub, _USER) as at_hub,
                _cluster(hub, _FAIRLEAD) as of_hub,
                _cluster(member, _FAIRLEAD) as member_of_agent,
                _cluster(hub, _FAIRLEAD) as hub_of_agent,
            ):
                await install_crds(at_hub, all_crds(), "bench")
                await install_gateway_api(at_member)
                house = House(member, hub, at_member, at_hub)
                running = Hub(
                    cluster=of_hub,
                    providers={DEFAULT_CLASS: provider},
                    config=HubConfig(
                        identity="way", address_pool=AddressRanges.parse("127.80.0.0/24"), loopback_targets=True
                    ),
                    factories={"memory": lambda: MemoryProvider(cloud=MemoryCloud())},
                )
                agent = Agent(
                    member=member_of_agent,
                    hub=hub_of_agent,
                    config=AgentConfig(tenant="east", hub_namespace="tenant-east", target="Pod", renew_token=False),
                )
                tasks = [
                    asyncio.create_task(PodServer("web").serve("127.0.0.1", _POD_PORT), name="pod"),
                    asyncio.create_task(running.run(), name="hub"),
                ]
                try:
                    await _until(lambda: _exists(at_hub, LOAD_BALANCER_CLASSES, DEFAULT_CLASS), "the hub runs")
                    await at_hub.create(TENANTS, {"metadata": {"name": "east"}, "spec": {}})
                    await _until(lambda: _exists(at_hub, NAMESPACES, "tenant-east"), "the member is added")
                    tasks.append(asyncio.create_task(agent.run(), name="agent"))
                    await _prepare(house)
                    yield house
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
                    await provider.stop()
        finally:
            await member.stop()
            await hub.stop()


async def _prepare(house: House) -> None:
    await house.member.create(GATEWAYS, gateway("edge", port=8081))
    await _until(lambda: _gateway_is_programmed(house), "the Gateway is programmed")
    memory: JSONObject = {"provider": "memory", "parameters": {"address": "198.51.100.1"}}
    await house.hub.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "memory"}, "spec": memory})
    spec = {"className": "memory", "listeners": [{"name": "http", "port": 80}]}
    await house.hub.create(LOAD_BALANCERS, {"metadata": {"namespace": "default", "name": "shared"}, "spec": spec})


def _cluster(server: ApiServer, user_agent: str) -> Cluster:
    access = Access(headers={"Authorization": f"Bearer {server.admin_token}", "User-Agent": user_agent})

    async def sign_in(_refused: Access | None) -> Access:
        return access

    signing: SignIn = sign_in
    return Cluster(ClusterConfig(server=server.url, sign_in=signing, user="admin"), name=user_agent, qps=0)
