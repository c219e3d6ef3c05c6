"""A Service as its regions see it, and the names and owners of its PoolServices.

    in the document            left out
    -------------------------  ------------------------------------------------------------------------------
    spec                       clusterIP, clusterIPs (they have no meaning outside the cluster)
    labels                     aggregated.*
    annotations with a domain  aggregated.*, our own markers, kubectl's; without one they are private to the user

In: a Service as the API server sends it, whole. Out: a ``SourceService``: typed, plus ``document``, the canonical JSON
that every PoolService of it carries. The document has what a load balancer may need, and nothing that Kubernetes or
Fairlead writes, so that the own writes never come back as news. Pure. Never: keeps more than metadata of a Service that
is not managed.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from fairlead.api.json_text import decode, read_json
from fairlead.api.kubernetes import LAST_APPLIED, SERVICES, ServiceSpec, ServiceStatus
from fairlead.api.meta import JSONObject, KubeObject, Resource
from fairlead.api.names import (
    AGGREGATED_PREFIX,
    ANNOTATION_ACCESS_POINTS,
    ANNOTATION_ADDRESS,
    ANNOTATION_NODEPOOL_SELECTOR,
    ANNOTATION_OPENYURT_SELECTOR,
    ANNOTATION_SERVICE,
    FINALIZER_POOL_SERVICES,
    LABEL_POOL_SERVICE_MANAGED_BY,
    LABEL_POOL_SERVICE_POOL,
    LABEL_POOL_SERVICE_SERVICE,
    POOL_SERVICE_MANAGED_BY,
    fit,
    label_value,
    short_hash,
)
from fairlead.api.poolservice import PoolService
from fairlead.publish.objects import OPTION_ANNOTATIONS

#: (namespace, name) of a Service.
ServiceKey = tuple[str, str]

#: A PoolService may carry 256 KiB of annotations, and the backends want their share.
DOCUMENT_LIMIT_BYTES = 96 * 1024
_OUR_ANNOTATIONS = frozenset({LAST_APPLIED, ANNOTATION_ACCESS_POINTS, ANNOTATION_ADDRESS})
_INSIDE_ONLY = ("clusterIP", "clusterIPs")
_ENCODER = msgspec.json.Encoder(order="deterministic")


class _WholeService(KubeObject, frozen=True, gc=False):
    """A Service with its spec as it was sent, unknown fields included."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: ServiceStatus = ServiceStatus()


class SourceService(KubeObject, frozen=True, gc=False):
    """A Service as regions see it; ``document`` is empty when it is not managed."""

    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()
    document: str = ""

    @property
    def selector(self) -> str:
        """Return the text of the NodePool selector; empty when there is none."""
        annotations = self.metadata.annotations or {}
        return annotations.get(ANNOTATION_NODEPOOL_SELECTOR, annotations.get(ANNOTATION_OPENYURT_SELECTOR, "")).strip()

    @property
    def managed(self) -> bool:
        """Return whether layer 1 spreads it over regions: LoadBalancer, a class, a selector."""
        return self.spec.type == "LoadBalancer" and bool(self.spec.load_balancer_class) and bool(self.selector)

    @property
    def held(self) -> bool:
        """Return whether it has the finalizer of regions."""
        return self.held_by(FINALIZER_POOL_SERVICES)

    @property
    def concerns_us(self) -> bool:
        """Return whether regions manage it, or may have left fields on it."""
        return self.managed or self.held or bool(self.annotation(ANNOTATION_ACCESS_POINTS))


#: Services with their whole spec; a cache of these takes ``source_from_whole`` as its transform.
SOURCE_SERVICES: Resource[Any] = Resource(
    SERVICES.group, SERVICES.version, SERVICES.kind, SERVICES.plural, True, _WholeService
)


def source_from_whole(service: Any) -> SourceService:
    """Reduce a Service as it was decoded."""
    spec = decode(service.spec, ServiceSpec)
    source = SourceService(metadata=service.metadata, spec=spec, status=service.status)
    if not source.managed:
        return source
    document = document_of(source, decode(service.spec, JSONObject))
    return msgspec.structs.replace(source, document=document)


def document_of(source: SourceService, spec: JSONObject) -> str:
    """Serialize a Service for its PoolServices; the same content is the same text."""
    meta = source.metadata
    metadata: JSONObject = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
    labels = {key: value for key, value in (meta.labels or {}).items() if not key.startswith(AGGREGATED_PREFIX)}
    annotations = {
        key: value
        for key, value in (meta.annotations or {}).items()
        if "/" in key and not key.startswith(AGGREGATED_PREFIX) and key not in _OUR_ANNOTATIONS
    }
    outside = {key: value for key, value in spec.items() if key not in _INSIDE_ONLY}
    document: JSONObject = {"apiVersion": "v1", "kind": "Service", "spec": outside}
    document["metadata"] = {**metadata, "labels": labels, "annotations": annotations}
    text = _ENCODER.encode(document)
    if len(text) > DOCUMENT_LIMIT_BYTES:
        # Annotations are what can be that long. A layer 2 that needs them reads the Service; a change still shows.
        # Those that a load balancer obeys stay: without its source ranges it would be open to everybody.
        kept = {key: value for key, value in annotations.items() if key in OPTION_ANNOTATIONS}
        document["metadata"] = {**metadata, "labels": labels, "annotations": kept}
        text = _ENCODER.encode({**document, "truncated": f"{len(text)} bytes, {digest(text)}"})
    return text.decode()


