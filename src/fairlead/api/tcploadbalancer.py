"""TCPLoadBalancer: one L4 load balancer asked for by a member (TCP and UDP, whatever its name says)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.annotations import MAX_ACCEPT, MAX_ACCESS_LOG, MAX_LIMITS
from fairlead.api.crd import AGE, PAUSED, PROGRAMMED, SERVING, SILENT, Column, Crd
from fairlead.api.hostname import Hostnames
from fairlead.api.intent import (
    Families,
    FamilyPolicy,
    Frontend,
    IntentObject,
    IntentStatus,
    Machines,
    NamesStatus,
    Port,
    ProtocolName,
    SourceRanges,
)
from fairlead.api.meta import LIST_BY_PORT, ONE_LINE, JSONObject, Line63, Line253, Resource, Wire
from fairlead.api.names import DEFAULT_CLASS, GROUP, VERSION
from fairlead.model.health import HealthCheckSettings, OutlierDetection
from fairlead.model.http import BackendTls, DrainClose, DrainTime

TargetType = Literal["Node", "Pod", "Address"]


class LoadBalancerPort(Wire, frozen=True, gc=False):
    """One open port. For Node targets, nodePort is where the nodes take its traffic."""

    port: Port
    name: Line63 = ""
    protocol: ProtocolName = "TCP"
    node_port: Annotated[int, Meta(ge=0, le=65535)] = 0


_OriginName = Annotated[str, Meta(extra_json_schema={**ONE_LINE, "maxLength": 253})]


class Origin(Wire, frozen=True, gc=False):
    """The user's object in the member that this load balancer is for."""

    kind: _OriginName = ""
    namespace: _OriginName = ""
    name: _OriginName = ""
    uid: _OriginName = ""


class CertificateRef(Wire, frozen=True, gc=False):
    """A Secret of type kubernetes.io/tls in the namespace of the object; digest says which version of it is meant."""

    name: Annotated[str, Meta(min_length=1, max_length=253)]
    digest: Annotated[str, Meta(max_length=128)] = ""


class TCPLoadBalancerSpec(Wire, frozen=True, gc=False):
    """What the member asks for.

    Targets are EndpointSlices in the same namespace labelled fairlead.dev/load-balancer (Pod, Address), or the
    member's nodes at each port's nodePort (Node). A hub that was started with --region serves those of its region.
    hostnames are names that are to resolve to it; generateHostname asks the hub for a name in the member's domain.
    ipFamilies are those of a Service: it gets an address of each, in this order; empty: IPv4. With ipFamilyPolicy
    RequireDualStack it is served with both or not at all. address may hold one of each family, after a comma.
    globalService is the GlobalService that it joins. drain is how long a target that terminates keeps its connections,
    which are closed as drainClose says after that; empty: as long as both ends like.
    accessLog takes the place of that of the class. healthCheck and outlierDetection count before those of the class.
    backendTls is how targets are reached over TLS; clientCertificate says which Secret it names.
    """

    ports: Annotated[list[LoadBalancerPort], Meta(min_length=1, extra_json_schema=LIST_BY_PORT)]
    class_name: Line253 = DEFAULT_CLASS
    targets: TargetType = "Node"
    external_traffic_policy: Literal["Cluster", "Local"] = "Cluster"
    session_affinity: Literal["None", "ClientIP"] = "None"
    load_balancer_source_ranges: SourceRanges = msgspec.field(default_factory=list[str])
    proxy_protocol: Literal["", "v1", "v2"] = ""
    address: Line253 = ""
    ip_families: Families = ()
    ip_family_policy: FamilyPolicy = ""
    region: Line63 = ""
    hostnames: Hostnames = msgspec.field(default_factory=list[str])
    generate_hostname: bool = False
    global_service: Line253 = ""
    drain: DrainTime = ""
    drain_close: DrainClose = ""
    access_log: Annotated[str, Meta(max_length=MAX_ACCESS_LOG)] = ""
    limits: Annotated[str, Meta(max_length=MAX_LIMITS)] = ""
    accept_proxy_protocol: Annotated[str, Meta(max_length=MAX_ACCEPT)] = ""
    health_check: HealthCheckSettings | None = None
    outlier_detection: OutlierDetection | None = None
    backend_tls: BackendTls | None = None
    client_certificate: CertificateRef | None = None
    origin: Origin = Origin()

    @property
    def certificates(self) -> tuple[CertificateRef, ...]:
        """Return the certificates that it names: the one that ``backend_tls`` shows to targets."""
        return () if self.client_certificate is None else (self.client_certificate,)


