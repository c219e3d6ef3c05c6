"""The secrets of the server itself: the admin token, the key that signs tokens and the TLS key.

In: the data directory that holds them, or None. Out: all three, made at the first start and the same ever after.
Files are 0600 from their first byte on and appear whole or not at all.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from podless.failure import ConfigurationError

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
        raise ConfigurationError(sentence, detail=str(error)) from error


def load_tls(data_dir: Path | None, hosts: list[str], now: float) -> TlsIdentity:
    """Read the certificate, or make a new one when it is missing, is for other hosts or expires soon."""
    if data_dir is None:
        with tempfile.TemporaryDirectory() as folder:
            return _tls(Path(folder), hosts, now)
    try:
        return _tls(data_dir, hosts, now)
    except OSError as error:
        sentence = f"The data directory {data_dir} cannot be used: make it writable, or name another one"
        raise ConfigurationError(sentence, detail=str(error)) from error


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


VALID_S = 10 * 365 * 86400
#: The clock may be set back later: that of a machine whose local time was taken for UTC is up to 14 hours ahead.
_EARLIER = timedelta(days=1)


class Certificate(NamedTuple):
    """A certificate and its key, both PEM."""

    pem: str
    key_pem: str


def make_certificate(hosts: list[str], now: float) -> Certificate:
    """Return a certificate for ``hosts`` (names or addresses), signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "podless")])
    start = datetime.fromtimestamp(now, UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(start - _EARLIER)
        .not_valid_after(start + timedelta(seconds=VALID_S))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    return Certificate(certificate.public_bytes(serialization.Encoding.PEM).decode(), key_pem.decode())


def _usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
