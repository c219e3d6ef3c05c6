"""A Service as the TCPLoadBalancer and EndpointSlices that the hub should have for it.

In: a Service that is ours, its EndpointSlices, the member's nodes, and the agent's settings. Out: a ``Publication``
(the TCPLoadBalancer and its slices), or ``Refused``. Endpoints are exported as they are, none included: whether an
empty list is believed is for the hub's guard, which knows what was there before.
Never reads what the hub answered, except ``before``: the slices it has, from which a last known address is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from fairlead.agent.identity import service_labels
from fairlead.agent.ownership import Ours, Scenario
from fairlead.agent.slices import SliceTemplate, address_slices, local_slices, mirror_slices
from fairlead.api.kubernetes import SERVICES, EndpointSlice, Service
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_ORIGIN, DEFAULT_CLASS, FINALIZER_CLEANUP, hub_name
from fairlead.api.tcploadbalancer import Origin, TargetType, TCPLoadBalancer
from fairlead.model.keys import Family
from fairlead.publish.service import (
    Publication,
    Refused,
    ServiceOptions,
    families_of,
    read_options,
    refused_ports,
    spec_from_service,
)

NodeOrPod = Literal["Node", "Pod"]


class Settings(msgspec.Struct, frozen=True):
    """The settings that all Services of the member share. ``namespace`` is the tenant's at the hub."""

    tenant: str
    namespace: str
    target: NodeOrPod = "Node"


class ServiceView(msgspec.Struct, frozen=True):
    """All that one export may depend on, taken at one moment.

    ``slices`` are the member's (canonical, any order), ``before`` those at the hub; ``reused`` list what was in slices
    before and is another pod's now; ``class_targets`` is what each
    LoadBalancerClass at the hub says, by name; ``node_addresses`` are the member's nodes by name, in
    each family.
    """

    service: Service
    slices: tuple[EndpointSlice, ...] = ()
    before: tuple[EndpointSlice, ...] = ()
    reused: tuple[EndpointSlice, ...] = ()
    class_targets: Mapping[str, str] = {}
    node_addresses: Mapping[Family, Mapping[str, str]] = {}


class NotYet(msgspec.Struct, frozen=True):
    """Nothing to export until something that is still missing has come; what is at the hub stays."""

    why: str


def build_export(view: ServiceView, ours: Ours, settings: Settings) -> Publication | Refused | NotYet:
    """Build the export of a Service that ``ownership`` has decided to be ours."""
    options = read_options(view.service, of_cloud=ours.scenario is Scenario.CLOUD)
    if isinstance(options, Refused):
        return options
    targets = _targets(view, ours, options, settings)
    refused = refused_ports(view.service, by_node_port=targets == "Node")
    if refused is not None:
        return refused
    load_balancer = _load_balancer(view.service, ours, options, targets, settings)
    slices = _slices(view, targets, settings)
    # An address that is unknown for a moment takes nothing away.
    if targets == "Address" and not slices:
        missing = NotYet("the member's own load balancer shows no address")
        return Publication(load_balancer, None) if view.before else missing
    return Publication(load_balancer, slices)


def _slices(view: ServiceView, targets: TargetType, settings: Settings) -> tuple[EndpointSlice, ...]:
    service = view.service
    template = SliceTemplate(service.key, settings.namespace, settings.tenant, service.metadata.uid)
    if targets == "Pod":
        return mirror_slices(template, view.slices, families_of(service), reused=view.reused)
    if targets == "Address":
        return address_slices(template, service)
    if service.spec.external_traffic_policy == "Local":
        return tuple(
            each
            for family in families_of(service)
            for each in local_slices(
                template, view.slices, family, addresses=view.node_addresses.get(family, {}), before=view.before
            )
        )
    return ()


def _load_balancer(
    service: Service, ours: Ours, options: ServiceOptions, targets: TargetType, settings: Settings
) -> TCPLoadBalancer:
    namespace, name = service.key
    spec = spec_from_service(
        service,
        origin=Origin(kind=SERVICES.kind, namespace=namespace, name=name, uid=service.metadata.uid),
        class_name=ours.class_name or DEFAULT_CLASS,
        targets=targets,
        source_ranges=options.source_ranges,
        proxy_protocol=options.proxy_protocol,
        address=options.address,
        hostnames=options.hostnames,
        generate_hostname=options.generate_hostname,
        families=families_of(service),
    )
    meta = ObjectMeta(
        name=hub_name(namespace, name),
        namespace=settings.namespace,
        labels=service_labels(service.key, tenant=settings.tenant),
        annotations={ANNOTATION_ORIGIN: f"{settings.tenant}/{namespace}/{name}"},
        finalizers=[FINALIZER_CLEANUP],
    )
    return TCPLoadBalancer(metadata=meta, spec=spec)


def _targets(view: ServiceView, ours: Ours, options: ServiceOptions, settings: Settings) -> TargetType:
    if ours.scenario is Scenario.CLOUD:
        return "Address"
    if options.target:
        return options.target
    of_class = view.class_targets.get(ours.class_name or DEFAULT_CLASS, "")
    return "Node" if of_class == "Node" else "Pod" if of_class == "Pod" else settings.target
