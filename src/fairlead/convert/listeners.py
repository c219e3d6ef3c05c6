"""The Gateway and its listeners for a set of Ingresses.

    port 80                       one listener of HTTP for every host
    each host of spec.tls         a listener of HTTPS; of two Ingresses with one host, the older one's Secret
    each host with ssl-passthrough  a listener of TLS
    more than 64 listeners        ListenerSets in addition to the Gateway

In: Ingresses in order of age. Out: Gateway, ListenerSets, ReferenceGrants for Secrets of other namespaces, and the
section that a route of a host attaches to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from fairlead.api.gateway import (
    GATEWAY_GROUP,
    GATEWAYS,
    AllowedListeners,
    AllowedRoutes,
    Gateway,
    GatewaySpec,
    Listener,
    ListenerSet,
    ListenerSetSpec,
    ListenerTls,
    NamespaceSelector,
    ParentGateway,
    Reference,
)
from fairlead.api.gateway_policies import GrantFrom, GrantTo, ReferenceGrant, ReferenceGrantSpec
from fairlead.api.gateway_routes import ParentReference
from fairlead.api.ingress import IngressObject
from fairlead.api.meta import ObjectKey, ObjectMeta
from fairlead.convert.accepted import problem_of
from fairlead.convert.remarks import Remarks

_HTTP = "http"
#: As many listeners as the schema of a Gateway, and of a ListenerSet, allows.
_MOST = 64
#: As many targets as the schema of a ReferenceGrant allows.
_MOST_GRANTED = 16


class Section(msgspec.Struct, frozen=True):
    """A listener of HTTPS or TLS for one host: the object that holds it, and its name there."""

    listener: Listener
    kind: str
    name: str


class Listeners:
    """The listeners for some Ingresses, and the objects that hold them."""

    def __init__(
        self, ingresses: Iterable[IngressObject], passed_through: Collection[ObjectKey], *, gateway: ObjectKey,
        class_name: str, remarks: Remarks,
    ) -> None:  # fmt: skip
        self._gateway, self._class_name = gateway, class_name
        ingresses = list(ingresses)
        self._with_rules = {rule.host for each in ingresses for rule in each.spec.rules or ()}
        self._shared = any(each.metadata.namespace != gateway.namespace for each in ingresses)
        secrets = _secrets(ingresses, remarks)
        owners = _passthrough_hosts(ingresses, passed_through)
        secrets = {host: each for host, each in secrets.items() if host not in owners}
        listeners = [self._https(host, key) for host, (key, _) in secrets.items()]
        listeners += [self._passthrough(host) for host in owners]
        owners |= {host: ingress for host, (_, ingress) in secrets.items()}
        listeners = [each for each in listeners if self._is_accepted(each, owners[each.hostname], remarks)]
        self._sections = {
            each.hostname: Section(each, *self._place(number))
            for number, each in enumerate(sorted(listeners, key=lambda each: each.name), 1)
        }
        self._secrets = [key for host, (key, _) in secrets.items() if host in self._sections]

    def _is_accepted(self, listener: Listener, ingress: IngressObject, remarks: Remarks) -> bool:
        """Return whether an API server takes a listener; one that it refuses is a remark, and has no routes."""
        gateway = Gateway(ObjectMeta(name="some", namespace="some"), GatewaySpec("some", [listener]))
        problem = problem_of(GATEWAYS, gateway)
        if problem:
            remarks.lost(ingress, f"tls of {listener.hostname}", f"{problem}; the host is not served over TLS")
        return not problem

    def http(self) -> ParentReference:
        """Return where a route for plain requests attaches."""
        return self._reference("Gateway", self._gateway.name, _HTTP)

    def secure(self, host: str) -> ParentReference | None:
        """Return where a route of ``host`` attaches over TLS; None where no certificate is for it."""
        wildcard = f"*.{host.partition('.')[2]}"
        section = self._sections.get(host) or self._sections.get(wildcard)
        return self._reference(section.kind, section.name, section.listener.name) if section is not None else None

    def below(self, wildcard: str) -> Iterator[ParentReference]:
        """Yield where routes of ``wildcard`` attach for hosts that it covers, and that no rule names."""
        for host, section in self._sections.items():
            if f"*.{host.partition('.')[2]}" == wildcard != host and host not in self._with_rules:
                yield self._reference(section.kind, section.name, section.listener.name)

    def objects(self) -> Iterator[Gateway | ListenerSet | ReferenceGrant]:
        """Yield the Gateway first, then the objects that it needs."""
        by_place: dict[tuple[str, str], list[Listener]] = {("Gateway", self._gateway.name): [self._plain()]}
        for section in self._sections.values():
            by_place.setdefault((section.kind, section.name), []).append(section.listener)
        more = len(by_place) > 1
        for (kind, name), listeners in by_place.items():
            meta = ObjectMeta(name=name, namespace=self._gateway.namespace)
            if kind == "Gateway":
                allowed = AllowedListeners(NamespaceSelector("Same")) if more else None
                yield Gateway(meta, GatewaySpec(self._class_name, listeners, allowed_listeners=allowed))
            else:
                parent = ParentGateway(GATEWAY_GROUP, "Gateway", self._gateway.name)
                yield ListenerSet(meta, ListenerSetSpec(parent, listeners))
        kinds = sorted({kind for kind, _ in by_place})
        yield from _grants(self._secrets, self._gateway, kinds)

    def _place(self, number: int) -> tuple[str, str]:
        """Return kind and name of the object that holds the listener of this number; the plain one has number 0."""
        at = number // _MOST
        return ("ListenerSet", f"{self._gateway.name}-{at + 1}") if at else ("Gateway", self._gateway.name)

    def _reference(self, kind: str, name: str, section: str) -> ParentReference:
        return ParentReference(
            kind="ListenerSet" if kind == "ListenerSet" else None,
            group=GATEWAY_GROUP if kind == "ListenerSet" else None,
            namespace=self._gateway.namespace if self._shared else None,
            name=name,
            section_name=section,
        )

    def _allowed(self) -> AllowedRoutes | None:
        return AllowedRoutes(NamespaceSelector("All")) if self._shared else None

    def _plain(self) -> Listener:
        return Listener(_HTTP, 80, "HTTP", allowed_routes=self._allowed())

    def _https(self, host: str, secret: ObjectKey) -> Listener:
        namespace = secret.namespace if secret.namespace != self._gateway.namespace else ""
        reference = Reference(name=secret.name, namespace=namespace)
        tls = ListenerTls(certificate_refs=[reference])
        return Listener(f"https-{_label(host)}", 443, "HTTPS", host, tls, self._allowed())

    def _passthrough(self, host: str) -> Listener:
        return Listener(f"tls-{_label(host)}", 443, "TLS", host, ListenerTls("Passthrough"), self._allowed())


def tls_hosts(ingress: IngressObject) -> Iterator[tuple[str, str]]:
    """Yield each host of ``spec.tls`` with its Secret; an entry without hosts is for those of the rules."""
    for tls in ingress.spec.tls or ():
        hosts = tls.hosts or sorted({rule.host for rule in ingress.spec.rules or () if rule.host})
        yield from ((host, tls.secret_name) for host in hosts)


def _secrets(ingresses: Sequence[IngressObject], remarks: Remarks) -> dict[str, tuple[ObjectKey, IngressObject]]:
    """Return the Secret of each host, with the Ingress that names it."""
    secrets: dict[str, tuple[ObjectKey, IngressObject]] = {}
    for ingress in ingresses:
        for host, name in tls_hosts(ingress):
            key = ObjectKey(ingress.metadata.namespace, name)
            if not name:
                remarks.lost(ingress, f"tls of {host}", "no Secret named; Gateway API has no default certificate")
            elif (used := secrets.setdefault(host, (key, ingress))[0]) != key:
                remarks.note(ingress, f"tls of {host}", f"Secret {used} of an older Ingress is used")
    return secrets


def _passthrough_hosts(ingresses: Iterable[IngressObject], keys: Collection[ObjectKey]) -> dict[str, IngressObject]:
    """Return the hosts whose connections are passed through, with the oldest Ingress of each."""
    hosts: dict[str, IngressObject] = {}
    for ingress in ingresses:
        for rule in ingress.spec.rules or () if ingress.key in keys else ():
            if rule.host:
                hosts.setdefault(rule.host, ingress)
    return hosts


def _grants(secrets: Iterable[ObjectKey], gateway: ObjectKey, kinds: Sequence[str]) -> Iterator[ReferenceGrant]:
    by_namespace: dict[str, dict[str, None]] = {}
    for secret in secrets:
        if secret.namespace != gateway.namespace:
            by_namespace.setdefault(secret.namespace, {})[secret.name] = None
    from_ = [GrantFrom(GATEWAY_GROUP, kind, gateway.namespace) for kind in kinds]
    for namespace, names in sorted(by_namespace.items()):
        to = [GrantTo("", "Secret", name) for name in sorted(names)]
        for at in range(0, len(to), _MOST_GRANTED):
            name = f"{gateway.name}-certificates{f'-{at // _MOST_GRANTED + 1}' if at else ''}"
            meta = ObjectMeta(name=name, namespace=namespace)
            yield ReferenceGrant(meta, ReferenceGrantSpec(from_, to[at : at + _MOST_GRANTED]))


def _label(host: str) -> str:
    return host.replace("*", "wildcard")
