"""GlobalService: one load balancer at the hub whose backends are equal Services of several members."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.crd import AGE, PAUSED, PROGRAMMED, SERVING, SILENT, Column, Crd
from fairlead.api.hostname import Hostnames
from fairlead.api.intent import (
    Families,
    FamilyPolicy,
    IntentObject,
    IntentStatus,
    NamesStatus,
    Port,
    ProtocolName,
    SourceRanges,
)
from fairlead.api.loadbalancerclass import Duration
from fairlead.api.meta import LIST_BY_PORT, ONE_LINE, Line63, Line253, Resource, Wire, list_by
from fairlead.api.names import DEFAULT_CLASS, GROUP, VERSION
from fairlead.api.tcploadbalancer import Origin
from fairlead.model.health import HealthCheckSettings, OutlierDetection
from fairlead.model.http import DrainClose, DrainTime

GlobalMemberState = Literal[
    "Serving",
    "UnreachableFromSomeProxies",
    "Returning",
    "Standby",
    "Draining",
    "Drilled",
    "Down",
    "Flapping",
    "Dropped",
    "NoEndpoints",
    "Missing",
]
#: A time after which something is done about a silent member; empty: as its Tenant says.
_WhenLost = Annotated[str, Meta(pattern=r"^(never|[0-9]{1,9}s|[0-9]{1,7}m|[0-9]{1,5}h)?$", max_length=16)]
Percent = Annotated[int, Meta(ge=0, le=100)]
STOP_ON = r"^((5xx|failed)>[0-9]{1,2}([.][0-9]{1,3})?%)?$"
#: A share of errors that ends what is under way.
StopOn = Annotated[str, Meta(max_length=32, pattern=STOP_ON)]


class GlobalPort(Wire, frozen=True, gc=False):
    """One port that clients connect to; a member serves it with the port of its Service that has the same number."""

    port: Port
    name: Line63 = ""
    protocol: ProtocolName = "TCP"


class GlobalMember(Wire, frozen=True, gc=False):
    """One member that may join, and its share of new connections.

    weight is that of the member, whatever the number of its pods; 0: no new connections, and its endpoints are still
    checked. The lowest priority with a healthy endpoint serves. maxShare is the largest share in percent that the
    member can carry: a drain that would exceed it is rejected, unless the drained member has force. With fewer healthy
    endpoints than minHealthyPercent, the whole member is down.
    """

    tenant: Annotated[str, Meta(min_length=1, max_length=63, extra_json_schema=ONE_LINE)]
    weight: Annotated[int, Meta(ge=0, le=1000)] = 100
    priority: Annotated[int, Meta(ge=0, le=9)] = 0
    drain: bool = False
    force: bool = False
    max_share: Percent = 100
    min_healthy_percent: Percent = 0


class GlobalShift(Wire, frozen=True, gc=False):
    """Weights that change do so in steps.

    Every so often, step percent of all connections move. stopOn goes back to the step before and ends the shift when
    more than a share of the answers since the last step are errors: 5xx>1% of routes over HTTP and of all other
    connections, failed>1% of connections only. Another request begins again after a stop.
    """

    step: Annotated[int, Meta(ge=1, le=100)] = 10
    every: Duration = "1m"
    stop_on: StopOn = ""
    request: Line63 = ""


class GlobalServiceSpec(Wire, frozen=True, gc=False):
    """The members that share one load balancer, and how.

    service is the Service as namespace/name, the same in each member; a Service of another name joins by annotation
    fairlead.dev/global with the name of this object. Without ports, those of all these Services are open.
    A member that was down returns once it has been healthy for returnDelay; its share then grows for returnRamp.
    With trafficDistribution PreferSameRegion, members in the region of the class come first, then those in its
    nearRegions, then all others; priorities apply among members that are equally far away.
    drain is how long the targets of a drained member, and those that terminate, keep their connections, which are
    closed then as drainClose says; empty: as long as they last.
    drainWhenLost and dropWhenLost replace those of the members' Tenants; "never" keeps a silent member in service.
    """

    members: Annotated[list[GlobalMember], Meta(min_length=1, max_length=64, extra_json_schema=list_by("tenant"))]
    service: Annotated[str, Meta(max_length=317, pattern=r"^([^ /]+/[^ /]+)?$")] = ""
    ports: Annotated[list[GlobalPort], Meta(extra_json_schema=LIST_BY_PORT)] = msgspec.field(
        default_factory=list[GlobalPort]
    )
    spillover: Literal["strict", "proportional"] = "strict"
    traffic_distribution: Literal["", "PreferSameRegion"] = ""
    shift: GlobalShift | None = None
    return_delay: Duration = "15s"
    return_ramp: Duration = "60s"
    drain: DrainTime = ""
    drain_close: DrainClose = ""
    drain_when_lost: _WhenLost = ""
    drop_when_lost: _WhenLost = ""
    class_name: Line253 = DEFAULT_CLASS
    session_affinity: Literal["None", "ClientIP"] = "None"
    load_balancer_source_ranges: SourceRanges = msgspec.field(default_factory=list[str])
    proxy_protocol: Literal["", "v1", "v2"] = ""
    address: Line253 = ""
    ip_families: Families = ()
    ip_family_policy: FamilyPolicy = ""
    region: Line63 = ""
    hostnames: Hostnames = msgspec.field(default_factory=list[str])
    generate_hostname: bool = False
    health_check: HealthCheckSettings | None = None
    outlier_detection: OutlierDetection | None = None

    @property
    def origin(self) -> Origin:
        """Return that it is for no object of a member."""
        return Origin()


class GlobalMemberStatus(Wire, frozen=True, gc=False):
    """One member as it is served.

    share is its part of new connections now, such as 60%; tier counts the priorities from 0 without gaps. silentSince
    is when its agent last reported, while it is silent.
    """

    tenant: str
    service: str = ""
    share: str = ""
    tier: int = 0
    endpoints: str = ""
    state: GlobalMemberState = "Missing"
    message: str = ""
    silent_since: str | None = None
    served: bool = False


class ShiftedMember(Wire, frozen=True, gc=False):
    """The weight of one member before a shift and after it.

    Members of the same tier divide connections, without those that are drained.
    """

    tenant: str
    start: int = 0
    target: int = 0
    tier: int = 0
    drained: bool = False


class GlobalShiftStatus(Wire, frozen=True, gc=False):
    """A change of weights in steps; moved is by how many percent the share has changed that changes most.

    Without members there was none.
    """

    state: Literal["Shifting", "Done", "Stopped"] = "Shifting"
    members: Annotated[tuple[ShiftedMember, ...], Meta(max_length=64, extra_json_schema=list_by("tenant"))] = ()
    moved: int = 0
    stepped_at: str = ""
    request: str = ""
    message: str = ""


class GlobalServiceStatus(IntentStatus, frozen=True, gc=False):
    """What became of it; accepted is the served version of spec, with the ports that are open.

    shares is the members in one line.
    """

    targets: str = ""
    names: NamesStatus = NamesStatus()
    shares: str = ""
    members: Annotated[list[GlobalMemberStatus] | None, Meta(extra_json_schema=list_by("tenant"))] = None
    shift: GlobalShiftStatus = GlobalShiftStatus()
    accepted: GlobalServiceSpec | None = None

    @property
    def served(self) -> frozenset[str]:
        """Return the members that had a healthy endpoint, as proxies saw it."""
        return frozenset(member.tenant for member in self.members or () if member.served)


class GlobalService(IntentObject, frozen=True, gc=False):
    """One load balancer over several members."""

    spec: GlobalServiceSpec = GlobalServiceSpec(members=[])
    status: GlobalServiceStatus = GlobalServiceStatus()

    @property
    def class_name(self) -> str:
        """Return the LoadBalancerClass that it asks for; empty for the default one."""
        return self.spec.class_name


_NO_STATUS = GlobalServiceStatus()


def global_status(obj: IntentObject | None) -> GlobalServiceStatus:
    """Return the status of a GlobalService; that of any other load balancer has no part of its own."""
    return obj.status if isinstance(obj, GlobalService) else _NO_STATUS


GLOBAL_SERVICES = Resource(GROUP, VERSION, "GlobalService", "globalservices", True, GlobalService)

GLOBAL_SERVICE_CRD = Crd(
    GLOBAL_SERVICES,
    short_names=("gsvc",),
    columns=(
        Column("Class", ".spec.className", priority=1),
        Column("Address", ".status.address"),
        Column("Second-Address", ".status.loadBalancer.ingress[1].ip", priority=1),
        Column("Programmed", f"{PROGRAMMED}.status"),
        Column("Reason", f"{PROGRAMMED}.reason", priority=1),
        Column("Serving", f"{SERVING}.status"),
        Column("Serving-Reason", f"{SERVING}.reason", priority=1),
        Column("Paused", f"{PAUSED}.status", priority=1),
        SILENT,
        Column("Shares", ".status.shares"),
        Column("Targets", ".status.targets"),
        AGE,
    ),
)
