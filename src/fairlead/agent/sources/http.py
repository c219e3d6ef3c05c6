"""Parts that Ingresses and routes share: backends, families, rate limits, client addresses.

In: Services and annotations of the member. Out: backends, rules, or an error message. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from fairlead.agent.identity import certificate_name
from fairlead.agent.probes import with_probe
from fairlead.api.annotations import (
    accept_problem,
    exact_network,
    read_access_log,
    read_limits,
    read_route_tracing,
    uncertain_network,
)
from fairlead.api.httploadbalancer import LoadBalancerRouteSpec
from fairlead.api.intent import FamilyPolicy
from fairlead.api.json_text import decode
from fairlead.api.kubernetes import Service, ServicePort
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import ManagedCertificate, ManagedCertificateSpec
from fairlead.api.meta import KubeObject
from fairlead.api.names import (
    ANNOTATION_ACCEPT_PROXY_PROTOCOL,
    ANNOTATION_ACCESS_LOG,
    ANNOTATION_ALLOWED_SOURCES,
    ANNOTATION_BACKEND_TLS,
    ANNOTATION_CERTIFICATE_ISSUER,
    ANNOTATION_DENIED_SOURCES,
    ANNOTATION_DRAIN,
    ANNOTATION_DRAIN_CLOSE,
    ANNOTATION_EXTERNAL_AUTH,
    ANNOTATION_EXTERNAL_PROCESSOR,
    ANNOTATION_HEALTH_CHECK,
    ANNOTATION_IP_FAMILIES,
    ANNOTATION_JWT,
    ANNOTATION_LIMITS,
    ANNOTATION_OUTLIER_DETECTION,
    ANNOTATION_REQUESTS_PER_SECOND,
    ANNOTATION_TRACING,
    HEALTH_ANNOTATIONS,
    short_hash,
)
from fairlead.api.tcploadbalancer import Origin
from fairlead.api.times import seconds_from_duration
from fairlead.model.health import HealthCheckSettings
from fairlead.model.http import (
    MAX_AUTH_BODY,
    MAX_JWKS,
    MAX_PROCESSOR_MS,
    MAX_SOURCES,
    PROCESSOR_MS,
    Backend,
    BackendProtocol,
    BackendTls,
    ClaimToHeader,
    ExternalAuth,
    ExternalProcessor,
    Filters,
    JWTProvider,
    RequiredClaim,
    Rule,
    SubjectAltName,
    unsafe_parts,
)
from fairlead.model.in_words import listed, whole_number
from fairlead.model.key_pair import Validity, canonical_pem, covers
from fairlead.model.keys import IPV4, IPV6, Family, family_of
from fairlead.publish.objects import BackendSettings, SettingError, backend_settings, families_of, written_families

#: Why a Secret that is not in the member is not served.
NOT_IN_MEMBER = "the Secret does not exist"


# --- Secrets of the member -------------------------------------------------------------------------------------------


class CertificateState(msgspec.Struct, frozen=True):
    """A Secret that listeners name: the version to serve (empty: none yet), and the problem of the present one.

    ``missing``: the member does not have it, so it may be requested from the hub.
    """

    digest: str = ""
    problem: str = ""
    missing: bool = False
    validity: Validity | None = None

    def flaw(self, hosts: Iterable[str], now: datetime) -> str:
        """Return why clients refuse the certificate served for ``hosts``; empty if no reason is known."""
        if self.validity is None:
            return ""
        if self.validity.ends <= now:
            return f"the certificate expired at {self.validity.ends:%Y-%m-%d %H:%M} UTC, so clients refuse it; renew it"
        uncovered = [host for host in hosts if not covers(self.validity.names, host)]
        return not_covered(uncovered, self.validity.names) if uncovered else ""


def not_covered(hosts: Sequence[str], names: Collection[str]) -> str:
    """Return the message about hosts that a certificate with these names does not cover."""
    there = listed(sorted(names), 3) or "no names"
    return (
        f"the certificate is not valid for {listed(hosts, 3)}, so clients refuse it; it is valid for {there}. Name a "
        "certificate with the host among its subject alternative names"
    )


def is_bundle(text: str) -> bool:
    """Return whether a text consists of certificates in PEM that can be read."""
    try:
        return bool(canonical_pem(text.encode()))
    except ValueError:
        return False


# --- requests --------------------------------------------------------------------------------------------------------

#: One of these on an object: cert-manager makes its Secrets.
_CERT_MANAGER = ("cert-manager.io/issuer", "cert-manager.io/cluster-issuer", "kubernetes.io/tls-acme")
_ASKERS_SHOWN = 16
_MOST_HOSTS = 100


class CertificateRequest(msgspec.Struct, frozen=True):
    """One certificate that one object requests, and the load balancer that answers for its names."""

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
    """Return the CertificateIssuer that an object requests, empty for none; ``default`` is that of its class."""
    named = obj.annotation(ANNOTATION_CERTIFICATE_ISSUER)
    if named:
        return named
    return "" if any(obj.annotation(annotation) for annotation in _CERT_MANAGER) else default


def request(hosts: Iterable[str], issuer: str, *, load_balancer: str, origin: Origin) -> CertificateRequest | None:
    """Return the request for a set of names, None if there is nothing to request."""
    names = tuple(sorted({host.lower() for host in hosts if host}))
    if not names or not issuer or len(names) > _MOST_HOSTS:
        return None
    return CertificateRequest(names, issuer, load_balancer, origin)


def too_many(hosts: Iterable[str], issuer: str) -> str:
    """Return an error if there are too many names for one request; otherwise an empty string."""
    count = len({host.lower() for host in hosts if host})
    if not issuer or count <= _MOST_HOSTS:
        return ""
    return f"a certificate has at most {_MOST_HOSTS} names, and this entry has {count}: divide it among several entries"


def merged_spec(requests: Iterable[CertificateRequest]) -> ManagedCertificateSpec | None:
    """Return the spec of the merged requests of one name; None without requests."""
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
    """Return whether the hub has obtained a certificate, and the message for users."""
    if obj is None:
        return CertificateState(problem=PENDING)
    conditions = {condition.type: condition for condition in obj.status.conditions or ()}
    stale, ready = conditions.get("Stale"), conditions.get("Ready")
    if obj.status.digest:
        return CertificateState(obj.status.digest, stale.message if stale is not None else "")
    wrong = ready is not None and ready.status == "False" and ready.reason != "Pending"
    return CertificateState(problem=ready.message if ready is not None and wrong else PENDING)


#: The certificate is ordered: there is no problem, and no certificate yet.
PENDING = "the certificate is being ordered"


def states_of(certificates: Iterable[ManagedCertificate]) -> Mapping[str, CertificateState]:
    """Return the progress of each certificate, by name."""
    return {obj.metadata.name: state_of(obj) for obj in certificates if not obj.deleting}


def progress_of(certificate: ManagedCertificate) -> tuple[object, ...]:
    """Return the part of a certificate that those who request it depend on, which a renewal does not change."""
    state = state_of(certificate)
    return bool(state.digest), state.problem, certificate.deleting


def published_part(load_balancer_class: LoadBalancerClass) -> tuple[object, ...]:
    """Return the part of a class of the hub that published objects depend on: its spec, and its issuer."""
    return load_balancer_class.spec, load_balancer_class.annotation(ANNOTATION_CERTIFICATE_ISSUER)


# --- backends --------------------------------------------------------------------------------------------------------

#: The protocol to backends, by ``appProtocol`` of a Service port.
_PROTOCOLS: dict[str, BackendProtocol] = {
    "kubernetes.io/h2c": "HTTP2",
    "h2c": "HTTP2",
    "http2": "HTTP2",
    "grpc": "HTTP2",
    "kubernetes.io/ws": "HTTP1",
    "http": "HTTP1",
}
#: Values of ``appProtocol`` that mean TLS; its verification needs a BackendTLSPolicy.
TLS_ONLY = frozenset({"https", "kubernetes.io/wss"})


def find_port(service: Service, *, name: str = "", number: int = 0, protocol: str) -> ServicePort | None:
    """Return the port of ``service`` with this name or number: a Service may have both protocols at one number."""
    ports = [port for port in service.spec.ports or () if port.protocol == protocol]
    return next((port for port in ports if (port.name == name if name else port.port == number)), None)


def ports_of(service: Service) -> str:
    """Return the ports of a Service, as the end of a sentence about a missing port."""
    ports = service.spec.ports or ()
    texts = [f"{port.port}/{port.protocol}" + (f" ({port.name})" if port.name else "") for port in ports]
    return f"; it has {listed(texts, 10)}" if texts else "; it has no ports"


def missing_service(namespace: str, name: str, services: Iterable[Service]) -> str:
    """Return the message that a Service does not exist, and in which namespaces one of that name does."""
    others = sorted(service.metadata.namespace for service in services if service.metadata.name == name)
    hint = f"; there is one in namespace {listed(others, 3)}" if others else ""
    return f"there is no Service {name} in namespace {namespace}{hint}"


def backend_of(service: Service, port: ServicePort) -> Backend:
    """Return the backend of ``port``; the same for every route that names it."""
    key = f"{service.metadata.namespace}/{service.metadata.name}"
    try:
        settings = backend_settings(service)
    except SettingError:
        # The Service has an Event about it, and ``with_valid_settings`` what was published last.
        settings = BackendSettings()
    return Backend(
        name=f"{key}:{port.port}",
        service=key,
        port_name=port.name,
        node_port=port.node_port,
        ip_families=written_families(families_of(service)),
        protocol=_PROTOCOLS.get(port.app_protocol or "", "HTTP1"),
        health_check=settings.health_check,
        outlier_detection=settings.outlier_detection,
        drain=settings.drain,
        drain_close=settings.drain_close,
    )


def with_valid_settings(service: Service, published: Iterable[Backend]) -> Service:
    """Return ``service``; if its settings for backends are unreadable, with those of its backend at the hub."""
    try:
        backend_settings(service)
    except SettingError:
        last = next((backend for backend in published if backend.service == "/".join(service.key)), None)
        settings = BackendSettings()
        if last is not None:
            settings = BackendSettings(last.health_check, last.outlier_detection, last.drain, last.drain_close)
        return _with_settings(service, settings)
    return service


def with_probed_health(service: Service, probe: HealthCheckSettings | None) -> Service:
    """Return ``service`` with the health check of its pods' readiness probe, unless its user chose another."""
    if probe is None:
        return service
    settings = backend_settings(service)
    return _with_settings(service, settings._replace(health_check=with_probe(settings.health_check, probe)))


