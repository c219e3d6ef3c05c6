"""The settings of ``fairlead hub`` and the rights that a hub needs, checked before anything is started."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.announcing import ADVERTISEMENTS, BGP_PEERS
from fairlead.api.backendgroup import BACKEND_GROUPS, BACKEND_RECORDS
from fairlead.api.drill import DRILL_SCHEDULES, DRILLS
from fairlead.api.globalservice import GLOBAL_SERVICES
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES
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
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS, MANAGED_CERTIFICATES
from fairlead.api.meta import AnyResource
from fairlead.api.multicluster import EXPORTED_SERVICES, IMPORTED_SERVICES
from fairlead.api.names import AGENT_SERVICE_ACCOUNT, SYSTEM_NAMESPACE, region_problem
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.proxymachine import PROXY_GROUPS, PROXY_MACHINES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.errors import BadConfiguration, Forbidden
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import AccessNeed, check_access
from fairlead.model.in_words import host_port
from fairlead.model.keys import IPV4, IPV6
from fairlead.providers.envoy.envoy_process import has_address
from fairlead.translate.addresses import AddressRanges
from fairlead.translate.generated import domain_problem
from fairlead.translate.tenant import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES

_LOOPBACK = {IPV4: "127.200.0.0/16", IPV6: "::1/128"}
#: A quarter of what a proxy of an ordinary machine can open.
DEFAULT_TENANT_PORTS = 2000


class HubSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``fairlead hub``. A kubeconfig of None is the default one; ``metrics`` None: no pages.

    ``context`` empty: the current one of the kubeconfig.

    The last four count with ``deployment`` only; an empty image is the default one.
    """

    data_dir: Path
    kubeconfig: Path | None = None
    context: str = ""
    #: Become a hub where an agent of another hub works.
    new_hub: bool = False
    #: The hub's own cluster is its member, too.
    own_member: bool = False
    deployment: bool = False
    address_pool: str = ""
    region: str = ""
    #: The domain of generated names; empty: none.
    domain: str = ""
    metrics: tuple[str, int] | None = None
    stop_proxy: bool = False
    #: Where proxy machines reach the hub; their Envoys connect to the next port. None: there are none.
    machines: tuple[str, int] | None = None
    #: This machine announces the addresses of its load balancers.
    announce: bool = False
    #: The port quota of Tenants that set none; 0: any number.
    tenant_ports: int = DEFAULT_TENANT_PORTS
    #: Worker threads of each local Envoy; 0 means one for each core, two at the most.
    envoy_concurrency: int = 0
    #: How many Envoys share the load balancers of this machine, by address.
    envoys: int = 1
    xds_listen: tuple[str, int] = ("0.0.0.0", 18_000)
    xds_address: tuple[str, int] = ("fairlead-hub.fairlead-system.svc", 18_000)
    proxy_image: str = ""
    proxy_replicas: int = 2

    def check(self) -> None:
        """Raise ``BadConfiguration`` for invalid settings, before anything is started."""
        pool = self.pool()
        if self.machines is not None:
            check_machines(*self.machines, deployment=self.deployment)
        if self.announce:
            check_announcing(pool, deployment=self.deployment)
        if self.region and (problem := region_problem(self.region)):
            raise BadConfiguration(problem)
        if self.domain and (problem := domain_problem(self.domain)):
            raise BadConfiguration(f"--domain: {self.domain!r} is not a valid domain for names: {problem}")
        if self.domain and self.region:
            raise BadConfiguration("--domain: a hub of one region creates no names; set it at the hub without --region")

    @property
    def has_machines(self) -> bool:
        """Return whether there are proxy machines: those that join, or this one."""
        return self.machines is not None or self.announce

    def pool(self) -> AddressRanges | None:
        """Return the address pool, None without one.

        Raises:
            BadConfiguration: the pool is invalid.
        """
        if not self.address_pool:
            return None
        pool = AddressRanges.parse(self.address_pool)
        if not self.deployment and not self.has_machines:  # machines listen at addresses that are not theirs yet
            check_bindable(pool)
        return pool

    def loopback_targets(self) -> bool:
        """Say whether backends may be on loopback: only where load balancers are, too, so that no outsider comes in."""
        pool = None if self.deployment else self.pool()
        return pool is not None and pool.loopback


