"""A hub with proxy machines: the embedded API server, a real hub, and machines that speak HTTPS and gRPC to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpc import aio

from fairlead.api.kubernetes import SECRETS
from fairlead.api.proxymachine import PROXY_MACHINES, ProxyMachine
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.errors import NamespaceNotFound, NotFound
from fairlead.hub.app import Hub, HubConfig
from fairlead.hub.machines.control import CERTIFICATE_LIFE
from fairlead.hub.machines.server import MachineEndpoint
from fairlead.hub.machines.tokens import new_token
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.model.contract import AllocationKind
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.machine import (
    HUB_NAME,
    EnrolAnswer,
    LinkState,
    MachinePlan,
    MachineReport,
    ProxyState,
    fingerprint_of,
)
from fairlead.providers.envoy.resources import packaged_schema
from fairlead.providers.envoy.server import XdsServer
from fairlead.providers.envoy.store import ResourceStore, UnknownLoadBalancers
from fairlead.providers.kernel import KernelProvider
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import SystemClock
from fairlead.testing.builders import ABLE, tcp_body
from fairlead.testing.faults import FaultyProvider
from fairlead.translate.addresses import AddressRanges
from fairlead_demo.worlds.loopback import free_port
from podless import ApiServer
from tests.scenario.installed_kinds import server_with_kinds

TOKEN = "for-these-tests-only"
POOL = "192.0.2.0/28"
LIMIT_S = 180.0
_XDS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"


class MachinesWorld:
    """The API, one hub with its endpoint for machines, and an operator."""

    def __init__(self, server: ApiServer, directory: Path, *, life: timedelta) -> None:
        self.server = server
        self.directory = directory
        self.clock = SystemClock()
        self.user = self.connect("user")
        self.port = _two_free_ports()
        self.cluster = self.connect("hub")
        self.cloud = MemoryCloud(clock=self.clock)
        provider = FaultyProvider(
            MemoryProvider(cloud=self.cloud),
            clock=self.clock,
            capabilities=msgspec.structs.replace(ABLE, allocation=AllocationKind.ADDRESS),
        )
        self.hub = Hub(
            cluster=self.cluster,
            providers={"envoy": provider},
            config=HubConfig(
                identity="hub-0", address_pool=AddressRanges.parse(POOL), workers=2, reclaim_lease=True, machines=True
            ),
            on_lead=lambda _leads: self.endpoint.machines.lead(),
        )
        self.store = ResourceStore(unknown=UnknownLoadBalancers(is_known=lambda _key: True, hold_s=0.0))
        self.store.publish()
        self.xds = XdsServer(store=self.store, schema=packaged_schema(), address=f"unix:{directory}/xds.sock")
        self.leads = True
        assert self.hub.inventory.machines is not None
        self.endpoint = MachineEndpoint(
            cluster=self.cluster,
            inventory=self.hub.inventory,
            machines=self.hub.inventory.machines,
            proxies=PromptProxies(self.hub.inventory.machines),
            kernel=KernelProvider(clock=self.clock),
            xds=self.xds,
            identity="hub-0",
            data_dir=directory,
            listen=("127.0.0.1", self.port),
            clock=self.clock,
            leading=lambda: self.leads and self.hub.leading,
            epoch=lambda: self.hub.elector.epoch,
            certificate_life=life,
        )

    def connect(self, name: str) -> Cluster:
        return Cluster(ClusterConfig(server=self.server.url, sign_in=bearer(TOKEN)), name=name, qps=0)

    async def run(self) -> None:
        await self.xds.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.hub.run())
            await self.hub.publication.wait()
            group.create_task(self.endpoint.run())

    async def serving(self) -> None:
        """Wait until the hub leads and machines can connect."""

        async def answers() -> bool:
            with contextlib.suppress(aiohttp.ClientError):
                return self.hub.leading and bool(await self.authority())
            return False

        await self.until(answers, "the hub serves machines")

    async def until(self, check: Callable[[], Any], what: str, *, limit_s: float = LIMIT_S) -> Any:
        end_s = time.monotonic() + limit_s
        while True:
            last = check()
            if isinstance(last, Awaitable):
                last = await last
            if last:
                return last
            assert time.monotonic() < end_s, f"not within {limit_s} s: {what}; last: {last!r}"
            await asyncio.sleep(0.05)

    # --- the operator ---

    async def token(self, *, group: str = "", life: timedelta = timedelta(hours=1)) -> str:
        made = new_token(self.user.server_clock.now(), group=group, life=life)
        await self.user.create(SECRETS, made.secret)
        return made.text

    async def machine(self, name: str) -> ProxyMachine | None:
        try:
            return await self.user.get(PROXY_MACHINES, "", name)
        except NotFound:
            return None

    async def load_balancer(self, name: str = "web") -> str:
        """Make a load balancer, and return its address."""
        await self.user.apply(TENANTS, {"metadata": {"name": "east"}, "spec": {}}, manager="kubectl")
        await self.until(lambda: self.hub.inventory.tenant_of("tenant-east"), "the tenant")
        body = tcp_body(name, ports=[{"port": 80}], spec={"targets": "Pod"})

        async def made() -> bool:
            try:
                await self.user.apply(TCP_LOAD_BALANCERS, body, manager="kubectl")
            except NamespaceNotFound:
                return False
            return True

        await self.until(made, "the namespace of the tenant")

        async def address() -> str:
            obj = await self.user.get(TCP_LOAD_BALANCERS, "tenant-east", name)
            return obj.status.allocation.address

        return await self.until(address, f"an address of {name}")

    # --- machines ---

    async def authority(self) -> str:
        """Return the authorities, as a machine reads them before it trusts any."""
        unverified = ssl.create_default_context()
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{self.port}/v1/ca"
            async with session.get(url, ssl=unverified) as answer:
                return (await answer.json())["ca"]

    async def join(self, name: str, *, group: str = "") -> TestMachine:
        """Join as ``fairlead proxy join`` does."""
        machine = TestMachine(self, name)
        answer = await machine.enrol(await self.token(group=group))
        assert answer.status == 200, answer.body
        return machine


class PromptProxies:
    """The proxies of machines without Envoy: each has everything at once."""

    def __init__(self, machines: WatchCache[ProxyMachine]) -> None:
        self._machines = machines

    def machines(self) -> frozenset[str]:
        return frozenset(machine.metadata.name for machine in self._machines.values())

    def machines_with(self, key: LoadBalancerKey) -> frozenset[str]:
        return self.machines()

    def is_here(self, key: LoadBalancerKey) -> bool:
        return False

    def note_traffic(self, machine: str, traffic: object) -> None:
        pass

    def note_drains(self, machine: str, drains: object) -> None:
        pass


class Answer(msgspec.Struct):
    """The answer to a request: its status and JSON."""

    status: int
    body: dict[str, Any]


class TestMachine:
    """A machine with a key of its own."""

    __test__ = False

    def __init__(self, world: MachinesWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = ""
        self.ca = ""
        self.answer: EnrolAnswer | None = None

    @property
    def key_pem(self) -> bytes:
        plain = serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)

    def csr(self) -> str:
        # The name in the request is a lie on purpose: the hub decides.
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "another")])
        request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(self.key, hashes.SHA256())
        return request.public_bytes(serialization.Encoding.PEM).decode()

    async def enrol(self, token: str, **fields: Any) -> Answer:
        self.ca = self.ca or await self.world.authority()
        body = {"token": token, "name": self.name, "csr": self.csr(), "clock": time.time(), **fields}
        answer = await self.request("POST", "/v1/enrol", body)
        if answer.status == 200:
            self._take(answer)
        return answer

    async def renew(self) -> Answer:
        answer = await self.request("POST", "/v1/renew", {"csr": self.csr()})
        if answer.status == 200:
            self._take(answer)
        return answer

    async def plan(self, after: str = "") -> MachinePlan | None:
        answer = await self.request("GET", f"/v1/plan?after={after}")
        if answer.status == 204:
            return None
        assert answer.status == 200, answer.body
        return msgspec.convert(answer.body, MachinePlan)

    async def report(self, **fields: Any) -> Answer:
        usual: dict[str, Any] = {
            "sent": time.time(),
            "release": "0.3.0",
            "proxy": ProxyState(alive=True, version="1.38.0", listeners=1, synced=True),
            "links": self.links(),
        }
        report = MachineReport(machine=self.name, **{**usual, **fields})
        return await self.request("POST", "/v1/report", msgspec.to_builtins(report))

    def links(self, *addresses: str) -> tuple[LinkState, ...]:
        number = sum(self.name.encode())
        mac = f"02:00:00:00:{number // 256:02x}:{number % 256:02x}"
        return (LinkState(name="eth0", mac=mac, addresses=addresses or (f"192.0.2.{200 + number % 40}/24",)),)

    async def request(self, method: str, path: str, body: object = None) -> Answer:
        return await self.send(method, path, msgspec.json.encode(body) if body is not None else None)

    async def send(self, method: str, path: str, data: bytes | None) -> Answer:
        url = f"https://127.0.0.1:{self.world.port}{path}"
        tls = self.context()
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, data=data, ssl=tls, server_hostname=HUB_NAME) as answer,
        ):
            text = await answer.read()
            return Answer(answer.status, msgspec.json.decode(text) if text else {})

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.ca)
        if self.certificate:
            with tempfile.NamedTemporaryFile(dir=self.world.directory) as file:
                file.write(self.certificate.encode() + self.key_pem)
                file.flush()
                context.load_cert_chain(file.name)
        return context

    @contextlib.asynccontextmanager
    async def xds(self) -> AsyncGenerator[aio.StreamStreamCall[bytes, bytes]]:
        """Open a stream of delta xDS with the machine's certificate, as its Envoy does through the relay."""
        credentials = grpc.ssl_channel_credentials(self.ca.encode(), self.key_pem, self.certificate.encode())
        options = [("grpc.ssl_target_name_override", HUB_NAME)]
        async with aio.secure_channel(f"127.0.0.1:{self.world.port + 1}", credentials, options=options) as channel:
            call = channel.stream_stream(_XDS)()
            await call.write(_first_request(self.name))
            yield call

    def _take(self, answer: Answer) -> None:
        self.answer = msgspec.convert(answer.body, EnrolAnswer)
        self.certificate, self.ca = self.answer.certificate, self.answer.ca


def _first_request(node: str) -> bytes:
    """Return a DeltaDiscoveryRequest for all clusters, of a node that claims another group."""
    fields = {
        "node": {"id": node, "cluster": "machine:somebody-else"},
        "type_url": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    }
    return packaged_schema().encode("envoy.service.discovery.v3.DeltaDiscoveryRequest", fields)


def fingerprint(ca: str) -> str:
    return fingerprint_of(ca)


@contextlib.asynccontextmanager
async def new_world(directory: Path, *, life: timedelta = CERTIFICATE_LIFE) -> AsyncGenerator[MachinesWorld]:
    server = await server_with_kinds(admin_token=TOKEN)
    await server.start()
    world = MachinesWorld(server, directory, life=life)
    running = asyncio.create_task(world.run())
    try:
        await world.serving()
        yield world
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await world.xds.stop()
        await world.cluster.aclose()
        await world.user.aclose()
        await server.stop()


def _two_free_ports() -> int:
    while True:
        port = free_port()
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port + 1))
            return port
