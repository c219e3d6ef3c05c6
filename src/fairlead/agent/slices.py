"""The EndpointSlices that one load balancer should have at the hub.

    targets  externalTrafficPolicy  slices
    -------  ---------------------  -----------------------------------------------------------------
    Pod      any                    the member's own of the Service's families, one for one
    Node     Cluster                none: the hub joins the nodes slices with each port's nodePort
    Node     Local                  the nodes that have endpoints: ready ones are ready; the hub leaves
                                    only those that are Ready nodes as well
    Address  any                    the address of the member's own load balancer, with the Service's ports

In: slices in canonical form. Out: slices in canonical form, sorted by name.
Never drops an endpoint because it is not ready: that it is listed as not ready is what the hub needs to know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from fairlead.agent.identity import ServiceKey, service_slice_labels, slice_name
from fairlead.agent.nodes import MAX_ENDPOINTS_PER_SLICE
from fairlead.api.kubernetes import Endpoint, EndpointConditions, EndpointPort, EndpointSlice, Service
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import LABEL_ORIGIN_UID
from fairlead.api.naming import label_value
from fairlead.model.families import IPV4, IPV6, Family, family_of
from fairlead.publish.canonical import canonical_endpoints, canonical_ports, make_conditions
from fairlead.publish.publication import families_of
from fairlead.translate.endpoints import EndpointState, state_of

_READY = make_conditions(ready=True, serving=True, terminating=False)


class SliceTemplate(msgspec.Struct, frozen=True):
    """The common part of the slices of one Service, ``uid``. ``namespace`` is the tenant's at the hub."""

    key: ServiceKey
    namespace: str
    tenant: str
    uid: str = ""

    def make(
        self,
        role: str,
        rest: str,
        endpoints: list[Endpoint],
        ports: list[EndpointPort] | None = None,
        address_type: str = "IPv4",
    ) -> EndpointSlice:
        """Make one slice (see ``slice_name``)."""
        labels = service_slice_labels(self.key, tenant=self.tenant)
        if self.uid:
            labels[LABEL_ORIGIN_UID] = label_value(self.uid)
        meta = ObjectMeta(name=slice_name(self.key, role, rest), namespace=self.namespace, labels=labels)
        return EndpointSlice(metadata=meta, address_type=address_type, endpoints=endpoints, ports=ports or [])


def mirror_slices(
    template: SliceTemplate, slices: Iterable[EndpointSlice], families: Collection[str]
) -> tuple[EndpointSlice, ...]:
    """Mirror the member's slices of these families."""
    mirrored = [
        template.make("pod", each.metadata.name, each.endpoints or [], each.ports, each.address_type)
        for each in slices
        if each.address_type in families and not each.deleting
    ]
    return tuple(sorted(mirrored, key=lambda each: each.metadata.name))


def of_one_family(slices: Iterable[EndpointSlice]) -> list[EndpointSlice]:
    """Return the slices of IPv4; those of IPv6 where only these have endpoints. A pod may be in slices of both."""
    live = [each for each in slices if not each.deleting]
    by_family = {family: [each for each in live if each.address_type == family] for family in (IPV4, IPV6)}
    only_ipv6 = any(each.endpoints for each in by_family[IPV6]) and not any(each.endpoints for each in by_family[IPV4])
    return by_family[IPV6 if only_ipv6 else IPV4]


def local_slices(
    template: SliceTemplate,
    slices: Iterable[EndpointSlice],
    family: Family,
    *,
    addresses: Mapping[str, str],
    before: Iterable[EndpointSlice],
) -> tuple[EndpointSlice, ...]:
    """List the nodes that have endpoints of the Service in a family, each in the state of the best of its endpoints.

    ``addresses`` are the member's nodes by name, in that family. A node that has just gone keeps the address that it
    has in ``before``, as long as the Service's slices still name it: the hub leaves it out anyway, and so one node's
    going is one write, not one for each load balancer.
    """
    best: dict[str, EndpointState] = {}
    for each in slices:
        if each.address_type != family or each.deleting:
            continue
        for endpoint in each.endpoints or ():
            if endpoint.node_name:
                state = state_of(endpoint)
                best[endpoint.node_name] = max(state, best.get(endpoint.node_name, state))
    known = {
        endpoint.node_name: endpoint.addresses[0]
        for each in before
        for endpoint in each.endpoints or ()
        if each.address_type == family and endpoint.node_name and endpoint.addresses
    }
    endpoints = canonical_endpoints(
        [
            Endpoint(addresses=[address], conditions=_conditions(state), node_name=node)
            for node, state in best.items()
            if (address := addresses.get(node) or known.get(node, ""))
        ]
    )
    starts = range(0, max(1, len(endpoints)), MAX_ENDPOINTS_PER_SLICE)
    # The slices of IPv4 were there first and keep their names.
    prefix = "" if family == IPV4 else "ipv6."
    return tuple(
        template.make("local", f"{prefix}{number}", endpoints[start : start + MAX_ENDPOINTS_PER_SLICE], None, family)
        for number, start in enumerate(starts)
    )


def address_slices(template: SliceTemplate, service: Service) -> tuple[EndpointSlice, ...]:
    """Make the member's own load balancer the backend; empty while it has no address that can be used."""
    ingress = service.status.load_balancer.ingress or ()
    ips = {each.ip for each in ingress}
    names = sorted({each.hostname for each in ingress if each.hostname and not each.ip})
    ports = canonical_ports(
        [EndpointPort(name=port.name, port=port.port, protocol=port.protocol) for port in service.spec.ports or ()]
    )
    # The address type of a slice can never change, so each type has a slice of its own name.
    return tuple(
        template.make(
            "address",
            address_type.lower(),
            [Endpoint(addresses=[address], conditions=_READY) for address in addresses],
            ports,
            address_type,
        )
        for address_type, addresses in (
            ("FQDN", names),
            *((family, sorted(ip for ip in ips if family_of(ip) == family)) for family in sorted(families_of(service))),
        )
        if addresses
    )


def _conditions(state: EndpointState) -> EndpointConditions:
    return make_conditions(ready=state.is_ready, serving=state.is_serving, terminating=state.is_terminating)