def _with_settings(service: Service, settings: BackendSettings) -> Service:
    replaced = {*HEALTH_ANNOTATIONS, ANNOTATION_DRAIN, ANNOTATION_DRAIN_CLOSE}
    annotations = {key: text for key, text in (service.metadata.annotations or {}).items() if key not in replaced}
    for key, value in (
        (ANNOTATION_HEALTH_CHECK, settings.health_check),
        (ANNOTATION_OUTLIER_DETECTION, settings.outlier_detection),
    ):
        if value is not None:
            annotations[key] = msgspec.json.encode(value).decode()
    drain = {ANNOTATION_DRAIN: settings.drain, ANNOTATION_DRAIN_CLOSE: settings.drain_close}
    annotations |= {key: text for key, text in drain.items() if text}
    metadata = msgspec.structs.replace(service.metadata, annotations=annotations)
    return msgspec.structs.replace(service, metadata=metadata)


# --- copies of Services ----------------------------------------------------------------------------------------------


_KNOWN: dict[str, Family] = {"ipv4": IPV4, "ipv6": IPV6}


# --- families --------------------------------------------------------------------------------------------------------


def families_by_annotation(obj: KubeObject) -> tuple[Family, ...]:
    """Return the families that an object names, in its order; empty if it names none or an invalid one."""
    parts = [part.strip().lower() for part in obj.annotation(ANNOTATION_IP_FAMILIES).split(",") if part.strip()]
    if len(set(parts)) < len(parts) or not _KNOWN.keys() >= set(parts):
        return ()
    return tuple(_KNOWN[part] for part in parts)


