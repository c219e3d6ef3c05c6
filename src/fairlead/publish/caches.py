"""The watch caches of what is published at a hub, in canonical form, slices with an index by load balancer.

In: a cluster, and which objects are meant. Out: caches, to be run by the caller. Never decides anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.api.kubernetes import ENDPOINT_SLICES, EndpointSlice
from fairlead.api.names import LABEL_BACKEND, LABEL_LOAD_BALANCER, LABEL_NODES, LABEL_NODES_IPV6
from fairlead.api.naming import backend_label, label_value
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.publish.canonical import canonical_load_balancer, canonical_slice

BY_LOAD_BALANCER = "load balancer"
_NODES = "\nnodes"  # no label value holds a line break
_BACKEND = "\nbackend "

#: A namespace, and what the slices of one load balancer, or those of a member's nodes, have in common.
SliceGroup = tuple[str, str]


def published_load_balancers(
    hub: Cluster, *, namespace: str = "", label_selector: str = ""
) -> WatchCache[TCPLoadBalancer]:
    """Make a cache of TCPLoadBalancers."""
    return WatchCache(
        hub,
        TCP_LOAD_BALANCERS,
        namespace=namespace,
        label_selector=label_selector,
        transform=canonical_load_balancer,
    )


def published_slices(hub: Cluster, *, namespace: str = "", label_selector: str = "") -> WatchCache[EndpointSlice]:
    """Make a cache of EndpointSlices with the index ``BY_LOAD_BALANCER``."""
    return WatchCache(
        hub,
        ENDPOINT_SLICES,
        namespace=namespace,
        label_selector=label_selector,
        transform=lambda raw: canonical_slice(raw, owners=True),
        indexes={BY_LOAD_BALANCER: groups_of_slice},
    )


def slices_of(namespace: str, load_balancer: str) -> SliceGroup:
    """Return the group of the slices of one TCPLoadBalancer."""
    return (namespace, label_value(load_balancer))


def slices_of_nodes(namespace: str) -> SliceGroup:
    """Return the group of the slices that hold a member's nodes."""
    return (namespace, _NODES)


def slices_of_backend(namespace: str, service: str) -> SliceGroup:
    """Return the group of the slices that hold the endpoints of one Service ("namespace/name") for routes."""
    return (namespace, _BACKEND + backend_label(service))


def groups_of_slice(endpoint_slice: EndpointSlice) -> Iterable[SliceGroup]:
    """Return the group of a slice; none when it carries neither label."""
    namespace = endpoint_slice.metadata.namespace
    if endpoint_slice.label(LABEL_NODES) or endpoint_slice.label(LABEL_NODES_IPV6):
        return (slices_of_nodes(namespace),)
    if backend := endpoint_slice.label(LABEL_BACKEND):
        return ((namespace, _BACKEND + backend),)
    value = endpoint_slice.label(LABEL_LOAD_BALANCER)
    return ((namespace, value),) if value else ()
