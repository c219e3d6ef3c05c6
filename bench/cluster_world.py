"""One cluster with a Gateway to measure: an API server, a control plane with its Envoy, and backends as processes.

    embedded   the API of this project, addresses on the loopback network
    real       etcd and kube-apiserver, in a network namespace of its own: it refuses endpoints on the loopback network

In: the control plane to run. Out: CPU seconds of each part, successful writes by kind without those of the bench, xDS
bytes as Envoy counts them. ``python -m bench.cluster_world PORT ...`` runs the backends: every address answers there.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import re
import secrets
import signal
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Generator, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import msgspec

from bench.fleet import Process, until, until_true
from bench.gateway_objects import meta, route_spec
from bench.load import start_pod
from bench.objects import endpoint_slice
from conformance.build import control_plane, source_of, why_not
from conformance.manifests import read_manifests
from conformance.paths import of_this_process
from fairlead.api.gateway import GATEWAY_CLASSES, GATEWAYS, HTTP_ROUTES
from fairlead.api.kubernetes import ENDPOINT_SLICES, SERVICES
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, Resource
from fairlead.api.names import GATEWAY_CONTROLLER
from fairlead.api.tenant import TENANTS
from fairlead.errors import FairleadError, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds
from fairlead.providers.envoy.envoy_process import admin_get
from fairlead.standalone.right_cluster import OWN_TENANT
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.networks import inside, ip
from podless.metrics import WRITE_VERBS
from podless.offline import gateway_definitions

T = TypeVar("T", bound=KubeObject)

BACKEND_PORT = 8097
#: The same on every side: Envoy Gateway moves ports below 1024.
GATEWAY_PORT = 8088
GATEWAY = "edge"
#: How often a new route is asked for.
POLL_S = 0.005
_AT_ONCE = 32
_CONNECTIONS = 4
_IDLE_SHARE = 0.06
_METRIC = re.compile(r"^\w*apiserver_requests?_total\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_RECEIVED = re.compile(r"^cluster\.[\w.-]*xds[\w.-]*\.upstream_cx_rx_bytes_total: (\d+)$", re.MULTILINE)
#: The verbs of kube-apiserver that have another name here.
_VERBS = {"post": "create", "put": "update", "apply": "patch"}
#: Every control plane renews its lease, whatever happens; reviews are reads; the API server itself writes IPAddresses.
_NOT_COUNTED = frozenset({"leases", "selfsubjectaccessreviews", "ipaddresses"})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The size of a run."""

    routes: int
    seconds: float
    #: Of each side, where there are two; the median counts.
    runs: int = 1
    #: Use kube-apiserver instead of the embedded API.
    real: bool = False
    #: Compare with Envoy Gateway, which needs ``real``.
    compare: bool = False


# --- API servers -----------------------------------------------------------------------------------------------------


class Api(ABC):
    """One API server; ``kubeconfig`` is its administrator's."""

    #: Where load balancers get addresses, and the first half of those of backends.
    pool: str
    backends: str

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubeconfig = directory / "api" / "kubeconfig"
        self.processes: list[Process] = []

    @abstractmethod
    async def start(self) -> None:
        """Start it, and wait until its kubeconfig is there."""

    @abstractmethod
    def gateway_kinds(self) -> list[JSONObject]:
        """Return the definitions of Gateway API."""

    async def stop(self) -> None:
        """Stop it."""
        for process in reversed(self.processes):
            await process.stop()


class EmbeddedApi(Api):
    """The API server of this project, in memory."""

    pool = "127.150.0.0/16"
    backends = "127.170"

    async def start(self) -> None:
        """Start it, and wait until its kubeconfig is there."""
        data = str(self.kubeconfig.parent)
        api = Process("api", "apiserver", "--memory", "--data-dir", data, directory=self.directory)
        self.processes.append(api)
        await api.start()
        await until(self.kubeconfig.exists, what="the API server")

    def gateway_kinds(self) -> list[JSONObject]:
        """Return definitions with what a controller depends on."""
        return gateway_definitions()


