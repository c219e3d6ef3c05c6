"""The rights that a hub needs at its API, checked before it starts, so that a missing one is a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.backendrecord import BACKEND_RECORDS
from fairlead.api.certificateissuer import CERTIFICATE_ISSUERS
from fairlead.api.dnszone import DNS_ZONES
from fairlead.api.hostname import HOSTNAMES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    EVENTS,
    LEASES,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES
from fairlead.api.names import AGENT_SERVICE_ACCOUNT, SYSTEM_NAMESPACE
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.errors import Forbidden
from fairlead.kube.cluster import Cluster
from fairlead.kube.preflight import AccessNeed, check_access
from fairlead.translate.tenant import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES

_READ = ("get", "list", "watch")
_APPLY = ("get", "create", "patch")


def hub_needs(*, deployment: bool) -> list[AccessNeed]:
    """Return every right that a hub uses, those to read first."""
    needs = [
        AccessNeed(verb, resource)
        for resource in (
            TENANTS,
            LOAD_BALANCER_CLASSES,
            ADDRESS_POOLS,
            TCP_LOAD_BALANCERS,
            HTTP_LOAD_BALANCERS,
            LOAD_BALANCER_ROUTES,
            ENDPOINT_SLICES,
            LEASES,
            LOAD_BALANCERS,
            BACKEND_GROUPS,
            BACKEND_RECORDS,
            HOSTNAMES,
            DNS_ZONES,
            CERTIFICATE_ISSUERS,
            MANAGED_CERTIFICATES,
            # For its page only.
            POOL_SERVICES,
        )
        for verb in _READ
    ]
    needs += [
        AccessNeed("patch", TCP_LOAD_BALANCERS),
        AccessNeed("delete", TCP_LOAD_BALANCERS),
        AccessNeed("patch", TENANTS),
        AccessNeed("patch", HTTP_LOAD_BALANCERS),
        AccessNeed("delete", HTTP_LOAD_BALANCERS),
        AccessNeed("create", LOAD_BALANCER_CLASSES),
        AccessNeed("patch", LOAD_BALANCER_CLASSES),
        AccessNeed("patch", BACKEND_GROUPS),
        AccessNeed("patch", HOSTNAMES),
        AccessNeed("patch", DNS_ZONES),
    ]
    needs += [
        AccessNeed("patch", resource, subresource="status")
        for resource in (
            TCP_LOAD_BALANCERS,
            HTTP_LOAD_BALANCERS,
            LOAD_BALANCER_ROUTES,
            TENANTS,
            LOAD_BALANCERS,
            BACKEND_GROUPS,
            LOAD_BALANCER_CLASSES,
            ADDRESS_POOLS,
            HOSTNAMES,
            DNS_ZONES,
            CERTIFICATE_ISSUERS,
            MANAGED_CERTIFICATES,
        )
    ]
    needs += [AccessNeed(verb, LOAD_BALANCERS) for verb in ("patch", "delete")]
    # A tenant that is removed is marked on the Lease of its agent.
    needs += [AccessNeed("patch", LEASES)]
    needs += [AccessNeed(verb, BACKEND_RECORDS) for verb in ("create", "patch", "delete")]
    needs += [AccessNeed(verb, LEASES, SYSTEM_NAMESPACE) for verb in ("create", "update", "patch", "delete")]
    needs += [AccessNeed(verb, CONFIG_MAPS, SYSTEM_NAMESPACE) for verb in _APPLY]
    needs += [AccessNeed(verb, HOSTNAMES, SYSTEM_NAMESPACE) for verb in ("create", "delete")]
    applied = (NAMESPACES, ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
    needs += [AccessNeed(verb, resource) for resource in applied for verb in _APPLY]
    needs += [AccessNeed(verb, SERVICE_ACCOUNTS) for verb in (_READ if deployment else _APPLY)]
    if not deployment:
        # Agents renew their own tokens, and a hub can only give away what it holds; else by the role that it binds.
        needs += [AccessNeed("create", SERVICE_ACCOUNTS, subresource="token", name=AGENT_SERVICE_ACCOUNT)]
        needs += [AccessNeed(verb, SECRETS) for verb in _APPLY]
    needs += [AccessNeed(verb, EVENTS) for verb in ("create", "patch")]
    if deployment:
        from fairlead.providers.envoy.kubernetes.objects import WRITTEN

        needs += [AccessNeed(verb, each) for each in WRITTEN for verb in ("list", "watch")]
        needs += [AccessNeed("delete", CONFIG_MAPS, SYSTEM_NAMESPACE)]
        needs += [AccessNeed(verb, SECRETS, SYSTEM_NAMESPACE) for verb in (*_APPLY, "delete")]
    return needs


async def check_hub(cluster: Cluster, *, deployment: bool) -> None:
    """Check every right of ``hub_needs``; the kinds themselves are installed when the hub starts.

    Raises:
        Forbidden: one sentence with the first missing right; its detail has all of them.
        FairleadError: the server cannot be asked.
    """
    problems = await check_access(cluster, hub_needs(deployment=deployment))
    if problems:
        raise missing_rights(cluster.server, problems)


def missing_rights(server: str, problems: Sequence[str]) -> Forbidden:
    """Return the error for a hub that lacks rights: the first of ``problems`` and how many more there are.

    A hub without its ClusterRole lacks them all, and a screen full of rules hides the one thing that is to be done.
    """
    more = f" {len(problems) - 1} more rules are missing; --verbose lists them." if problems[1:] else ""
    step = " All that a hub needs is granted by: kubectl apply -f deploy/kubernetes/hub.yaml"
    sentence = f"The hub cannot work at {server}: {problems[0]}{more}{step}"
    return Forbidden(sentence, detail=" ".join(problems))
