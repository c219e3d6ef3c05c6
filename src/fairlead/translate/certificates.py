"""Certificates in Secrets of type kubernetes.io/tls: read, checked, and named by a digest of their content.

In: Secrets. Out: ``Certificate``, or a sentence that says what is wrong. Never: a key in a message.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from fairlead.api.kubernetes import Secret
from fairlead.model.http import Certificate

#: Why a certificate is missing that the hub is still reading, and why a new version of one is.
UNREAD, UNREAD_VERSION = "it has not been read yet", "its new version has not been read yet"


def certificate_of(name: str, secret: Secret) -> Certificate:
    """Return the certificate in a Secret of type kubernetes.io/tls.

    Raises:
        ValueError: chain or key are missing or unreadable, or do not belong together; never shows the key.
    """
    chain, key = (_decoded(secret, entry) for entry in ("tls.crt", "tls.key"))
    check_pair(chain, key)
    return Certificate(name=name, digest=pair_digest(chain, key), chain=chain, key=key)


def pair_digest(chain: bytes, key: bytes) -> str:
    """Return the digest by which an object names this version of a certificate."""
    digest = hashlib.blake2b(chain, digest_size=16, key=hashlib.blake2b(key, digest_size=32).digest())
    return digest.hexdigest()


def check_pair(chain: bytes, key: bytes) -> None:
    """Raise ``ValueError`` when chain and key are no PEM, or do not belong together."""
    try:
        first = x509.load_pem_x509_certificates(chain)[0]
    except (ValueError, IndexError):
        raise ValueError("tls.crt has no certificate in PEM") from None
    try:
        public = load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError):
        raise ValueError("tls.key has no private key in PEM without a password") from None
    encoding = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if first.public_key().public_bytes(*encoding) != public.public_bytes(*encoding):
        raise ValueError("tls.key is not the key of the first certificate in tls.crt")


def _decoded(secret: Secret, entry: str) -> bytes:
    raw = (secret.data or {}).get(entry, "")
    try:
        return base64.b64decode(raw, validate=True)
    except binascii.Error:
        raise ValueError(f"{entry} is not base64") from None
