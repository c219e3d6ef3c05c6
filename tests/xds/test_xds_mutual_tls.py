"""A proxy in a pod: mutual TLS, the bootstrap that the Deployment carries, and the group that its certificate names."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from pathlib import Path

import msgspec
import pytest

from fairlead.model.desired import Listener
from fairlead.providers.envoy import server
from fairlead.providers.envoy.bootstrap import Bootstrap, TlsFiles, bootstrap_json
from fairlead.providers.envoy.envoy_process import admin_get, find_binary
from fairlead.providers.envoy.fleet import ServerCertificate
from fairlead.providers.envoy.kubernetes.fleet import DeploymentFleet
from fairlead.providers.envoy.kubernetes.manifests import DeploymentSettings
from fairlead.providers.envoy.provider import EnvoyProvider
from tests.unit.providers.envoy.kubernetes.fake_kube import FakeKube
from tests.xds.conftest import first_port
from tests.xds.world import TIMEOUT_S, Addresses, World, ask

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def make_certificates(path: Path) -> None:
    """A CA, the hub's certificate and one for the proxies of tenant-a."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    run("openssl", "req", "-x509", *key, "-keyout", f"{path}/ca.key", "-out", f"{path}/ca.crt", "-subj", "/CN=ca")
    for name, san in (("hub", "DNS:hub.test"), ("tls", "URI:spiffe://fleet.test/group/tenant-a")):
        (path / f"{name}.ext").write_text(f"subjectAltName={san}\n")
        run("openssl", "req", "-new", *key[:5], "-keyout", f"{path}/{name}.key", "-out", f"{path}/{name}.csr",
            "-subj", f"/CN={name}")  # fmt: skip
        run("openssl", "x509", "-req", "-in", f"{path}/{name}.csr",
            "-CA", f"{path}/ca.crt", "-CAkey", f"{path}/ca.key",
            "-CAcreateserial", "-out", f"{path}/{name}.crt", "-days", "2",
            "-extfile", f"{path}/{name}.ext")  # fmt: skip


@pytest.mark.req("K-28")
@pytest.mark.req("W-21")
@pytest.mark.req("W-22")
async def test_group_comes_from_the_certificate_not_from_the_claim(
    short_dir: Path, addresses: Addresses, worker_id: str
) -> None:
    make_certificates(short_dir)
    first = first_port(5_000, worker_id)
    settings = DeploymentSettings(proxy_ports=(first, first + 8))
    certificate = ServerCertificate(
        certificate=short_dir / "hub.crt", key=short_dir / "hub.key", client_ca=short_dir / "ca.crt"
    )
    fleet = DeploymentFleet(kube=FakeKube(), settings=settings)
    provider = EnvoyProvider(fleet=fleet, xds_address="127.0.0.1:0", certificate=certificate)
    await provider.start()
    provider.publish()
    world = World(provider, addresses)
    admin = short_dir / "admin.sock"
    bootstrap = Bootstrap(
        node_id="",
        group="tenant-b",  # a lie
        xds_address="127.0.0.1",
        xds_port=provider.server.port,
        admin_socket=str(admin),
        readiness_port=first + 9,
        tls=TlsFiles(
            certificate=f"{short_dir}/tls.crt",
            key=f"{short_dir}/tls.key",
            ca=f"{short_dir}/ca.crt",
            server_name="hub.test",
            watched_directory=str(short_dir),
        ),
    )
    (short_dir / "bootstrap.json").write_text(json.dumps(bootstrap_json(bootstrap)))
    with (short_dir / "log").open("w") as log:
        envoy = await asyncio.create_subprocess_exec(
            find_binary(), "-c", f"{short_dir}/bootstrap.json", "--service-node", "pod-1", "--concurrency", "1",
            "--disable-hot-restart", "--log-level", "warning", stderr=log,
        )  # fmt: skip
    try:
        backend = await world.backend("inside")
        spec = msgspec.structs.replace(
            world.spec(), group="tenant-a", address="", listeners=(Listener(80, proxy_port=first),)
        )
        other = msgspec.structs.replace(
            world.spec(), group="tenant-b", address="", listeners=(Listener(80, proxy_port=first + 1),)
        )
        await provider.ensure(other)
        await world.serve(spec, backend.target)
        (proxy,) = provider.proxies()
        assert (proxy.node_id, proxy.group) == ("pod-1", "tenant-a")
        assert await ask("127.0.0.1", first) == "inside"
        with pytest.raises(ConnectionRefusedError):
            await ask("127.0.0.1", first + 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", first + 9)
        writer.write(b"GET /ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        async with asyncio.timeout(TIMEOUT_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        for path, wanted in (("/ready", 200), ("/stats", 200), ("/config_dump", 403), ("/quitquitquit", 403)):
            assert (await admin_get(admin, path))[0] == wanted
    finally:
        envoy.terminate()
        await envoy.wait()
        await world.close()
        await provider.close()


@pytest.mark.req("S-8")
@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"])
async def test_half_a_handshake_ends(said: bytes, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was a file of the hub for two minutes: some hundreds a second, of any pod, and it had none left."""
    monkeypatch.setattr(server, "HANDSHAKE_MS", 500)
    make_certificates(short_dir)
    certificate = ServerCertificate(
        certificate=short_dir / "hub.crt", key=short_dir / "hub.key", client_ca=short_dir / "ca.crt"
    )
    provider = EnvoyProvider(fleet=DeploymentFleet(kube=FakeKube()), xds_address="127.0.0.1:0", certificate=certificate)
    await provider.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", provider.server.port)
        writer.write(said)
        async with asyncio.timeout(TIMEOUT_S):
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()
    finally:
        await provider.close()


async def test_proxy_without_a_certificate_is_not_heard(short_dir: Path) -> None:
    import grpc

    make_certificates(short_dir)
    certificate = ServerCertificate(
        certificate=short_dir / "hub.crt", key=short_dir / "hub.key", client_ca=short_dir / "ca.crt"
    )
    provider = EnvoyProvider(fleet=DeploymentFleet(kube=FakeKube()), xds_address="127.0.0.1:0", certificate=certificate)
    await provider.start()
    try:
        credentials = grpc.ssl_channel_credentials((short_dir / "ca.crt").read_bytes())
        options = (("grpc.ssl_target_name_override", "hub.test"),)
        target = f"127.0.0.1:{provider.server.port}"
        async with grpc.aio.secure_channel(target, credentials, options=options) as channel:
            call = channel.stream_stream(
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
            )()
            with pytest.raises(grpc.aio.AioRpcError):
                await call.read()
        assert provider.proxies() == []
    finally:
        await provider.close()
