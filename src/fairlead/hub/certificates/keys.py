"""Keys: that of an account at an authority, and that of a certificate, with the request that it signs.

In: names, PEM. Out: PEM, DER, and what a certificate says of itself. Keys are ECDSA P-256. Never: a key in a message.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtensionOID

from fairlead.errors import Bug, FairleadError


class CertificateFacts(msgspec.Struct, frozen=True):
    """Facts of the first certificate of a chain: serial number (hexadecimal), life, names."""

    serial: str
    not_before: datetime
    not_after: datetime
    hosts: tuple[str, ...]


def new_key() -> bytes:
    """Return a new private key, PEM (PKCS #8)."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def is_account_key(key: bytes) -> bool:
    """Return whether this is a key that accounts of ours have."""
    try:
        loaded = load_pem_private_key(key, password=None)
    except (ValueError, TypeError):
        return False
    return isinstance(loaded, ec.EllipticCurvePrivateKey) and loaded.curve.name == "secp256r1"


def signing_request(key: bytes, hosts: tuple[str, ...]) -> x509.CertificateSigningRequest:
    """Return the request for a certificate with these names, signed with ``key`` (PEM)."""
    private = load_pem_private_key(key, password=None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise TypeError("the key of a certificate is ECDSA")
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.add_extension(names, critical=False).sign(private, hashes.SHA256())


def facts_of(chain: bytes) -> CertificateFacts:
    """Return what the first certificate of a chain (PEM) says.

    Raises:
        ValueError: it is no certificate.
    """
    certificates = x509.load_pem_x509_certificates(chain)
    first = certificates[0]
    return CertificateFacts(
        serial=f"{first.serial_number:x}",
        not_before=first.not_valid_before_utc,
        not_after=first.not_valid_after_utc,
        hosts=_names(first),
    )


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        extension = certificate.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME)
    except x509.ExtensionNotFound:
        return ()
    names = extension.value
    return tuple(names.get_values_for_type(x509.DNSName)) if isinstance(names, x509.SubjectAlternativeName) else ()


T = TypeVar("T")

#: A call may be several requests, each with a limit of its own; a server that sends an answer byte by byte has none.
LIMIT_S = 60.0


async def in_thread(call: Callable[[], T], *, name: str, limit_s: float = LIMIT_S) -> T:
    """Return what ``call`` returns, made in a thread of its own.

    Raises:
        TimeoutError: it has not ended within ``limit_s`` seconds; its thread ends when the server closes or answers.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def done(result: list[T], error: BaseException | None) -> None:
        if answer.done():
            return
        if result:
            answer.set_result(result[0])
        else:
            answer.set_exception(error or Bug(f"{name}: the call has ended without a result"))

    def run() -> None:
        result: list[T] = []
        error: BaseException | None = None
        try:
            result.append(call())
        except FairleadError as refused:
            error = refused
        finally:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(done, result, error or sys.exc_info()[1])

    threading.Thread(target=run, name=name, daemon=True).start()
    async with asyncio.timeout(limit_s):
        return await answer