def annotation_problem(obj: KubeObject) -> str:
    """Return what is wrong with the annotation, empty when nothing is."""
    text = obj.annotation(ANNOTATION_IP_FAMILIES)
    if not text.strip() or families_by_annotation(obj):
        return ""
    return f"annotation {ANNOTATION_IP_FAMILIES} is {text[:60]!r}: it must be IPv4, IPv6, or both with a comma between"


def policy_of(families: Sequence[Family], *, required: bool = False) -> FamilyPolicy:
    """Return the policy for these families; ``required``: one of two is not enough."""
    return "" if len(families) < 2 else "RequireDualStack" if required else "PreferDualStack"


def of_each_family(addresses: Sequence[str]) -> bool:
    """Return whether these are IP addresses, at most one of each family."""
    families = [family_of(address) for address in addresses]
    return None not in families and len(set(families)) == len(families)


# --- rate limits -----------------------------------------------------------------------------------------------------

_MOST = 10_000_000


def limited(rules: Iterable[Rule], of: KubeObject) -> tuple[Rule, ...]:
    """Return ``rules`` with the limit that ``of`` requests."""
    limit = whole_number(of.annotation(ANNOTATION_REQUESTS_PER_SECOND), least=1, most=_MOST)
    if limit is None:
        return tuple(rules)
    return tuple(msgspec.structs.replace(rule, requests_per_second=limit) for rule in rules)


