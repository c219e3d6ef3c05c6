"""Whether a member may have a certificate for these names from this authority.

    the issuer exists, and is for this member and these names
    no name belongs to another member (Hostname); a star and the names under it are one matter
    a name that DNS01 proves belongs to this member: the hub itself would prove it, for any member
    a star is in a domain of this member, or its issuer is for named members and domains: its key is good for all names
    below it, also those of other members

In: a ManagedCertificate, its issuer, its Tenant, the owners of names and of domains. Out: a condition, None when it
may. Pure. Never: the name of another member in a message.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.api.certificateissuer import CertificateIssuer
from fairlead.api.hostnames import is_within
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.model.condition import Condition, ConditionReason, ConditionType

#: Returns the member that has a name, None when no Hostname says who has it.
OwnerOf = Callable[[str], str | None]
#: Says whether a name is in a domain that belongs to the member alone.
Granted = Callable[[str], bool]


def refusal(
    obj: ManagedCertificate, issuer: CertificateIssuer | None, member: str, owner_of: OwnerOf, granted: Granted
) -> Condition | None:
    """Return why ``member`` may not have this certificate, None when it may."""
    name = obj.spec.issuer
    if issuer is None or issuer.deleting:
        step = "correct the annotation fairlead.dev/certificate-issuer, or ask the operator for one"
        return _no(ConditionReason.NO_SUCH_ISSUER, f"there is no CertificateIssuer {name} at the hub: {step}")
    spec = issuer.spec
    if not member or (spec.tenants and member not in spec.tenants):
        text = f"CertificateIssuer {name} is not for this member: choose another one, or ask the operator"
        return _no(ConditionReason.NOT_ALLOWED, text)
    for host in obj.spec.hosts:
        if spec.domains and not any(is_within(host, domain) for domain in spec.domains):
            text = f"CertificateIssuer {name} does not issue for {host}: choose another one, or ask the operator"
            return _no(ConditionReason.NOT_ALLOWED, text)
        owner = owner_of(host)
        if owner is not None and owner != member:
            text = f"{host} is taken: another object asked for it first; choose another name, or ask the operator"
            return _no(ConditionReason.NOT_ALLOWED, text)
        if owner is None and proven_by_us(host, issuer):
            text = (
                f"{host} needs DNS01, and no Hostname gives it to this member yet: it is ordered once the member owns "
                "the name"
            )
            return _no(ConditionReason.NOT_ALLOWED, text)
        if host.startswith("*.") and not granted(host) and not (spec.tenants and spec.domains):
            text = (
                f"{host}: a certificate for a wildcard is good for names of other members, too: name the hosts one by "
                f"one, or ask the operator to add {host[2:]} to spec.domains of the Tenant"
            )
            return _no(ConditionReason.NOT_ALLOWED, text)
    return None


def secret_taken(obj: ManagedCertificate, owner: str) -> Condition:
    """Return why ``obj`` is not ordered: ``owner``, an older certificate, writes the Secret that it names."""
    text = (
        f"Secret {obj.secret_name} belongs to ManagedCertificate {owner}, which is older: choose another "
        "spec.secretName, or delete that certificate"
    )
    return _no(ConditionReason.SECRET_TAKEN, text)


def proven_by_us(host: str, issuer: CertificateIssuer) -> bool:
    """Return whether the hub's own DNS would be what proves a name: for any member, it would succeed."""
    return host.startswith("*.") or issuer.spec.solvers[0] == "DNS01"


def _no(reason: ConditionReason, message: str) -> Condition:
    return Condition(ConditionType.READY, False, reason, message)