def check_machines(host: str, port: int, *, deployment: bool) -> None:
    """Reject an address for proxy machines if this process cannot listen there on both ports."""
    if deployment:
        raise BadConfiguration("--machines: proxy machines need a hub with --envoy local; remove one of both options")
    if not 0 < port < 65_535:
        raise BadConfiguration(
            f"--machines: {port} is not a port from 1 to 65534; xDS listens at the next one, so both have to be valid"
        )
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise BadConfiguration(f"--machines: {host!r} does not resolve ({error.strerror})") from error
    family, _, _, _, place = places[0]
    for number in (port, port + 1):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((place[0], number))
        except OSError as error:
            raise BadConfiguration(
                f"--machines: the hub cannot listen on {host_port(host, number)} ({error.strerror}). Choose an address "
                "of this machine with two free ports, one after the other"
            ) from error


def check_announcing(pool: AddressRanges | None, *, deployment: bool) -> None:
    """Reject announcing addresses that no other machine can reach, or from a machine that cannot announce."""
    # Imported here: a hub that announces nothing does not need the machine.
    from fairlead.machine.checks import check_machine
    from fairlead.standalone.own_machine import own_name

    if deployment:
        raise BadConfiguration("--announce: only Envoys of this machine can be announced; it needs --envoy local")
    if pool is not None and pool.loopback:
        raise BadConfiguration(
            f"--announce: only this machine reaches {pool}. Give addresses of its network that are free, such as "
            "--address-pool 192.0.2.64/27"
        )
    own_name()
    check_machine()


def check_bindable(pool: AddressRanges) -> None:
    """Refuse a pool whose first addresses this machine does not have: its local Envoy could not listen there."""
    for family in pool.families:
        ranges = pool.of(family)
        if not has_address(ranges[0]):
            bits = 32 if family == IPV4 else 128
            raise BadConfiguration(
                f"--address-pool: {ranges} is not on this machine, so its Envoy cannot listen there. Use a loopback "
                f"range such as {_LOOPBACK[family]}. Or add --announce, as root, for free addresses of its network. Or "
                f"add the addresses first (ip address add {ranges[0]}/{bits} dev ...)"
            )


_READ = ("get", "list", "watch")
_APPLY = ("get", "create", "patch")
#: The kinds whose status a hub writes.
_REPORTED = (
    *(TENANTS, LOAD_BALANCER_CLASSES, ADDRESS_POOLS, TCP_LOAD_BALANCERS, HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES),
    *(LOAD_BALANCERS, GLOBAL_SERVICES, BACKEND_GROUPS, HOSTNAMES, DNS_ZONES, CERTIFICATE_ISSUERS, MANAGED_CERTIFICATES),
    *(EXPORTED_SERVICES, DRILLS, DRILL_SCHEDULES),
)
#: The rights of every hub: verbs and kinds, in any namespace. It reads PoolServices for its page only.
_ANYWHERE: tuple[tuple[Sequence[str], Sequence[AnyResource]], ...] = (
    (_READ, (*_REPORTED, IMPORTED_SERVICES, ENDPOINT_SLICES, LEASES, BACKEND_RECORDS, POOL_SERVICES)),
    (("patch", "delete"), (TCP_LOAD_BALANCERS, HTTP_LOAD_BALANCERS, LOAD_BALANCERS, GLOBAL_SERVICES)),
    (("create", "patch"), (LOAD_BALANCER_CLASSES, EVENTS)),
    # A tenant that is removed is marked on the Lease of its agent.
    (("patch",), (TENANTS, BACKEND_GROUPS, HOSTNAMES, DNS_ZONES, LEASES)),
    # What members import of others in their cluster set.
    (("create", "patch", "delete"), (BACKEND_RECORDS, IMPORTED_SERVICES, ENDPOINT_SLICES)),
    # Drills that a schedule begins.
    (("create", "delete"), (DRILLS,)),
    (_APPLY, (NAMESPACES, ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)),
)
#: Those in the hub's own namespace.
_IN_SYSTEM: tuple[tuple[Sequence[str], AnyResource], ...] = (
    (("create", "update", "patch", "delete"), LEASES),
    (_APPLY, CONFIG_MAPS),
    (("create", "delete"), HOSTNAMES),
)


