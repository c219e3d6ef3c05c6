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

from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from fairlead.api.json_text import decode, read_json
from fairlead.api.kubernetes import (
    LAST_APPLIED,
    SERVICES,
    Endpoint,
    EndpointConditions,
    EndpointSlice,
    Node,
    ServiceSpec,
    ServiceStatus,
)
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, Resource
from fairlead.api.names import (
    AGGREGATED_PREFIX,
    ANNOTATION_ACCESS_POINTS,
    ANNOTATION_ADDRESS,
    ANNOTATION_NODEPOOL_SELECTOR,
    ANNOTATION_OPENYURT_SELECTOR,
    ANNOTATION_SERVICE,
    FINALIZER_POOL_SERVICES,
    LABEL_EXCLUDE_NODE,
    LABEL_OPENYURT_NODEPOOL,
    LABEL_POOL_SERVICE_MANAGED_BY,
    LABEL_POOL_SERVICE_POOL,
    LABEL_POOL_SERVICE_SERVICE,
    POOL_SERVICE_MANAGED_BY,
    fit,
    label_value,
    short_hash,
)
from fairlead.api.poolservice import NODE_POOLS, NodePool, PoolService
from fairlead.model.keys import by_family
from fairlead.publish.objects import OPTION_ANNOTATIONS
from fairlead.translate.endpoints import EndpointState, in_service, state_of

#: (namespace, name) of a Service.
ServiceKey = tuple[str, str]

#: A PoolService may carry 256 KiB of annotations, which includes the backends.
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


def source_in_document(document: str) -> SourceService | None:
    """Return the Service in a document; None when it cannot be read."""
    read = read_json(document, _Document)
    return SourceService(metadata=read.metadata, spec=read.spec, document=document) if read is not None else None


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
    """Return whether layer 1 created the object, and may change it."""
    return pool_service.label(LABEL_POOL_SERVICE_MANAGED_BY) == POOL_SERVICE_MANAGED_BY


def region_of(pool_service: PoolService) -> RegionKey | None:
    """Return the pair that a PoolService of ours is for; None when it is not ours, or nothing of it is credible."""
    if not is_ours(pool_service):
        return None
    meta = pool_service.metadata
    for service, pool in _claims(pool_service):
        if service and pool and meta.name in pool_service_names(service, pool, pool_service.spec.load_balancer_class):
            return RegionKey(meta.namespace, service, pool)
    # The pair by reference or annotation when the object's name begins with that of the Service. This is how one of
    # ours is found whose pool was tampered with, or that was made for a class it no longer has.
    meta = pool_service.metadata
    written = name_in_document(pool_service.annotation(ANNOTATION_SERVICE))
    for service in (owner_name(pool_service), written):
        if service and meta.name.startswith(f"{service}-"):
            rest = meta.name.removeprefix(f"{service}-")
            return RegionKey(meta.namespace, service, pool_service.spec.nodepool_name or rest)
    return None


def _claims(pool_service: PoolService) -> Iterator[tuple[str, str]]:
    """Yield the (Service, pool) pairs that parts of the object name, the most trustworthy part first."""
    labelled = pool_service.label(LABEL_POOL_SERVICE_SERVICE)
    owner = owner_name(pool_service)
    pools = dict.fromkeys((pool_service.spec.nodepool_name, pool_service.label(LABEL_POOL_SERVICE_POOL)))
    written = name_in_document(pool_service.annotation(ANNOTATION_SERVICE)) if owner != labelled else ""
    for service in dict.fromkeys((owner, labelled, written)):
        for pool in pools:
            yield service, pool


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


#: A PoolService may carry 256 KiB of annotations.
BACKENDS_LIMIT_BYTES = 96 * 1024