def limit_problem(of: KubeObject) -> str:
    """Return the error in the annotation of ``of``; empty if it is valid."""
    text = of.annotation(ANNOTATION_REQUESTS_PER_SECOND)
    if not text or whole_number(text, least=1, most=_MOST) is not None:
        return ""
    name = ANNOTATION_REQUESTS_PER_SECOND
    return f"annotation {name} is {text[:40]!r}, so there is no limit: give a number from 1 to {_MOST}"


def accepts_problem(of: KubeObject) -> str:
    """Return the error in the PROXY protocol setting of the load balancer of ``of``; empty if it is valid."""
    problem = accept_problem(of.annotation(ANNOTATION_ACCEPT_PROXY_PROTOCOL))
    return f"annotation {ANNOTATION_ACCEPT_PROXY_PROTOCOL}: {problem}" if problem else ""


def limits_problem(of: KubeObject) -> str:
    """Return the error in the limits of the load balancer of ``of``; empty if they are valid."""
    try:
        read_limits(of.annotation(ANNOTATION_LIMITS))
    except ValueError as error:
        return f"annotation {ANNOTATION_LIMITS}: {error}"
    return ""


# --- external services that decide about requests -------------------------------------------------------------------

FAIL_OPEN = "failOpen"
T = TypeVar("T")


def _object_in(of: KubeObject, annotation: str, as_type: type[T]) -> T | None:
    """Return the JSON object in an annotation; None without the annotation.

    Raises:
        ValueError: the annotation is invalid; the message names it and the problem.
    """
    text = (of.metadata.annotations or {}).get(annotation)
    if text is None:
        return None
    if not text.strip():
        # Templates without a value produce this; the protected routes must not become open.
        raise ValueError(f"annotation {annotation} is empty: write a JSON object, or remove the annotation")
    try:
        return decode(text, as_type)
    except msgspec.DecodeError as error:
        raise ValueError(f"annotation {annotation}: {error}") from error


class AuthRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The annotation of an Ingress: a Service of its namespace, the number of its port, fields of ``ExternalAuth``."""

    service: Annotated[str, Meta(min_length=1, max_length=63)]
    port: Annotated[int, Meta(ge=1, le=65535)]
    protocol: Literal["HTTP", "GRPC"] = "HTTP"
    path: str = ""
    allowed_headers: tuple[str, ...] = ()
    allowed_response_headers: tuple[str, ...] = ()
    max_size: Annotated[int, Meta(ge=0, le=MAX_AUTH_BODY)] = 0
    fail_open: bool = False

    def as_filter(self, backend: str) -> ExternalAuth:
        """Return what a rule has, with the name of the backend."""
        return ExternalAuth(
            backend=backend,
            protocol=self.protocol,
            path=self.path,
            allowed_headers=self.allowed_headers,
            allowed_response_headers=self.allowed_response_headers,
            max_size=self.max_size,
            fail_open=self.fail_open,
        )


def auth_request(of: KubeObject) -> AuthRequest | None:
    """Return the external authorization service of an Ingress; None for none.

    Raises:
        ValueError: names the field, and what is wrong with it.
    """
    request = _object_in(of, ANNOTATION_EXTERNAL_AUTH, AuthRequest)
    if request is None:
        return None
    rule = Rule(filters=Filters(auth=request.as_filter("auth")))
    if problem := next(unsafe_parts(rule), ""):
        raise ValueError(f"annotation {ANNOTATION_EXTERNAL_AUTH}: {problem}")
    return request


class ProcessorRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The annotation: a Service, by default of the object's namespace, the number of its port, and what it is shown.

    ``allow_off`` of a Gateway or IngressClass: its routes may have no processor, or their own.
    """

    service: Annotated[str, Meta(min_length=1, max_length=63)]
    port: Annotated[int, Meta(ge=1, le=65535)]
    namespace: Annotated[str, Meta(max_length=63)] = ""
    max_size: Annotated[int, Meta(ge=0, le=MAX_AUTH_BODY)] = 0
    timeout: Annotated[str, Meta(max_length=16)] = f"{PROCESSOR_MS}ms"
    failure_mode: Literal["closed", "open"] = "closed"
    allow_off: bool = False

    def as_processor(self, backend: str) -> ExternalProcessor:
        """Return what a rule has, with the name of the backend."""
        timeout_ms = round(seconds_from_duration(self.timeout) * 1000)
        return ExternalProcessor(backend, self.max_size, timeout_ms, fail_open=self.failure_mode == "open")


class Processing(NamedTuple):
    """The processor that inspects the requests of an object; ``off``: none. With a ``problem``, ignore the request."""

    request: ProcessorRequest | None = None
    off: bool = False
    problem: str = ""


def processing_of(of: KubeObject) -> Processing:
    """Return the processor in the annotation of an object."""
    if of.annotation(ANNOTATION_EXTERNAL_PROCESSOR) == "off":
        return Processing(off=True)
    try:
        request = _object_in(of, ANNOTATION_EXTERNAL_PROCESSOR, ProcessorRequest)
        if request is None:
            return Processing()
        rule = Rule(processor=request.as_processor("processor"))
        if not 1 <= request.as_processor("").timeout_ms <= MAX_PROCESSOR_MS:
            raise ValueError(f"timeout {request.timeout} is not between 1ms and {MAX_PROCESSOR_MS // 1000}s")
    except ValueError as error:
        text = str(error)
        named = text if ANNOTATION_EXTERNAL_PROCESSOR in text else f"annotation {ANNOTATION_EXTERNAL_PROCESSOR}: {text}"
        return Processing(problem=named)
    if problem := next(unsafe_parts(rule), ""):
        return Processing(problem=f"annotation {ANNOTATION_EXTERNAL_PROCESSOR}: {problem}")
    return Processing(request)


def with_processor(rules: Iterable[Rule], request: ProcessorRequest | None, backend: str) -> tuple[Rule, ...]:
    """Return ``rules`` whose requests are inspected by the backend, as requested."""
    processor = None if request is None else request.as_processor(backend)
    return tuple(rules if processor is None else (msgspec.structs.replace(rule, processor=processor) for rule in rules))


