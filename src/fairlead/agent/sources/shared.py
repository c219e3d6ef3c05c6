"""The source of backends and certificates that Ingress and Gateway API share at the hub, and of their removal.

    Backend              slices of a Service, and in the member its copy of type NodePort, while a part needs them
    ManagedCertificate   a certificate that the hub gets itself, while a part asks for it
    Secret               its copy, while a part needs it; if it is broken or deleted, the last good copy stays
    any other            objects of an origin are removed only while the member's view is current

In: caches, and the needs of the parts. Out: writes at the hub, copies of Services in the member. Never: removes objects
because of an error, or objects that a part needs or may need.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

import msgspec
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fairlead.agent.engine import HTTP_LANE, Engine, Source
from fairlead.agent.identity import (
    Key,
    ServiceKey,
    backend_slice_meta,
    certificate_name,
    is_for,
    origin_of,
    published_meta,
)
from fairlead.agent.slices import of_one_family
from fairlead.agent.sources.caches import (
    BY_NAMED,
    BY_ORIGIN,
    MEMBER_SERVICES,
    IngressCaches,
    MemberService,
    ServiceCaches,
    service_of_slice,
)
from fairlead.agent.sources.http import (
    NOT_IN_MEMBER,
    CertificateRequest,
    CertificateState,
    merged_spec,
    states_of,
    with_probed_health,
    with_valid_settings,
)
from fairlead.agent.sources.service.plan import Settings
from fairlead.api.httploadbalancer import HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.kubernetes import SECRETS, SERVICES, EndpointSlice, Secret, Service, ServicePort, ServiceSpec
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.api.meta import JSONObject, KubeObject, ObjectMeta, OwnerReference
from fairlead.api.names import (
    ANNOTATION_CERTIFICATE_ISSUER,
    ANNOTATION_DIGEST,
    DEFAULT_CLASS,
    LABEL_BACKEND,
    LABEL_COPY_OF,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    MANAGER_AGENT,
    fit,
    label_value,
)
from fairlead.api.tcploadbalancer import CertificateRef, TargetType
from fairlead.api.times import wire_time
from fairlead.errors import Conflict, Forbidden, Invalid, NotFound, Retry, Wait, first_of
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import check_may_write
from fairlead.kube.writes import Overlay
from fairlead.model.key_pair import validity_of
from fairlead.publish.objects import families_of
from fairlead.publish.publisher import Published, slices_of_backend
from fairlead.runtime.queue import KeyedLock
from fairlead.translate.certificates import certificate_of, pair_digest

Obj = TypeVar("Obj", bound=KubeObject)

SERVICE, SECRET, MANAGED = "Service", "Secret", MANAGED_CERTIFICATES.kind
#: The kind of the keys of Services whose endpoints routes need; a Service's own load balancer has another key.
BACKEND = "Backend"
#: How often a missing Secret that is needed is looked for.
_LOOK_AGAIN_S = 60.0
#: Seconds for which the endpoints of a Service that no route names are kept at the hub.
LEAVE_S = 2.0
_AT_ONCE = 16
_TLS = "kubernetes.io/tls"


class Part(Protocol):
    """Ingress or Gateway API: its needs of the shared objects."""

    def needs_service(self, namespace: str, name: str) -> bool:
        """Return whether the endpoints of this Service should be at the hub."""
        ...

    def needs_node_ports(self, namespace: str, name: str) -> bool:
        """Return whether this Service should be reached by the nodes."""
        ...

    def needs_secret(self, namespace: str, name: str) -> bool:
        """Return whether a copy of this Secret should be at the hub."""
        ...

    def requests(self, name: str) -> Iterable[CertificateRequest]:
        """Return the part's certificate requests under this name."""
        ...

    def is_fresh(self, *, fresh_s: float) -> bool:
        """Return whether the part's view of the member is current: otherwise nothing that it may need is removed."""
        ...

    def secret_changed(self, key: tuple[str, str]) -> None:
        """Enqueue the objects that depend on a Secret."""
        ...