def class_in_document(document: str) -> str:
    """Return the load balancer class that a document asks for; empty when it cannot be read."""
    read = read_json(document, _Document)
    return (read.spec.load_balancer_class or "") if read is not None else ""


def name_in_document(document: str) -> str:
    """Return the name of the Service in a document; empty when it cannot be read."""
    read = read_json(document, _Document)
    return read.metadata.name if read is not None else ""


class _Document(KubeObject, frozen=True, gc=False):
    spec: ServiceSpec = ServiceSpec()


def digest(text: bytes) -> str:
    """Return a short hash of ``text``."""
    return blake2b(text, digest_size=8).hexdigest()


_NAME_LIMIT = 253


# --- PoolServices of a Service ---------------------------------------------------------------------------------------
#
# The owner (Service, NodePool) of a PoolService, and its name.
#
#     web + hangzhou                 web-hangzhou
#     a + b-c, when a-b + c has it   a-b-c-<hash of the pair>
#     longer than a name may be      its head, and the hash of the pair
#
# A PoolService is ours when it says so in its managed-by label. For which (Service, pool) it is, several parts say:
# controller reference, labels, the Service in its annotation. One part that was tampered with does not make it
# invisible, as long as another one agrees with its name, which cannot change.


class RegionKey(NamedTuple):
    """One Service in one pool: the key of targeted work."""

    namespace: str
    service: str
    pool: str

    @property
    def service_key(self) -> ServiceKey:
        """Return the key of the Service."""
        return (self.namespace, self.service)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.service} in {self.pool}"


def pool_service_labels(service: str, pool: str) -> dict[str, str]:
    """Return the labels of the PoolService of one pair; pool names may be longer than label values."""
    return {
        LABEL_POOL_SERVICE_SERVICE: service,
        LABEL_POOL_SERVICE_POOL: label_value(pool),
        LABEL_POOL_SERVICE_MANAGED_BY: POOL_SERVICE_MANAGED_BY,
    }


def pool_service_names(service: str, pool: str, class_name: str) -> tuple[str, ...]:
    """Return the names that the PoolService of one pair may have, the preferred one first.

    The second is for when the first is taken by another pair, the third for a second one of the same pair that is
    to take over from one of another class.
    """
    plain = f"{service}-{pool}"
    return (
        fit(plain, limit=_NAME_LIMIT, identity=(service, pool)),
        _hashed(plain, (service, pool)),
        _hashed(plain, (service, pool, class_name)),
    )


def _hashed(plain: str, identity: tuple[str, ...]) -> str:
    suffix = short_hash(*identity)
    return f"{plain[: _NAME_LIMIT - len(suffix) - 1].rstrip('-._')}-{suffix}"


def is_ours(pool_service: KubeObject) -> bool:
    """Return whether layer 1 made it, and may change it."""
    return pool_service.label(LABEL_POOL_SERVICE_MANAGED_BY) == POOL_SERVICE_MANAGED_BY


def region_of(pool_service: PoolService) -> RegionKey | None:
    """Return the pair that a PoolService of ours is for; None when it is not ours, or nothing of it is credible."""
    if not is_ours(pool_service):
        return None
    meta = pool_service.metadata
    for service, pool in _claims(pool_service):
        if service and pool and meta.name in pool_service_names(service, pool, pool_service.spec.load_balancer_class):
            return RegionKey(meta.namespace, service, pool)
    return _by_head(pool_service)


def _claims(pool_service: PoolService) -> Iterator[tuple[str, str]]:
    """Yield the (Service, pool) pairs that parts of the object name, the most trustworthy part first."""
    labelled = pool_service.label(LABEL_POOL_SERVICE_SERVICE)
    owner = owner_name(pool_service)
    pools = dict.fromkeys((pool_service.spec.nodepool_name, pool_service.label(LABEL_POOL_SERVICE_POOL)))
    written = name_in_document(pool_service.annotation(ANNOTATION_SERVICE)) if owner != labelled else ""
    for service in dict.fromkeys((owner, labelled, written)):
        for pool in pools:
            yield service, pool


def _by_head(pool_service: PoolService) -> RegionKey | None:
    """Return the pair by reference or annotation when the object's name begins with that of the Service.

    This is how one of ours is found whose pool was tampered with, or that was made for a class it no longer has.
    """
    meta = pool_service.metadata
    written = name_in_document(pool_service.annotation(ANNOTATION_SERVICE))
    for service in (owner_name(pool_service), written):
        if service and meta.name.startswith(f"{service}-"):
            rest = meta.name.removeprefix(f"{service}-")
            return RegionKey(meta.namespace, service, pool_service.spec.nodepool_name or rest)
    return None


def owner_name(pool_service: PoolService) -> str:
    """Return the name of the Service that controls it; empty when there is none."""
    for reference in pool_service.metadata.owner_references or ():
        if reference.controller and reference.kind == SERVICES.kind and reference.api_version == SERVICES.api_version:
            return reference.name
    return ""


def services_named(pool_service: PoolService | None) -> set[ServiceKey]:
    """Return the Services to reconcile when this object changes: the one that it is for, and the one it names."""
    if pool_service is None or not is_ours(pool_service):
        return set()
    namespace = pool_service.metadata.namespace
    names = {pool_service.label(LABEL_POOL_SERVICE_SERVICE)}
    region = region_of(pool_service)
    if region is not None:
        names.add(region.service)
    return {(namespace, service) for service in names if service}
