"""Tenant, one member cluster at the hub, and the heartbeat Lease of its agent."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.crd import AGE, CelRule, Column, Crd
from fairlead.api.hostname import DOMAIN_PATTERN
from fairlead.api.kubernetes import LEASES, Lease
from fairlead.api.meta import (
    LIST_ATOMIC,
    LIST_SET,
    ONE_LINE,
    Conditions,
    KubeObject,
    Line63,
    ObjectMeta,
    Resource,
    Wire,
)
from fairlead.api.names import GROUP, LABEL_ORIGIN_NAMESPACE, LABEL_SUBTENANT, TENANT_NAMESPACE_PREFIX, VERSION
from fairlead.api.times import parsed_time

TenantState = Literal["", "Pending", "Engaged", "Stale", "Lost"]

#: An agent beats every ten seconds.
STALE_AFTER_S = 40.0
LOST_AFTER_S = 300.0
#: How many host names a member may have whose Tenant does not say.
DEFAULT_MAX_HOSTNAMES = 2000


def state_by_age(age_s: float | None) -> TenantState:
    """Return the state of an agent that reported ``age_s`` seconds ago; None: it never has."""
    if age_s is None:
        return "Pending"
    if age_s < STALE_AFTER_S:
        return "Engaged"
    return "Stale" if age_s < LOST_AFTER_S else "Lost"


#: At most 99,999 hours, 9,999,999 minutes or 999,999,999 seconds: the times that come of it are in the calendar.
_Duration = Annotated[str, Meta(pattern=r"^([0-9]{1,9}s|[0-9]{1,7}m|[0-9]{1,5}h)?$", max_length=16)]


#: The limits of each sub-tenant that has none of its own.
EACH_SUBTENANT = "*"
#: So many sub-tenants are counted in the status.
MAX_SUBTENANTS = 256


class SubtenantLimits(Wire, frozen=True, gc=False):
    """The limits of namespaces of a member that belong together.

    name is the value of the label fairlead.dev/subtenant; a namespace without the label is a sub-tenant of its own
    name. "*" is each other sub-tenant. 0 means no limit but those of the Tenant.
    """

    name: Annotated[str, Meta(min_length=1, max_length=63, extra_json_schema=ONE_LINE)]
    max_load_balancers: Annotated[int, Meta(ge=0)] = 0
    max_ports: Annotated[int, Meta(ge=0)] = 0
    max_routes: Annotated[int, Meta(ge=0)] = 0
    max_certificates: Annotated[int, Meta(ge=0)] = 0
    max_hostnames: Annotated[int, Meta(ge=0)] = 0
    max_targets: Annotated[int, Meta(ge=0)] = 0


class TenantSpec(Wire, frozen=True, gc=False):
    """What a member may do and where it is.

    namespace defaults to tenant-<name>. maxLoadBalancers 0 means no limit. maxPorts is how many ports its load
    balancers may have together on the hub's proxies; 0 means as the hub's --tenant-ports says. maxHostnames is how many
    host names it may have, generated ones among them; 0 means 2000. maxChecksPerSecond is how many health checks a
    second the proxies may make for it; 0 means no limit. maxRoutes is how many Ingresses and routes it may have, and
    maxCertificates how many certificates the hub orders for it; 0 means no limit, and a lower limit takes nothing away.
    maxTargets is how many targets its load balancers may have before a new one waits; 0 means no limit.
    subtenants are limits of its namespaces, within those of the Tenant.
    maxMetricSeries is how many of its load
    balancers, and of its routes, have metrics of their own; 0 means that it shares 100 of each with other members.
    targetRanges are the only addresses that its load
    balancers may send traffic to; when empty, all but loopback, link-local and multicast ones. hostNameTargets admits
    host names as well where the proxies are on the hub's machine and are reached from others: a name may lead to what
    listens on loopback there. domain is where the hub
    makes names for its objects; by default <name> in the hub's --domain. domains belong to it alone, with all names
    below them. keepFormerDomain is for how long names in a former domain are kept once those in the new one resolve, by
    default "1h"; "0s" drops them at once, also ones that are kept. drainWhenLost takes its targets out of service once
    it has been lost that long, such as "10m"; by default the last known state is served without a time limit.
    dropWhenLost removes them.
    clusterSet is the set of members that share exported Services; empty: none. clusterSetNamespaces are the namespaces
    whose Services it shares; when empty, all whose names do not begin with kube-. reachability says how the others
    reach its exported Services: Pods directly, or by the address that the hub gave to the Service.
    """

    namespace: Annotated[str, Meta(max_length=63)] = ""
    region: Annotated[str, Meta(max_length=63)] = ""
    domain: Annotated[str, Meta(max_length=253)] = ""
    domains: Annotated[list[Annotated[str, Meta(max_length=253)]], Meta(max_length=64, extra_json_schema=LIST_SET)] = (
        msgspec.field(default_factory=list[str])
    )
    keep_former_domain: _Duration = ""
    max_load_balancers: Annotated[int, Meta(ge=0)] = 0
    max_ports: Annotated[int, Meta(ge=0)] = 0
    max_hostnames: Annotated[int, Meta(ge=0)] = 0
    max_checks_per_second: Annotated[int, Meta(ge=0)] = 0
    max_routes: Annotated[int, Meta(ge=0)] = 0
    max_certificates: Annotated[int, Meta(ge=0)] = 0
    max_targets: Annotated[int, Meta(ge=0)] = 0
    subtenants: Annotated[
        list[SubtenantLimits],
        Meta(
            max_length=MAX_SUBTENANTS,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = msgspec.field(default_factory=list[SubtenantLimits])
    max_metric_series: Annotated[int, Meta(ge=0, le=10_000)] = 0
    target_ranges: Annotated[
        list[Annotated[str, Meta(max_length=43)]], Meta(max_length=64, extra_json_schema=LIST_ATOMIC)
    ] = msgspec.field(default_factory=list[str])
    host_name_targets: bool = False
    drain_when_lost: _Duration = ""
    drop_when_lost: _Duration = ""
    cluster_set: Line63 = ""
    cluster_set_namespaces: Annotated[
        list[Annotated[str, Meta(max_length=63)]], Meta(max_length=256, extra_json_schema=LIST_SET)
    ] = msgspec.field(default_factory=list[str])
    reachability: Literal["Hub", "Pods"] = "Hub"


class FormerDomain(Wire, frozen=True, gc=False):
    """A domain that names were made in before.

    They are kept until then, which is unset while those in the new one do not resolve.
    """

    domain: Annotated[str, Meta(max_length=253)]
    until: str | None = None


class SubtenantUsed(Wire, frozen=True, gc=False):
    """How much a sub-tenant has, also what waits above a limit; routesServed are the routes that do not wait."""

    name: str
    load_balancers: int = 0
    routes: int = 0
    routes_served: int = 0
    targets: int = 0
    ports: int = 0
    certificates: int = 0
    hostnames: int = 0


class ClassUsed(Wire, frozen=True, gc=False):
    """How many load balancers of a class a member has, also waiting ones, and how many the class allows it."""

    name: str
    load_balancers: int = 0
    limit: int = 0


class TenantUsed(Wire, frozen=True, gc=False):
    """How much a member has of what its Tenant can limit, also what waits above a limit.

    addresses are those of AddressPools; targets counts a backend once for each port that uses it. subtenants are
    counted where the Tenant limits any, 256 at most. classes are those of its load balancers that have a limit.
    """

    load_balancers: int = 0
    ports: int = 0
    routes: int = 0
    certificates: int = 0
    hostnames: int = 0
    addresses: int = 0
    targets: int = 0
    subtenants: Annotated[list[SubtenantUsed] | None, Meta(extra_json_schema=LIST_ATOMIC)] = None
    classes: Annotated[list[ClassUsed] | None, Meta(extra_json_schema=LIST_ATOMIC)] = None

    def of_subtenant(self, name: str) -> SubtenantUsed:
        """Return how much one sub-tenant has."""
        return next((used for used in self.subtenants or () if used.name == name), SubtenantUsed(name))


class TenantStatus(Wire, frozen=True, gc=False):
    """State of its agent: Engaged, Stale (silent for a while), Lost (silent for long), Pending (never reported).

    domain is where names of its objects are made, empty for none; formerDomains are those where names are kept since
    domain has changed. used says how much of its limits it uses, unset until the hub has counted.
    """

    namespace: str = ""
    domain: str = ""
    former_domains: Annotated[list[FormerDomain] | None, Meta(extra_json_schema=LIST_ATOMIC)] = None
    state: TenantState = ""
    last_sync_time: str | None = None
    used: TenantUsed | None = None
    observed_generation: int = 0
    conditions: Conditions = None


class Tenant(KubeObject, frozen=True, gc=False):
    """One member cluster at the hub."""

    spec: TenantSpec = TenantSpec()
    status: TenantStatus = TenantStatus()

    @property
    def namespace(self) -> str:
        """Return the namespace at the hub that holds everything of this member."""
        return self.spec.namespace or TENANT_NAMESPACE_PREFIX + self.metadata.name

    def limits_of(self, subtenant: str) -> SubtenantLimits:
        """Return the limits of a sub-tenant; without any where it is empty."""
        limits = {entry.name: entry for entry in self.spec.subtenants if subtenant}
        return limits.get(subtenant) or limits.get(EACH_SUBTENANT) or SubtenantLimits(subtenant)

    def limits_for(self, subtenant: str) -> list[tuple[str, str, TenantSpec | SubtenantLimits, str]]:
        """Return the limits of an object: sub-tenant (empty for the member), who has them, limits, and their field."""
        of_member: list[tuple[str, str, TenantSpec | SubtenantLimits, str]] = [
            ("", f"member {self.metadata.name}", self.spec, "spec")
        ]
        if not self.spec.subtenants or not subtenant:
            return of_member
        return [*of_member, (subtenant, f"sub-tenant {subtenant}", self.limits_of(subtenant), "spec.subtenants")]

    @property
    def name_domains(self) -> tuple[str, ...]:
        """Return the domains that names of its objects are in: the present one, empty for none, and former ones."""
        return (self.status.domain, *(domain.domain for domain in self.status.former_domains or ()))

    @property
    def accepted(self) -> str:
        """Return the status of its condition Accepted; False for a Tenant whose namespace belongs to another one."""
        conditions = self.status.conditions or ()
        return next((condition.status for condition in conditions if condition.type == "Accepted"), "")

    @property
    def refused(self) -> bool:
        """Return whether it owns nothing: no namespace, and no domain."""
        return self.accepted == "False"

    @property
    def draining_since(self) -> str:
        """Return since when its removal drains its load balancers (RFC 3339), empty while it does not."""
        conditions = (condition for condition in self.status.conditions or () if condition.type == "Draining")
        return next(
            (condition.last_transition_time or "" for condition in conditions if condition.status == "True"), ""
        )

    @property
    def draining(self) -> bool:
        """Return whether it is being removed, and its load balancers get no new connections."""
        return self.deleting and bool(self.draining_since)


def subtenant_of(obj: KubeObject) -> str:
    """Return the sub-tenant of an object that an agent published; empty for what belongs to no namespace."""
    namespace = obj.label(LABEL_ORIGIN_NAMESPACE)
    return namespace and (obj.label(LABEL_SUBTENANT) or namespace)


TENANTS = Resource(GROUP, VERSION, "Tenant", "tenants", False, Tenant)

_NO_DOMAIN = (
    "is a DNS name in lower case, without an asterisk or a final dot; write an international name as its A-label "
    "(xn--...)"
)

TENANT_CRD = Crd(
    TENANTS,
    short_names=("tn",),
    columns=(
        Column("Namespace", ".status.namespace"),
        Column("Region", ".spec.region"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("State", ".status.state"),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("Load-Balancers", ".status.used.loadBalancers", "integer", priority=1),
        Column("Targets", ".status.used.targets", "integer", priority=1),
        Column("Domain", ".status.domain", priority=1),
        Column("Cluster-Set", ".spec.clusterSet", priority=1),
        Column("Reachability", ".spec.reachability", priority=1),
        Column("Since", ".status.lastSyncTime", "date", priority=1),
        AGE,
    ),
    rules=(
        CelRule(
            "(has(self.__namespace__) ? self.__namespace__ : '') == "
            "(has(oldSelf.__namespace__) ? oldSelf.__namespace__ : '')",
            "namespace is immutable: delete the Tenant and create another",
        ),
        CelRule(
            f"!has(self.domain) || self.domain == '' || self.domain.matches('{DOMAIN_PATTERN}')", f"domain {_NO_DOMAIN}"
        ),
        CelRule(
            f"!has(self.domains) || self.domains.all(each, each.matches('{DOMAIN_PATTERN}'))",
            f"each of domains {_NO_DOMAIN}",
        ),
        CelRule(
            "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 56",
            "metadata.name becomes part of a namespace: at most 56 of a-z, 0-9 and -, and no dots",
            whole=True,
        ),
    ),
)


ANNOTATION_REGION = f"{GROUP}/region"
ANNOTATION_VERSION = f"{GROUP}/version"
ANNOTATION_LAST_SYNC = f"{GROUP}/last-sync"
ANNOTATION_MEMBER_UID = f"{GROUP}/member-uid"
#: Written by the hub: the tenant is being removed, and its agent is to inform the member's Services.
ANNOTATION_LEAVING = f"{GROUP}/leaving"
#: Written by the agent: Services of the member no longer show an address of the hub.
ANNOTATION_SERVICES_INFORMED = f"{GROUP}/services-informed"


class Stamp(Wire, frozen=True, gc=False):
    """One entry of managedFields: when this manager's fields changed last."""

    time: str = ""