class Shared(Source):
    """The source of objects shared by several routes or listeners, and the publishing of their own objects.

    Its keys need no cache of one part alone: what a part may still need is kept.
    """

    name = "backends and certificates"
    lane = HTTP_LANE
    publishes = frozenset({BACKEND, SECRET, MANAGED})

    def __init__(
        self,
        *,
        engine: Engine,
        member: Cluster,
        services: ServiceCaches,
        caches: IngressCaches,
        settings: Settings,
        fresh_s: float,
    ) -> None:
        super().__init__(engine)
        self._services = services
        self._caches = caches
        self._settings = settings
        self._fresh_s = fresh_s
        #: Slices and Secrets are shared by several Ingresses and routes, whose keys are processed at the same time.
        self._locks = KeyedLock()
        #: Since when no part needs a Service whose endpoints may be at the hub.
        self._unneeded_s: dict[tuple[str, str], float] = {}
        self._states: dict[tuple[str, str], tuple[str, CertificateState]] = {}
        self._member = member
        #: The types of Secrets that parts need and that are not of type kubernetes.io/tls.
        self._other_types: dict[tuple[str, str], str] = {}
        self._parts: list[Part] = []
        publisher = engine.publisher
        self._now = publisher.cluster.clock.now
        self.copies = ServiceCopier(member=member, caches=services, may_write=engine.may_write)
        self.load_balancers = Published(publisher, caches.load_balancers)
        self.routes = Published(publisher, caches.routes)
        self.certificates = Published(publisher, caches.certificates, parts=("type", "data"))
        self._managed = Published(publisher, caches.managed)
        self._slices = publisher.slices
        for cache in (*caches.of_hub, services.hub_slices):
            cache.on_object(self._changed_at_hub)
        services.subtenants.on_object(self._subtenant_changed)
        caches.routes.on_change(self._published_changed)
        caches.secrets.on_object(self._secret_changed)
        services.services.on_object(lambda changed: self._named_changed(original_of(changed) or changed.key))
        services.slices.on_change(self._slice_changed)

    def add(self, part: Part) -> None:
        """Register the needs of ``part``."""
        self._parts.append(part)

    # --- keys ----------------------------------------------------------------------------------------------------

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of the objects at the hub."""
        return self.published()

    def published(self) -> list[Key]:
        """Return the keys of objects at the hub and of copies of Services: they may no longer be needed."""
        objects = (obj for cache in (*self._caches.of_hub, self._services.hub_slices) for obj in cache.values())
        originals = map(original_of, self._services.services.values())
        return [
            *(origin for obj in objects if (origin := self.origin_of(obj)) is not None),
            *((BACKEND, *original) for original in originals if original is not None),
        ]

    def _changed_at_hub(self, obj: KubeObject) -> None:
        """Enqueue the origin of an object at the hub: the object may have been changed there, or be orphaned."""
        if (origin := self.origin_of(obj)) is not None:
            self._engine.publish(origin)

    def _subtenant_changed(self, home: KubeObject) -> None:
        for obj in self._caches.managed.values():
            if obj.spec.asked_by and obj.spec.asked_by[0].namespace == home.metadata.name:
                self._engine.publish((MANAGED, "", obj.metadata.name))

    async def publish(self, key: Key) -> bool:
        """Publish the needed parts of a Service, Secret or certificate at the hub; return whether a removal waits."""
        kind, namespace, name = key
        if kind == BACKEND:
            return await self.service(namespace, name)
        if kind == SECRET:
            held = await self.secret(namespace, name)
            if await self.look_for(namespace, name):
                for part in self._parts:
                    part.secret_changed((namespace, name))
            if self.is_missing(namespace, name):
                # Nothing reports that a Secret of another type was created.
                self._engine.publish((SECRET, namespace, name), _LOOK_AGAIN_S)
            return held
        if not self._caches.synced:
            raise Wait("Ingresses have not been read completely, and may ask for this certificate")
        return await self.managed(name)

    # --- what several use; each returns whether a removal waits --------------------------------------------------

    async def service(self, namespace: str, name: str) -> bool:
        """Keep the endpoints of one Service at the hub, and its copy in the member, while a part needs them."""
        async with self._locks.hold((SERVICE, namespace, name)):
            if wait_s := self._leaving_s(namespace, name):
                self._engine.publish((BACKEND, namespace, name), wait_s)
                return False
            held = await self._service(namespace, name)
            return await self._copy(namespace, name) or held

    def reach(self, key: ServiceKey, *, nodes: bool) -> tuple[Service | None, str]:
        """Return a Service as routes reach it, and why it is not reached as desired, like ``ServiceCopier``."""
        service, problem = self.copies.reach(key, nodes=nodes)
        if service is None:
            return None, problem
        published = (backend for route in self._caches.routes.values() for backend in route.spec.backends)
        service = with_valid_settings(service, published)
        return service if nodes else with_probed_health(service, self._services.probes.check_of(key)), problem

    def _needs_service(self, namespace: str, name: str) -> bool:
        needed = any(part.needs_service(namespace, name) for part in self._parts)
        return needed or bool(self._published_routes(namespace, name))

    def _needs_node_ports(self, namespace: str, name: str) -> bool:
        if any(part.needs_node_ports(namespace, name) for part in self._parts):
            return True
        backends = (backend for route in self._published_routes(namespace, name) for backend in route.spec.backends)
        return any(backend.node_port and backend.service == f"{namespace}/{name}" for backend in backends)

    def _published_routes(self, namespace: str, name: str) -> Collection[LoadBalancerRoute]:
        """Return the routes at the hub that name a Service, also as the last valid version of a refused one."""
        return self._caches.routes.indexed(BY_NAMED, f"{namespace}/{name}")

    def _secret_changed(self, secret: Secret) -> None:
        for part in self._parts:
            part.secret_changed(secret.key)

    def _named_changed(self, service: ServiceKey) -> None:
        if self._published_routes(*service):
            self._engine.publish((BACKEND, *service))

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for endpoint_slice in filter(None, (old, new)):
            if (service := service_of_slice(endpoint_slice)) is not None:
                self._named_changed(service)

    def _published_changed(self, old: LoadBalancerRoute | None, new: LoadBalancerRoute | None) -> None:
        if old is None or (new is not None and new.spec == old.spec):
            return
        now = {(backend.service, backend.node_port) for backend in (() if new is None else new.spec.backends)}
        for backend in old.spec.backends:
            if (backend.service, backend.node_port) not in now:
                namespace, _, name = backend.service.partition("/")
                self._engine.publish((BACKEND, namespace, name))

    async def secret(self, namespace: str, name: str) -> bool:
        """Keep a copy of one Secret at the hub while a part needs it."""
        async with self._locks.hold((SECRET, namespace, name)):
            origin: Key = (SECRET, namespace, name)
            if not any(part.needs_secret(namespace, name) for part in self._parts):
                return await self._delete(self.certificates, self._published(self.certificates, origin), self._parts)
            secret = self._caches.secrets.get(namespace, name)
            state = CertificateState() if secret is None else self._state(secret)
            if secret is None or not state.digest:
                return False
            data = {entry: (secret.data or {})[entry] for entry in ("tls.crt", "tls.key")}
            await self._put_certificate(self.meta(origin, certificate_name(namespace, name)), state.digest, data)
            return False

    async def secrets(self, keys: Iterable[tuple[str, str]]) -> None:
        """Keep copies of these Secrets at the hub, several at once: a class may have a thousand."""
        left = iter(keys)

        async def copy() -> None:
            for key in left:
                await self.secret(*key)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(copy())
        except BaseExceptionGroup as errors:
            raise first_of(errors) from errors

    async def managed(self, name: str) -> bool:
        """Request one certificate from the hub while a part needs it."""
        async with self._locks.hold((MANAGED, "", name)):
            spec = merged_spec(request for part in self._parts for request in part.requests(name))
            origin: Key = (MANAGED, "", name)
            if spec is None:
                if any(
                    name == certificate.name
                    for obj in self._caches.load_balancers.values()
                    for certificate in obj.spec.certificates
                ):
                    return True  # a load balancer that is kept as it was is served with it
                return await self._delete(self._managed, self._published(self._managed, origin), self._parts)
            meta = self.subtenant_meta(origin, name, self._managed, spec.asked_by[0].namespace)
            await self._managed.apply(ManagedCertificate(metadata=meta, spec=spec))
            return False

    def _leaving_s(self, namespace: str, name: str) -> float:
        """Return the seconds for which an unneeded Service is kept, so that the hub sees its routes change first.

        The hub watches routes and endpoints separately, so it may see the removal of endpoints earlier.
        """
        key, now_s = (namespace, name), self._engine.publisher.cluster.clock.monotonic()
        if self._needs_service(*key) or self._needs_node_ports(*key):
            self._unneeded_s.pop(key, None)
            return 0.0
        if (wait_s := self._unneeded_s.setdefault(key, now_s) + LEAVE_S - now_s) > 0:
            return wait_s
        del self._unneeded_s[key]
        return 0.0

    async def _service(self, namespace: str, name: str) -> bool:
        service = f"{namespace}/{name}"
        present = self._engine.publisher.slices_in(slices_of_backend(self._settings.namespace, service))
        ours = [
            endpoint_slice
            for endpoint_slice in present
            if is_for(endpoint_slice, (SERVICE, namespace, name), tenant=self._settings.tenant)
        ]
        if not self._needs_service(namespace, name):
            return await self._delete(self._slices, ours, self._parts)
        listed = of_one_family(self._services.slices_of_service((namespace, name)))
        named = [(endpoint_slice.metadata.name, endpoint_slice) for endpoint_slice in listed]
        reused = self._services.reused_endpoints((namespace, name), ours)
        named += [(f"gone.{number}", endpoint_slice) for number, endpoint_slice in enumerate(reused)]
        member_service = self._services.services.get(namespace, name)
        wanted = [
            EndpointSlice(
                metadata=backend_slice_meta(
                    (namespace, name),
                    slice_name,
                    namespace=self._settings.namespace,
                    tenant=self._settings.tenant,
                    uid=member_service.metadata.uid if member_service is not None else "",
                ),
                address_type=endpoint_slice.address_type,
                endpoints=endpoint_slice.endpoints or [],
                ports=endpoint_slice.ports or [],
            )
            for slice_name, endpoint_slice in named
        ]
        for endpoint_slice in wanted:
            await self._slices.apply(endpoint_slice)
        names = {endpoint_slice.metadata.name for endpoint_slice in wanted}
        return await self._delete(
            self._slices,
            [endpoint_slice for endpoint_slice in ours if endpoint_slice.metadata.name not in names],
            self._parts,
        )

    async def _copy(self, namespace: str, name: str) -> bool:
        key = (namespace, name)
        if self._needs_node_ports(namespace, name):
            await self.copies.ensure(key)
            return False
        if not self.copies.has_copy(key):
            return False
        return not self._is_whole(self._parts) or await self.copies.collect(key)

    async def _put_certificate(self, meta: ObjectMeta, digest: str, data: dict[str, str]) -> None:
        annotations = {**(meta.annotations or {}), ANNOTATION_DIGEST: digest}
        meta = ObjectMeta(name=meta.name, namespace=meta.namespace, labels=meta.labels, annotations=annotations)
        await self.certificates.apply(Secret(metadata=meta, type="kubernetes.io/tls", data=data))

    # --- what is there -------------------------------------------------------------------------------------------

    def certificate(self, namespace: str, name: str) -> CertificateState:
        """Return the served version of a Secret: the present one, else the last good one at the hub."""
        copy_name = certificate_name(namespace, name)
        secret, problem = self._caches.secrets.get(namespace, name), self._why_not_watched(namespace, name)
        if secret is not None:
            state = self._state(secret)
            if state.digest:
                return state
            problem = state.problem
        return CertificateState(self.digest_of(copy_name), problem, missing=secret is None)

    async def identity(self, namespace: str, name: str) -> tuple[CertificateState, str]:
        """Return the certificate and authorities of a Secret for TLS towards backends, and publish its copy at the hub.

        Raises:
            Retry: Secrets cannot be read.
        """
        self._caches.secrets.check_read(namespace, name)
        if not self._caches.secrets.synced:
            raise Retry("Secrets of the member have not been read yet")
        await self.secret(namespace, name)
        return self.certificate(namespace, name), self.authorities(namespace, name)

    def publish_certificates(self, references: Iterable[CertificateRef]) -> None:
        """Enqueue the Secrets of certificates that a load balancer no longer names, or names in another version."""
        for reference in references:
            copy = self.certificates.get(self._settings.namespace, reference.name)
            if copy is not None and (origin := self.origin_of(copy)) is not None:
                self._engine.publish(origin)

    def authorities(self, namespace: str, name: str) -> str:
        """Return the authorities in entry ca.crt of a Secret of the member as text, empty for none."""
        secret = self._caches.secrets.get(namespace, name)
        try:
            return base64.b64decode((secret.data or {}).get("ca.crt", "") if secret is not None else "").decode()
        except ValueError:
            return ""

    async def look_for(self, namespace: str, name: str) -> bool:
        """Read the type of a needed Secret that is not watched; return whether the reason why it is not served changed.

        The watch shows only Secrets of type kubernetes.io/tls: an agent does not read unrelated Secrets.
        """
        key, other_type = (namespace, name), ""
        if self.is_missing(namespace, name):
            secrets = await self._member.list(SECRETS, namespace, field_selector=f"metadata.name={name}")
            other_type = secrets[0].type if secrets else ""
        if other_type == self._other_types.get(key, ""):
            return False
        self._other_types[key] = other_type
        if not other_type:
            del self._other_types[key]
        return True

    def is_missing(self, namespace: str, name: str) -> bool:
        """Return whether a part needs a Secret that the watch does not show."""
        needed = any(part.needs_secret(namespace, name) for part in self._parts)
        return needed and self._caches.secrets.get(namespace, name) is None

    def _why_not_watched(self, namespace: str, name: str) -> str:
        other = self._other_types.get((namespace, name), "")
        if not other or other == _TLS:
            return NOT_IN_MEMBER
        return (
            f"the type is {other}, not {_TLS}; delete it and create it again: "
            f"kubectl create secret tls {name} -n {namespace} --cert FILE --key FILE"
        )

    def flaw_of(self, state: CertificateState, hosts: Iterable[str]) -> str:
        """Return why clients refuse a certificate for ``hosts`` now; empty if no reason is known."""
        return state.flaw(hosts, self._now())

    def digest_of(self, name: str) -> str:
        """Return the version of the certificate that the hub has under this name, empty for none."""
        certificate = self.certificates.get(self._settings.namespace, name)
        return certificate.annotation(ANNOTATION_DIGEST) if certificate is not None and not certificate.deleting else ""

    async def make_fallback(self, origin: Key, name: str) -> bool:
        """Create a fallback certificate under this name unless one exists; return whether it was created."""
        async with self._locks.hold((SECRET, "", name)):
            if self.digest_of(name):
                return False
            digest, data = make_fallback(self._now())
            await self._put_certificate(self.meta(origin, name), digest, data)
            return True

    def managed_states(self) -> Mapping[str, CertificateState]:
        """Return the progress of each certificate that was requested from the hub, by name."""
        return states_of(self._caches.managed.values())

    def issuer(self, load_balancer_class: str) -> str:
        """Return the default issuer of one class of the hub; empty for none."""
        lb_class = self._services.classes.get("", load_balancer_class or DEFAULT_CLASS)
        return "" if lb_class is None else lb_class.annotation(ANNOTATION_CERTIFICATE_ISSUER)

    def untraced_by(self, load_balancer_class: str) -> str:
        """Return the name of a class of the hub that traces no requests; empty if it does, or is unknown."""
        named = load_balancer_class or DEFAULT_CLASS
        lb_class = self._services.classes.get("", named)
        return "" if lb_class is None or lb_class.spec.parameters.get("tracing", "off") != "off" else named

    def _state(self, secret: Secret) -> CertificateState:
        """Return the state of a Secret of the member; each version is read once."""
        key, resource_version = secret.key, secret.metadata.resource_version
        version, state = self._states.get(key, ("", CertificateState()))
        if version != resource_version:
            state = _state_of(certificate_name(*key), secret)
            self._states[key] = (resource_version, state)
        return state

    def answer(self, name: str) -> HTTPLoadBalancer | None:
        """Return the load balancer of this name at the hub."""
        return self._caches.load_balancers.get(self._settings.namespace, name)

    def load_balancer(self, name: str) -> HTTPLoadBalancer | None:
        """Return the published load balancer of this name."""
        return self.load_balancers.get(self._settings.namespace, name)

    def routes_of(self, origin: Key) -> list[LoadBalancerRoute]:
        """Return the published objects of one route."""
        return [route for route in self._published(self.routes, origin) if not route.deleting]

    def targets(self, load_balancer_class: str) -> TargetType:
        """Return the target type of one class of the hub."""
        named = load_balancer_class or DEFAULT_CLASS
        return cast("TargetType", self._services.class_targets().get(named, self._settings.target))

    def meta(self, origin: Key, name: str) -> ObjectMeta:
        """Return the metadata of an object that is published for ``origin``."""
        return published_meta(origin, name, namespace=self._settings.namespace, tenant=self._settings.tenant)

    def subtenant_meta(self, origin: Key, name: str, published: Published[Any], namespace: str = "") -> ObjectMeta:
        """Return the metadata of an object with the sub-tenant of ``namespace``, otherwise that of its origin."""
        meta = self.meta(origin, name)
        present = published.get(self._settings.namespace, name)
        labels = self._services.subtenant_labels(namespace or origin[1], present)
        return msgspec.structs.replace(meta, labels=(meta.labels or {}) | labels)

    def origin_of(self, obj: KubeObject) -> Key | None:
        """Return the key that an object at the hub was published for; None if not by an HTTP source."""
        origin = origin_of(obj, tenant=self._settings.tenant)
        if origin is None or origin[0] != SERVICE:
            return origin
        # The slices of a Service's own load balancer have the same origin, and belong to another source.
        return (BACKEND, *origin[1:]) if obj.label(LABEL_BACKEND) else None

    # --- removals ------------------------------------------------------------------------------------------------

    async def remove(self, publisher: Published[Obj], origin: Key, part: Part, keep: Iterable[KubeObject] = ()) -> bool:
        """Delete the objects published for an origin of ``part``, except ``keep``; return whether that must wait."""
        names = {obj.metadata.name for obj in keep}
        gone = [obj for obj in self._published(publisher, origin) if obj.metadata.name not in names]
        return await self._delete(publisher, gone, (part,))

    def _published(self, publisher: Published[Obj], origin: Key) -> list[Obj]:
        kind, namespace, name = origin
        published = publisher.by_index(BY_ORIGIN, (kind, namespace, label_value(name)))
        return [obj for obj in published if is_for(obj, origin, tenant=self._settings.tenant)]

    async def _delete(self, publisher: Published[Obj], gone: Sequence[Obj], parts: Iterable[Part]) -> bool:
        if not gone:
            return False
        if not self._is_whole(parts):
            return True
        await publisher.delete(gone)
        return False

    def _is_whole(self, parts: Iterable[Part]) -> bool:
        """Return whether everything that ``parts`` may need is known, so that objects may be removed."""
        sources = self._services
        whole = sources.synced and not sources.slices.broken and sources.member_is_fresh(fresh_s=self._fresh_s)
        return whole and all(part.is_fresh(fresh_s=self._fresh_s) for part in parts)


def _state_of(name: str, secret: Secret) -> CertificateState:
    try:
        certificate = certificate_of(name, secret)
        return CertificateState(certificate.digest, validity=validity_of(certificate.chain))
    except ValueError as error:
        return CertificateState(problem=str(error))


_NAME = "fallback.fairlead.invalid"
#: Allowance for clock skew, and validity, in days; the expiry is irrelevant, since no client trusts the certificate.
_EARLIER_DAYS, _VALID_DAYS = 1, 36_500


def make_fallback(now: dt.datetime) -> tuple[str, dict[str, str]]:
    """Return the digest of a new certificate, and the data of its Secret."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=_EARLIER_DAYS))
        .not_valid_after(now + dt.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain = certificate.public_bytes(Encoding.PEM)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(pem).decode()}
    return pair_digest(chain, pem), data


