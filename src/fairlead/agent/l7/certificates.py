"""Versions of a member's Secrets as they are served, and checks of bundles of certificates.

In: what the member has. Out: the values that listeners and backends are translated from. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

import msgspec
from cryptography import x509

from fairlead.model.in_words import listed
from fairlead.model.key_pair import Validity, covers

#: Why a Secret that is not in the member is not served.
NOT_IN_MEMBER = "the Secret does not exist"


class CertificateState(msgspec.Struct, frozen=True):
    """A Secret that listeners name: the version to serve (empty: none yet), and what is wrong with the present one.

    ``missing``: the member does not have it, so the hub may be asked to get it.
    """

    digest: str = ""
    problem: str = ""
    missing: bool = False
    validity: Validity | None = None

    def flaw(self, hosts: Iterable[str], now: datetime) -> str:
        """Return why clients refuse the certificate that is served for ``hosts``, empty when nothing is known."""
        if self.validity is None:
            return ""
        if self.validity.ends <= now:
            return f"the certificate expired at {self.validity.ends:%Y-%m-%d %H:%M} UTC, so clients refuse it; renew it"
        uncovered = [host for host in hosts if not covers(self.validity.names, host)]
        return not_covered(uncovered, self.validity.names) if uncovered else ""


def not_covered(hosts: Sequence[str], names: Collection[str]) -> str:
    """Return the sentence about hosts for which a certificate with these names is served."""
    there = listed(sorted(names), 3) or "no names"
    return (
        f"the certificate is not valid for {listed(hosts, 3)}, so clients refuse it; it is valid for {there}. Name a "
        "certificate with the host among its subject alternative names"
    )


def is_bundle(text: str) -> bool:
    """Return whether a text has certificates in PEM, all of which can be read."""
    try:
        return bool(x509.load_pem_x509_certificates(text.encode()))
    except ValueError:
        return False
