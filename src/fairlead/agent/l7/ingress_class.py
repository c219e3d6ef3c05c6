"""An IngressClass as a load balancer at the hub: one HTTP listener, and one HTTPS listener for each TLS host.

Several Ingresses may name one host: the certificate of the oldest counts. Beside them one listener for other names, and
for hosts whose Secret is not there, shows a fallback certificate that is no user's. Above the most listeners that a
load balancer may have, the hosts of the youngest Ingresses are left out. In: the class, its Ingresses, the
certificates that are there. Out: the spec of the HTTPLoadBalancer, and sentences by Ingress. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

import msgspec

from fairlead.agent.l7.certificates import NOT_IN_MEMBER, CertificateState
from fairlead.agent.l7.families import annotation_problem, families_by_annotation, policy_of
from fairlead.agent.l7.identity import certificate_name, class_load_balancer_name, fallback_name
from fairlead.agent.l7.ingress import FALLBACK_LISTENER, HTTP_LISTENER, https_listener
from fairlead.agent.l7.requests import PENDING, CertificateRequest, issuer_of, request, too_many
from fairlead.api.httploadbalancer import CertificateRef, HTTPLoadBalancerSpec
from fairlead.api.kubernetes import ANNOTATION_DEFAULT_CLASS, ANNOTATION_LEGACY_CLASS, IngressClass, IngressObject
from fairlead.api.meta import ObjectKey
from fairlead.api.names import DEFAULT_CLASS
from fairlead.api.tcploadbalancer import Origin, TargetType
from fairlead.model.http import L7Listener

#: An HTTPLoadBalancer has 1,024 listeners at most; one is for HTTP, one for the fallback certificate.
MOST_TLS_HOSTS = 1022


class ClassView(msgspec.Struct, frozen=True):
    """One IngressClass of ours with its Ingresses in any order, and the Secrets that they name, by key.

    ``issuer`` is that of Ingresses that name none; ``managed`` are the certificates that the hub gets, by name.
    """

    ingress_class: IngressClass
    ingresses: tuple[IngressObject, ...]
    certificates: Mapping[tuple[str, str], CertificateState]
    targets: TargetType = "Pod"
    #: The digest of the fallback certificate, empty while there is none.
    fallback: str = ""
    issuer: str = ""
    managed: Mapping[str, CertificateState] = {}


class ClassPlan(msgspec.Struct, frozen=True):
    """The load balancer of one class, the listener of each TLS host, and sentences by Ingress.

    ``has_tls``: it has Ingresses with TLS, so it needs a fallback certificate. ``requests`` are for certificates that
    the hub is to get, by name.
    """

    spec: HTTPLoadBalancerSpec
    tls_listeners: Mapping[str, str]
    problems: Mapping[ObjectKey, tuple[str, ...]]
    has_tls: bool = False
    requests: Mapping[str, tuple[CertificateRequest, ...]] = {}


def class_of(ingress: IngressObject, classes: Iterable[IngressClass]) -> IngressClass | None:
    """Return the class of ours that an Ingress is of, None when it is of none.

    Without a name it is of the default class; of several default classes the newest counts, then the first by name.
    """
    classes_present = list(classes)
    named = ingress.spec.ingress_class_name
    if named is None:
        named = ingress.annotation(ANNOTATION_LEGACY_CLASS) or None
    if named is None:
        defaults = [each for each in classes_present if each.annotation(ANNOTATION_DEFAULT_CLASS) == "true"]
        by_name = sorted(defaults, key=lambda each: each.metadata.name)
        newest = max((each.metadata.creation_timestamp or "" for each in defaults), default="")
        chosen = next((each for each in by_name if (each.metadata.creation_timestamp or "") == newest), None)
    else:
        chosen = next((each for each in classes_present if each.metadata.name == named), None)
    return chosen if chosen is not None and chosen.is_ours else None


def plan_class(view: ClassView) -> ClassPlan:
    """Return the load balancer of ``view``."""
    name = view.ingress_class.metadata.name
    hosts = _Hosts()
    lookup = Lookup(class_load_balancer_name(name), view.certificates, view.managed, view.issuer)
    for ingress in sorted(view.ingresses, key=attrgetter("age_order")):
        for section in sections_of(ingress, lookup):
            hosts.add(ingress, section)
    listeners = [L7Listener(HTTP_LISTENER, 80), *hosts.listeners]
    has_tls = any(ingress.spec.tls for ingress in view.ingresses)
    if has_tls and view.fallback:
        fallback = CertificateRef(fallback_name(name), view.fallback)
        hosts.used[fallback.name] = fallback
        listeners.append(L7Listener(FALLBACK_LISTENER, 443, "HTTPS", certificates=(fallback.name,)))
    families = families_by_annotation(view.ingress_class)
    if problem := annotation_problem(view.ingress_class):
        for ingress in view.ingresses:
            hosts.problems.setdefault(ingress.key, []).append(f"IngressClass {name}: {problem}")
    spec = HTTPLoadBalancerSpec(
        listeners=tuple(sorted(listeners, key=lambda each: (each.port, each.name))),
        class_name=view.ingress_class.load_balancer_class or DEFAULT_CLASS,
        certificates=tuple(hosts.used[each] for each in sorted(hosts.used)),
        targets=view.targets,
        ip_families=families,
        ip_family_policy=policy_of(families),
        origin=Origin(kind="IngressClass", name=name, uid=view.ingress_class.metadata.uid),
    )
    said_of = {key: tuple(dict.fromkeys(sentences)) for key, sentences in hosts.problems.items() if sentences}
    tls_listeners = {host: https_listener(host) for host in hosts.owners}
    if view.fallback:
        tls_listeners |= {host: FALLBACK_LISTENER for host in hosts.without if host not in hosts.owners}
    return ClassPlan(
        spec, tls_listeners, said_of, has_tls, {name: tuple(each) for name, each in hosts.requests.items()}
    )


class _Hosts:
    """The TLS hosts of a class, added from the oldest Ingress to the youngest."""

    def __init__(self) -> None:
        self.owners: dict[str, tuple[ObjectKey, str]] = {}
        #: Hosts that have no certificate of their own, as far as the Ingresses say that were added until now.
        self.without: dict[str, None] = {}
        self.used: dict[str, CertificateRef] = {}
        self.listeners: list[L7Listener] = []
        self.problems: dict[ObjectKey, list[str]] = {}
        self.requests: dict[str, list[CertificateRequest]] = {}

    def add(self, ingress: IngressObject, section: Section) -> None:
        """Add an entry of an Ingress, or what is wrong with it."""
        sentences = self.problems.setdefault(ingress.key, [])
        if section.request is not None:
            self.requests.setdefault(section.request.name, []).append(section.request)
        taken = [self._add_host(ingress, host, section, sentences) for host in section.hosts]
        if section.problem and (not section.hosts or any(taken)):
            sentences.append(section.problem)

    def _add_host(self, ingress: IngressObject, host: str, section: Section, sentences: list[str]) -> bool:
        """Return whether the host is this Ingress's, and no older one's."""
        owner, of_owner = self.owners.get(host, (ingress.key, section.secret))
        if owner != ingress.key:
            if (owner.namespace, of_owner) != (ingress.metadata.namespace, section.secret):
                sentences.append(f"host {host} is served with the certificate of an older Ingress")
            return False
        if section.certificate is None:
            self.without[host] = None
            return True
        if len(self.listeners) >= MOST_TLS_HOSTS:
            sentences.append(
                f"host {host} is not served over HTTPS: older Ingresses of the class have {MOST_TLS_HOSTS:,} TLS hosts,"
                " the most that a load balancer has; use another IngressClass for it"
            )
            return True
        self.owners[host] = (ingress.key, section.secret)
        name = section.certificate.name
        self.used[name] = section.certificate
        self.listeners.append(L7Listener(https_listener(host), 443, "HTTPS", hostname=host, certificates=(name,)))
        return True


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
        state = lookup.certificates.get((namespace, secret), CertificateState(problem=NOT_IN_MEMBER, missing=True))
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