class DrainingTargets(Wire, frozen=True, gc=False):
    """The targets that drain, the connections that they still have, and since when the first one drains."""

    targets: int = 0
    connections: int = 0
    since: str = ""


class EgressStatus(Wire, frozen=True, gc=False):
    """The pods that leave their cluster with an address of this load balancer.

    sources counts their addresses, machines are those that translate them. message says which ones do not leave with
    it, and why.
    """

    sources: int = 0
    machines: Machines = ()
    message: str = ""


class TCPLoadBalancerStatus(IntentStatus, frozen=True, gc=False):
    """What became of it.

    address is the first of loadBalancer.ingress, targets is ready/total. accepted is the version of spec that is
    served: when spec is refused, the last one that was not, and while it moves to another class, the one before.
    names says what became of its host names. egress is absent while no pod leaves with its address. provisioned has
    what each provider was asked for, also while it moves from one to another. provider, frontend and
    frontends are deprecated: release 0.1 wrote them, and they are replaced by provisioned.
    """

    targets: str = ""
    draining: DrainingTargets | None = None
    names: NamesStatus = NamesStatus()
    egress: EgressStatus | None = None
    accepted: TCPLoadBalancerSpec | None = None
    provider: str = ""
    frontends: dict[str, Frontend] | None = None

    def old_frontends(self) -> tuple[Frontend, ...]:
        """Return the entries of release 0.1 that are not replaced yet; those in frontends are newer."""
        newer = (msgspec.structs.replace(entry, provider=name) for name, entry in (self.frontends or {}).items())
        return (*super().old_frontends(), *newer)

    def old_places(self, provider: str) -> JSONObject:
        """Return the merge patch of the status that removes what release 0.1 wrote of ``provider``; often empty."""
        names = (self.frontends or {}).keys()
        own: JSONObject = {"frontends": None if names == {provider} else {provider: None}}
        return super().old_places(provider) | (own if provider in names else {})

    def old_serving_provider(self) -> str:
        """Return which provider serves it, as release 0.1 wrote it."""
        return self.provider


class TCPLoadBalancer(IntentObject, frozen=True, gc=False):
    """One L4 load balancer asked for by a member cluster."""

    spec: TCPLoadBalancerSpec = TCPLoadBalancerSpec(ports=[])
    status: TCPLoadBalancerStatus = TCPLoadBalancerStatus()

    @property
    def class_name(self) -> str:
        """Return the LoadBalancerClass that it asks for; empty for the default one."""
        return self.spec.class_name


TCP_LOAD_BALANCERS = Resource(GROUP, VERSION, "TCPLoadBalancer", "tcploadbalancers", True, TCPLoadBalancer)

#: How ``kubectl get`` begins, and ends, each row of what a member asks for.
STATE_COLUMNS = (
    Column("Class", ".spec.className"),
    Column("Address", ".status.address"),
    Column("Second-Address", ".status.loadBalancer.ingress[1].ip", priority=1),
    Column("On", ".status.placement.machines", priority=1, description="proxy machines that announce its addresses"),
    Column("Programmed", f"{PROGRAMMED}.status"),
    Column("Reason", f"{PROGRAMMED}.reason"),
    Column("Serving", f"{SERVING}.status"),
    Column("Serving-Reason", f"{SERVING}.reason", priority=1),
    Column("Paused", f"{PAUSED}.status", priority=1),
    SILENT,
)
ORIGIN_COLUMNS = (
    Column("Targets", ".status.targets"),
    Column("Hostname", ".status.names.hostname", priority=1),
    Column("Origin", ".metadata.annotations.fairlead\\.dev/origin", priority=1),
    AGE,
)

TCP_LOAD_BALANCER_CRD = Crd(TCP_LOAD_BALANCERS, short_names=("tcplb",), columns=STATE_COLUMNS + ORIGIN_COLUMNS)
