"""The names of a listener's Envoy resources.

One name serves the listener, its cluster and its endpoints; ``http.names`` has those of L7 beside. The parts of a key
hold no slash (``validate`` refuses it), so joining them by slashes cannot make two keys collide.
"""

from __future__ import annotations

import re

from fairlead.model.keys import IPV6, ListenerKey, LoadBalancerKey, family_of

#: One part of a name: what Kubernetes allows in a kind, namespace or name.
NAME_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def resource_name(load_balancer: LoadBalancerKey, listener: ListenerKey) -> str:
    """Name the Envoy resources of one listener, for example ``TCPLoadBalancer/shop/web/TCP/80``."""
    return (
        f"{load_balancer.kind}/{load_balancer.namespace}/{load_balancer.name}/{listener.protocol.value}/{listener.port}"
    )


def listener_name(name: str, bind_address: str) -> str:
    """Name the Envoy listener of a port at one of its addresses; ``name`` is that of the port's other resources.

    An address of one family never takes the listener of the other one over: Envoy would close its connections.
    """
    return f"{name}/IPv6" if family_of(bind_address) == IPV6 else name


def load_balancer_of(name: str) -> LoadBalancerKey | None:
    """Return the load balancer of a resource; None for a name that is not one of ours."""
    parts = name.split("/", 4)
    return LoadBalancerKey(*parts[:3]) if len(parts) >= 5 else None
