"""The owner (Service, NodePool) of a PoolService, and its name.

    web + hangzhou                 web-hangzhou
    a + b-c, when a-b + c has it   a-b-c-<hash of the pair>
    longer than a name may be      its head, and the hash of the pair

A PoolService is ours when it says so in its managed-by label. For which (Service, pool) it is, several parts say:
controller reference, labels, the Service in its annotation. One part that was tampered with does not make it
invisible, as long as another one agrees with its name, which cannot change.
In: objects. Out: names, labels, identities. Never: takes an object without our label for ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fairlead.api.kubernetes import SERVICES
from fairlead.api.meta import KubeObject
from fairlead.api.names import (
    ANNOTATION_SERVICE,
    LABEL_POOL_SERVICE_MANAGED_BY,
    LABEL_POOL_SERVICE_POOL,
    LABEL_POOL_SERVICE_SERVICE,
    POOL_SERVICE_MANAGED_BY,
    fit,
    label_value,
    short_hash,
)
from fairlead.api.poolservice import PoolService
from fairlead.regions.source import ServiceKey, name_in_document

_NAME_LIMIT = 253


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
