"""HTTPLoadBalancer and LoadBalancerRoute: one L7 load balancer asked for by a member, and the routes attached to it.

An Ingress class or a Gateway of the member becomes one HTTPLoadBalancer: its listeners. Each Ingress and each route of
Gateway API becomes one LoadBalancerRoute for each load balancer that it is attached to, so that a changed route among
thousands is one small write. What depends on the member's other objects (references, grants, conflicts) is decided
there.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from fairlead.api.annotations import MAX_ACCEPT, MAX_ACCESS_LOG, MAX_LIMITS, MAX_TRACING, uncertain_network
from fairlead.api.crd import AGE, Column, Crd
from fairlead.api.intent import Families, FamilyPolicy, IntentObject, IntentStatus, NamesStatus
from fairlead.api.json_text import decode
from fairlead.api.meta import JSONObject, KubeObject, Resource, Wire, list_by
from fairlead.api.names import ANNOTATION_MAINTENANCE, DEFAULT_CLASS, GROUP, VERSION
from fairlead.api.tcploadbalancer import (
    ORIGIN_COLUMNS,
    STATE_COLUMNS,
    CertificateRef,
    DrainingTargets,
    Origin,
    TargetType,
)
from fairlead.api.times import parsed_time
from fairlead.model.http import (
    MAX_PAGE_BYTES,
    Attachment,
    Backend,
    L7Listener,
    Maintenance,
    Route,
    RouteKind,
    Rule,
    hostname_problem,
)


class HTTPLoadBalancerSpec(Wire, frozen=True, gc=False):
    """The listeners that the member requests; several hostnames may share a port.

    Routes are LoadBalancerRoutes in the same namespace. certificates are the Secrets there that listeners and backends
    name. The hub chooses the address when empty. ipFamilies are the families of the addresses, in order; empty: one
    address, IPv4 if possible. RequireDualStack requires both families. wildcardRecords false: the wildcards of
    listeners are not claimed as host names, so they get no DNS records. accessLog takes the place of that of the class.
    limits are those of its users, within the maximum of the class.
    errorPages are HTML for errors that the proxies themselves answer, by status code or class, such as 404 or 5xx.
    """

    listeners: Annotated[tuple[L7Listener, ...], Meta(min_length=1, max_length=1024, extra_json_schema=list_by("name"))]
    class_name: Annotated[str, Meta(max_length=253)] = DEFAULT_CLASS
    certificates: Annotated[tuple[CertificateRef, ...], Meta(max_length=1024, extra_json_schema=list_by("name"))] = ()
    targets: TargetType = "Pod"
    address: Annotated[str, Meta(max_length=253)] = ""
    ip_families: Families = ()
    ip_family_policy: FamilyPolicy = ""
    wildcard_records: bool = True
    access_log: Annotated[str, Meta(max_length=MAX_ACCESS_LOG)] = ""
    limits: Annotated[str, Meta(max_length=MAX_LIMITS)] = ""
    accept_proxy_protocol: Annotated[str, Meta(max_length=MAX_ACCEPT)] = ""
    error_pages: Annotated[dict[str, Annotated[str, Meta(max_length=MAX_PAGE_BYTES)]], Meta(max_length=64)] = (
        msgspec.field(default_factory=dict[str, str])
    )
    region: Annotated[str, Meta(max_length=63)] = ""
    origin: Origin = Origin()


class RefusedPartStatus(Wire, frozen=True, gc=False):
    """A part that is not served while the rest is: a route, rule, listener, backend or certificate, by name, and why.

    A rule has the name of its route, and the reason says which one it is.
    """

    kind: str = ""
    name: str = ""
    reason: str = ""

    @property
    def title(self) -> str:
        """Return the part as sentences name it."""
        return f"a rule of route {self.name}" if self.kind == "rule" else f"{self.kind} {self.name}"


#: How many failing routes a status lists at most.
FAILING_LISTED = 200


class FailingRoute(Wire, frozen=True, gc=False):
    """A route with a backend that has no healthy target: its requests fail, while other routes serve.

    name is that of the LoadBalancerRoute, kind, namespace and object those of the member's object. hosts are the
    hosts of the route, empty for all. backends are those without a healthy target.
    """

    name: str = ""
    kind: str = ""
    namespace: str = ""
    object: str = ""
    hosts: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Return what fails, and why, without the object."""
        hosts = f" for {', '.join(self.hosts)}" if self.hosts else ""
        noun = "backend" if len(self.backends) == 1 else "backends"
        return f"requests{hosts} fail: no healthy target behind {noun} {', '.join(self.backends)}"


