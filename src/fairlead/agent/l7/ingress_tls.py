"""The certificates for the TLS hosts of an Ingress, and those that the hub is requested to get for them.

    the Secret is in the member       its copy
    it is not, an issuer is named     the certificate that the hub gets, once it has it; until then a copy that is left
    it is not                         a copy that is left

In: one Ingress, the Secrets that it names, the certificates that the hub gets. Out: sections. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fairlead.agent.l7.certificates import CertificateState
from fairlead.agent.l7.identity import certificate_name
from fairlead.agent.l7.requests import PENDING, CertificateRequest, issuer_of, request, too_many
from fairlead.api.httploadbalancer import CertificateRef
from fairlead.api.ingress import IngressObject
from fairlead.api.tcploadbalancer import Origin


class Lookup(NamedTuple):
    """The input of sections: the load balancer that answers, Secrets by key, certificates of the hub by name.

    ``issuer`` is that of Ingresses that name none.
    """

    load_balancer: str
    certificates: Mapping[tuple[str, str], CertificateState]
    managed: Mapping[str, CertificateState]
    issuer: str = ""


class Section(NamedTuple):
    """One entry of ``spec.tls``: its hosts, the certificate that is served for them, and what is asked of the hub."""

    hosts: tuple[str, ...]
    secret: str = ""
    certificate: CertificateRef | None = None
    problem: str = ""
    request: CertificateRequest | None = None


def sections_of(ingress: IngressObject, lookup: Lookup) -> Iterable[Section]:
    """Yield each entry of ``spec.tls``; without hosts they are those of the rules."""
    seen: set[str] = set()
    for tls in ingress.spec.tls or ():
        named = tls.hosts or sorted({rule.host for rule in ingress.spec.rules or () if rule.host})
        hosts = tuple(dict.fromkeys(host for host in named if host not in seen))
        seen.update(hosts)
        if tls.secret_name and not named:
            yield Section((), problem=f"spec.tls with Secret {tls.secret_name} names no host, and no rule has one")
        elif hosts or not tls.secret_name:
            yield _section(ingress, lookup, hosts, tls.secret_name)


def _section(ingress: IngressObject, lookup: Lookup, hosts: tuple[str, ...], secret: str) -> Section:
    namespace = ingress.metadata.namespace
    state = CertificateState(missing=True)
    if secret:
        state = lookup.certificates.get((namespace, secret), CertificateState(problem="it is not there", missing=True))
    copy = CertificateRef(certificate_name(namespace, secret), state.digest) if secret and state.digest else None
    request = _request(ingress, lookup, hosts) if state.missing else None
    if request is not None:
        return _asked(lookup, request, hosts, secret or request.name, copy)
    if state.missing and (refusal := too_many(hosts, issuer_of(ingress, lookup.issuer))):
        where = f"spec.tls with Secret {secret}" if secret else "an entry of spec.tls without a Secret"
        return Section(hosts, secret, copy, f"{where}: {refusal}")
    if not secret:
        return Section((), problem="an entry of spec.tls names no secretName, so its hosts are not served over HTTPS")
    kept = "the version before is served on" if copy else f"{_list(hosts)} the fallback certificate"
    problem = f"Secret {secret}: {state.problem}; {kept}" if state.problem else ""
    return Section(hosts, secret, copy, problem)


def _asked(
    lookup: Lookup, request: CertificateRequest, hosts: tuple[str, ...], secret: str, copy: CertificateRef | None
) -> Section:
    state = lookup.managed.get(request.name, CertificateState(problem=PENDING))
    # The hub knows which version it has written: a renewal changes nothing here.
    certificate = CertificateRef(request.name) if state.digest else copy
    problem = ""
    if state.problem and state.problem != PENDING:
        kept = "the version before is served on" if certificate else f"{_list(hosts)} the fallback certificate"
        problem = f"the certificate for {', '.join(hosts)}: {state.problem}; {kept}"
    return Section(hosts, secret, certificate, problem, request)


def _request(ingress: IngressObject, lookup: Lookup, hosts: tuple[str, ...]) -> CertificateRequest | None:
    meta = ingress.metadata
    return request(
        hosts,
        issuer_of(ingress, lookup.issuer),
        load_balancer=lookup.load_balancer,
        origin=Origin(kind="Ingress", namespace=meta.namespace, name=meta.name, uid=meta.uid),
    )


def _list(hosts: tuple[str, ...]) -> str:
    return f"{', '.join(hosts)} {'gets' if len(hosts) == 1 else 'get'}"
