"""The part of a Service that concerns its regions, and whether Fairlead manages them.

In: a Service as the API server sends it, whole. Out: a ``SourceService``: typed, plus ``document``, the canonical JSON
that every PoolService of it carries. In the document is what a load balancer may want to know; what Kubernetes or we
ourselves write is not, so that our own writes never come back as news.
Never: keeps more than metadata of a Service that is not managed.

    in the document            left out
    -------------------------  ------------------------------------------------------------------------------
    spec                       clusterIP, clusterIPs (they have no meaning outside the cluster)
    labels                     aggregated.*
    annotations with a domain  aggregated.*, our own markers, kubectl's; without one they are private to the user
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from fairlead.api.json_text import decode, read_json
from fairlead.api.kubernetes import LAST_APPLIED, SERVICES, ServiceSpec, ServiceStatus
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, Resource
from fairlead.api.names import (
    AGGREGATED_PREFIX,
    ANNOTATION_ACCESS_POINTS,
    ANNOTATION_ADDRESS,
    ANNOTATION_NODEPOOL_SELECTOR,
    ANNOTATION_OPENYURT_SELECTOR,
    FINALIZER_POOL_SERVICES,
)
from fairlead.publish.service import OPTION_ANNOTATIONS

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
SOURCE_SERVICES: AnyResource = Resource(
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
