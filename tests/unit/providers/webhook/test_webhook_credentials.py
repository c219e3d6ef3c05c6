"""Mutual authentication of a driver and Fairlead, by CA, client certificate and bearer token; none is shown."""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
import subprocess
from pathlib import Path

import aiohttp
import msgspec
import pytest

from fairlead.errors import BadConfiguration, Retry
from fairlead.providers.webhook.provider import WebhookProvider
from tests.unit.providers.webhook.scripted_driver import ScriptedDriver, spec

TOKEN = "eyJ-very-secret"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A credentials directory: ``mutual`` with everything, ``ca-only``, ``wrong-ca`` and ``token``."""
    root = tmp_path_factory.mktemp("credentials")
    for name in ("mutual", "ca-only", "wrong-ca", "token", "broken"):
        (root / name).mkdir()
    ca, other_ca = root / "mutual" / "ca.crt", root / "wrong-ca" / "ca.crt"
    openssl("req", "-x509", *KEY, "-keyout", str(root / "ca.key"), "-out", str(ca), "-subj", "/CN=ca")
    openssl("req", "-x509", *KEY, "-keyout", str(root / "other.key"), "-out", str(other_ca), "-subj", "/CN=other")
    extensions = root / "extensions"
    extensions.write_text("subjectAltName=IP:127.0.0.1")
    for key, certificate in (("mutual/tls.key", "mutual/tls.crt"), ("server.key", "server.crt")):
        request = str(root / "request")
        openssl("req", *KEY[:5], "-keyout", str(root / key), "-out", request, "-subj", "/CN=x")
        openssl(
            "x509", "-req", "-in", request, "-CA", str(ca), "-CAkey", str(root / "ca.key"), "-CAcreateserial",
            "-days", "2", "-out", str(root / certificate), "-extfile", str(extensions),
        )  # fmt: skip
    (root / "ca-only" / "ca.crt").write_bytes(ca.read_bytes())
    (root / "mutual" / "token").write_text(TOKEN + "\n")
    (root / "token" / "token").write_text(TOKEN)
    (root / "broken" / "ca.crt").write_text("no certificate")
    return root


def server_tls(secrets: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(secrets / "mutual" / "ca.crt")
    context.load_cert_chain(secrets / "server.crt", secrets / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_both_sides_are_verified(secrets: Path) -> None:
    driver = await ScriptedDriver().start(server_tls(secrets))
    webhook = WebhookProvider(credentials_dir=secrets)
    try:
        await webhook.ensure(spec(driver.url, credentials="mutual"))
        assert driver.headers[0]["Authorization"] == f"Bearer {TOKEN}"
        for credentials, message in (
            ("wrong-ca", "certificate is not trusted"),
            ("", "certificate is not trusted"),
            ("ca-only", "client certificate|connection broke"),
        ):
            with pytest.raises(Retry, match=message) as caught:
                await webhook.ensure(spec(driver.url, credentials=credentials))
            assert TOKEN not in str(caught.value)
        with pytest.raises(BadConfiguration, match=r"ca\.crt"):
            await webhook.ensure(spec(driver.url, credentials="broken"))
        assert len(driver.calls) == 1
    finally:
        await webhook.close()
        await driver.stop()


async def test_rotated_files_are_used_at_once(secrets: Path, scripted: ScriptedDriver) -> None:
    webhook = WebhookProvider(credentials_dir=secrets)
    token = secrets / "token" / "token"
    try:
        await webhook.ensure(spec(scripted.url, credentials="token"))
        token.write_text("next-secret")
        os.utime(token, ns=(1, 1))
        await webhook.ensure(spec(scripted.url, credentials="token"))
        assert [headers["Authorization"] for headers in scripted.headers] == [f"Bearer {TOKEN}", "Bearer next-secret"]
    finally:
        token.write_text(TOKEN)
        await webhook.close()


def open_sessions() -> list[aiohttp.ClientSession]:
    """Return those of the whole process: other tests may have some of their own."""
    return [
        session for session in gc.get_objects() if isinstance(session, aiohttp.ClientSession) and not session.closed
    ]


async def test_connections_of_before_a_rotation_are_closed_however_many_notice_it(
    secrets: Path, scripted: ScriptedDriver
) -> None:
    before = open_sessions()
    webhook = WebhookProvider(credentials_dir=secrets)
    token = secrets / "token" / "token"
    asked = spec(scripted.url, credentials="token")
    many = [msgspec.structs.replace(asked, key=asked.key._replace(name=f"lb-{number}")) for number in range(6)]
    try:
        await webhook.ensure(asked)
        os.utime(token, ns=(2, 2))
        await asyncio.gather(*(webhook.ensure(session) for session in many))
    finally:
        await webhook.close()
    assert [session for session in open_sessions() if all(session is not other for other in before)] == []


@pytest.mark.parametrize("scheme", ["http", "HTTP"])
async def test_a_token_never_leaves_in_the_clear(secrets: Path, scheme: str) -> None:
    webhook = WebhookProvider(credentials_dir=secrets)
    with pytest.raises(BadConfiguration, match=r"use https in parameters\.url") as caught:
        await webhook.ensure(spec(f"{scheme}://driver.example", credentials="token"))
    assert TOKEN not in str(caught.value)
    with pytest.raises(BadConfiguration, match="no folder missing"):
        await webhook.ensure(spec("https://driver.example", credentials="missing"))
    await webhook.close()
