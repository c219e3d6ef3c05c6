"""The items of the page: one for each object, in the words of ``fairlead status``. Pure.

In: objects of the hub's API, and the time. Out: items, as they go to the browser (JSON). An item says nothing that
changes by itself, such as an age: the browser counts from ``since``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from fairlead.api.addresspool import AddressPool
from fairlead.api.backendgroup import BackendGroup
from fairlead.api.hostname import DNSZone, Hostname
from fairlead.api.httploadbalancer import HTTPLoadBalancer
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.meta import WireCondition
from fairlead.api.poolservice import PoolService
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.tenant import StampedLease, Tenant
from fairlead.api.times import wire_time
from fairlead.status import problems
from fairlead.status.fleet import load_balancer_row, member_row, region_row, title_with_kind
from fairlead.status.object_ref import ObjectRef
from fairlead.status.problems import ACCEPTED, PROGRAMMED, SERVING, faults_of_load_balancer, worst_of
from fairlead.status.rows import LoadBalancerRow, Trouble


class Item(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """The common fields of items; ``problems`` are the sentences about it, ``state`` the worst class of trouble."""

    id: str
    state: str = Trouble.NONE
    problems: tuple[str, ...] = ()


class LoadBalancerItem(Item, frozen=True, gc=False):
    """One load balancer; ``since``: when the condition that says most came to be as it is (RFC 3339)."""

    kind: str
    namespace: str
    name: str
    title: str
    #: What to call it where another load balancer has the same title.
    full_title: str
    member: str = ""
    region: str = ""
    class_name: str = ""
    address: str = ""
    reason: str = ""
    targets: str = ""
    routes: int | None = None
    since: str = ""
    #: What to ask for more.
    command: str = ""


class MemberItem(Item, frozen=True, gc=False):
    """One member; ``connection`` is Engaged, Stale, Lost or Pending, ``heard`` when, while it is not Engaged.

    ``refused`` are the sentences about Services that its agent refuses: the fault is theirs, not the member's.
    """

    namespace: str
    region: str = ""
    connection: str = ""
    heard: str = ""
    refused: tuple[str, ...] = ()


class CertificateItem(Item, frozen=True, gc=False):
    """One certificate that the hub gets itself; ``ends`` is empty while there is none."""

    namespace: str
    hosts: tuple[str, ...] = ()
    step: str = ""
    issuer: str = ""
    ends: str = ""


class RegionItem(Item, frozen=True, gc=False):
    """One region's share of a Service, with its access point."""

    namespace: str
    service: str
    region: str
    class_name: str = ""
    address: str = ""
    reason: str = ""
    targets: str = ""


class NameItem(Item, frozen=True, gc=False):
    """One host name, the zone that holds it, and where it points; ``published``: its zone has it as it is wanted."""

    host: str
    zone: str = ""
    points_to: tuple[str, ...] = ()
    published: bool = False


class ZoneItem(Item, frozen=True, gc=False):
    """One DNSZone: its server, without credentials, and how many names of it are published."""

    zone: str
    provider: str
    server: str = ""
    names: int = 0
    dry_run: bool = False


class PoolItem(Item, frozen=True, gc=False):
    """One AddressPool: how many of its addresses are used, kept for a load balancer, and no longer in it."""

    addresses: tuple[str, ...]
    size: int = 0
    used: int = 0
    reserved: int = 0
    outside: int = 0
    region: str = ""
    note: str = ""


class ProxyItem(Item, frozen=True, gc=False):
    """One proxy that is connected to this hub."""

    group: str
    synced: bool = True
    refused: int = 0


class ClassItem(Item, frozen=True, gc=False):
    """One LoadBalancerClass; ``load_balancers`` counts what asks for it."""

    provider: str
    load_balancers: int = 0


class GroupItem(Item, frozen=True, gc=False):
    """One BackendGroup: on which load balancers it is, and how many of its backends are registered."""

    load_balancers: tuple[str, ...]
    backends: int = 0
    registered: int = 0


class HubItem(Item, frozen=True, gc=False):
    """This hub replica: whether it writes, else which other one does, empty for none, and why it is not ready."""

    leading: bool
    version: str
    started: str
    leader: str = ""


def load_balancer_item(
    lb: TCPLoadBalancer | HTTPLoadBalancer | LoadBalancer, tenant: Tenant | None
) -> LoadBalancerItem:
    """Return the item of a load balancer; ``tenant`` is the member in whose namespace it is."""
    row = load_balancer_row(lb)
    ref = ObjectRef(row.kind, row.namespace, row.name)
    return LoadBalancerItem(
        id=f"{row.kind}/{row.namespace}/{row.name}",
        state=row.state,
        problems=tuple(fault.sentence for fault in problems.of_load_balancers([lb], [row])),
        kind=row.kind,
        namespace=row.namespace,
        name=row.name,
        title=row.title,
        full_title=title_with_kind(row),
        member=tenant.metadata.name if tenant is not None else "",
        region=(tenant.spec.region if tenant is not None else "") or getattr(lb.spec, "region", ""),
        class_name=row.class_name,
        # What another party made may have an address that its API does not have: then it does not wait for one.
        address=row.address or ("-" if row.programmed else ""),
        reason=row.reason,
        targets=row.targets,
        routes=row.routes,
        since=_since(row, lb.status.conditions or (), lb.metadata.creation_timestamp or ""),
        command=f"fairlead explain {ref.path}",
    )