class RegionPort(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A port on which these endpoints answer, by the name of the Service's port."""

    port: int
    name: str = ""
    protocol: str = "TCP"


class RegionBackend(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One pod, ready or not: layer 2 drains one that is known not to be ready.

    ``serving`` is written for a pod that is not ready: while no pod of the pool is, layer 2 sends connections to those
    that are serving and terminating.
    """

    address: str
    ready: bool
    node: str = ""
    serving: bool = False
    terminating: bool = False

    @property
    def state(self) -> EndpointState:
        """Return the state of the endpoint."""
        conditions = EndpointConditions(self.ready, self.ready or self.serving, self.terminating)
        return state_of(Endpoint(conditions=conditions))


class EndpointGroup(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Backends with the same ports (one EndpointSlice's share), by its name."""

    slice: str
    address_type: str
    ports: tuple[RegionPort, ...]
    endpoints: tuple[RegionBackend, ...]


class PoolNode(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One node of the pool that may take traffic at node ports; ``second_address`` is of the other family."""

    name: str
    address: str
    ready: bool
    second_address: str = ""


class Backends(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The backends of one (Service, pool). ``nodes`` is None where node ports are of no use."""

    groups: tuple[EndpointGroup, ...] = ()
    nodes: tuple[PoolNode, ...] | None = None
    truncated: str = ""

    @property
    def ready(self) -> int:
        """Return how many distinct addresses take new connections."""
        states: dict[str, EndpointState] = {}
        for backend in (backend for group in self.groups for backend in group.endpoints):
            states[backend.address] = max(backend.state, states.get(backend.address, backend.state))
        return len(in_service(states))

    @property
    def node_names(self) -> frozenset[str]:
        """Return the nodes that are backends, or run some."""
        names = {backend.node for group in self.groups for backend in group.endpoints if backend.node}
        return frozenset(names | {node.name for node in self.nodes or ()})

    def encode(self) -> str:
        """Return canonical JSON; one too long, or truncated before, is replaced by a hash that changes with it."""
        text = _ENCODER.encode(self)
        if self.truncated or len(text) > BACKENDS_LIMIT_BYTES:
            note = f"{self.ready} ready, {len(text)} bytes, {digest(text)}: read the EndpointSlices of the Service"
            text = _ENCODER.encode(Backends(truncated=note))
        return text.decode()


def decode_backends(text: str) -> Backends | None:
    """Decode an annotation; None when it is missing or invalid."""
    return read_json(text, Backends)


def build_backends(
    pool: str,
    slices: Iterable[EndpointSlice],
    membership: Membership,
    *,
    before: Backends | None = None,
    nodes: Iterable[PoolNode] | None = None,
    kept: Collection[str] = (),
    elsewhere: Collection[str] = (),
) -> Backends:
    """Collect the backends of ``pool``, sorted so that equal content is equal text.

    ``kept`` are nodes that stay in the pool, because what decides about them cannot be read; ``elsewhere`` are those
    that stay in other pools.
    """
    # A group for every slice with an endpoint here; one without is left out, so that it costs the other pools nothing.
    earlier = before.groups if before else ()
    placed = {(backend.address, backend.node) for group in earlier for backend in group.endpoints}
    groups: list[EndpointGroup] = []
    for endpoint_slice in sorted(slices, key=lambda endpoint_slice: endpoint_slice.metadata.name):
        if endpoint_slice.deleting or endpoint_slice.address_type == "FQDN":
            continue
        endpoints = endpoints_in_pool(pool, endpoint_slice, membership, placed, kept, elsewhere)
        if endpoints:
            ports = sorted(
                (
                    RegionPort(port.port, port.name or "", port.protocol or "TCP")
                    for port in endpoint_slice.ports or ()
                    if port.port
                ),
                key=lambda port: (port.name, port.protocol, port.port),
            )
            groups.append(
                EndpointGroup(endpoint_slice.metadata.name, endpoint_slice.address_type, tuple(ports), endpoints)
            )
    known = None if nodes is None else tuple(sorted(nodes, key=lambda node: node.name))
    return Backends(tuple(groups), known)


def endpoints_in_pool(
    pool: str,
    endpoint_slice: EndpointSlice,
    membership: Membership,
    placed: Collection[tuple[str, str]] = (),
    kept: Collection[str] = (),
    elsewhere: Collection[str] = (),
) -> tuple[RegionBackend, ...]:
    """Return one slice's endpoints in ``pool``.

    ``placed`` are the endpoints of nodes that no longer exist, ``kept`` the nodes that stay in the pool, ``elsewhere``
    those that stay in other pools.
    """
    by_address: dict[str, RegionBackend] = {}
    for endpoint in endpoint_slice.endpoints or ():
        if not endpoint.addresses or not endpoint.node_name:
            continue
        address, node = endpoint.addresses[0], endpoint.node_name
        in_pool = membership.pool_of(node) == pool if membership.knows(node) else (address, node) in placed
        in_pool = in_pool and node not in elsewhere
        if in_pool or node in kept:
            serving = endpoint.serving and not endpoint.ready
            backend = RegionBackend(address, endpoint.ready, node, serving, endpoint.terminating)
            by_address[address] = max(
                backend, by_address.get(address, backend), key=lambda known_backend: known_backend.state
            )
    return tuple(by_address[address] for address in sorted(by_address))


def pool_node(node: Node) -> PoolNode | None:
    """Reduce a node; None when it may not take traffic or shows no address."""
    if LABEL_EXCLUDE_NODE in (node.metadata.labels or {}):
        return None
    of_type = {
        kind: [address.address for address in node.status.addresses or () if address.type == kind]
        for kind in ("InternalIP", "ExternalIP")
    }
    addresses = list(by_family([*of_type["InternalIP"], *of_type["ExternalIP"]]).values())
    if not addresses:
        return None
    second = addresses[1] if len(addresses) > 1 else ""
    return PoolNode(node.metadata.name, addresses[0], node.ready and not node.deleting, second)


def pools_of_slice(endpoint_slice: EndpointSlice, membership: Membership) -> frozenset[str]:
    """Return the pools in which a slice has endpoints."""
    nodes = {endpoint.node_name for endpoint in endpoint_slice.endpoints or () if endpoint.node_name}
    return frozenset(pool for node in nodes if (pool := membership.pool_of(node)))


# --- pools -----------------------------------------------------------------------------------------------------------
#
# The pools of a cluster, and the pool of each node.
#
#     node label apps.openyurt.io/nodepool names an OpenYurt pool   that one (OpenYurt decides)
#     all labels of one Fairlead pool's nodeSelector                that one
#     of several                                                    the oldest pool keeps it; a Warning on the others
#     none                                                          no pool: no region gets its pods


class RegionPool(msgspec.Struct, frozen=True):
    """One region. ``node_selector`` is None for OpenYurt's pools, whose nodes name their pool themselves."""

    name: str
    uid: str = ""
    api_version: str = NODE_POOLS.api_version
    labels: Mapping[str, str] = {}
    node_selector: Mapping[str, str] | None = None
    region: str = ""
    created: str = ""
    deleting: bool = False

    def claims(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with ``labels`` belongs to this pool."""
        if self.node_selector is None:
            return labels.get(LABEL_OPENYURT_NODEPOOL) == self.name
        return bool(self.node_selector) and all(labels.get(key) == value for key, value in self.node_selector.items())


def pool_from_object(resource: AnyResource, obj: KubeObject) -> RegionPool:
    """Make a Pool of a NodePool of either kind."""
    meta = obj.metadata
    ours = obj if isinstance(obj, NodePool) else None
    return RegionPool(
        name=meta.name,
        uid=meta.uid,
        api_version=resource.api_version,
        labels=meta.labels or {},
        node_selector=ours.spec.node_selector if ours is not None else None,
        region=(ours.spec.region if ours is not None else "") or meta.name,
        created=meta.creation_timestamp or "",
        deleting=obj.deleting,
    )


class Claims(msgspec.Struct, frozen=True):
    """The pools that select a node, the one that has it first; empty when none does."""

    pools: tuple[str, ...] = ()

    @property
    def owner(self) -> str:
        """Return the pool that the node is in, or an empty string."""
        return self.pools[0] if self.pools else ""


def claims_of(node: Node, pools: Iterable[RegionPool]) -> Claims:
    """Decide which pool a node is in. A pool that is being deleted has its nodes until it is gone."""
    labels = node.metadata.labels or {}
    claiming = [pool for pool in pools if pool.claims(labels)]
    claiming.sort(key=lambda pool: (pool.node_selector is not None, pool.created, pool.name))
    return Claims(tuple(pool.name for pool in claiming))


class Membership:
    """The pool of each node, kept current one change at a time."""

    def __init__(self) -> None:
        self._claims: dict[str, Claims] = {}
        self._nodes: dict[str, set[str]] = {}

    def pool_of(self, node: str) -> str:
        """Return the pool of a node, an empty string when it has none or is not known."""
        claims = self._claims.get(node)
        return claims.owner if claims is not None else ""

    def knows(self, node: str) -> bool:
        """Return whether the node exists."""
        return node in self._claims

    def nodes_of(self, pool: str) -> frozenset[str]:
        """Return the nodes of a pool."""
        return frozenset(self._nodes.get(pool, ()))

    def conflicts(self) -> dict[str, tuple[str, str]]:
        """Return, for each pool that lacks a selected node, one such node and the pool that has it."""
        conflicts: dict[str, tuple[str, str]] = {}
        for node in sorted(self._claims):
            claims = self._claims[node]
            for loser in claims.pools[1:]:
                conflicts.setdefault(loser, (node, claims.owner))
        return conflicts

    def put(self, node: str, claims: Claims | None) -> tuple[str, str]:
        """Record a node's claims, None when it is gone; return the pool that it was in and the one that it is in."""
        old = self.pool_of(node)
        if claims is None:
            self._claims.pop(node, None)
        else:
            self._claims[node] = claims
        new = self.pool_of(node)
        if old != new or claims is None:
            self._nodes.get(old, set()).discard(node)
        if new:
            self._nodes.setdefault(new, set()).add(node)
        return old, new