class StampedMeta(ObjectMeta, frozen=True, gc=False):
    """Metadata with the API server's own record of who changed what, and when."""

    managed_fields: list[Stamp] | None = None


class StampedLease(Lease, frozen=True, gc=False):
    """A Lease that knows when the API server stored its last change."""

    metadata: StampedMeta = StampedMeta()

    @property
    def stored_at(self) -> datetime | None:
        """Return when it was changed last by the API server's clock, to the second; None where that is not said."""
        times = [parsed_time(entry.time) for entry in self.metadata.managed_fields or ()]
        return max((time for time in times if time is not None), default=None)

    @property
    def clock_ahead_s(self) -> float:
        """Return by how many seconds its holder's clock was ahead of the API server's, 0 where that is unknown."""
        stored, renewed = self.stored_at, parsed_time(self.spec.renew_time)
        return (renewed - stored).total_seconds() if stored is not None and renewed is not None else 0.0


#: Leases with their managedFields.
STAMPED_LEASES = Resource(LEASES.group, LEASES.version, LEASES.kind, LEASES.plural, LEASES.namespaced, StampedLease)


def age_s(lease: StampedLease, now: datetime) -> float | None:
    """Return the seconds since ``lease`` was stored, by ``now`` of the same server; None if unknown."""
    stored = lease.stored_at
    return None if stored is None else max(0.0, (now - stored).total_seconds())