class RealApi(Api):
    """An etcd with a kube-apiserver."""

    pool = "198.18.0.0/17"
    backends = "198.19"

    def __init__(self, directory: Path, assets: Path) -> None:
        super().__init__(directory)
        self._assets = assets

    async def start(self) -> None:
        """Start both, and wait until they answer."""
        home = self.kubeconfig.parent
        home.mkdir()
        token, key = secrets.token_hex(16), home / "sa.key"
        (home / "tokens.csv").write_text(f'{token},admin,1,"system:masters"\n')
        port, client, peer = free_port(), free_port(), free_port()
        made = await asyncio.create_subprocess_exec("openssl", "genrsa", "-out", str(key), "2048", stderr=-3)
        await made.wait()
        etcd = (
            f"--data-dir={home / 'etcd'}", f"--listen-client-urls=http://127.0.0.1:{client}",
            f"--advertise-client-urls=http://127.0.0.1:{client}", f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync", "--log-level=warn",
        )  # fmt: skip
        api = (
            f"--etcd-servers=http://127.0.0.1:{client}", f"--cert-dir={home / 'certs'}", "--bind-address=127.0.0.1",
            "--advertise-address=192.0.2.1", f"--secure-port={port}", f"--token-auth-file={home / 'tokens.csv'}",
            "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/12",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none", "--profiling=false",
        )  # fmt: skip
        for name, arguments in (("etcd", etcd), ("kube-apiserver", api)):
            program = (str(self._assets / name),)
            process = Process(name, *arguments, directory=self.directory, program=program)
            self.processes.append(process)
            await process.start()
        cluster: JSONObject = {
            "server": f"https://127.0.0.1:{port}",
            "certificate-authority": str(home / "certs" / "apiserver.crt"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        await until((home / "certs" / "apiserver.crt").exists, what="the certificate of kube-apiserver")
        self.kubeconfig.write_bytes(msgspec.json.encode(config))

        async def ready() -> bool:
            with suppress(FairleadError):
                async with Cluster.from_kubeconfig(self.kubeconfig, name="bench") as cluster:
                    return await cluster.raw("GET", "/readyz") == b"ok"
            return False

        await until_true(ready, what="kube-apiserver is ready", timeout_s=90, every_s=0.3)

    def gateway_kinds(self) -> list[JSONObject]:
        """Return the official definitions."""
        documents = read_manifests(source_of("sigs.k8s.io/gateway-api") / "config" / "crd" / "experimental")
        return [each for each in documents if each["kind"] == "CustomResourceDefinition"]


def assets() -> Path:
    """Return where etcd and kube-apiserver are: in KUBEBUILDER_ASSETS, or built by ``python -m conformance.build``.

    Raises:
        Terminal: they cannot be used here.
    """
    if reason := why_not():
        raise Terminal(f"--real cannot be used here: {reason}")
    return control_plane(of_this_process())


@contextmanager
def network(*, real: bool) -> Generator[None]:
    """Be in a network namespace of our own inside the block where the API server is a real one."""
    if not real:
        yield
        return
    name = f"fairlead-bench-{os.getpid()}-{secrets.token_hex(3)}"
    ip("netns", "add", name)
    try:
        with inside(name):
            ip("link", "set", "lo", "up")
            ip("route", "add", "local", "198.18.0.0/15", "dev", "lo")
            yield
    finally:
        ip("netns", "delete", name)


# --- control planes --------------------------------------------------------------------------------------------------


class ControlPlane(ABC):
    """What serves the Gateways of class ``bench``: its processes, and its Envoy."""

    name: str
    controller: str
    processes: Sequence[Process]

    @abstractmethod
    async def start(self, api: Api, user: User) -> None:
        """Start it; the kinds of Gateway API and the class are there already."""

    @abstractmethod
    async def serve(self, user: User) -> str:
        """Have an Envoy for the Gateway, which has been created; return its address."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop it, and its Envoy."""

    @abstractmethod
    def envoys(self) -> list[int]:
        """Return the ids of its Envoys."""

    @abstractmethod
    async def admin(self, path: str) -> str:
        """Return a page of the admin interface of its Envoy; empty without an answer."""


class Fairlead(ControlPlane):
    """``fairlead run``: hub and agent in one process."""

    name = "Fairlead"
    controller = GATEWAY_CONTROLLER

    def __init__(self, *, target: str = "Pod") -> None:
        self._target = target
        self.processes = []
        self._data = Path()

    async def start(self, api: Api, user: User) -> None:
        """Start it."""
        del user
        self._data = api.directory / "r"
        process = Process(
            "fairlead", "run", "--kubeconfig", str(api.kubeconfig), "--address-pool", api.pool,
            "--data-dir", str(self._data), "--metrics", f"127.0.0.1:{free_port()}", "--stop-proxy",
            "--target", self._target, directory=api.directory,
        )  # fmt: skip
        self.processes = [process]
        await process.start()

    async def serve(self, user: User) -> str:
        """Return the address in the status of the Gateway."""
        address = ""

        async def assigned() -> bool:
            nonlocal address
            gateway = await user.cluster.get(GATEWAYS, "default", GATEWAY)
            address = next((each.value for each in gateway.status.addresses or ()), "")
            return bool(address)

        await until_true(assigned, what="the address of the Gateway", timeout_s=120, every_s=0.1)
        # Each route has a host of its own, and a member has 2,000 of them unless its Tenant says otherwise.
        await user.patch(TENANTS, OWN_TENANT, {"spec": {"maxHostnames": 100_000}}, namespace="")
        return address

    async def stop(self) -> None:
        """Stop the process; what is left of Envoy is killed."""
        for process in self.processes:
            await process.stop()
        for pid in self.envoys():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def envoys(self) -> list[int]:
        """Return the ids of its Envoys."""
        if not self.processes:
            return []
        return [int(path.read_text().split()[0]) for path in self._data.rglob("envoy.pid")]

    async def admin(self, path: str) -> str:
        """Return a page of the admin interface of its Envoy; empty without an answer."""
        sockets = [file.with_name("admin.sock") for file in self._data.rglob("envoy.pid")]
        answers = await asyncio.gather(*(admin_get(socket, path, timeout_s=10) for socket in sockets))
        return "".join(text for status, text in answers if status == 200)


# --- the world -------------------------------------------------------------------------------------------------------


class User:
    """The user of the cluster, who counts what he writes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.writes: Counter[str] = Counter()

    async def create(self, resource: Resource[T], body: JSONObject) -> T:
        """Create an object."""
        self.writes[f"create {resource.plural}"] += 1
        return await self.cluster.create(resource, body)

    async def patch(
        self, resource: AnyResource, name: str, body: JSONObject, *, namespace: str = "default", subresource: str = ""
    ) -> None:
        """Patch an object."""
        self.writes[f"patch {resource.plural}{subresource and f'/{subresource}'}"] += 1
        await self.cluster.merge_patch(resource, namespace, name, body, subresource=subresource)

    async def delete(self, resource: AnyResource, name: str) -> None:
        """Delete an object."""
        self.writes[f"delete {resource.plural}"] += 1
        await self.cluster.delete(resource, "default", name)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What has been used so far: CPU seconds, successful writes by kind, bytes of xDS."""

    control_s: float
    envoy_s: float
    api_s: float
    xds_bytes: int
    writes: Counter[str]

    def __sub__(self, before: Usage) -> Usage:
        return Usage(
            control_s=self.control_s - before.control_s,
            envoy_s=self.envoy_s - before.envoy_s,
            api_s=self.api_s - before.api_s,
            xds_bytes=self.xds_bytes - before.xds_bytes,
            writes=self.writes - before.writes,
        )

    def written(self, part: str) -> int:
        """Return the number of writes whose verb and kind have ``part`` in them."""
        return sum(count for what, count in self.writes.items() if part in what)

    @property
    def by_kind(self) -> str:
        """Return the writes by kind, most frequent first."""
        return ", ".join(f"{count} {what}" for what, count in self.writes.most_common())


def count_writes(metrics: str) -> Counter[str]:
    """Return the successful writes by verb and kind in the metrics of an API server, of this project or Kubernetes."""
    writes: Counter[str] = Counter()
    for labels, value in _METRIC.findall(metrics):
        named: dict[str, str] = dict(_LABEL.findall(labels))
        verb = named["verb"].lower()
        verb = _VERBS.get(verb, verb)
        resource, sub = named["resource"], named.get("subresource", "")
        if verb in WRITE_VERBS and named["code"].startswith("2") and resource not in _NOT_COUNTED:
            writes[f"{verb} {resource}{sub and f'/{sub}'}"] += int(float(value))
    return writes


class World:
    """A running cluster; ``address`` is that of the Gateway."""

    address = ""

    def __init__(self, api: Api, control: ControlPlane, user: User) -> None:
        self.api = api
        self.control = control
        self.user = user
        #: What Envoy needed for the pages that were read here: 0.6 s of CPU each with 5,000 clusters.
        self._pages_s = 0.0

    async def usage(self) -> Usage:
        """Return what has been used so far, without what it costs to ask."""
        before_s = self._envoy_s()
        received = sum(
            map(int, _RECEIVED.findall(await self.control.admin("/stats?filter=upstream_cx_rx_bytes_total")))
        )
        self._pages_s += self._envoy_s() - before_s
        return Usage(
            control_s=sum(each.cpu_s for each in self.control.processes),
            envoy_s=self._envoy_s() - self._pages_s,
            api_s=sum(each.cpu_s for each in self.api.processes),
            xds_bytes=received,
            writes=await self._writes() - self.user.writes,
        )

    def _envoy_s(self) -> float:
        return sum(map(cpu_s, self.control.envoys()))

    async def _writes(self) -> Counter[str]:
        return count_writes((await self.user.cluster.raw("GET", "/metrics")).decode())

    async def settled(self, *, quiet_s: float = 2.0, timeout_s: float = 600.0) -> float:
        """Wait until nothing is written or computed for a moment; return how many seconds that took."""
        began_s = time.perf_counter()
        before = await self.usage()

        async def quiet() -> bool:
            nonlocal before
            await asyncio.sleep(quiet_s)
            now = await self.usage()
            used, before = now - before, now
            # An idle control plane with thousands of backends uses a few percent of a core.
            return not used.writes and used.control_s < _IDLE_SHARE * quiet_s

        await until_true(quiet, what="nothing is written or computed", timeout_s=timeout_s)
        return max(0.0, time.perf_counter() - began_s - quiet_s)

    def backend(self, number: int, version: int = 0) -> str:
        """Return an address of a backend; each has two of them, which is what changes of endpoints alternate."""
        place = 2 * number + version
        return f"{self.api.backends}.{place >> 8}.{place & 255}"

    async def add_service(self, number: int) -> None:
        """Add a Service with one endpoint."""
        ports = [{"name": "http", "port": 80, "targetPort": BACKEND_PORT}]
        spec: JSONObject = {"type": "ClusterIP", "ports": ports}
        await self.user.create(SERVICES, {**meta(f"s-{number}"), "spec": spec})
        body = endpoint_slice(f"s-{number}", [self.backend(number)], port=BACKEND_PORT)
        await self.user.create(ENDPOINT_SLICES, body)

    async def change_endpoint(self, number: int, version: int) -> None:
        """Have a Service go to another address of its backend."""
        endpoints = [{"addresses": [self.backend(number, version)], "conditions": {"ready": True}}]
        await self.user.patch(ENDPOINT_SLICES, f"s-{number}-1", {"endpoints": endpoints})

    async def add_route(self, name: str, service: int) -> None:
        """Add a route of host ``name`` to a Service."""
        spec = route_spec(GATEWAY, host_of(name), {f"s-{service}": 1})
        await self.user.create(HTTP_ROUTES, {**meta(name), "spec": spec})

    async def attached(self) -> int:
        """Return how many routes the status of the Gateway shows."""
        gateway = await self.user.cluster.get(GATEWAYS, "default", GATEWAY)
        return sum(each.attached_routes for each in gateway.status.listeners or ())

    async def until_answered(self) -> None:
        """Wait until Envoy serves the listener of the Gateway, which has no routes yet."""
        async with Client(self.address) as client:

            async def answered() -> bool:
                return await client.status("nothing") == 404

            await until_true(answered, what="the Gateway answers", timeout_s=120, every_s=0.1)

    async def until_served(self, name: str, *, timeout_s: float = 60.0) -> Probe:
        """Ask for a route every 5 ms until it answers 200; return how long that took, and what was answered before."""
        async with Client(self.address) as client:
            return await client.until_served(host_of(name), timeout_s=timeout_s)


@asynccontextmanager
async def world(control: ControlPlane, *, real: bool, node_ports: Sequence[int] = ()) -> AsyncGenerator[World]:
    """Run a cluster with a Gateway that has no routes yet; its nodes answer at ``node_ports``."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flw-", dir="/tmp")))
        stack.enter_context(network(real=real))
        api: Api = RealApi(directory, assets()) if real else EmbeddedApi(directory)
        ports = map(str, (BACKEND_PORT, *node_ports))
        program = (sys.executable, "-m", "bench.cluster_world")
        backends = Process("backends", *ports, directory=directory, program=program)
        try:
            await backends.start()
            await api.start()
            if backends.process is None or backends.process.returncode is not None:
                raise Terminal(f"the backends have ended: {backends.log.read_text()[-300:]}")
            async with Cluster.from_kubeconfig(api.kubeconfig, name="bench", qps=10_000) as cluster:
                user = User(cluster)
                if problems := await install_crds(cluster, api.gateway_kinds(), "bench"):
                    raise Terminal("; ".join(problems))
                body = {"metadata": {"name": "bench"}, "spec": {"controllerName": control.controller}}
                await user.create(GATEWAY_CLASSES, body)
                running = World(api, control, user)
                await control.start(api, user)
                listener = {"name": "http", "port": GATEWAY_PORT, "protocol": "HTTP"}
                spec: JSONObject = {"gatewayClassName": "bench", "listeners": [listener]}
                await user.create(GATEWAYS, {**meta(GATEWAY), "spec": spec})
                running.address = await control.serve(user)
                await running.until_answered()
                yield running
        except BaseException:
            for process in (*control.processes, *api.processes):
                print(f"--- {process.name}: {process.log.read_text()[-2000:]}", file=sys.stderr)
            raise
        finally:
            await control.stop()
            await api.stop()
            await backends.stop()


async def at_once(calls: Iterable[Awaitable[object]]) -> None:
    """Await calls, some at once."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def limited(call: Awaitable[object]) -> None:
        async with slots:
            await call

    await asyncio.gather(*(limited(call) for call in calls))


def cpu_s(pid: int) -> float:
    """Return the processor time of a process, 0 when it is gone (Linux)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- requests --------------------------------------------------------------------------------------------------------


def host_of(name: str) -> str:
    """Return the host of a route."""
    return f"{name}.example.com"


class Probe(NamedTuple):
    """Seconds until a new route answered 200, infinite when it did not; answers before that other than 404."""

    seconds: float
    errors: int


class Client:
    """One kept connection to the Gateway; it is opened again when it was lost."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def status(self, host: str) -> int:
        """Return the status of one request, 0 when it has no answer."""
        return (await self.get(host))[0]

    async def get(self, host: str, *, timeout_s: float = 5.0) -> tuple[int, str]:
        """Return the status and body of one request; the status is 0 when it has no answer."""
        try:
            async with asyncio.timeout(timeout_s):
                if self._streams is None:
                    self._streams = await asyncio.open_connection(self._address, GATEWAY_PORT)
                reader, writer = self._streams
                writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1]) if length else 0)
                if b"connection: close" in head.lower():
                    self.close()
                return int(head.split(b" ", 2)[1]), body.decode()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            self.close()
            return 0, ""

    async def until_served(self, host: str, *, timeout_s: float) -> Probe:
        """Ask every 5 ms until the answer is 200."""
        began_s, errors = time.perf_counter(), 0
        while (status := await self.status(host)) != 200:
            errors += status != 404
            if time.perf_counter() - began_s > timeout_s:
                return Probe(math.inf, errors)
            await asyncio.sleep(POLL_S)
        return Probe(time.perf_counter() - began_s, errors)


class Load:
    """Requests at a steady rate to hosts in turn, over a few kept connections."""

    def __init__(self, address: str, hosts: Sequence[str], *, per_s: float) -> None:
        self._address = address
        self._hosts = hosts
        self._pause_s = _CONNECTIONS / per_s
        self.sent = 0
        self.failed: Counter[int] = Counter()

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(_CONNECTIONS):
                group.create_task(self._send(number))

    async def _send(self, number: int) -> None:
        async with Client(self._address) as client:
            for turn in itertools.count(number, _CONNECTIONS):
                status = await client.status(self._hosts[turn % len(self._hosts)])
                self.sent += 1
                if status != 200:
                    self.failed[status] += 1
                await asyncio.sleep(self._pause_s)


@asynccontextmanager
async def loaded(load: Load) -> AsyncGenerator[Load]:
    """Send the load inside the block."""
    task = asyncio.create_task(load.run())
    try:
        yield load
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _serve_backends(ports: Iterable[int]) -> None:
    for port in ports:
        await start_pod("0.0.0.0", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve_backends(map(int, sys.argv[1:])))