#: Seconds for which an unneeded copy is kept.
LINGER_S = 5.0
#: Seconds until a refused write to the member is retried.
REFUSED_RETRY_S = 60.0
RIGHTS = "deploy/kubernetes/agent.yaml"


class ServiceCopier:
    """Keeps the copies of Services; the caller holds one key at a time."""

    def __init__(self, *, member: Cluster, caches: ServiceCaches, may_write: Callable[[], bool]) -> None:
        self._member = member
        self._caches = caches
        self._services = Overlay(caches.services)
        self._may_write = may_write
        #: The member's answer when it refused a copy, and the time.
        self._refused: dict[ServiceKey, tuple[str, float]] = {}
        self._idle_since: dict[ServiceKey, float] = {}
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.l7")

    def reach(self, key: ServiceKey, *, nodes: bool) -> tuple[Service | None, str]:
        """Return a Service as it is reached, and why it is not reached by the nodes (empty if it is).

        ``nodes``: its backends are the nodes. None with a reason: it cannot be a backend; None without: it does not
        exist.
        """
        service = self._services.get(*key)
        if service is None or not nodes:
            return service, ""
        has_endpoints = any(endpoint_slice.endpoints for endpoint_slice in self._caches.slices_of_service(key))
        if problem := why_no_copy(service, has_endpoints=has_endpoints):
            return None, problem
        return reached_by(service, self._copy(key)), self._refused.get(key, ("", 0.0))[0]

    def has_copy(self, key: ServiceKey) -> bool:
        """Return whether a Service has a copy of ours."""
        return self._copy(key) is not None

    async def ensure(self, key: ServiceKey) -> None:
        """Create or update the copy of a Service.

        Raises:
            Wait: another agent leads.
            Retry: the member does not answer.
        """
        self._idle_since.pop(key, None)
        service = self._services.get(*key)
        wanted = None if service is None else copy_of(service)
        if wanted is None:
            return
        present = self._services.get(*wanted.key)
        if present is not None and not is_ours(present, key):
            self._refuse(key, f"Service {present.metadata.name} was not made by Fairlead: rename or delete it")
            return
        if present is not None and (present.deleting or is_same_copy(wanted, present)):
            self._refused.pop(key, None)
            return
        if self._has_just_been_refused(key):
            return
        check_may_write(self._may_write)
        try:
            answer = await self._member.apply(MEMBER_SERVICES, _body(wanted), manager=MANAGER_AGENT)
        except Forbidden as error:
            self._log.warning("copy of a Service refused", key="/".join(key), sentence=error.sentence)
            self._refuse(key, f"the agent may not create it: apply {RIGHTS} of this version")
        except (Conflict, Invalid) as error:
            self._refuse(key, error.sentence)
        else:
            self._refused.pop(key, None)
            self._services.written(answer, before=present)

    async def collect(self, key: ServiceKey) -> bool:
        """Delete the unneeded copy of a Service; return whether that must wait."""
        self._refused.pop(key, None)
        copy = self._copy(key)
        if copy is None or copy.deleting:
            self._idle_since.pop(key, None)
            return False
        now = self._member.clock.monotonic()
        if now - self._idle_since.setdefault(key, now) < LINGER_S:
            return True
        check_may_write(self._may_write)
        try:
            await self._member.delete(MEMBER_SERVICES, *copy.key, uid=copy.metadata.uid)
        except (Conflict, NotFound):
            self._log.info("already gone", kind="Service", name=copy.metadata.name)
        self._services.deleted(copy, at=wire_time(self._member.clock.now()))
        self._idle_since.pop(key, None)
        return False

    def _copy(self, key: ServiceKey) -> MemberService | None:
        present = self._services.get(key[0], copy_name(key[1]))
        return present if present is not None and is_ours(present, key) else None

    def _refuse(self, key: ServiceKey, why: str) -> None:
        sentence = (
            f"Service {key[0]}/{key[1]} has no nodePort, and its copy {copy_name(key[1])} of type NodePort could not "
            f"be made: {why}. Until then its requests go to the pods directly"
        )
        self._refused[key] = (sentence, self._member.clock.monotonic())

    def _has_just_been_refused(self, key: ServiceKey) -> bool:
        sentence, at_s = self._refused.get(key, ("", 0.0))
        return bool(sentence) and self._member.clock.monotonic() - at_s < REFUSED_RETRY_S


