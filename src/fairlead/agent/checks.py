"""Checks at the start of an agent: its rights in both clusters, and the hub's API.

In: both clusters. Out: the missing rights and kinds, one sentence each.
Never changes anything. A missing right does not stop the rest: it is shown in /readyz and in the log.
"""

from __future__ import annotations

from fairlead.api.gateway import (
    BACKEND_TLS_POLICIES,
    GATEWAY_CLASSES,
    GATEWAYS,
    LISTENER_SETS,
    REFERENCE_GRANTS,
    ROUTES,
)
from fairlead.api.kubernetes import (
    CONFIG_MAPS,
    CRDS,
    ENDPOINT_SLICES,
    EVENTS,
    INGRESS_CLASSES,
    INGRESSES,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
)
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import AnyResource
from fairlead.api.multicluster import SERVICE_EXPORTS, SERVICE_IMPORTS
from fairlead.api.names import API_VERSION, GROUP, VERSION
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import FairleadError, Forbidden, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import AccessNeed, check_access, served_kinds

_READ = ("list", "watch")
_LEASE = ("get", "create", "update")


def member_needs(*, system_namespace: str) -> list[AccessNeed]:
    """Return the rights that the agent needs in the member."""
    return [
        *_needs(SERVICES, "", "get", *_READ, "patch"),
        AccessNeed("patch", SERVICES, "", "status"),
        *_needs(ENDPOINT_SLICES, "", *_READ),
        *_needs(NODES, "", *_READ),
        *_needs(NAMESPACES, "", "get"),
        *_needs(EVENTS, "", "create", "list", "patch"),
        *_needs(LEASES, system_namespace, *_LEASE),
    ]


def readiness_needs() -> list[AccessNeed]:
    """Return the rights that the agent needs in the member to open readiness gates of pods."""
    return [*_needs(PODS, "", *_READ), AccessNeed("patch", PODS, "", "status")]


def ingress_needs() -> list[AccessNeed]:
    """Return the rights that the agent needs in the member to serve Ingresses; without them it serves Services only."""
    return [
        *_needs(INGRESSES, "", *_READ),
        AccessNeed("patch", INGRESSES, "", "status"),
        *_needs(INGRESS_CLASSES, "", *_READ),
        *_needs(SECRETS, "", *_READ),
        # The copies of Services that only pods reach, where backends are the nodes.
        *_needs(SERVICES, "", "create", "delete"),
    ]


def gateway_needs() -> list[AccessNeed]:
    """Return the rights that the agent needs in the member to serve Gateways, besides those for Ingresses.

    Without the rights for the installed kinds, it still serves Ingresses and Services.
    """
    with_status = (GATEWAY_CLASSES, GATEWAYS, LISTENER_SETS, *ROUTES, BACKEND_TLS_POLICIES)
    return [
        *(need for kind in (*with_status, REFERENCE_GRANTS) for need in _needs(kind, "", *_READ)),
        *(AccessNeed("patch", kind, "", "status") for kind in with_status),
        *_needs(CONFIG_MAPS, "", *_READ),
        *_needs(NAMESPACES, "", *_READ),
        AccessNeed("get", CRDS, "", "", GATEWAY_CLASSES.full_name),
        *_needs(SERVICES, "", "create", "delete"),
        *_needs(ENDPOINT_SLICES, "", "get", "create", "patch", "delete"),
    ]


def multicluster_needs() -> list[AccessNeed]:
    """Return the rights that the agent needs in the member for a cluster set, besides those for Gateways."""
    return [
        *(need for kind in (SERVICE_EXPORTS, SERVICE_IMPORTS) for need in _needs(kind, "", *_READ)),
        *(AccessNeed("patch", kind, "", "status") for kind in (SERVICE_EXPORTS, SERVICE_IMPORTS)),
        *_needs(SERVICE_IMPORTS, "", "create", "patch", "delete"),
    ]


def hub_needs(*, namespace: str) -> list[AccessNeed]:
    """Return the rights that the agent needs at the hub: in the tenant's namespace, and to read the classes."""
    # Server-side apply of an object that is not there yet needs both patch and create.
    owned = (*_READ, "create", "patch", "delete")
    return [
        *_needs(TCP_LOAD_BALANCERS, namespace, *owned),
        *_needs(ENDPOINT_SLICES, namespace, *owned),
        *_needs(LEASES, namespace, "get", "create", "patch"),
        *_needs(LOAD_BALANCER_CLASSES, "", *_READ),
    ]


async def find_problems(
    *,
    member: Cluster,
    hub: Cluster,
    hub_namespace: str,
    system_namespace: str,
    tenant: str,
    readiness_gates: bool = False,
    egress: bool = False,
) -> list[str]:
    """Check both clusters; if one does not answer, its error is a problem."""
    try:
        meeting_place = await find_system_namespace(member, preferred=system_namespace)
        needs = member_needs(system_namespace=meeting_place)
        needs += readiness_needs() if readiness_gates else _needs(PODS, "", *_READ) if egress else []
        problems = await _access(member, needs)
    except FairleadError as error:
        problems = [error.sentence]
    not_served = await _not_served(hub)
    problems += not_served
    problems += await find_missing_namespace(hub, hub_namespace, tenant)
    if not not_served:
        problems += await _access(hub, hub_needs(namespace=hub_namespace))
    return list(dict.fromkeys(problems))


async def find_system_namespace(member: Cluster, *, preferred: str) -> str:
    """Return the namespace of the Lease by which the agents of this member elect their leader.

    Raises:
        FairleadError: the member does not answer.
    """
    try:
        await member.get(NAMESPACES, "", preferred)
    except (NotFound, Forbidden):
        return "kube-system"
    return preferred


async def find_missing_namespace(hub: Cluster, namespace: str, tenant: str) -> list[str]:
    """Return a sentence if the hub reports that the tenant's namespace does not exist."""
    try:
        await hub.get(NAMESPACES, "", namespace)
    except NotFound:
        return [
            f"Namespace {namespace} does not exist at {hub.name}: has Tenant {tenant} been made there, "
            "and is the name right?"
        ]
    except FairleadError:
        # This right is optional; the other checks report everything else.
        return []
    return []


def _needs(resource: AnyResource, namespace: str, *verbs: str) -> list[AccessNeed]:
    return [AccessNeed(verb, resource, namespace) for verb in verbs]


async def _access(cluster: Cluster, needs: list[AccessNeed]) -> list[str]:
    try:
        return await check_access(cluster, needs)
    except FairleadError as error:
        return [error.sentence]


async def _not_served(hub: Cluster) -> list[str]:
    try:
        served = await served_kinds(hub, GROUP, VERSION)
    except FairleadError as error:
        return [error.sentence]
    if not served:
        sentence = (
            f"{hub.name} does not serve {API_VERSION}: is it the hub? Its administrator installs the kinds with "
            "`fairlead crds | kubectl apply -f -`."
        )
        return [sentence]
    return []
