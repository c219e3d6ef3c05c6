"""All kinds of ``fairlead.dev``, as ``fairlead crds`` prints them, and the kinds that request a load balancer."""

from __future__ import annotations

from functools import cache

from fairlead.api.addresspool import ADDRESS_POOL_CRD
from fairlead.api.announcing import ADVERTISEMENT_CRD, BGP_PEER_CRD
from fairlead.api.backendgroup import BACKEND_GROUP_CRD, BACKEND_RECORD_CRD
from fairlead.api.clusterapi import CLUSTER_POLICY_CRD
from fairlead.api.crd import build_crd
from fairlead.api.drill import DRILL_CRD, DRILL_SCHEDULE_CRD
from fairlead.api.globalservice import GLOBAL_SERVICE_CRD, GLOBAL_SERVICES
from fairlead.api.hostname import DNS_ZONE_CRD, HOSTNAME_CRD, HOSTNAMES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCER_CRD, HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTE_CRD
from fairlead.api.intent import IntentObject
from fairlead.api.loadbalancer import LOAD_BALANCER_CRD, LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASS_CRD
from fairlead.api.managedcertificate import CERTIFICATE_ISSUER_CRD, MANAGED_CERTIFICATE_CRD
from fairlead.api.meta import JSONObject, Resource
from fairlead.api.multicluster import EXPORTED_SERVICE_CRD, IMPORTED_SERVICE_CRD
from fairlead.api.poolservice import NODE_POOL_CRD, POOL_SERVICE_CRD
from fairlead.api.proxymachine import PROXY_GROUP_CRD, PROXY_MACHINE_CRD
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCER_CRD, TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANT_CRD

#: The definition of every kind, in the order in which a reader meets them.
CRDS = (
    TENANT_CRD,
    LOAD_BALANCER_CLASS_CRD,
    ADDRESS_POOL_CRD,
    ADVERTISEMENT_CRD,
    BGP_PEER_CRD,
    TCP_LOAD_BALANCER_CRD,
    HTTP_LOAD_BALANCER_CRD,
    LOAD_BALANCER_ROUTE_CRD,
    GLOBAL_SERVICE_CRD,
    DRILL_CRD,
    DRILL_SCHEDULE_CRD,
    EXPORTED_SERVICE_CRD,
    IMPORTED_SERVICE_CRD,
    LOAD_BALANCER_CRD,
    BACKEND_GROUP_CRD,
    BACKEND_RECORD_CRD,
    CLUSTER_POLICY_CRD,
    NODE_POOL_CRD,
    POOL_SERVICE_CRD,
    DNS_ZONE_CRD,
    HOSTNAME_CRD,
    CERTIFICATE_ISSUER_CRD,
    MANAGED_CERTIFICATE_CRD,
    PROXY_MACHINE_CRD,
    PROXY_GROUP_CRD,
)


@cache
def all_crds() -> tuple[JSONObject, ...]:
    """Return the CRDs of every kind, in the order of the reference; all callers share them and change nothing."""
    return tuple(build_crd(crd) for crd in CRDS)


LOAD_BALANCER_KINDS: tuple[Resource[IntentObject], ...] = (
    TCP_LOAD_BALANCERS,
    HTTP_LOAD_BALANCERS,
    LOAD_BALANCERS,
    GLOBAL_SERVICES,
)
#: Everything that asks for a load balancer, also for one of records.
INTENT_KINDS: tuple[Resource[IntentObject], ...] = (*LOAD_BALANCER_KINDS, HOSTNAMES)
