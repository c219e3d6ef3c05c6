"""Certificates of the member as they are served, and requests for those that the hub should get.

The hub is asked for a certificate if all of this holds:

    the object, or the class at the hub, names a CertificateIssuer
    the Secret that is named is not in the member, or none is named
    no other controller is asked to make it (the annotations of cert-manager)

In: objects of the member, and what the hub has. Out: versions to serve with their flaws; requests by name, the same for
the same names and issuer however many objects ask. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from cryptography import x509

from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import ManagedCertificate, ManagedCertificateSpec
from fairlead.api.meta import KubeObject
from fairlead.api.names import ANNOTATION_CERTIFICATE_ISSUER, short_hash
from fairlead.api.tcploadbalancer import Origin
from fairlead.model.in_words import listed
from fairlead.model.key_pair import Validity, covers

#: Why a Secret that is not in the member is not served.
NOT_IN_MEMBER = "the Secret does not exist"


# --- Secrets of the member -------------------------------------------------------------------------------------------


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
    """Return whether a text consists of certificates in PEM that can be read."""
    try:
        return bool(x509.load_pem_x509_certificates(text.encode()))
    except ValueError:
        return False


# --- requests --------------------------------------------------------------------------------------------------------

#: One of these on an object: cert-manager makes its Secrets.
_CERT_MANAGER = ("cert-manager.io/issuer", "cert-manager.io/cluster-issuer", "kubernetes.io/tls-acme")
_ASKERS_SHOWN = 16
_MOST_HOSTS = 100


class CertificateRequest(msgspec.Struct, frozen=True):
    """One certificate that one object asks for, and the load balancer that answers for its names."""

    hosts: tuple[str, ...]
    issuer: str
    load_balancer: str
    origin: Origin

    @property
    def name(self) -> str:
        """Return the name of the ManagedCertificate, and of its Secret."""
        return request_name(self.hosts, self.issuer)


def request_name(hosts: Iterable[str], issuer: str) -> str:
    """Name the ManagedCertificate for a set of names."""
    return f"acme.{short_hash(issuer, *sorted(set(hosts)), size_bytes=10)}"


def issuer_of(obj: KubeObject, default: str) -> str:
    """Return the CertificateIssuer that an object asks, empty for none; ``default`` is that of its class."""
    named = obj.annotation(ANNOTATION_CERTIFICATE_ISSUER)
    if named:
        return named
    return "" if any(obj.annotation(annotation) for annotation in _CERT_MANAGER) else default


def request(hosts: Iterable[str], issuer: str, *, load_balancer: str, origin: Origin) -> CertificateRequest | None:
    """Return the request for a set of names, None when there is nothing to ask for."""
    names = tuple(sorted({host.lower() for host in hosts if host}))
    if not names or not issuer or len(names) > _MOST_HOSTS:
        return None
    return CertificateRequest(names, issuer, load_balancer, origin)


def too_many(hosts: Iterable[str], issuer: str) -> str:
    """Return why an issuer is not asked for these names, empty when their number is allowed."""
    count = len({host.lower() for host in hosts if host})
    if not issuer or count <= _MOST_HOSTS:
        return ""
    return f"a certificate has at most {_MOST_HOSTS} names, and this entry has {count}: divide it among several entries"


def merged_spec(requests: Iterable[CertificateRequest]) -> ManagedCertificateSpec | None:
    """Return what the hub is asked, by requests of one name; None without any."""
    ordered = sorted(requests, key=lambda asked: (asked.load_balancer, asked.origin.namespace, asked.origin.name))
    if not ordered:
        return None
    origins = {asked.origin: None for asked in ordered}
    return ManagedCertificateSpec(
        hosts=ordered[0].hosts,
        issuer=ordered[0].issuer,
        load_balancers=tuple(dict.fromkeys(asked.load_balancer for asked in ordered)),
        asked_by=tuple(origins)[:_ASKERS_SHOWN],
    )


def state_of(obj: ManagedCertificate | None) -> CertificateState:
    """Return whether a certificate that the hub gets is there, and what users are to read of it."""
    if obj is None:
        return CertificateState(problem=PENDING)
    conditions = {condition.type: condition for condition in obj.status.conditions or ()}
    stale, ready = conditions.get("Stale"), conditions.get("Ready")
    if obj.status.digest:
        return CertificateState(obj.status.digest, stale.message if stale is not None else "")
    wrong = ready is not None and ready.status == "False" and ready.reason != "Pending"
    return CertificateState(problem=ready.message if ready is not None and wrong else PENDING)


#: The certificate is ordered: nothing is wrong, and nothing is there.
PENDING = "the certificate is being ordered"


def states_of(certificates: Iterable[ManagedCertificate]) -> Mapping[str, CertificateState]:
    """Return how far each certificate is, by name."""
    return {obj.metadata.name: state_of(obj) for obj in certificates if not obj.deleting}


def same_progress(old: ManagedCertificate, new: ManagedCertificate) -> bool:
    """Return whether two versions of a certificate are the same for those that ask for it: a renewal is not seen."""
    before, after = state_of(old), state_of(new)
    return (bool(before.digest), before.problem, old.deleting) == (bool(after.digest), after.problem, new.deleting)


def wants_another(old: LoadBalancerClass, new: LoadBalancerClass) -> bool:
    """Return whether a class of the hub has changed for what is published: its spec, or its issuer."""
    key = ANNOTATION_CERTIFICATE_ISSUER
    return old.spec != new.spec or old.annotation(key) != new.annotation(key)