def is_protected(route: LoadBalancerRouteSpec, undecided: Collection[str]) -> bool:
    """Return whether a published route has, for all requests, the checks of the annotations ``undecided``."""
    return all(
        (ANNOTATION_EXTERNAL_AUTH not in undecided or rule.filters.auth is not None)
        and (ANNOTATION_EXTERNAL_PROCESSOR not in undecided or rule.processor is not None)
        and (ANNOTATION_JWT not in undecided or rule.jwt)
        for rule in route.rules
    ) and (ANNOTATION_BACKEND_TLS not in undecided or all(backend.tls for backend in _answering(route)))


def _answering(route: LoadBalancerRouteSpec) -> Iterator[Backend]:
    """Yield the backends that answer requests of a route, without those that only authorize or inspect them."""
    names = {ref.backend for rule in route.rules for ref in rule.backends}
    return (backend for backend in route.backends if backend.name in names)


# --- tokens of clients -----------------------------------------------------------------------------------------------


class _IssuerFields(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The fields of a provider that are the same in an annotation and in a ``JWTProvider``."""

    issuer: str
    audiences: tuple[str, ...] = ()
    claim_to_headers: tuple[ClaimToHeader, ...] = ()
    required_claims: tuple[RequiredClaim, ...] = ()


class _RemoteKeys(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    uri: Annotated[str, Meta(min_length=1)]
    service: Annotated[str, Meta(min_length=1, max_length=63)]
    port: Annotated[int, Meta(ge=1, le=65535)]
    cache_duration: Annotated[str, Meta(pattern=r"^[0-9]{1,5}[smh]$")] = "5m"


class _LocalKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    inline: Annotated[str, Meta(min_length=1, max_length=MAX_JWKS)]


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class _Provider(_IssuerFields, frozen=True, forbid_unknown_fields=True):
    remote_jwks: _RemoteKeys | None = msgspec.field(name="remoteJWKS", default=None)
    local_jwks: _LocalKeys | None = msgspec.field(name="localJWKS", default=None)


class _TokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    providers: Annotated[tuple[_Provider, ...], Meta(min_length=1, max_length=8)]


class Tokens(NamedTuple):
    """The issuers whose tokens an object requires, and the Service and port of each with remote keys.

    With a ``problem``, the issuers are meaningless.
    """

    providers: tuple[JWTProvider, ...] = ()
    services: tuple[tuple[str, int] | None, ...] = ()
    problem: str = ""

    def on(self, rules: Iterable[Rule], resolve: Callable[[str, int, JWTProvider], str]) -> tuple[Rule, ...]:
        """Return ``rules`` with these issuers; ``resolve`` returns the backend of a Service, empty for none."""
        if not self.providers:
            return tuple(rules)
        resolved = tuple(
            msgspec.structs.replace(provider, backend=resolve(*service, provider)) if service is not None else provider
            for provider, service in zip(self.providers, self.services, strict=True)
        )
        return tuple(msgspec.structs.replace(rule, jwt=resolved) for rule in rules)


def tokens_of(of: KubeObject) -> Tokens:
    """Return the tokens that the annotation of an object requires."""
    if ANNOTATION_JWT not in (of.metadata.annotations or {}):
        return Tokens()
    try:
        wanted = decode(of.annotation(ANNOTATION_JWT), _TokenRequest).providers
        providers = tuple(map(_provider_of, wanted))
        msgspec.convert(msgspec.to_builtins(providers), tuple[JWTProvider, ...])
    except (ValueError, msgspec.ValidationError) as error:
        return Tokens(problem=f"annotation {ANNOTATION_JWT}: {error}")
    if problem := next(unsafe_parts(Rule(jwt=providers)), ""):
        return Tokens(problem=f"annotation {ANNOTATION_JWT}: {problem}")
    services = tuple((each.remote_jwks.service, each.remote_jwks.port) if each.remote_jwks else None for each in wanted)
    return Tokens(providers, services)


def _provider_of(wanted: _Provider) -> JWTProvider:
    fields = {name: getattr(wanted, name) for name in _IssuerFields.__struct_fields__}
    match wanted.remote_jwks, wanted.local_jwks:
        case None, _LocalKeys(inline=jwks):
            if problem := _keys_problem(jwks):
                raise ValueError(f"localJWKS.inline {problem}")
            return JWTProvider(**fields, jwks=jwks)
        case _RemoteKeys() as remote, None:
            seconds = int(seconds_from_duration(remote.cache_duration))
            return JWTProvider(**fields, uri=remote.uri, cache_seconds=seconds)
        case _:
            raise ValueError(f"issuer {wanted.issuer!r} needs either remoteJWKS or localJWKS")


def keys_tls(uri: str) -> BackendTls | None:
    """Return the TLS settings for reading keys at a URI: verified by host name and the system's authorities.

    None for a URI with scheme ``http``.

    Raises:
        ValueError: the URI has an IP address, which has no name to verify.
    """
    parts = urlsplit(uri)
    if parts.scheme != "https":
        return None
    host = (parts.hostname or "").rstrip(".")
    if family_of(host) is not None:
        raise ValueError(f"{uri} has an IP address, but certificates are verified by host name; use the host name")
    return BackendTls(host, system_ca=True)


def _keys_problem(jwks: str) -> str:
    """Return the error in a set of keys; empty if it is valid. Secret keys are rejected."""
    try:
        keys = decode(jwks, _KeySet).keys
        kinds = [key["kty"] for key in keys]
    except (msgspec.DecodeError, KeyError):
        return "is not a JSON object with keys, each with kty"
    if not kinds:
        return "has no keys"
    if "oct" in kinds or any("d" in key for key in keys):
        return "has a secret or private key; write the public keys"
    return ""


# --- TLS towards backends --------------------------------------------------------------------------------------------


class BackendTlsRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The annotation of an Ingress or Service: how to verify backends, and the Secret with the client certificate.

    The Secret also has the authorities (``ca.crt``), unless ``wellKnownCACertificates`` is System.
    """

    hostname: Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
    secret: Annotated[str, Meta(max_length=253)] = ""
    subject_alt_names: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...], Meta(max_length=16)
    ] = ()
    well_known_ca_certificates: Literal["", "System"] = msgspec.field(name="wellKnownCACertificates", default="")

    def as_tls(self, authorities: str, certificate: str) -> BackendTls:
        """Return a backend's TLS settings with the certificates in ``ca.crt`` and the client certificate's name."""
        return BackendTls(
            server_name=self.hostname,
            ca_bundle="" if self.well_known_ca_certificates else authorities,
            system_ca=bool(self.well_known_ca_certificates),
            subject_alt_names=tuple(
                SubjectAltName("URI" if "://" in name else "Hostname", name) for name in self.subject_alt_names
            ),
            client_certificate=certificate,
        )


