"""A pod of Envoy without a kubelet, and what may stand between it and the hub."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.providers.envoy.envoy_process import find_binary
from fairlead.providers.envoy.fleet import ServerCertificate
from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.loopback import free_port

if TYPE_CHECKING:
    from deployment_world import World

_NUMBERS = itertools.count(1)


class Pod:
    """One Envoy, run as its Deployment says, with the paths of its volumes on this machine."""

    def __init__(self, world: World, namespace: str, home: Path, name: str, *, group: str = "") -> None:
        self._world = world
        self._group = group
        self._namespace = namespace
        self.home = home
        self.name = name
        self.ports: dict[str, int] = {}
        self.admin = home / "run" / "admin.sock"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        deployment = await self._world.deployment(self._namespace, self._group)
        spec = deployment["spec"]["template"]["spec"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        container = spec["containers"][0]
        paths = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        name = volumes["bootstrap"]["configMap"]["name"]
        config_map = await self._world.raw(f"/api/v1/namespaces/{self._namespace}/configmaps/{name}")
        (self.home / "run").mkdir(parents=True)
        (self.home / "bootstrap").mkdir()
        instead = {path: str(self.home / volume) for volume, path in paths.items()}
        for port in container["ports"]:
            here, there = free_port(), port["containerPort"]
            self.ports[port["name"]] = here
            instead[f'"port_value":{there}'] = f'"port_value":{here}'
            instead[f'"fairlead.dev/statistics-port":{there}'] = f'"fairlead.dev/statistics-port":{here}'
        for file, content in config_map["data"].items():
            for old, new in instead.items():
                content = content.replace(old, new)  # noqa: PLW2901
            (self.home / "bootstrap" / file).write_text(content)
        await self.mount(volumes["tls"]["secret"]["secretName"])
        arguments = [
            argument.replace("/etc/envoy", str(self.home / "bootstrap")).replace("$(POD_NAME)", self.name)
            for argument in container["args"]
        ]
        with (self.home / "log").open("w") as log:
            self._process = await asyncio.create_subprocess_exec(find_binary(), *arguments, stderr=log)

    async def mount(self, secret: str) -> None:
        """Bring a Secret's files, all at once, as a kubelet does."""
        files = await self._world.secret(self._namespace, secret)
        tls = self.home / "tls"
        tls.mkdir(exist_ok=True)
        there = tls / f"..{next(_NUMBERS)}"
        there.mkdir()
        for name, content in files.items():
            (there / name).write_bytes(content)
            if not (tls / name).is_symlink():
                (tls / name).symlink_to(f"..data/{name}")
        (tls / "..new").symlink_to(there.name)
        (tls / "..new").replace(tls / "..data")

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
        shutil.rmtree(self.home, ignore_errors=True)


class Relay:
    """The hub's Service, as kube-proxy would make it: one port that leads to one of several replicas."""

    def __init__(self) -> None:
        self.port = 0
        self.target = 0
        #: Set while bytes get through.
        self.flows = asyncio.Event()
        self.flows.set()
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> Relay:
        # Both families of "localhost", as far as this machine has them.
        self.port = free_port()
        self._servers = [await asyncio.start_server(self._serve, "127.0.0.1", self.port)]
        with contextlib.suppress(OSError):
            self._servers.append(await asyncio.start_server(self._serve, "::1", self.port))
        return self

    def choose(self) -> int:
        """Return the port that the next connection leads to."""
        return self.target

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # From the beginning: a connection that waits for its way is broken too, and does not outlive the relay.
        self._writers.add(writer)
        try:
            await self.flows.wait()
            back, forth = await asyncio.open_connection("127.0.0.1", self.choose())
        except OSError:
            self._writers.discard(writer)
            writer.close()
            return
        self._writers.add(forth)
        await asyncio.gather(self._pump(reader, forth), self._pump(back, writer))
        self._writers -= {writer, forth}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await self.flows.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        """Break every connection."""
        for writer in list(self._writers):
            writer.close()

    async def stop(self) -> None:
        for server in self._servers:
            await stop_listening(server)
        self.cut()
        for writer in list(self._writers):
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class Checkpoint:
    """A TLS server with the hub's certificate that only notes which client certificates it is shown (DER)."""

    def __init__(self, files: ServerCertificate) -> None:
        self.shown: set[bytes] = set()
        self.port = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files.certificate, files.key)
        self._context.load_verify_locations(files.client_ca)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.set_alpn_protocols(["h2"])
        self._server: asyncio.Server | None = None

    async def start(self) -> Checkpoint:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tls = writer.get_extra_info("ssl_object")
        self.shown.add(tls.getpeercert(binary_form=True) or b"")
        writer.close()

    async def stop(self) -> None:
        if self._server is not None:
            await stop_listening(self._server)
