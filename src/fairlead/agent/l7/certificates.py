"""Versions of a member's Secrets as they are served, and checks of bundles of certificates.

In: what the member has. Out: the values that listeners and backends are translated from. Pure.
"""

from __future__ import annotations

import msgspec
from cryptography import x509


class CertificateState(msgspec.Struct, frozen=True):
    """A Secret that listeners name: the version to serve (empty: none yet), and what is wrong with the present one.

    ``missing``: the member does not have it, so the hub may be asked to get it.
    """

    digest: str = ""
    problem: str = ""
    missing: bool = False


def is_bundle(text: str) -> bool:
    """Return whether a text has certificates in PEM, all of which can be read."""
    try:
        return bool(x509.load_pem_x509_certificates(text.encode()))
    except ValueError:
        return False
