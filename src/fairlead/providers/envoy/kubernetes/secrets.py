"""Certificates and authorities as Secrets.

In: PEM. Out: manifests and data of Secrets, and what is read back from them. No input or output.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from fairlead.api.kubernetes import Secret
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY, SYSTEM_NAMESPACE
from fairlead.errors import BadConfiguration
from fairlead.providers.envoy.kubernetes.certificates import Authority, Pair, is_authority

AUTHORITY_SECRET = "fairlead-xds-ca"  # noqa: S105 - a name
SERVER_SECRET = "fairlead-xds-server"  # noqa: S105 - a name

#: The content of a Secret by key.
Data = Mapping[str, bytes]


def secret_manifest(namespace: str, name: str, data: Data, labels: Mapping[str, str] | None = None) -> JSONObject:
    """Build a Secret of ours; ``labels`` come beside the one that says so."""
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": {LABEL_MANAGED_BY: MANAGED_BY, **(labels or {})}},
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def data_of(secret: Secret) -> dict[str, bytes]:
    """Decode a Secret; what is no base64 counts as empty."""
    data: dict[str, bytes] = {}
    for key, value in (secret.data or {}).items():
        try:
            data[key] = base64.b64decode(value, validate=True)
        except binascii.Error:
            data[key] = b""
    return data


def pair_data(pair: Pair, trusted: bytes) -> dict[str, bytes]:
    """Return the data of a Secret with a certificate, its key, and the authorities that its owner trusts."""
    return {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": trusted}


def pair_of(data: Data) -> Pair:
    """Return the certificate and key of a Secret's data; empty ones where they are missing."""
    return Pair(data.get("tls.crt", b""), data.get("tls.key", b""))


def authority_data(authority: Authority) -> dict[str, bytes]:
    """Return the data of the authority's Secret."""
    data = pair_data(authority.current, authority.trusted)
    if authority.next is not None:
        data |= {"next.crt": authority.next.certificate, "next.key": authority.next.key}
    return data


def authority_of(data: Data) -> Authority:
    """Return the authority of a Secret's data; ``BadConfiguration`` when that is something else."""
    following = Pair(data["next.crt"], data["next.key"]) if data.get("next.crt") and data.get("next.key") else None
    current = pair_of(data)
    authority = Authority(current=current, trusted=data.get("ca.crt") or current.certificate, next=following)
    if not is_authority(authority):
        raise BadConfiguration(
            f"Secret {SYSTEM_NAMESPACE}/{AUTHORITY_SECRET} holds no certificate with its key (tls.crt, tls.key in "
            "PEM); put back what was there, or delete it: then all proxies get new certificates"
        )
    return authority