def backend_tls_request(of: KubeObject) -> BackendTlsRequest | None:
    """Return the TLS settings for an object's backends; None for plain text.

    Raises:
        ValueError: names the field, and what is wrong with it.
    """
    request = _object_in(of, ANNOTATION_BACKEND_TLS, BackendTlsRequest)
    if request is None:
        return None
    if not request.secret and not request.well_known_ca_certificates:
        raise ValueError(
            f"annotation {ANNOTATION_BACKEND_TLS}: name a secret with ca.crt, or set wellKnownCACertificates to System"
        )
    return request


def client_secret(of: KubeObject) -> str:
    """Return the name of the Secret that an object names for TLS towards its backends, empty for none.

    Published objects also need the Secret while another field is invalid.
    """
    with suppress(ValueError):
        return decode(of.annotation(ANNOTATION_BACKEND_TLS, "{}"), _NamedSecret).secret
    return ""


class _NamedSecret(msgspec.Struct, frozen=True):
    secret: str = ""


def backend_tls_of(of: KubeObject, certificate: CertificateState, authorities: str) -> tuple[BackendTls | None, str]:
    """Return the TLS settings for an object's backends, and why they cannot be used.

    ``certificate`` and ``authorities`` (PEM) are those of the Secret that it names.
    """
    try:
        request = backend_tls_request(of)
    except ValueError as error:
        return None, str(error)
    if request is None:
        return None, ""
    namespace, problem = of.metadata.namespace, ""
    if request.secret and certificate.problem:
        problem = certificate.problem
    elif not request.well_known_ca_certificates and not is_bundle(authorities):
        problem = "ca.crt has no certificates in PEM: add the authorities of the backends"
    if problem:
        return None, f"annotation {ANNOTATION_BACKEND_TLS}: Secret {namespace}/{request.secret}: {problem}"
    return request.as_tls(authorities, certificate_name(namespace, request.secret) if request.secret else ""), ""