class MaintenanceStatus(Wire, frozen=True, gc=False):
    """A host in maintenance, empty for all hosts, and until when."""

    host: str = ""
    until: str = ""

    @property
    def sentence(self) -> str:
        """Return what clients get, and until when."""
        return f"{f'host {self.host}' if self.host else 'every host'} is in maintenance until {self.until}"


def read_maintenance(text: str) -> tuple[Maintenance, ...]:
    """Return the hosts in maintenance that an annotation lists, the last entry of each.

    Raises:
        ValueError: names what is wrong.
    """
    try:
        entries = decode(text or "[]", tuple[Maintenance, ...])
    except msgspec.DecodeError as error:
        raise ValueError(f"annotation {ANNOTATION_MAINTENANCE}: {error}") from error
    for entry in entries:
        where = f"annotation {ANNOTATION_MAINTENANCE}: {entry.host or 'every host'}"
        if parsed_time(entry.until) is None:
            raise ValueError(f"{where}: until is {entry.until!r}; write a time such as 2026-01-31T12:00:00Z")
        if problem := hostname_problem(entry.host):
            raise ValueError(f"{where}: {problem}")
        size = len(entry.page.encode())
        if size > MAX_PAGE_BYTES:
            raise ValueError(f"{where}: page has {size} bytes; at most {MAX_PAGE_BYTES} are allowed")
        if problem := uncertain_network(entry.allowed_sources):
            raise ValueError(f"{where}: allowedSources: {problem}")
    return tuple({entry.host.lower(): entry for entry in entries}.values())


def maintenance_now(obj: KubeObject, now: datetime) -> dict[str, Maintenance]:
    """Return the entries of an object by host, without those that have ended.

    Raises:
        ValueError: names what is wrong with the annotation, whose entries would be lost.
    """
    entries = read_maintenance(obj.annotation(ANNOTATION_MAINTENANCE))
    return {entry.host: entry for entry in entries if (parsed_time(entry.until) or now) > now}


def maintenance_patch(obj: KubeObject, entries: Iterable[Maintenance]) -> JSONObject:
    """Return the patch that gives an object these entries, unless it has changed since it was read."""
    listed = list(entries)
    text = msgspec.json.encode(listed).decode() if listed else None
    meta = {"resourceVersion": obj.metadata.resource_version, "annotations": {ANNOTATION_MAINTENANCE: text}}
    return {"metadata": meta}


class HTTPLoadBalancerStatus(IntentStatus, frozen=True, gc=False):
    """What became of it.

    accepted is the version of spec that is served: when spec is refused, the last one that was not. targets is
    ready/total over all backends; routes is how many LoadBalancerRoutes name it. refused are the parts that the proxies
    do not serve, 50 at most. failingRoutes are those with a backend that has no healthy target, 200 at most. names says
    what became of the host names of its listeners. maintenance are the hosts that are in maintenance now.
    """

    targets: str = ""
    draining: DrainingTargets | None = None
    routes: int = 0
    refused: Annotated[tuple[RefusedPartStatus, ...], Meta(max_length=50)] = ()
    failing_routes: Annotated[tuple[FailingRoute, ...], Meta(max_length=FAILING_LISTED)] = ()
    maintenance: tuple[MaintenanceStatus, ...] = ()
    names: NamesStatus = NamesStatus()
    accepted: HTTPLoadBalancerSpec | None = None


class HTTPLoadBalancer(IntentObject, frozen=True, gc=False):
    """One L7 load balancer asked for by a member cluster: HTTP, HTTPS, TLS, TCP and UDP."""

    spec: HTTPLoadBalancerSpec = HTTPLoadBalancerSpec(listeners=())
    status: HTTPLoadBalancerStatus = HTTPLoadBalancerStatus()

    @property
    def class_name(self) -> str:
        """Return the LoadBalancerClass that it asks for; empty for the default one."""
        return self.spec.class_name


_NO_STATUS = HTTPLoadBalancerStatus()


