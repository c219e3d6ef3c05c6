"""Self-signed certificates for tests and demos, generated on each call. Writes no files."""

from __future__ import annotations

import datetime as dt
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def self_signed(host: str, *, ends_in_days: float = 1) -> tuple[bytes, bytes]:
    """Return a certificate for ``host``, a name or an IP address, and its key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = dt.datetime.now(dt.UTC)
    ends = now + dt.timedelta(days=ends_in_days)
    # The key identifiers distinguish certificates with the same subject in a trust store.
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, ends) - dt.timedelta(hours=1))
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([_name(host)]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(authority, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM), pem


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
