"""Certificates in Secrets of type kubernetes.io/tls: read, checked, and named by a digest of their content.

In: Secrets. Out: ``Certificate``, or a sentence that describes the error. Never: a key in a message.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from fairlead.api.kubernetes import Secret
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.times import parsed_time
from fairlead.model.http import Certificate
from fairlead.model.key_pair import public_key_of

#: Reasons for a missing certificate that the hub is still reading, or a missing new version of one.
UNREAD, UNREAD_VERSION = "not read yet", "the new version has not been read yet"


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


#: A certificate that expires within this time should have been renewed already.
SOON = timedelta(days=14)


class EndingCertificate(msgspec.Struct, frozen=True):
    """A certificate that expired, expires soon, or could not be obtained; ``ends`` None: there is none yet."""

    namespace: str
    name: str
    hosts: tuple[str, ...]
    ends: datetime | None
    why: str


def end_of(obj: ManagedCertificate) -> datetime | None:
    """Return when the served certificate expires; None without a certificate."""
    return parsed_time(obj.status.not_after) if obj.status.digest else None


def first_ends(there: Iterable[ManagedCertificate]) -> dict[str, datetime]:
    """Return by namespace when the first certificate expires."""
    ends: dict[str, datetime] = {}
    for obj in there:
        end = end_of(obj)
        if end is not None:
            namespace = obj.metadata.namespace
            ends[namespace] = min(end, ends.get(namespace, end))
    return ends


def ending(there: Iterable[ManagedCertificate], now: datetime, *, within: timedelta = SOON) -> list[EndingCertificate]:
    """Return the certificates that expire within this time or could not be obtained, earliest expiry first."""
    rows: list[EndingCertificate] = []
    for obj in there:
        end = end_of(obj)
        if end is not None and end - now > within:
            continue
        conditions = {
            condition.type: condition.message for condition in obj.status.conditions or () if condition.message
        }
        why = conditions.get("Stale") or conditions.get("Ready") or "the certificate is being ordered"
        if end is not None or obj.status.failures:
            rows.append(EndingCertificate(obj.metadata.namespace, obj.metadata.name, obj.spec.hosts, end, why))
    return sorted(rows, key=lambda row: (row.ends is not None, row.ends or now, row.namespace, row.name))
