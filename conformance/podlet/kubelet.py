"""The kubelet's own endpoint, as far as ``kubectl logs`` needs it; kube-apiserver does not verify its certificate."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import tempfile
import time
from collections.abc import Mapping

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from conformance.podlet.node import PodNode


async def serve_logs(node: PodNode, port: int) -> None:
    """Serve the logs of the node's pods at its own address."""

    async def logs(request: web.Request) -> web.Response:
        return _logs(node, request)

    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", logs)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, node.ip, port, ssl_context=_self_signed(node.ip)).start()


def _logs(node: PodNode, request: web.Request) -> web.Response:
    wanted = (request.match_info["namespace"], request.match_info["pod"])
    container = request.match_info["container"]
    run = next((run for run in node.pods.values() if tuple(run.pod.key) == wanted), None)
    lines = run.logs.get(container) if run is not None else None
    if lines is None:
        return web.Response(status=404, text=f"no logs of {'/'.join(wanted)}/{container}")
    since_s = 0.0
    if text := request.query.get("sinceTime"):
        since_s = dt.datetime.fromisoformat(text).timestamp()
    elif text := request.query.get("sinceSeconds"):
        since_s = time.time() - float(text)
    shown = [_line(at_s, text, request.query) for at_s, text in lines if at_s >= since_s]
    if tail := request.query.get("tailLines"):
        shown = shown[-int(tail) :] if int(tail) else []
    return web.Response(text="".join(shown))


def _line(at_s: float, text: str, query: Mapping[str, str]) -> str:
    stamp = f"{dt.datetime.fromtimestamp(at_s, dt.UTC).isoformat()} " if query.get("timestamps") == "true" else ""
    return f"{stamp}{text}\n"


def _self_signed(ip: str) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "podlet")])
    at = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - dt.timedelta(hours=1))
        .not_valid_after(at + dt.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(ip))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate.public_bytes(serialization.Encoding.PEM))
        file.write(key.private_bytes(serialization.Encoding.PEM, form, plain))
        file.flush()
        context.load_cert_chain(file.name)
    return context
