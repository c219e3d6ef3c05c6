"""An authority without the extensions that Python 3.13 asks for is trusted where it is named, and only there."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fairlead.api.capiside import ControlPlaneEndpoint
from fairlead.capi.facts import why_not_ready
from fairlead.hub.certificates.client import AcmeClient
from fairlead.hub.certificates.issuance import in_thread, new_key
from fairlead.hub.certificates.order import AcmeRefused
from fairlead.runtime.tls import client_context
from fairlead_demo.worlds.certificates import self_signed


class Served(NamedTuple):
    port: int
    authority: bytes


def signed(
    subject: str,
    issuer: str,
    extension: x509.ExtensionType,
    key: ec.EllipticCurvePrivateKey,
    by: ec.EllipticCurvePrivateKey,
) -> bytes:
    """A certificate with one extension, and none of those that say which keys it is about."""
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(extension, critical=False)
        .sign(by, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """An API that is ready, and the directory of an ACME server, with a certificate of such an authority."""
    root, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = signed("ca", "ca", x509.BasicConstraints(ca=True, path_length=None), root, root)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    (tmp_path / "tls.crt").write_bytes(signed("server", "ca", names, own, root))
    (tmp_path / "tls.key").write_bytes(own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")

    async def ready(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def directory(_: web.Request) -> web.Response:
        return web.json_response({"newOrder": "", "newNonce": "", "newAccount": ""})

    app = web.Application()
    app.add_routes([web.get("/readyz", ready), web.get("/directory", directory)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield Served(runner.addresses[0][1], authority)
    await runner.cleanup()


async def connects(served: Served, context: ssl.SSLContext) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=context)
    except ssl.SSLCertVerificationError:
        return False
    writer.close()
    return True


async def test_an_authority_is_trusted_where_it_is_named(served: Served) -> None:
    other, _ = self_signed("other")
    assert await connects(served, client_context(served.authority))
    assert await connects(served, client_context(other + b"# T\xc3\xbcrk\n" + served.authority))
    assert not await connects(served, client_context(other))
    assert not await connects(served, client_context())


async def test_an_authority_of_the_machine_is_trusted(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.crt").write_bytes(served.authority)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
    assert await connects(served, client_context())


@pytest.mark.parametrize("text", [b"", b"\n", b"no certificate", b"\xff"])
def test_a_text_without_a_certificate_is_refused(text: bytes) -> None:
    with pytest.raises(ssl.SSLError):
        client_context(text)


async def test_the_check_of_an_endpoint_trusts_its_cluster(served: Served) -> None:
    endpoint = ControlPlaneEndpoint("127.0.0.1", served.port)
    assert await why_not_ready(endpoint, served.authority.decode()) == ""
    assert "CERTIFICATE_VERIFY_FAILED" in await why_not_ready(endpoint, self_signed("other")[0].decode())


async def test_an_acme_server_of_ones_own_is_trusted(served: Served) -> None:
    url = f"https://127.0.0.1:{served.port}/directory"

    def opened(bundle: bytes) -> AcmeClient:
        return AcmeClient.open(url, new_key(), ca_bundle=bundle.decode())

    assert (await in_thread(lambda: opened(served.authority), name="test")).server == url
    with pytest.raises(AcmeRefused, match="certificate"):
        await in_thread(lambda: opened(self_signed("other")[0]), name="test")