# --- access logs and traces ------------------------------------------------------------------------------------------


def access_log_of(obj: KubeObject) -> str:
    """Return the access log that an object requests, empty if it requests none or an invalid one."""
    return "" if access_log_problem(obj) else obj.annotation(ANNOTATION_ACCESS_LOG)


def access_log_problem(obj: KubeObject) -> str:
    """Return the error in the annotation; empty if it is valid."""
    return _ineffective(obj, ANNOTATION_ACCESS_LOG, read_access_log)


def tracing_of(obj: KubeObject) -> str:
    """Return the share of an object's requests to trace, empty without a valid one."""
    return "" if tracing_problem(obj) else obj.annotation(ANNOTATION_TRACING)


def tracing_problem(obj: KubeObject, untraced_by: str = "") -> str:
    """Return why the annotation has no effect, empty if it has; ``untraced_by`` is a class without tracing."""
    problem = _ineffective(obj, ANNOTATION_TRACING, read_route_tracing)
    if problem or not untraced_by or obj.annotation(ANNOTATION_TRACING) in ("", "off"):
        return problem
    return f"annotation {ANNOTATION_TRACING} has no effect: tracing is off in LoadBalancerClass {untraced_by}"


def _ineffective(obj: KubeObject, annotation: str, read: Callable[[str], object]) -> str:
    try:
        read(obj.annotation(annotation) or "off")
    except ValueError as error:
        return f"annotation {annotation} has no effect: {error}"
    return ""


# --- addresses of clients --------------------------------------------------------------------------------------------


class SourceLists(NamedTuple):
    """The clients that an object admits, as canonical CIDRs; with a ``problem``, ignore the lists."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    problem: str = ""

    def on(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """Return ``rules`` with these lists."""
        if not (self.allowed or self.denied):
            return tuple(rules)
        lists = {"allowed_sources": self.allowed, "denied_sources": self.denied}
        return tuple(msgspec.structs.replace(rule, **lists) for rule in rules)


def source_lists(of: KubeObject, listener: str | None = None) -> SourceLists:
    """Return the lists in the annotations of an object, or of a listener of a Gateway.

    A listener without its own lists has those of the Gateway; empty: all listeners. None: the object has none.
    """
    if listener is None and (named := [key for key in listed_sources(of) if "." in key.rpartition("/")[2]]):
        return SourceLists(problem=f"annotation {named[0]}: only a Gateway has lists for a listener")
    lists: list[tuple[str, ...]] = []
    for name in (ANNOTATION_ALLOWED_SOURCES, ANNOTATION_DENIED_SOURCES):
        annotations = of.metadata.annotations or {}
        own = f"{name}.{listener}" if listener and f"{name}.{listener}" in annotations else name
        texts = annotations[own].split(",") if own in annotations else []
        problem = uncertain_network(texts)
        if len(texts) > MAX_SOURCES:
            problem = f"the list has {len(texts)} entries; at most {MAX_SOURCES} are allowed"
        if problem:
            return SourceLists(problem=f"annotation {own}: {problem}")
        lists.append(tuple(dict.fromkeys(str(exact_network(text)) for text in texts)))
    allowed, denied = lists
    return SourceLists(allowed, denied)


def listed_sources(of: KubeObject) -> list[str]:
    """Return the annotations of an object that have lists of clients."""
    names = (ANNOTATION_ALLOWED_SOURCES, ANNOTATION_DENIED_SOURCES)
    return [
        key for key in of.metadata.annotations or () if key in names or key.startswith(tuple(f"{n}." for n in names))
    ]
