"""The certificate authority of ``acme_server``, without HTTP: issues certificates and verifies signed requests.

In: requests signed as JWS, certificate signing requests. Out: decoded requests, whether a signature is valid, chains.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from acme import jws
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from josepy.b64 import b64encode
from josepy.jwk import JWKOct

_PROBLEM = "urn:ietf:params:acme:error:"


class AcmeFaults(msgspec.Struct):
    """Faults to inject; each number is decreased when it occurs."""

    bad_nonces: int = 0
    #: Refuse this many new orders with rateLimited and a Retry-After in seconds.
    rate_limited: int = 0
    retry_after_s: int = 0
    #: Refuse orders for these names because of a CAA record.
    caa: set[str] = msgspec.field(default_factory=set[str])
    #: Fail every validation with this problem type; empty for none.
    fail_validation: str = ""
    slow_s: float = 0.0
    #: Answer every request with 503.
    down: bool = False


class AcmeProblem(Exception):
    """An error that is answered with a problem document (RFC 7807)."""

    def __init__(self, kind: str, detail: str, *, status: int = 403, retry_after_s: int = 0) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.status, self.retry_after_s = kind, detail, status, retry_after_s


class SignedRequest:
    """A request signed as JWS: its nonce, its URL, and the key, or the URL of the account that has it."""

    def __init__(self, text: str) -> None:
        self._signed: Any = jws.JWS.json_loads(text)
        header: Any = self._signed.signature.combined
        self.nonce: str = b64encode(header.nonce).decode() if header.nonce else ""
        self.url: str = header.url or ""
        self.account: str = header.kid or ""
        self.key: Any = header.jwk
        self.payload: dict[str, Any] = json.loads(self._signed.payload) if self._signed.payload else {}

    def is_by(self, key: Any) -> bool:
        """Return whether the signature is valid for this key."""
        return bool(self._signed.verify(key))


def is_bound(binding: dict[str, Any], key: Any, accounts: Mapping[str, str]) -> bool:
    """Return whether an external account binding for ``key`` is valid; ``accounts``: HMAC keys in base64url by id."""
    signed: Any = jws.JWS.from_json(binding)
    secret = accounts.get(str(signed.signature.combined.kid), "")
    raw = base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4))
    return bool(secret) and signed.verify(JWKOct(key=raw)) and json.loads(signed.payload) == key.to_partial_json()


def thumbprint(key: Any) -> str:
    """Return the JWK thumbprint of an account's key (RFC 7638)."""
    return b64encode(key.thumbprint()).decode()


def token() -> str:
    """Return a random nonce or token, base64url."""
    return b64encode(secrets.token_bytes(16)).decode()


def challenge_text(authorization: str) -> str:
    """Return the value of the TXT record of a DNS-01 challenge."""
    return b64encode(hashlib.sha256(authorization.encode()).digest()).decode()


def problem(kind: str, detail: str) -> dict[str, str]:
    """Return a problem document (RFC 7807) of an ACME error type."""
    return {"type": _PROBLEM + kind, "detail": detail}


class Authority:
    """A certificate authority with a new root."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = _root(self._key)

    @property
    def root(self) -> bytes:
        """Return the root certificate, PEM."""
        return self._certificate.public_bytes(Encoding.PEM)

    def issue(self, request: x509.CertificateSigningRequest, hosts: tuple[str, ...], lifetime: dt.timedelta) -> bytes:
        """Return a certificate chain for these names, PEM."""
        now = dt.datetime.now(dt.UTC)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self._certificate.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + lifetime)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=True)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(Encoding.PEM) + self.root


def _root(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of a test")])
    now = dt.datetime.now(dt.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
