"""The host names that an object at the hub claims, and the member's object that it claims them for.

    LoadBalancerRoute   the hosts of its attachments; for an Ingress also the name that the hub makes
    HTTPLoadBalancer    the hosts of its listeners, without wildcards if it wants no records of these; for a
                        Gateway also the name that the hub makes
    TCPLoadBalancer     spec.hostnames, and with generateHostname the name that the hub makes
    LoadBalancer        of a Cluster: its endpoint, when that is a name, and not the one that its provider gave it

In: an object, its Tenant. Out: claims by host. An object of a member that is being deleted asks for nothing; a host
that is no DNS name is left out. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.api.hostnames import WILDCARD, host_problem
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.meta import ObjectMeta
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, Origin, TCPLoadBalancer
from fairlead.api.tenant import Tenant
from fairlead.hub.names.claims import Claimant
from fairlead.model.families import family_of
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.generated import generated_host

#: Its load balancer has the hosts of all Ingresses of the class, whose routes ask for them.
_INGRESS_CLASS = "IngressClass"


def of_route(route: LoadBalancerRoute, tenant: Tenant | None) -> dict[str, Claimant]:
    """Return what a route asks for."""
    key = LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, route.metadata.namespace, route.spec.load_balancer)
    hosts = [host for attachment in route.spec.attachments for host in attachment.hostnames]
    with_name = route.spec.origin.kind == "Ingress"
    return _claims(hosts, route.metadata, route.spec.origin, key, tenant, generate=with_name, deleting=route.deleting)


def of_http(obj: HTTPLoadBalancer, tenant: Tenant | None) -> dict[str, Claimant]:
    """Return what the listeners of a load balancer of requests ask for."""
    key = LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, obj.metadata.namespace, obj.metadata.name)
    hosts = [
        listener.hostname
        for listener in obj.spec.listeners
        if obj.spec.wildcard_records or not listener.hostname.startswith(WILDCARD)
    ]
    with_name = obj.spec.origin.kind == "Gateway"
    return _claims(hosts, obj.metadata, obj.spec.origin, key, tenant, generate=with_name, deleting=obj.deleting)


def of_tcp(obj: TCPLoadBalancer, tenant: Tenant | None) -> dict[str, Claimant]:
    """Return what a load balancer of connections asks for."""
    key = LoadBalancerKey(TCP_LOAD_BALANCERS.kind, obj.metadata.namespace, obj.metadata.name)
    spec = obj.spec
    return _claims(
        spec.hostnames, obj.metadata, spec.origin, key, tenant, generate=spec.generate_hostname, deleting=obj.deleting
    )


def of_endpoint(obj: LoadBalancer, tenant: Tenant | None) -> dict[str, Claimant]:
    """Return what the load balancer of a Cluster asks for, until it is gone: its machines are drained by that name."""
    key = LoadBalancerKey(LOAD_BALANCERS.kind, *obj.key)
    # Names are one in all spellings; a final dot says only that nothing is to be added.
    host = obj.spec.endpoint.host.lower().removesuffix(".")
    served = obj.spec.cluster_name and obj.spec.infrastructure_ref is None and host not in obj.status.addresses
    hosts = [host] if served and family_of(host) is None else []
    origin = Origin(kind=LOAD_BALANCERS.kind, namespace=obj.metadata.namespace, name=obj.metadata.name)
    return _claims(hosts, obj.metadata, origin, key, tenant, generate=False, deleting=False)


def _claims(
    hosts: Iterable[str],
    meta: ObjectMeta,
    origin: Origin,
    key: LoadBalancerKey,
    tenant: Tenant | None,
    *,
    generate: bool,
    deleting: bool,
) -> dict[str, Claimant]:
    if deleting:
        return {}
    claimant = Claimant(
        space=meta.namespace,
        member=tenant.metadata.name if tenant is not None else "",
        kind=origin.kind or key.kind,
        namespace=origin.namespace,
        name=origin.name or meta.name,
        uid=origin.uid or meta.uid,
        load_balancer=key,
        created=meta.creation_timestamp or "",
        late=origin.kind == _INGRESS_CLASS,
    )
    claims = {host: claimant for host in hosts if not host_problem(host, wildcard=True)}
    for number, domain in enumerate(tenant.name_domains if generate and tenant is not None else ()):
        if made := generated_host(domain, origin):
            claims[made] = msgspec.structs.replace(claimant, generated=True, former=number > 0)
    return claims