def hub_needs(*, deployment: bool, machines: bool = False, announce: bool = False) -> list[AccessNeed]:
    """Return every right that a hub uses, those to read first.

    ``machines``: it serves proxy machines; ``announce``: its own machine is one, in place of that of a hub before.
    """
    needs = [AccessNeed(verb, resource) for verbs, kinds in _ANYWHERE for resource in kinds for verb in verbs]
    needs += [AccessNeed("patch", resource, subresource="status") for resource in _REPORTED]
    needs += [AccessNeed(verb, resource, SYSTEM_NAMESPACE) for verbs, resource in _IN_SYSTEM for verb in verbs]
    needs += [AccessNeed(verb, SERVICE_ACCOUNTS) for verb in (_READ if deployment else _APPLY)]
    if not deployment:
        # Agents renew their own tokens, and a hub can only give away what it holds; else by the role that it binds.
        needs += [AccessNeed("create", SERVICE_ACCOUNTS, subresource="token", name=AGENT_SERVICE_ACCOUNT)]
        needs += [AccessNeed(verb, SECRETS) for verb in _APPLY]
    if deployment:
        from fairlead.providers.envoy.kubernetes.objects import WRITTEN

        needs += [AccessNeed(verb, resource) for resource in WRITTEN for verb in ("list", "watch")]
        needs += [AccessNeed("delete", CONFIG_MAPS, SYSTEM_NAMESPACE)]
        needs += [AccessNeed(verb, SECRETS, SYSTEM_NAMESPACE) for verb in (*_APPLY, "delete")]
    if machines:
        needs += [AccessNeed(verb, PROXY_MACHINES) for verb in (*_READ, "create")]
        kinds = (PROXY_GROUPS, ADVERTISEMENTS, BGP_PEERS)
        needs += [AccessNeed(verb, kind) for kind in kinds for verb in _READ]
        kinds = (PROXY_MACHINES, *kinds)
        needs += [AccessNeed("patch", kind, subresource="status") for kind in kinds]
        # Tokens are used up, and the authority and keys of groups are shared by all replicas.
        needs += [AccessNeed(verb, SECRETS, SYSTEM_NAMESPACE) for verb in (*_APPLY, "delete")]
    if announce:
        needs += [AccessNeed("delete", PROXY_MACHINES)]
    return needs


async def check_hub(cluster: Cluster, *, deployment: bool, machines: bool = False, announce: bool = False) -> None:
    """Check every right of ``hub_needs``; the kinds themselves are installed when the hub starts.

    Raises:
        Forbidden: one sentence with the first missing right; its detail has all of them.
        FairleadError: the server cannot be asked.
    """
    problems = await check_access(cluster, hub_needs(deployment=deployment, machines=machines, announce=announce))
    if problems:
        raise missing_rights(cluster.server, problems)


def missing_rights(server: str, problems: Sequence[str]) -> Forbidden:
    """Return the error for a hub that lacks rights: the first of ``problems`` and how many more there are.

    A hub without its ClusterRole lacks them all, and a screen full of rules hides the one thing that is to be done.
    """
    more = f" {len(problems) - 1} more rules are missing; --verbose lists them." if problems[1:] else ""
    step = " Grant all rights of a hub with: kubectl apply -f deploy/kubernetes/hub.yaml"
    sentence = f"The hub cannot work at {server}: {problems[0]}{more}{step}"
    return Forbidden(sentence, detail=" ".join(problems))
