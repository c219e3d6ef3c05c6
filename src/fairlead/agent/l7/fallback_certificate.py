"""The certificate for clients whose server name has none: it is self-signed, and no user's.

Made once for each IngressClass with TLS and kept at the hub, so that all agents and restarts show the same. In: the
time. Out: a chain with its key. Never: a name that a client could trust; ``invalid`` is reserved for that (RFC 2606).
"""

from __future__ import annotations

import base64
import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fairlead.translate.certificates import pair_digest

_NAME = "fallback.fairlead.invalid"
#: Clocks may differ by so much, in days; nothing depends on the end, since no client trusts it.
_EARLIER_DAYS, _VALID_DAYS = 1, 36_500


def make_fallback(now: dt.datetime) -> tuple[str, dict[str, str]]:
    """Return the digest of a new certificate, and the data of its Secret."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=_EARLIER_DAYS))
        .not_valid_after(now + dt.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain = certificate.public_bytes(Encoding.PEM)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(pem).decode()}
    return pair_digest(chain, pem), data
