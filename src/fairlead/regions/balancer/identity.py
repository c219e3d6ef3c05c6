"""The PoolServices of this layer 2, and the names and labels of what is made for each.

In: objects. Out: names, labels, yes or no. Pure. Never: takes a TCPLoadBalancer for ours by its name or label alone.
"""

from __future__ import annotations

from fairlead.api.names import LABEL_ORIGIN_KIND, LOAD_BALANCER_CLASS_PREFIX, fit
from fairlead.api.poolservice import POOL_SERVICES, PoolService
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.publish.objects import NAME_LIMIT, origin_labels

#: With its two dots it is no name that an agent gives, which is always <namespace>.<service>.
_SUFFIX = ".poolservice.fairlead"


def is_our_class(pool_service: PoolService) -> bool:
    """Return whether its load balancer class is one of Fairlead's."""
    name = pool_service.spec.load_balancer_class
    return name.startswith(LOAD_BALANCER_CLASS_PREFIX) and len(name) > len(LOAD_BALANCER_CLASS_PREFIX)


def load_balancer_name(pool_service_name: str) -> str:
    """Name the TCPLoadBalancer of a PoolService."""
    head = fit(pool_service_name, limit=NAME_LIMIT - len(_SUFFIX), identity=(pool_service_name,))
    return head + _SUFFIX


def pool_service_origin(pool_service: PoolService) -> dict[str, str]:
    """Return the labels of everything that is made for a PoolService."""
    namespace, name = pool_service.key
    return origin_labels(kind=POOL_SERVICES.kind, namespace=namespace, name=name)


def made_for(load_balancer: TCPLoadBalancer, name: str) -> bool:
    """Return whether a TCPLoadBalancer was created for the PoolService of this name."""
    origin = load_balancer.spec.origin
    return (
        load_balancer.label(LABEL_ORIGIN_KIND) == POOL_SERVICES.kind
        and (origin.kind, origin.name) == (POOL_SERVICES.kind, name)
        and load_balancer.metadata.name == load_balancer_name(name)
    )
