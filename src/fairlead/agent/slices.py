"""Which EndpointSlices should one load balancer have at the hub?

    targets  externalTrafficPolicy  slices
    -------  ---------------------  -----------------------------------------------------------------
    Pod      any                    the member's own, one for one
    Node     Cluster                none: the hub joins the nodes slices with each port's nodePort
    Node     Local                  the nodes that have endpoints: ready ones are ready; the hub leaves
                                    only those that are Ready nodes as well
    Address  any                    the address of the member's own load balancer, with the Service's ports

In: slices in canonical form (``compact``). Out: slices in canonical form, sorted by name.
Never drops an endpoint because it is not ready: that it is listed as not ready is what the hub needs to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.agent.identity import ServiceKey, slice_labels, slice_name
from fairlead.agent.nodes import MAX_ENDPOINTS_PER_SLICE
from fairlead.agent.transforms import is_ipv4, make_conditions
from fairlead.api.kubernetes import Endpoint, EndpointConditions, EndpointPort, EndpointSlice, Service
from fairlead.api.meta import ObjectMeta


def mirror_slices(
    key: ServiceKey, slices: Iterable[EndpointSlice], *, namespace: str, tenant: str
) -> tuple[tuple[EndpointSlice, ...], tuple[str, ...]]:
    """Mirror the member's slices; return them, and a note for each that cannot be."""
    mirrored: list[EndpointSlice] = []
    notes: list[str] = []
    for one in sorted(slices, key=lambda one: one.metadata.name):
        if one.deleting:
            continue
        if one.address_type == "FQDN":
            notes.append(f"EndpointSlice {one.metadata.name} holds host names (addressType FQDN), which are left out")
        elif one.address_type == "IPv4":
            name = slice_name(key, "pod", one.metadata.name)
            mirrored.append(_slice(key, name, one.endpoints or [], one.ports or [], namespace, tenant))
    return tuple(sorted(mirrored, key=lambda one: one.metadata.name)), tuple(notes)


def local_slices(
    key: ServiceKey,
    slices: Iterable[EndpointSlice],
    *,
    addresses: Mapping[str, str],
    before: Iterable[EndpointSlice],
    namespace: str,
    tenant: str,
) -> tuple[EndpointSlice, ...]:
    """List the nodes that have endpoints of the Service, each as ready as the best of its endpoints.

    ``addresses`` are the member's nodes by name. A node that has just gone keeps the address that it has in
    ``before``, as long as the Service's slices still name it: the hub leaves it out anyway, and so one node's going
    is one write, not one for each load balancer.
    """
    best: dict[str, tuple[bool, bool, bool]] = {}
    for one in slices:
        if one.address_type != "IPv4" or one.deleting:
            continue
        for endpoint in one.endpoints or ():
            if endpoint.node_name:
                rank = _rank(endpoint.conditions)
                best[endpoint.node_name] = max(best.get(endpoint.node_name, rank), rank)
    known = {
        endpoint.node_name: endpoint.addresses[0]
        for one in before
        for endpoint in one.endpoints or ()
        if endpoint.node_name and endpoint.addresses
    }
    found = [
        Endpoint(addresses=[address], conditions=_conditions(rank), node_name=node)
        for node, rank in best.items()
        if (address := addresses.get(node) or known.get(node, ""))
    ]
    found.sort(key=lambda endpoint: (endpoint.addresses or [], endpoint.node_name or ""))
    starts = range(0, max(1, len(found)), MAX_ENDPOINTS_PER_SLICE)
    return tuple(
        _slice(
            key,
            slice_name(key, "local", str(number)),
            found[start : start + MAX_ENDPOINTS_PER_SLICE],
            [],
            namespace,
            tenant,
        )
        for number, start in enumerate(starts)
    )


def address_slices(key: ServiceKey, service: Service, *, namespace: str, tenant: str) -> tuple[EndpointSlice, ...]:
    """Make the member's own load balancer the target; empty while it has no address that we can use."""
    ingress = service.status.load_balancer.ingress or ()
    ips = sorted({one.ip for one in ingress if is_ipv4(one.ip)})
    names = sorted({one.hostname for one in ingress if one.hostname and not one.ip})
    ports = sorted(
        (EndpointPort(name=port.name, port=port.port, protocol=port.protocol) for port in service.spec.ports or ()),
        key=lambda port: (port.name or "", port.protocol or "", port.port or 0),
    )
    ready = make_conditions(ready=True, serving=True, terminating=False)
    made: list[EndpointSlice] = []
    # The address type of a slice can never change, so each type has a slice of its own name.
    for address_type, found in (("FQDN", names), ("IPv4", ips)):
        if found:
            name = slice_name(key, "address", address_type.lower())
            endpoints = [Endpoint(addresses=[address], conditions=ready) for address in found]
            made.append(_slice(key, name, endpoints, ports, namespace, tenant, address_type))
    return tuple(made)


def _slice(
    key: ServiceKey,
    name: str,
    endpoints: list[Endpoint],
    ports: list[EndpointPort],
    namespace: str,
    tenant: str,
    address_type: str = "IPv4",
) -> EndpointSlice:
    meta = ObjectMeta(name=name, namespace=namespace, labels=slice_labels(key, tenant=tenant))
    return EndpointSlice(metadata=meta, address_type=address_type, endpoints=endpoints, ports=ports)


def _rank(conditions: EndpointConditions | None) -> tuple[bool, bool, bool]:
    """Order conditions: ready is best, then serving while terminating, then anything else."""
    if conditions is None:
        return (True, True, True)
    return (bool(conditions.ready), bool(conditions.serving), not conditions.terminating)


def _conditions(rank: tuple[bool, bool, bool]) -> EndpointConditions:
    ready, serving, staying = rank
    return make_conditions(ready=ready, serving=serving, terminating=not staying)
