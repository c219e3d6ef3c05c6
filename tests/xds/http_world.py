"""HTTP through a real Envoy: backends that say what reached them, certificates, and clients for it."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import aiohttp
import msgspec
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from yarl import URL

from fairlead.model.change import Action
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.http import (
    Attachment,
    Backend,
    BackendRef,
    Certificate,
    L7Config,
    L7Listener,
    PathMatch,
    RequestMatch,
    Route,
    RouteKind,
    Rule,
)
from fairlead.model.keys import LoadBalancerKey, Protocol, TargetKey, backend_key
from fairlead.providers.envoy.provider import EnvoyProvider
from tests.programmed import wait_programmed
from tests.xds.world import TIMEOUT_S, Addresses, World, new_name


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def echo(self) -> dict[str, Any]:
        """What the backend saw."""
        return json.loads(self.body)

    @property
    def backend(self) -> str:
        return self.echo["name"] if self.status == 200 else f"{self.status}"


def lower(headers: Mapping[str, str]) -> dict[str, str]:
    """Header names in lower case; values of one name are joined."""
    joined: dict[str, str] = {}
    for name, value in headers.items():
        joined[name.lower()] = f"{joined[name.lower()]},{value}" if name.lower() in joined else value
    return joined


class EchoBackend:
    """An HTTP/1.1 server that answers with what it saw of a request.

    ``?delay=S`` waits, ``/status/N`` answers N, ``/ws`` is a WebSocket that echoes, ``X-Echo-Set`` sets response
    headers (``Name:value``, comma separated), ``/flaky?fail=N&code=C`` fails N times for each ``id``.
    """

    def __init__(self, name: str, *, context: ssl.SSLContext | None = None) -> None:
        self.name = name
        self.seen: list[dict[str, Any]] = []
        self.address, self.port = "", 0
        self._context = context
        self._failures: dict[str, int] = {}
        self._runner: web.AppRunner | None = None

    @property
    def target(self) -> Target:
        return Target(TargetKey(self.address, self.port))

    async def start(self, address: str) -> EchoBackend:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, max_field_size=128 * 1024)
        await self._runner.setup()
        site = web.TCPSite(self._runner, address, self.port, ssl_context=self._context)
        await site.start()
        self.address, self.port = site._server.sockets[0].getsockname()[:2]  # type: ignore[union-attr]
        return self

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/ws":
            return await self._web_socket(request)
        transport = request.transport
        tls = transport.get_extra_info("ssl_object") if transport is not None else None
        peer = tls.getpeercert() if tls else None
        seen = {
            "name": self.name,
            "path": request.raw_path,
            "host": request.headers.get("Host", ""),
            "method": request.method,
            "headers": lower(request.headers),
            "client_certificate": bool(peer),
            "client_serial": f"{int(peer['serialNumber'], 16):x}" if peer else "",
        }
        self.seen.append(seen)
        if delay := request.query.get("delay"):
            await asyncio.sleep(float(delay))
        if fail := request.query.get("fail"):
            times = self._failures[request.query["id"]] = self._failures.get(request.query["id"], 0) + 1
            if times <= int(fail):
                return web.Response(status=int(request.query["code"]))
        if request.path.startswith("/status/"):
            return web.Response(status=int(request.path.rpartition("/")[2]))
        headers = dict(pair.split(":", 1) for pair in request.headers.get("X-Echo-Set", "").split(",") if pair)
        return web.json_response(seen, headers=headers)

    async def _web_socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"{self.name}: {message.data}")
        return socket


class Authority:
    """A certificate authority."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._sign(self._name, self._key.public_key(), authority=True)
        self.pem = self.certificate.public_bytes(Encoding.PEM).decode()

    def _sign(
        self, subject: x509.Name, public: Any, *, authority: bool = False, names: Sequence[x509.GeneralName] = ()
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=authority,
                    crl_sign=authority,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def issue(self, name: str, *hostnames: str, uris: Sequence[str] = ()) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [*map(x509.DNSName, hostnames), *map(x509.UniformResourceIdentifier, uris)]
        certificate = self._sign(subject, key.public_key(), names=names)
        return Certificate(
            name,
            f"{certificate.serial_number:x}",
            certificate.public_bytes(Encoding.PEM),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        )

    def client_context(self, certificate: Certificate | None = None, directory: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.pem)
        if certificate is not None and directory is not None:
            load(context, certificate, directory)
        return context


def load(context: ssl.SSLContext, certificate: Certificate, directory: Path) -> ssl.SSLContext:
    """Give a context a certificate; the library reads it from files only."""
    context.load_cert_chain(*written(certificate, directory))
    return context


def written(certificate: Certificate, directory: Path) -> tuple[Path, Path]:
    """Write a certificate and its key; return the files."""
    chain, key = directory / f"{certificate.digest}.crt", directory / f"{certificate.digest}.key"
    chain.write_bytes(certificate.chain)
    key.write_bytes(certificate.key)
    return chain, key


def server_context(certificate: Certificate, directory: Path, *, clients: Authority | None = None) -> ssl.SSLContext:
    context = load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, directory)
    if clients is not None:
        context.load_verify_locations(cadata=clients.pem)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def prefix(value: str, **fields: Any) -> RequestMatch:
    return RequestMatch(path=PathMatch("PathPrefix", value), **fields)