def _body(wanted: Service) -> JSONObject:
    body: JSONObject = msgspec.to_builtins(wanted)
    # Protocol is a key of the list, but is omitted when it has the default value.
    ports = [{**port, "protocol": port.get("protocol", "TCP")} for port in body["spec"].get("ports", ())]
    return {"apiVersion": "v1", "kind": "Service", **body, "spec": {**body["spec"], "ports": ports}}


# --- copies of Services ----------------------------------------------------------------------------------------------
#
#     Service that a route names, backends are nodes     how it is reached
#     -------------------------------------------------  --------------------------------------
#     every port has a nodePort                          as it is
#     with a selector, a port without a nodePort         by the nodePorts of its copy
#     without a selector, with endpoints of its own      by these: their addresses are the user's choice
#     without a selector and without endpoints           refused: a copy would have no endpoints either
#     ExternalName                                       refused: it is a DNS name
#
# A copy is of type NodePort, is owned by its original, and follows its ports and its selector; the original is never
# written.

_SUFFIX = "-fairlead-nodes"


def copy_name(service: str) -> str:
    """Name the copy of a Service: a DNS label."""
    return fit(f"{service}{_SUFFIX}", identity=("copy", service))


def original_of(service: Service) -> tuple[str, str] | None:
    """Return namespace and name of the original of the copy ``service``, None if it is not one of our copies."""
    meta = service.metadata
    if service.label(LABEL_MANAGED_BY) != MANAGED_BY or not service.label(LABEL_COPY_OF):
        return None
    owners = (owner.name for owner in meta.owner_references or () if owner.kind == SERVICES.kind)
    name = next((owner for owner in owners if copy_name(owner) == meta.name), None)
    return None if name is None else (meta.namespace, name)


