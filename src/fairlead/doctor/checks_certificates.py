"""Checks of the certificates that the hub gets itself, and of their issuers.

In: facts about the hub. Out: findings about ManagedCertificates that have ended, end soon or could not be had, and
about CertificateIssuers without an account.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fairlead.api.certificateissuer import CERTIFICATE_ISSUERS
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.doctor.facts import ApiFacts, Facts
from fairlead.doctor.finding import Finding, error, warning
from fairlead.doctor.reading import condition, is_false, name_of, path_of
from fairlead.translate.certificate_ends import ending


def issuers(facts: Facts) -> Iterator[Finding]:
    """Name issuers that have no account at their authority."""
    hub = facts.hub
    for issuer in hub.list(CERTIFICATE_ISSUERS) if hub is not None else ():
        if is_false(issuer, "Accepted"):
            fault = str(condition(issuer, "Accepted").get("message", ""))
            yield error(path_of("CertificateIssuer", issuer), fault, f"kubectl edit certissuer {name_of(issuer)}")


def certificates(facts: Facts) -> Iterator[Finding]:
    """Name certificates that have ended, end within two weeks, or could not be had at all."""
    hub = facts.hub
    if hub is None:
        return
    for row in ending(_managed(hub), hub.now):
        path = f"ManagedCertificate/{row.namespace}/{row.name}"
        names = ", ".join(row.hosts)
        fix = f"kubectl describe mcert -n {row.namespace} {row.name}"
        if row.ends is None:
            yield error(path, f"there is no certificate for {names}: {row.why}", fix)
        elif row.ends <= hub.now:
            yield error(path, f"the certificate for {names} has ended at {row.ends:%Y-%m-%d %H:%M} UTC: {row.why}", fix)
        else:
            yield warning(path, f"the certificate for {names} ends at {row.ends:%Y-%m-%d %H:%M} UTC: {row.why}", fix)


def _managed(hub: ApiFacts) -> list[ManagedCertificate]:
    """Return the ManagedCertificates that can be decoded; others were written by another version."""
    readable: list[ManagedCertificate] = []
    for obj in hub.list(MANAGED_CERTIFICATES):
        try:
            readable.append(msgspec.convert(obj, ManagedCertificate))
        except msgspec.ValidationError:
            continue
    return readable