def http_status(obj: IntentObject | None) -> HTTPLoadBalancerStatus:
    """Return the status of an HTTPLoadBalancer; that of any other load balancer has no part of its own."""
    return obj.status if isinstance(obj, HTTPLoadBalancer) else _NO_STATUS


HTTP_LOAD_BALANCERS = Resource(GROUP, VERSION, "HTTPLoadBalancer", "httploadbalancers", True, HTTPLoadBalancer)

HTTP_LOAD_BALANCER_CRD = Crd(
    HTTP_LOAD_BALANCERS,
    short_names=("httplb",),
    columns=(*STATE_COLUMNS, Column("Routes", ".status.routes", "integer"), *ORIGIN_COLUMNS),
)


class LoadBalancerRouteSpec(Wire, frozen=True, gc=False):
    """One route: which listeners take it, its rules, and the backends that they name.

    created and origin are those of the member's object; older routes go before younger ones. accessLog takes the place
    of that of the load balancer, and tracing the place of the sampling rate of the class.
    """

    load_balancer: Annotated[str, Meta(min_length=1, max_length=253)]
    kind: RouteKind = "HTTP"
    attachments: Annotated[tuple[Attachment, ...], Meta(max_length=2048)] = ()
    rules: Annotated[tuple[Rule, ...], Meta(max_length=1024)] = ()
    backends: Annotated[tuple[Backend, ...], Meta(max_length=4096, extra_json_schema=list_by("name"))] = ()
    created: Annotated[str, Meta(max_length=64)] = ""
    access_log: Annotated[str, Meta(max_length=MAX_ACCESS_LOG)] = ""
    tracing: Annotated[str, Meta(max_length=MAX_TRACING)] = ""
    origin: Origin = Origin()


class LoadBalancerRouteStatus(Wire, frozen=True, gc=False):
    """What became of the host names of a route; whether it is served is in the status of its load balancer."""

    names: NamesStatus = NamesStatus()


class RouteKey(NamedTuple):
    """The object of a member that routes are for; ``space`` is the namespace of the member at the hub."""

    kind: str
    space: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(self)


class LoadBalancerRoute(KubeObject, frozen=True, gc=True, dict=True):
    """One Ingress or route of a member, attached to one HTTPLoadBalancer."""

    spec: LoadBalancerRouteSpec = LoadBalancerRouteSpec(load_balancer="")
    status: LoadBalancerRouteStatus = LoadBalancerRouteStatus()

    @cached_property
    def route(self) -> Route:
        """Return what a provider serves: the same object each time, so that thousands are compared by identity."""
        spec, origin = self.spec, self.spec.origin
        return Route(
            name=self.metadata.name,
            kind=spec.kind,
            attachments=spec.attachments,
            rules=spec.rules,
            created=spec.created,
            access_log=spec.access_log,
            tracing=spec.tracing,
            origin=f"{origin.namespace}/{origin.name}" if origin.name else self.metadata.name,
        )

    @property
    def subject(self) -> RouteKey:
        """Return the member's object; that of an agent which does not name it is the route itself."""
        spec, origin = self.spec, self.spec.origin
        name = origin.name or self.metadata.name
        return RouteKey(origin.kind or spec.kind, self.metadata.namespace, origin.namespace, name)

    @cached_property
    def unresolved(self) -> str:
        """Return the member's object, as kind namespace/name, when one of its backends has no Service; else empty."""
        shares = (share for rule in self.spec.rules for share in rule.backends)
        if all(share.backend or not share.weight for share in shares):
            return ""
        return f"{self.spec.origin.kind or 'route'} {self.route.origin}"


LOAD_BALANCER_ROUTES = Resource(GROUP, VERSION, "LoadBalancerRoute", "loadbalancerroutes", True, LoadBalancerRoute)

LOAD_BALANCER_ROUTE_CRD = Crd(
    LOAD_BALANCER_ROUTES,
    short_names=("lbroute",),
    columns=(
        Column("Load balancer", ".spec.loadBalancer"),
        Column("Kind", ".spec.kind"),
        Column("Hostname", ".status.names.hostname", priority=1),
        Column("Origin", ".metadata.annotations.fairlead\\.dev/origin", priority=1),
        AGE,
    ),
)