def why_no_copy(service: Service, *, has_endpoints: bool = False) -> str:
    """Return why a Service cannot be reached by nodes; empty if it can, or has its own endpoints."""
    named = f"Service {service.metadata.namespace}/{service.metadata.name}"
    if service.spec.type == "ExternalName":
        return f"{named} is of type ExternalName: it has no endpoints"
    if has_node_ports(service) or service.spec.selector or has_endpoints:
        return ""
    return (
        f"{named} has no selector, no endpoints and no nodePort, so nodes cannot reach it: "
        "add a selector or EndpointSlices, or use type NodePort"
    )


def is_chosen_by_user(service: Service | None) -> bool:
    """Return whether the user chooses the endpoints of a Service: it has no selector."""
    return service is not None and not service.spec.selector


def has_node_ports(service: Service) -> bool:
    """Return whether each port of a Service can be reached at the nodes."""
    return all(port.node_port for port in service.spec.ports or ())


def copy_of(service: Service) -> Service | None:
    """Return the copy that ``service`` should have, None if it needs none or cannot have one."""
    if service.deleting or has_node_ports(service) or why_no_copy(service):
        return None
    meta = service.metadata
    return Service(
        metadata=ObjectMeta(
            name=copy_name(meta.name),
            namespace=meta.namespace,
            labels={LABEL_MANAGED_BY: MANAGED_BY, LABEL_COPY_OF: label_value(meta.name)},
            owner_references=[SERVICES.owner(meta)],
        ),
        spec=ServiceSpec(
            type="NodePort",
            selector=dict(service.spec.selector or {}),
            ports=[msgspec.structs.replace(port, node_port=0) for port in service.spec.ports or ()],
            session_affinity=service.spec.session_affinity,
            session_affinity_config=service.spec.session_affinity_config,
            # A node port answers in the families of its own Service.
            ip_families=service.spec.ip_families,
            ip_family_policy=service.spec.ip_family_policy,
        ),
    )


