"""The view of one PoolService: everything that the decision about it depends on.

In: the inventory of layer 1, what is published, and a PoolService. Out: a ``PoolServiceView``, taken at one moment.
Never writes.
"""

from __future__ import annotations

import msgspec

from fairlead.api.names import ANNOTATION_BACKENDS
from fairlead.api.naming import label_value
from fairlead.api.poolservice import PoolService
from fairlead.publish.plan import Present
from fairlead.publish.publisher import Publisher
from fairlead.regions.backends import Backends, decode_backends
from fairlead.regions.balancer.identity import load_balancer_name, made_for
from fairlead.regions.identity import region_of
from fairlead.regions.inventory import Inventory


class PoolServiceView(msgspec.Struct, frozen=True):
    """``region`` is the label value of the region of the hub that serves it; ``present`` is what is published.

    ``occupied``: there is a TCPLoadBalancer of its name that was not made for it.
    """

    pool_service: PoolService
    backends: Backends
    region: str
    present: Present
    occupied: bool


def read_view(inventory: Inventory, publisher: Publisher, pool_service: PoolService) -> PoolServiceView:
    """Gather what the decision about a PoolService depends on."""
    present = read_present(publisher, pool_service.key)
    load_balancer = present.load_balancer
    pool = inventory.pool(pool_service.spec.nodepool_name)
    return PoolServiceView(
        pool_service=pool_service,
        backends=_backends(inventory, pool_service),
        region=label_value(pool.region if pool is not None else pool_service.spec.nodepool_name),
        present=present,
        occupied=load_balancer is not None and not made_for(load_balancer, pool_service.metadata.name),
    )


def read_present(publisher: Publisher, key: tuple[str, str]) -> Present:
    """Return what is published under the name of a PoolService's TCPLoadBalancer."""
    return publisher.present(key[0], load_balancer_name(key[1]))


def _backends(inventory: Inventory, pool_service: PoolService) -> Backends:
    """Return the backends in the PoolService, or in the cluster when they are too many for an annotation."""
    backends = decode_backends(pool_service.annotation(ANNOTATION_BACKENDS)) or Backends()
    region = region_of(pool_service)
    service = inventory.service(region.service_key) if backends.truncated and region is not None else None
    if service is None or region is None:
        return backends
    return inventory.backends(service, region.pool, [pool_service])
