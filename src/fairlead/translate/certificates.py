"""Certificates in Secrets of type kubernetes.io/tls: read, checked, and named by a digest of their content.

In: Secrets. Out: ``Certificate``, or a sentence that says what is wrong. Never: a key in a message.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from fairlead.api.kubernetes import Secret
from fairlead.model.http import Certificate
from fairlead.model.key_pair import public_key_of

#: Why a certificate is missing that the hub is still reading, and why a new version of one is.
UNREAD, UNREAD_VERSION = "it has not been read yet", "its new version has not been read yet"


def certificate_of(name: str, secret: Secret) -> Certificate:
    """Return the certificate in a Secret of type kubernetes.io/tls.

    Raises:
        ValueError: what is wrong with chain or key; never shows the key.
    """
    chain, key = (_decoded(secret, entry) for entry in ("tls.crt", "tls.key"))
    public_key_of(chain, key)
    return Certificate(name=name, digest=pair_digest(chain, key), chain=chain, key=key)


def pair_digest(chain: bytes, key: bytes) -> str:
    """Return the digest by which an object names this version of a certificate."""
    digest = hashlib.blake2b(chain, digest_size=16, key=hashlib.blake2b(key, digest_size=32).digest())
    return digest.hexdigest()


def _decoded(secret: Secret, entry: str) -> bytes:
    raw = (secret.data or {}).get(entry, "")
    try:
        return base64.b64decode(raw, validate=True)
    except binascii.Error:
        raise ValueError(f"{entry} is not base64") from None