def is_same_copy(wanted: Service, present: Service) -> bool:
    """Return whether the present copy is as desired; the API server chooses the nodePorts."""
    return _content(wanted) == _content(present)


def is_ours(copy: Service, original: tuple[str, str]) -> bool:
    """Return whether a Service with the name of a copy was made by us for this original."""
    return original_of(copy) == original


def reached_by(service: Service, copy: Service | None) -> Service:
    """Return ``service`` with the nodePorts of its copy; unchanged without such a copy."""
    if has_node_ports(service) or copy is None or copy.deleting:
        return service
    held = {(port.port, port.protocol): port.node_port for port in copy.spec.ports or ()}
    ports = [
        msgspec.structs.replace(port, node_port=port.node_port or held.get((port.port, port.protocol), 0))
        for port in service.spec.ports or ()
    ]
    return msgspec.structs.replace(service, spec=msgspec.structs.replace(service.spec, ports=ports))


def _content(service: Service) -> tuple[object, ...]:
    spec, meta = service.spec, service.metadata
    return (
        spec.type,
        spec.selector or {},
        sorted(map(_port, spec.ports or ())),
        spec.session_affinity,
        families_of(service),
        meta.labels or {},
        _owners(meta.owner_references or ()),
    )


def _port(port: ServicePort) -> tuple[int, str, str, str, str]:
    return (port.port, port.protocol, port.name, str(port.target_port or port.port), port.app_protocol or "")


def _owners(references: Iterable[OwnerReference]) -> list[tuple[str, str]]:
    return sorted((reference.kind, reference.uid) for reference in references)