def exact(value: str, **fields: Any) -> RequestMatch:
    return RequestMatch(path=PathMatch("Exact", value), **fields)


def to(*backends: str | BackendRef, **fields: Any) -> Rule:
    """A rule that leads to backends."""
    refs = tuple(BackendRef(each) if isinstance(each, str) else each for each in backends)
    return Rule(backends=refs, **fields)


def route(
    name: str,
    *rules: Rule,
    listeners: Iterable[str] = ("http",),
    hosts: Iterable[str] = (),
    kind: RouteKind = "HTTP",
    one_label: bool = False,
    created: str = "",
) -> Route:
    attachments = tuple(Attachment(listener, tuple(hosts), one_label) for listener in listeners)
    return Route(name, kind, attachments, rules, created=created)


HTTP = L7Listener("http", 80)


def config(
    *routes: Route,
    listeners: Sequence[L7Listener] = (HTTP,),
    backends: Sequence[Backend] = (),
    certificates: Sequence[Certificate] = (),
) -> L7Config:
    """A configuration; backends that routes name and that are not given are plain HTTP."""
    given = {backend.name for backend in backends}
    named = {each.backend for route in routes for rule in route.rules for each in rule.backends if each.backend}
    named |= {mirror.backend for route in routes for rule in route.rules for mirror in rule.filters.mirrors}
    plain = [Backend(name) for name in sorted(named - given - {""})]
    return L7Config(
        tuple(listeners), routes, (*backends, *plain), {certificate.name: certificate for certificate in certificates}
    )


class HttpWorld:
    """What a test of HTTP works with."""

    def __init__(self, provider: EnvoyProvider, addresses: Addresses) -> None:
        self.world = World(provider, addresses)
        self.provider = provider
        self._echoes: list[EchoBackend] = []

    async def echo(self, name: str, *, context: ssl.SSLContext | None = None) -> EchoBackend:
        backend = await EchoBackend(name, context=context).start(self.world.addresses.take())
        self._echoes.append(backend)
        return backend

    def spec(self, l7: L7Config, **fields: Any) -> FrontendSpec:
        key = LoadBalancerKey("HTTPLoadBalancer", "test", new_name())
        self.world._keys.append(key)
        plain = FrontendSpec(
            key, "test", (), address=self.world.addresses.take(), health_check=None, limits_connections=True
        )
        return with_config(msgspec.structs.replace(plain, **fields), l7)

    async def serve(self, spec: FrontendSpec, targets: Mapping[str, Sequence[Target]] | None = None) -> FrontendSpec:
        """Serve a spec, with the targets of each backend, and wait until the proxy has all of it."""
        await self.provider.ensure(spec)
        for name, listed in (targets or {}).items():
            await self.world.change(spec, Action.REGISTER, *listed, listener=backend_key(name), wait=False)
        await self.programmed(spec)
        return spec

    async def start(self, l7: L7Config, *backends: EchoBackend, **fields: Any) -> FrontendSpec:
        """Serve a configuration with one target for each backend of that name."""
        return await self.serve(self.spec(l7, **fields), {backend.name: [backend.target] for backend in backends})

    async def programmed(self, spec: FrontendSpec) -> None:
        await wait_programmed(self.provider, spec.key)

    async def close(self) -> None:
        for backend in self._echoes:
            await backend.stop()
        await self.world.close()


def with_config(spec: FrontendSpec, l7: L7Config) -> FrontendSpec:
    """Return the spec with this configuration and its ports."""
    import msgspec

    ports = {(each.port, Protocol.UDP if each.protocol == "UDP" else Protocol.TCP) for each in l7.listeners}
    return msgspec.structs.replace(spec, l7=l7, listeners=tuple(Listener(*port) for port in sorted(ports)))


async def get(
    spec: FrontendSpec,
    path: str = "/",
    *,
    host: str = "shop.example.com",
    port: int = 80,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    sni: str = "",
    data: bytes | BinaryIO | None = None,
    source: str = "",
) -> Response:
    """Send one request on a connection of its own; the path as it is, no redirect followed."""
    scheme = "https" if tls is not None else "http"
    local = (source, 0) if source else None
    connector = aiohttp.TCPConnector(force_close=True, ssl=tls if tls is not None else True, local_addr=local)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        session.request(
            method,
            URL(f"{scheme}://{spec.address}:{port}{path}", encoded=True),
            headers={"Host": host, **(headers or {})},
            allow_redirects=False,
            data=data,
            server_hostname=(sni or host) if tls is not None else None,
        ) as response,
    ):
        body = await response.text()
        return Response(response.status, lower(response.headers), body)


@asynccontextmanager
async def web_socket(spec: FrontendSpec, *, host: str = "shop.example.com") -> AsyncGenerator[Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://{spec.address}:80/ws", headers={"Host": host}) as socket,
    ):
        yield socket
