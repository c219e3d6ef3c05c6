"""The secrets of the server itself: the admin token, the key that signs tokens and the TLS key.

In: the data directory that holds them, or None. Out: all three, made at the first start and the same ever after.
Files are 0600 from their first byte on and appear whole or not at all.
"""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
from pathlib import Path
from typing import NamedTuple

from fairlead.apiserver.certificate import make_certificate
from fairlead.errors import BadConfiguration

TOKEN_FILE, KEY_FILE, TLS_FILE = "admin.token", "signing.key", "tls.pem"
RENEW_BEFORE_S = 30 * 86400


class ServerSecrets(NamedTuple):
    """The secrets of one server."""

    admin_token: str
    signing_key: bytes


class TlsIdentity(NamedTuple):
    """The TLS context of the HTTPS port, and its certificate (PEM) for clients to trust."""

    context: ssl.SSLContext
    pem: str


def load_credentials(data_dir: Path | None, admin_token: str | None) -> ServerSecrets:
    """Read the secrets, and generate those that are missing; ``admin_token`` replaces the stored one."""
    if data_dir is None:
        return ServerSecrets(admin_token or secrets.token_urlsafe(32), secrets.token_bytes(32))
    try:
        key = _read(data_dir / KEY_FILE) or write_private(data_dir / KEY_FILE, secrets.token_hex(32))
        stored = _read(data_dir / TOKEN_FILE)
        token = admin_token or stored or secrets.token_urlsafe(32)
        if token != stored:
            write_private(data_dir / TOKEN_FILE, token)
        return ServerSecrets(token, bytes.fromhex(key))
    except (OSError, ValueError) as error:
        sentence = f"The data directory {data_dir} cannot be used: make it writable, or name another one"
        raise BadConfiguration(sentence, detail=str(error)) from error


def load_tls(data_dir: Path | None, hosts: list[str], now: float) -> TlsIdentity:
    """Read the certificate, or make a new one when it is missing, is for other hosts or expires soon."""
    if data_dir is None:
        with tempfile.TemporaryDirectory() as folder:
            return _tls(Path(folder), hosts, now)
    try:
        return _tls(data_dir, hosts, now)
    except OSError as error:
        sentence = f"The data directory {data_dir} cannot be used: make it writable, or name another one"
        raise BadConfiguration(sentence, detail=str(error)) from error


def _tls(folder: Path, hosts: list[str], now: float) -> TlsIdentity:
    path = folder / TLS_FILE
    text = _read(path)
    if not text or not _fits(text, hosts, now):
        made = make_certificate(hosts, now)
        text = write_private(path, made.pem + made.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return TlsIdentity(context, _certificate_of(text))


def _certificate_of(text: str) -> str:
    return text[: text.find("-----BEGIN EC")]


def _fits(text: str, hosts: list[str], now: float) -> bool:
    try:
        certificate = ssl.create_default_context(cadata=_certificate_of(text)).get_ca_certs()[0]
        named = {str(name[1]) for name in certificate.get("subjectAltName", ())}
        return set(hosts) <= named and ssl.cert_time_to_seconds(str(certificate["notAfter"])) > now + RENEW_BEFORE_S
    except (ssl.SSLError, IndexError, KeyError, ValueError):
        return False


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def write_private(path: Path, text: str) -> str:
    """Write a file with mode 0600 atomically; return ``text``."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    return text
