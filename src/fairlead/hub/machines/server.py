"""The HTTPS server for proxy machines, at the address of ``--machines``.

    GET  /v1/ca      no certificate    the authorities, as PEM
    POST /v1/enrol   a one-time token  the first certificate
    POST /v1/renew   its certificate   the next certificate
    GET  /v1/plan    its certificate   the plan once its version differs from ``after``; 204 after 25 s
    POST /v1/report  its certificate   204

In: TLS connections; a client certificate is verified if present. Out: JSON; errors are
``{"message": <sentence with the next step>}``. Never: answers about a machine other than that of the certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from fairlead.api.json_text import decode
from fairlead.api.proxymachine import ProxyMachine
from fairlead.errors import AlreadyExists, BadConfiguration, FairleadError, Forbidden, Invalid, Retry, Unauthorized
from fairlead.hub.inventory import Inventory
from fairlead.hub.machines.control import CERTIFICATE_LIFE, Machines
from fairlead.hub.machines.placement import MachineEnvoys
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.model.in_words import host_port
from fairlead.model.machine import HUB_NAME, EnrolRequest, HubProblem, MachineReport, RenewRequest
from fairlead.providers.envoy.certificates import SharedAuthority, shown_certificate
from fairlead.providers.envoy.fleet import ServerCertificate
from fairlead.providers.envoy.server import XdsServer
from fairlead.providers.kernel import KernelProvider
from fairlead.runtime.clock import Clock
from fairlead.runtime.telemetry import BoundedServer

_HANDSHAKE_S = 10.0
#: How often certificates and authorities are read again.
_REFRESH_S = 60.0
#: The report of a machine with thousands of addresses.
_MOST_BYTES = 8 * 1024 * 1024
_STATUS: dict[type[FairleadError], int] = {
    Unauthorized: 401,
    Forbidden: 403,
    AlreadyExists: 409,
    Invalid: 400,
    Retry: 503,
}

T = TypeVar("T")

log = structlog.get_logger(__name__)


class MachineEndpoint:
    """The hub's parts for proxy machines: authority, control, HTTPS at ``listen``, xDS at the next port.

    ``listen`` None: the only machine is the hub's own. ``leading`` and ``epoch`` come from the hub's leader election.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        machines: WatchCache[ProxyMachine],
        proxies: MachineEnvoys,
        kernel: KernelProvider,
        xds: XdsServer,
        identity: str,
        data_dir: Path,
        listen: tuple[str, int] | None,
        clock: Clock,
        leading: Callable[[], bool],
        epoch: Callable[[], int],
        certificate_life: timedelta = CERTIFICATE_LIFE,
    ) -> None:
        self._xds = xds
        self._listen = listen
        self._reload: Callable[[], None] = lambda: None
        self._clock = clock
        host, port = (reachable_host(listen[0]), listen[1]) if listen is not None else ("", 0)
        self._authority = SharedAuthority(
            cluster=cluster,
            data_dir=data_dir,
            server_names=(host, HUB_NAME),
            clock=clock,
            leading=leading,
            own_server=True,
            trusted_by_all=self._all_trust,
        )
        self.machines = Machines(
            cluster=cluster,
            inventory=inventory,
            machines=machines,
            proxies=proxies,
            kernel=kernel,
            authority=self._authority,
            identity=identity,
            address=host_port(host, port) if listen is not None else "",
            xds_address=host_port(host, port + 1),
            clock=clock,
            leading=leading,
            epoch=epoch,
            revoked=xds.end_streams,
            certificate_life=certificate_life,
        )

    async def run(self) -> None:
        """Serve machines until cancelled.

        Raises:
            FairleadError: a port is not available, or the hub's API refuses.
        """
        if self._listen is None:
            await self.machines.start()
            await self.machines.run()
            return
        host, port = self._listen
        await self._authority.start()
        await self.machines.start()
        server = MachineServer(self.machines, host=host, port=port, files=self._authority.files)
        try:
            await self._xds.open_to_machines(host_port(host, port + 1), self._authority.files, self.machines.admission)
            await server.start()
            self._reload = server.reload
            log.info("serving proxy machines", address=host_port(host, port))
            async with asyncio.TaskGroup() as group:
                group.create_task(self.machines.run())
                group.create_task(self._keep_certificates())
        finally:
            await server.aclose()
            await self._xds.close_to_machines()

    def _all_trust(self, trusted: bytes) -> bool:
        return self.machines.all_trust(trusted)

    async def refresh(self) -> None:
        """Load the present certificates, and renew those that are due."""
        await self._authority.refresh()
        self._reload()

    async def _keep_certificates(self) -> None:
        while True:
            await self._clock.sleep(_REFRESH_S)
            await self.refresh()