def member_item(tenant: Tenant, lease: StampedLease | None, now: datetime) -> MemberItem:
    """Return the item of a member; ``lease`` is its agent's."""
    row = member_row(tenant, lease, 0, now)
    leases = {tenant.namespace: lease} if lease is not None else {}
    troubles = list(problems.of_members([row], [tenant]))
    last_report = lease.stored_at if lease is not None and row.state != "Engaged" else None
    return MemberItem(
        id=row.name,
        state=worst_of(fault.trouble for fault in troubles),
        problems=tuple(fault.sentence for fault in troubles),
        namespace=row.namespace,
        region=row.region,
        connection=row.state,
        heard=wire_time(last_report) if last_report is not None else "",
        refused=tuple(fault.sentence for fault in problems.of_refused([row], leases)),
    )


def certificate_item(obj: ManagedCertificate, now: datetime) -> CertificateItem:
    """Return the item of a certificate."""
    troubles = list(problems.of_certificates([obj], now))
    return CertificateItem(
        id=str(obj.key),
        state=troubles[0].trouble if troubles else Trouble.NONE,
        problems=tuple(fault.sentence for fault in troubles),
        namespace=obj.metadata.namespace,
        hosts=obj.spec.hosts,
        step=obj.status.state,
        issuer=obj.status.issued_by or obj.spec.issuer,
        ends=obj.status.not_after if obj.status.digest else "",
    )


def region_item(obj: PoolService) -> RegionItem:
    """Return the item of one region's share of a Service."""
    row = region_row(obj)
    return RegionItem(
        id=str(obj.key),
        state=row.state,
        problems=tuple(fault.sentence for fault in problems.of_regions([row])),
        namespace=row.namespace,
        service=row.service,
        region=row.region,
        class_name=row.class_name,
        address=row.address,
        reason=row.reason,
        targets=row.targets,
    )


def name_item(obj: Hostname) -> NameItem:
    """Return the item of a host name."""
    troubles = list(problems.of_names([obj]))
    good = {condition.type for condition in obj.status.conditions or () if condition.status == "True"}
    published = bool(obj.status.zone) and {ACCEPTED, PROGRAMMED} <= good
    return NameItem(
        id=str(obj.key),
        state=Trouble.ATTENTION if troubles else Trouble.NONE if published else Trouble.IDLE,
        problems=tuple(fault.sentence for fault in troubles),
        host=obj.spec.host,
        zone=obj.status.zone,
        points_to=(*(obj.spec.addresses or ()), *filter(None, (obj.spec.cname,))),
        published=published,
    )


def zone_item(obj: DNSZone) -> ZoneItem:
    """Return the item of a zone."""
    troubles = list(problems.of_zones([obj]))
    parameters = obj.spec.parameters
    url = parameters.get("url", "")
    return ZoneItem(
        id=obj.metadata.name,
        state=Trouble.ATTENTION if troubles else Trouble.NONE,
        problems=tuple(fault.sentence for fault in troubles),
        zone=obj.spec.zone,
        provider=obj.spec.provider,
        # Of a URL the host alone: the part before it may be a password.
        server=parameters.get("server", "") or url.partition("://")[2].partition("/")[0].rpartition("@")[2],
        names=obj.status.names,
        dry_run=obj.spec.dry_run,
    )


def pool_item(obj: AddressPool) -> PoolItem:
    """Return the item of a pool of addresses; its note says that it is full, or almost."""
    row = problems.pool_row(obj)
    troubles = [problem.sentence for problem in problems.of_pools([obj], [row], waiting=False)]
    status = obj.status
    return PoolItem(
        id=obj.metadata.name,
        state=Trouble.ATTENTION if troubles else Trouble.NONE,
        problems=tuple(troubles),
        addresses=tuple(obj.spec.addresses),
        size=status.size,
        used=status.used,
        reserved=status.reserved,
        outside=status.outside,
        region=obj.spec.region,
        note=row.note,
    )


def own_pool_item(ranges: str, given: Iterable[str]) -> PoolItem:
    """Return the item of the hub's ``--address-pool``; ``given`` are the addresses of all load balancers."""
    (row,) = problems.pool_rows((), ranges, given)
    return PoolItem(
        id=row.name, state=Trouble.NONE, addresses=(row.addresses,), size=row.size, used=row.used, note=row.note
    )


def class_item(obj: LoadBalancerClass) -> ClassItem:
    """Return the item of a class."""
    troubles = tuple(fault.sentence for fault in problems.of_classes([obj]))
    return ClassItem(
        id=obj.metadata.name,
        state=Trouble.ATTENTION if troubles else Trouble.NONE,
        problems=troubles,
        provider=obj.spec.provider,
        load_balancers=obj.status.load_balancers,
    )


def group_item(obj: BackendGroup) -> GroupItem:
    """Return the item of a group of backends."""
    troubles = tuple(fault.sentence for fault in problems.of_groups([obj]))
    return GroupItem(
        id=str(obj.key),
        state=Trouble.ATTENTION if troubles else Trouble.NONE,
        problems=troubles,
        load_balancers=tuple(obj.spec.load_balancers),
        backends=obj.status.backends,
        registered=obj.status.registered_backends,
    )


def _since(row: LoadBalancerRow, conditions: Sequence[WireCondition], created: str) -> str:
    troubles = faults_of_load_balancer(conditions, row.targets, row.routes)
    by_type = {condition.type: condition.last_transition_time or "" for condition in conditions}
    wanted = [troubles[0].type] if troubles else [SERVING, PROGRAMMED]
    return next((by_type[each] for each in wanted if by_type.get(each)), created)
