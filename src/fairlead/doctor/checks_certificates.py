"""Checks of the certificates that the hub gets itself, and of their issuers.

In: facts about the hub. Out: findings about ManagedCertificates that have ended, end soon or could not be had, and
about CertificateIssuers without an account.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fairlead.api.certificateissuer import CERTIFICATE_ISSUERS
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.doctor.facts import ApiFacts, Facts
from fairlead.doctor.finding import Finding, error, warning
from fairlead.doctor.reading import condition, is_false, items, meta, name_of, path_of, spec
from fairlead.model.in_words import listed
from fairlead.model.key_pair import covers
from fairlead.translate.certificates import ending


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


def other_names(facts: Facts) -> Iterator[Finding]:
    """Name listeners whose certificate is not valid for their host: clients refuse the connection."""
    hub = facts.hub
    if hub is None:
        return
    names = {each.where: each.names for each in hub.endings if each.what == "certificate"}
    for lb in hub.list(HTTP_LOAD_BALANCERS):
        namespace = str(meta(lb, "namespace"))
        for listener in items(spec(lb).get("listeners")):
            host = str(listener.get("hostname") or "")
            secrets = [str(each) for each in items(listener.get("certificates"))]
            known = [names.get(f"Secret/{namespace}/{secret}") for secret in secrets]
            if host and known and not any(each is None or covers(each, host) for each in known):
                fault = f"no certificate of listener {listener.get('name')} is valid for {host}, so clients refuse it"
                fix = f"openssl s_client -servername {host} -connect ADDRESS:443   then correct {listed(secrets, 3)}"
                yield error(path_of(HTTP_LOAD_BALANCERS.kind, lb), fault, fix)


def _managed(hub: ApiFacts) -> list[ManagedCertificate]:
    """Return the ManagedCertificates that can be decoded; others were written by another version."""
    readable: list[ManagedCertificate] = []
    for obj in hub.list(MANAGED_CERTIFICATES):
        try:
            readable.append(msgspec.convert(obj, ManagedCertificate))
        except msgspec.ValidationError:
            continue
    return readable
