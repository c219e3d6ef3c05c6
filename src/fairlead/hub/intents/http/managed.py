"""Additions to a load balancer by certificates that the hub gets itself: answers to challenges, new versions.

In: ManagedCertificates. Out: the answers to their open challenges, the newest version of a certificate that a load
balancer names, and which load balancers a change concerns. A renewal needs no agent: the hub knows the version that it
has written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from fairlead.api.httploadbalancer import CertificateRef
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.names import ANNOTATION_CERTIFICATE_ISSUER
from fairlead.api.tenant import Tenant
from fairlead.kube.cache import WatchCache
from fairlead.model.http import FixedAnswer
from fairlead.translate.challenges import CHALLENGE_PATH
from fairlead.translate.generated import domain_certificate

#: Called with a namespace, names of load balancers in it, and the name of the certificate that changed.
Changed = Callable[[str, Iterable[str], str], None]


class ManagedObjects:
    """The ManagedCertificates of all members, as load balancers see them."""

    def __init__(self, cache: WatchCache[ManagedCertificate], *, wake: Changed) -> None:
        self._wake = wake
        self._cache = cache
        cache.on_change(self._changed)

    def answers(self, namespace: str, load_balancer: str) -> tuple[FixedAnswer, ...]:
        """Return what one load balancer answers to the open challenges of its names, ordered."""
        answers = {
            answer
            for obj in self._cache.by_index("lb", (namespace, load_balancer))
            if not obj.deleting
            for answer in open_answers(obj)
        }
        return tuple(sorted(answers, key=lambda each: (each.hostname, each.path)))

    def newest(self, namespace: str, reference: CertificateRef) -> CertificateRef:
        """Return ``reference`` with the version that the hub has written last, if it writes that Secret."""
        for obj in self._cache.by_index("secret", (namespace, reference.name)):
            if obj.status.digest:
                return msgspec.structs.replace(reference, digest=obj.status.digest)
        return reference

    def of_domains(
        self, namespace: str, tenant: Tenant | None, load_balancer_class: LoadBalancerClass | None
    ) -> dict[str, CertificateRef]:
        """Return the certificates for the names that the hub makes for a member, by domain, where there is one."""
        if tenant is None or load_balancer_class is None:
            return {}
        issuer = load_balancer_class.annotation(ANNOTATION_CERTIFICATE_ISSUER)
        references: dict[str, CertificateRef] = {}
        for domain in tenant.name_domains:
            name = domain_certificate(domain, issuer)
            there = self._cache.get(namespace, name) if name else None
            if there is not None and there.status.digest:
                references[domain] = CertificateRef(name, there.status.digest)
        return references

    def _changed(self, old: ManagedCertificate | None, new: ManagedCertificate | None) -> None:
        if old is not None and new is not None and _seen(old) == _seen(new):
            return
        for obj in filter(None, (old, new)):
            self._wake(obj.metadata.namespace, obj.spec.load_balancers, obj.metadata.name)


def open_answers(obj: ManagedCertificate) -> tuple[FixedAnswer, ...]:
    """Return the answers over HTTP to the challenges of the present order."""
    order = obj.status.order
    return tuple(
        FixedAnswer(each.host, CHALLENGE_PATH + each.token, each.content)
        for each in (order.challenges if order is not None else ())
        if each.type == "http-01"
    )


def _seen(obj: ManagedCertificate) -> tuple[object, ...]:
    return (open_answers(obj), obj.status.digest, obj.spec.load_balancers, obj.secret_name, obj.deleting)