def reachable_host(host: str) -> str:
    """Return the host by which machines reach a server at ``host``; for all addresses, the default one."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    family, elsewhere = (socket.AF_INET, "192.0.2.1") if address.version == 4 else (socket.AF_INET6, "2001:db8::1")
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((elsewhere, 9))  # sends nothing
        return str(probe.getsockname()[0])
    return socket.gethostname()


class MachineServer:
    """Serves ``machines`` at one address over TLS; ``files`` are read again when they change."""

    def __init__(self, machines: Machines, *, host: str, port: int, files: ServerCertificate) -> None:
        self._machines = machines
        self._host = host
        self._port = port
        self._files = files
        self._context = _server_context()
        self._server: BoundedServer | None = None

    @property
    def port(self) -> int:
        """Return the port listened on: the requested one, or the one that the system chose if 0 was requested."""
        return self._server.port if self._server is not None else self._port

    def reload(self) -> None:
        """Read the certificate files again, for new connections.

        Raises:
            BadConfiguration: they cannot be read.
        """
        try:
            self._context.load_cert_chain(self._files.certificate, self._files.key)
            self._context.load_verify_locations(self._files.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise BadConfiguration(f"the certificate for proxy machines cannot be read: {error}") from error

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            BadConfiguration: the port is in use, or the address does not belong to this machine.
        """
        self.reload()
        server = BoundedServer(self._host, self._port, middlewares=[_answering], most_bytes=_MOST_BYTES)
        server.app.router.add_get("/v1/ca", self._authorities)
        server.app.router.add_post("/v1/enrol", self._enrol)
        server.app.router.add_post("/v1/renew", self._renew)
        server.app.router.add_get("/v1/plan", self._plan)
        server.app.router.add_get("/v1/forwarding", self._forwarding)
        server.app.router.add_post("/v1/report", self._report)
        try:
            await server.start(self._context, handshake_s=_HANDSHAKE_S)
        except OSError as error:
            raise BadConfiguration(_why_not(self._host, self._port, error), detail=str(error)) from error
        self._server = server

    async def aclose(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.aclose()
            self._server = None

    async def _authorities(self, _request: web.Request) -> web.Response:
        return _json({"ca": self._machines.authorities.decode()})

    async def _enrol(self, request: web.Request) -> web.Response:
        return _json(await self._machines.enrol(await _body(request, EnrolRequest)))

    async def _renew(self, request: web.Request) -> web.Response:
        machine, serial = await self._caller(request)
        return _json(await self._machines.renew(machine, serial, (await _body(request, RenewRequest)).csr))

    async def _plan(self, request: web.Request) -> web.Response:
        machine, _ = await self._caller(request)
        plan = await self._machines.plan(machine.metadata.name, request.query.get("after", ""))
        return _json(plan) if plan is not None else web.Response(status=204)

    async def _forwarding(self, request: web.Request) -> web.Response:
        machine, _ = await self._caller(request)
        table = await self._machines.forwarding(machine.metadata.name, request.query.get("after", ""))
        return _json(table) if table is not None else web.Response(status=204)

    async def _report(self, request: web.Request) -> web.Response:
        machine, _ = await self._caller(request)
        report = await _body(request, MachineReport)
        if report.machine != machine.metadata.name:
            raise Forbidden(f"The report is of machine {report.machine}, the certificate of {machine.metadata.name}")
        await self._machines.report(machine.metadata.name, report)
        return web.Response(status=204)

    async def _caller(self, request: web.Request) -> tuple[ProxyMachine, str]:
        """Return the machine of the client certificate, and the serial number of that certificate."""
        connection: Any = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
        certificate: dict[str, Any] = (connection.getpeercert() if connection is not None else None) or {}
        if not certificate:
            raise Unauthorized("A machine has to show its certificate here; it gets one with: fairlead proxy join")
        names = [name for kind, name in certificate.get("subjectAltName", ()) if kind == "URI"]
        assert connection is not None
        shown = shown_certificate(connection.getpeercert(binary_form=True))
        return await self._machines.identify(names, shown), shown.serial


@web.middleware
async def _answering(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into answers."""
    try:
        return await handler(request)
    except FairleadError as error:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
        if status >= 500 and not isinstance(error, Retry):
            log.warning("a machine gets no answer", path=request.path, sentence=error.sentence, detail=error.detail)
        return _json(HubProblem(message=error.sentence), status=status)


async def _body(request: web.Request, of: type[T]) -> T:
    try:
        return decode(await request.read(), of)
    except msgspec.DecodeError as error:
        raise Invalid(f"The body of {request.method} {request.path} is not valid: {error}") from error


def _json(value: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _why_not(host: str, port: int, error: OSError) -> str:
    place = host_port(host, port)
    if error.errno == errno.EADDRINUSE:
        return f"--machines: {place} is in use. Choose another port, or stop the process that uses it."
    return f"--machines: the hub cannot listen on {place}: is this an address of this machine?"
