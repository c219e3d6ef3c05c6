"""The Gateway, its listeners and its backends for a set of Ingresses.

    port 80                       one listener of HTTP for every host
    each host of spec.tls         a listener of HTTPS; of two Ingresses with one host, the older one's Secret
    each host with ssl-passthrough  a listener of TLS
    more than 64 listeners        ListenerSets in addition to the Gateway

In: Ingresses in order of age. Out: Gateway, ListenerSets, ReferenceGrants for Secrets of other namespaces, and the
section that a route of a host attaches to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from fairlead.api.gateway import (
    GATEWAY_GROUP,
    GATEWAYS,
    AllowedListeners,
    AllowedRoutes,
    BackendTLSPolicy,
    BackendTLSPolicySpec,
    BackendValidation,
    Gateway,
    GatewayListener,
    GatewaySpec,
    GrantFrom,
    GrantTo,
    ListenerSet,
    ListenerSetSpec,
    ListenerTls,
    NamespaceSelector,
    ParentGateway,
    ParentReference,
    PolicyTarget,
    Reference,
    ReferenceGrant,
    ReferenceGrantSpec,
    RouteBackendRef,
)
from fairlead.api.kubernetes import IngressBackend, IngressObject, Service
from fairlead.api.meta import ObjectKey, ObjectMeta
from fairlead.convert.accepted import problem_of
from fairlead.convert.annotations import Remarks

_HTTP = "http"
#: As many listeners as the schema of a Gateway, and of a ListenerSet, allows.
_MOST = 64
#: As many targets as the schema of a ReferenceGrant allows.
_MOST_GRANTED = 16


class ListenerSection(msgspec.Struct, frozen=True):
    """A listener of HTTPS or TLS for one host: the object that holds it, and its name there."""

    listener: GatewayListener
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
            each.hostname: ListenerSection(each, *self._place(number))
            for number, each in enumerate(sorted(listeners, key=lambda each: each.name), 1)
        }
        self._secrets = [key for host, (key, _) in secrets.items() if host in self._sections]

    def _is_accepted(self, listener: GatewayListener, ingress: IngressObject, remarks: Remarks) -> bool:
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
        by_place: dict[tuple[str, str], list[GatewayListener]] = {("Gateway", self._gateway.name): [self._plain()]}
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

    def _plain(self) -> GatewayListener:
        return GatewayListener(_HTTP, 80, "HTTP", allowed_routes=self._allowed())

    def _https(self, host: str, secret: ObjectKey) -> GatewayListener:
        namespace = secret.namespace if secret.namespace != self._gateway.namespace else ""
        reference = Reference(name=secret.name, namespace=namespace)
        tls = ListenerTls(certificate_refs=[reference])
        return GatewayListener(f"https-{_label(host)}", 443, "HTTPS", host, tls, self._allowed())

    def _passthrough(self, host: str) -> GatewayListener:
        return GatewayListener(f"tls-{_label(host)}", 443, "TLS", host, ListenerTls("Passthrough"), self._allowed())


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


_TLS = frozenset({"HTTPS", "GRPCS"})
_HTTP2 = frozenset({"GRPC", "GRPCS"})


def backend_ref(
    ingress: IngressObject, backend: IngressBackend, services: Mapping[ObjectKey, Service], remarks: Remarks
) -> RouteBackendRef | None:
    """Return the reference; None, with a remark, when there is none."""
    if backend.service is None:
        description = f"{backend.resource.kind} {backend.resource.name}" if backend.resource else "an empty backend"
        remarks.lost(ingress, "backend", f"{description} is not a Service; its path is left out")
        return None
    name, port = backend.service.name, backend.service.port
    if port.number:
        return RouteBackendRef(name=name, port=port.number)
    service = services.get(ObjectKey(ingress.metadata.namespace, name))
    if service is None:
        remarks.lost(
            ingress,
            "backend",
            f"port {port.name} of Service {name} is a name, and Gateway API has numbers only: give the Service too",
        )
        return None
    ports = [each for each in service.spec.ports or () if each.protocol == "TCP"]
    number = next((each.port for each in ports if each.name == port.name), 0)
    if not number:
        remarks.lost(ingress, "backend", f"Service {name} has no TCP port {port.name}; its path is left out")
        return None
    return RouteBackendRef(name=name, port=number)


def check_protocol(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> bool:
    """Return whether TLS is spoken to the backends; note what the annotation cannot become."""
    protocol = annotations.get("backend-protocol", "HTTP").upper()
    if protocol in _HTTP2:
        remarks.note(
            ingress, "backend-protocol", "set appProtocol: kubernetes.io/h2c on the port of each Service, for HTTP/2"
        )
    if protocol not in {"HTTP", *_TLS, *_HTTP2}:
        remarks.lost(ingress, "backend-protocol", f"{protocol} is not supported by Gateway API: HTTP is used")
    return protocol in _TLS


def tls_policy(
    ingress: IngressObject, service: str, annotations: Mapping[str, str], remarks: Remarks
) -> BackendTLSPolicy:
    """Return the policy by which TLS is spoken to a Service of the Ingress's namespace."""
    namespace = ingress.metadata.namespace
    hostname = annotations.get("proxy-ssl-name", "") or f"{service}.{namespace}.svc"
    if annotations.get("proxy-ssl-verify", "off") != "on":
        why = f"nginx did not verify the certificate, Gateway API always does: it has to be valid for {hostname}"
        remarks.lost(ingress, "backend-protocol", why)
    validation = BackendValidation(well_known_ca_certificates="System", hostname=hostname)
    if secret := annotations.get("proxy-ssl-secret", ""):
        name = secret.rpartition("/")[2]
        remarks.note(
            ingress, "proxy-ssl-secret", f"put ca.crt of Secret {secret} into a ConfigMap {name} in {namespace}"
        )
        reference = Reference(group="", kind="ConfigMap", name=name)
        validation = BackendValidation(ca_certificate_refs=[reference], hostname=hostname)
    return BackendTLSPolicy(
        metadata=ObjectMeta(name=f"{service}-tls", namespace=namespace),
        spec=BackendTLSPolicySpec([PolicyTarget("", "Service", service)], validation),
    )
