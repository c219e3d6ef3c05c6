"""The tables of the page, from the caches and trackers of a running hub, and one load balancer in detail.

In: objects of the hub's API, the caches, providers and memory of a hub, and the time. Out: one ``Source`` for each
table; its items in the words of ``fairlead status``, as they go to the browser (JSON); the plan with what the hub is
about to do, what is held and why, and the command that helps; ``Detail`` with conditions since when, backends, routes
and history. An item says nothing that changes by itself, such as an age: the browser counts from ``since``.
Never: asks a provider or the API server; a parameter of a target, which may be a credential.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar, cast

import msgspec

from fairlead.api.addresspool import ADDRESS_POOLS, AddressPool
from fairlead.api.backendgroup import BackendGroup, BackendRecord
from fairlead.api.globalservice import GlobalMemberStatus, global_status
from fairlead.api.hostname import DNSZone, Hostname
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, LoadBalancerRoute, RouteKey
from fairlead.api.intent import IntentObject
from fairlead.api.kinds import LOAD_BALANCER_KINDS
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.meta import KubeObject, ObjectKey, Resource, WireCondition, condition_of
from fairlead.api.multicluster import ExportedService, ImportedService
from fairlead.api.names import AGENT_LEASE, ANNOTATION_PAUSED
from fairlead.api.poolservice import PoolService
from fairlead.api.proxymachine import ProxyMachine
from fairlead.api.tenant import TENANTS, StampedLease, Tenant
from fairlead.api.times import wire_time
from fairlead.hub.inspect.preview import KeyState, Previewed, ProviderState, pending_keys, running_plans
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.kube.cache import WatchCache
from fairlead.ledger.frontends import held_changes
from fairlead.ledger.records import listener_of, target_of
from fairlead.model.change import HistoryEntry
from fairlead.model.desired import Target
from fairlead.model.http import RequestMatch, Rule
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Seen
from fairlead.page.board import TableSource, VisibleItem
from fairlead.page.routes import Chain, ChainBackend, ServedRoutes, chain_of
from fairlead.runtime.clock import Clock
from fairlead.status.fleet import (
    ACCEPTED,
    MEMBER_TROUBLES,
    PROGRAMMED,
    SERVING,
    AnyLoadBalancer,
    ProxyRow,
    SetKey,
    Trouble,
    certificate_faults,
    class_faults,
    faults_of_load_balancer,
    group_faults,
    load_balancer_faults,
    load_balancer_row,
    member_faults,
    member_row,
    name_faults,
    pool_faults,
    pool_row,
    pool_rows,
    refusal_faults,
    region_faults,
    region_row,
    set_key,
    shared_service_rows,
    title_with_kind,
    worst_of,
    zone_faults,
)
from fairlead.status.formatting import actions_of, match_text, reason_text
from fairlead.status.machines import AnnouncedRow, machine_rows
from fairlead.status.object_ref import ObjectRef
from fairlead.status.plan_rows import Row, rows_of, source_of
from fairlead.sync.plan import Registered
from fairlead.translate.addresses import OWN_POOL
from fairlead.translate.global_service import share_in_words

#: Addresses of a machine that are listed; more are counted.
MOST_ADDRESSES = 10


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
    #: The proxy machines of its addresses, as placed.
    on: str = ""
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


class SharedItem(Item, frozen=True, gc=False):
    """One Service of a cluster set, as namespace/name, and the members that export and import it."""

    service: str
    cluster_set: str = ""
    exported_by: tuple[str, ...] = ()
    imported_by: tuple[str, ...] = ()
    reason: str = ""


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


class MachineItem(Item, frozen=True, gc=False):
    """One proxy machine; ``ready`` and ``announcing`` are the reasons of its conditions, ``since`` is of the first.

    ``addresses`` are the first ones that it announces, ``announced`` counts all.
    """

    group: str
    ready: str = ""
    announcing: str = ""
    announced: int = 0
    addresses: tuple[str, ...] = ()
    envoy: str = ""
    drained: bool = False
    since: str = ""


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


def load_balancer_item(lb: AnyLoadBalancer, tenant: Tenant | None) -> LoadBalancerItem:
    """Return the item of a load balancer; ``tenant`` is the member in whose namespace it is."""
    row = load_balancer_row(lb)
    ref = ObjectRef(row.kind, row.namespace, row.name)
    return LoadBalancerItem(
        id=f"{row.kind}/{row.namespace}/{row.name}",
        state=row.state,
        problems=tuple(fault.sentence for fault in load_balancer_faults([lb], [row])),
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
        on=row.on,
        reason=row.reason,
        targets=row.targets,
        routes=row.routes,
        since=load_balancer_since(lb),
        command=f"fairlead explain {ref.path}",
    )


def machine_item(machine: ProxyMachine) -> MachineItem:
    """Return the item of a proxy machine."""
    (row,) = machine_rows([machine], {}, datetime.fromtimestamp(0, UTC))
    ready = condition_of(machine.status.conditions, "Ready")
    return MachineItem(
        id=row.name,
        state=Trouble.ATTENTION if row.problems else Trouble.NONE if ready is not None else Trouble.IDLE,
        problems=tuple(f"machine {row.name}: {sentence}" for sentence in row.problems),
        group=row.group,
        ready=row.state,
        announcing=row.announcing,
        announced=row.announced,
        addresses=tuple(row.addresses[:MOST_ADDRESSES]),
        envoy=row.envoy,
        drained=row.drained,
        since=(ready.last_transition_time or "") if ready is not None else "",
    )


def member_item(tenant: Tenant, lease: StampedLease | None, now: datetime) -> MemberItem:
    """Return the item of a member; ``lease`` is its agent's."""
    row = member_row(tenant, lease, 0, now)
    leases = {tenant.namespace: lease} if lease is not None else {}
    troubles = list(member_faults([row], [tenant]))
    last_report = lease.stored_at if lease is not None and row.state != "Engaged" else None
    return MemberItem(
        id=row.name,
        state=worst_of(fault.trouble for fault in troubles),
        problems=tuple(fault.sentence for fault in troubles),
        namespace=row.namespace,
        region=row.region,
        connection=row.state,
        heard=wire_time(last_report) if last_report is not None else "",
        refused=tuple(fault.sentence for fault in refusal_faults([row], leases)),
    )


def certificate_item(obj: ManagedCertificate, now: datetime) -> CertificateItem:
    """Return the item of a certificate."""
    troubles = list(certificate_faults([obj], now))
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
        problems=tuple(fault.sentence for fault in region_faults([row])),
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
    troubles = list(name_faults([obj]))
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
    troubles = list(zone_faults([obj]))
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
    row = pool_row(obj)
    troubles = [problem.sentence for problem in pool_faults([obj], [row], waiting=False)]
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
    (row,) = pool_rows((), ranges, given)
    return PoolItem(
        id=row.name, state=Trouble.NONE, addresses=(row.addresses,), size=row.size, used=row.used, note=row.note
    )


def class_item(obj: LoadBalancerClass) -> ClassItem:
    """Return the item of a class."""
    troubles = tuple(fault.sentence for fault in class_faults([obj]))
    return ClassItem(
        id=obj.metadata.name,
        state=Trouble.ATTENTION if troubles else Trouble.NONE,
        problems=troubles,
        provider=obj.spec.provider,
        load_balancers=obj.status.load_balancers,
    )


def group_item(obj: BackendGroup) -> GroupItem:
    """Return the item of a group of backends."""
    troubles = tuple(fault.sentence for fault in group_faults([obj]))
    return GroupItem(
        id=str(obj.key),
        state=Trouble.ATTENTION if troubles else Trouble.NONE,
        problems=troubles,
        load_balancers=tuple(obj.spec.load_balancers),
        backends=obj.status.backends,
        registered=obj.status.registered_backends,
    )


def load_balancer_since(lb: AnyLoadBalancer) -> str:
    """Return since when the condition that says most is as it is (RFC 3339)."""
    row, conditions = load_balancer_row(lb), lb.status.conditions or ()
    troubles = faults_of_load_balancer(conditions, row.targets, row.routes)
    by_type = {condition.type: condition.last_transition_time or "" for condition in conditions}
    wanted = [troubles[0].type] if troubles else [SERVING, PROGRAMMED]
    created = lb.metadata.creation_timestamp or ""
    return next((by_type[condition_type] for condition_type in wanted if by_type.get(condition_type)), created)


Place = tuple[ListenerKey, TargetKey]
#: More backends than that are counted, not listed.
MOST_BACKENDS = 500
#: Those that are refused come first.
MOST_ROUTES = 200
MOST_RULES = 20


class ConditionItem(msgspec.Struct, frozen=True, rename="camel"):
    """One condition as the hub wrote it last."""

    type: str
    status: str
    reason: str
    message: str
    since: str


class BackendItem(msgspec.Struct, frozen=True, rename="camel"):
    """One backend; ``source`` is the object behind it, ``since`` and ``why`` are empty where they are not on record."""

    listener: str
    address: str
    source: str
    state: str
    since: str = ""
    why: str = ""
    #: Of a GlobalService.
    member: str = ""


class MemberShareItem(msgspec.Struct, frozen=True, rename="camel"):
    """One member of a GlobalService; ``share`` in words, and ``trouble`` is the class of its state."""

    member: str
    service: str
    share: str
    tier: int
    endpoints: str
    state: str
    trouble: Trouble
    message: str
    silent_since: str


class RegisteredStatus(msgspec.Struct, frozen=True):
    """The status of a target of a provider without records: Served, Draining or Unhealthy, since when and why."""

    target: Target
    state: str = "Served"
    since: str = ""
    why: str = ""


def target_status_of(
    registered: Registered, since: Callable[[float], str], *, unhealthy: bool, unhealthy_since: str = ""
) -> RegisteredStatus:
    """Return the status of one target; ``since`` converts monotonic seconds to a time."""
    target = registered.target
    at = since(registered.since) if registered.since is not None else ""
    if registered.draining:
        why = reason_text(registered.reason) if registered.reason is not None else "no new connections"
        return RegisteredStatus(target, "Draining", at, why)
    if unhealthy:
        return RegisteredStatus(target, Seen.UNHEALTHY.value, unhealthy_since, "the health checks of its proxies fail")
    return RegisteredStatus(target, "Served", at)


class RuleItem(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One rule of a route: the requests that it takes, and where they go, in words."""

    takes: tuple[str, ...]
    goes: tuple[str, ...]


class RouteItem(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One route, its rules in order, and why it is not served where it is not; ``hosts`` empty: all of them."""

    kind: str
    origin: str
    refused: str = ""
    hosts: tuple[str, ...] = ()
    rules: tuple[RuleItem, ...] = ()
    more_rules: int = 0


class HeldItem(msgspec.Struct, frozen=True, rename="camel"):
    """One change that is held: what, by which guard, and why."""

    what: str
    held_by: str
    message: str


class Detail(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One load balancer; ``history`` is oldest first, ``more`` counts what is not listed of the rest."""

    id: str
    #: Of the fields that docs/how-to/terraform.md promises; raise it when one of them is removed or changes.
    version: int = 1
    conditions: list[ConditionItem]
    providers: list[ProviderState]
    history: list[HistoryEntry]
    backends: list[BackendItem] = msgspec.field(default_factory=list[BackendItem])
    more_backends: int = 0
    routes: list[RouteItem] = msgspec.field(default_factory=list[RouteItem])
    more_routes: int = 0
    held: list[HeldItem] = msgspec.field(default_factory=list[HeldItem])
    more_held: int = 0
    #: The addresses that proxy machines announce, and why none does.
    announced: list[AnnouncedRow] = msgspec.field(default_factory=list[AnnouncedRow])
    members: list[MemberShareItem] = msgspec.field(default_factory=list[MemberShareItem])
    #: What requests pass; None for what has no object any longer.
    chain: Chain | None = None
    #: Whether its own annotation holds all changes, and whether hosts of it are in maintenance.
    paused: bool = False
    maintenance: bool = False


def detail_of(
    key: LoadBalancerKey,
    state: KeyState | None,
    inventory: Inventory,
    registered: Mapping[Place, RegisteredStatus] | None = None,
    announced: Callable[[IntentObject], Iterable[AnnouncedRow]] = lambda _obj: (),
    only: RouteKey | None = None,
) -> Detail | None:
    """Return the detail of ``key``, None when nothing is known of it.

    ``registered`` are the targets that the hub has at the provider; ``announced`` returns who announces the addresses.
    ``only``: routes and backends are those of this object.
    """
    objects = inventory.intents.get(key.kind)
    obj: Any = objects.cache.get(key.namespace, key.name) if objects is not None else None
    if obj is None and state is None:
        return None
    backends = list(_backends(registered or {}, inventory.records.by_index("lb", key)))
    routes = _routes(key, obj, inventory, only)
    if only is not None:
        named = {backend.name for route, _ in routes for backend in route.spec.backends}
        backends = [backend for backend in backends if backend.listener in named]
    announced_rows = list(announced(obj)) if obj is not None else []
    held = held_changes(key, obj.status.held or ()) if obj is not None else ()
    total = obj.status.held_total if obj is not None else 0
    return Detail(
        id=str(key),
        conditions=[_condition(condition) for condition in obj.status.conditions or ()] if obj is not None else [],
        providers=state.providers if state is not None else [],
        history=state.history if state is not None else [],
        backends=backends[:MOST_BACKENDS],
        more_backends=max(0, len(backends) - MOST_BACKENDS),
        routes=[_route(route, why) for route, why in routes[:MOST_ROUTES]],
        more_routes=max(0, len(routes) - MOST_ROUTES),
        held=[
            HeldItem(
                f"{row.change.action} {row.change.listener} {row.change.key}, {reason_text(row.change.reason)}",
                row.reason,
                row.message,
            )
            for row in held
        ],
        more_held=max(0, total - len(held)),
        announced=announced_rows,
        members=[_member_share(member) for member in global_status(obj).members or ()],
        chain=_chain(obj, [route for route, _ in routes], backends, announced_rows) if obj is not None else None,
        paused=obj is not None and obj.annotation(ANNOTATION_PAUSED, "false") != "false",
        maintenance=bool(getattr(obj.status, "maintenance", ())) if obj is not None else False,
    )


_GOOD_STATES = ("Served", "Registered")
_BAD_STATES = (Seen.UNHEALTHY.value, "Failed")


def _chain(
    obj: Any, routes: Sequence[LoadBalancerRoute], backends: Iterable[BackendItem], announced: Sequence[AnnouncedRow]
) -> Chain:
    def trouble(state: str) -> Trouble:
        if state in _GOOD_STATES:
            return Trouble.NONE
        return Trouble.NOT_SERVING if state in _BAD_STATES else Trouble.ATTENTION

    parts = [
        ChainBackend(
            backend.listener,
            backend.address,
            backend.source,
            trouble(backend.state),
            "" if backend.state in _GOOD_STATES else f"{backend.state}: {backend.why}".removesuffix(": "),
            backend.member,
        )
        for backend in backends
    ]
    return chain_of(obj, load_balancer_row(obj), routes, parts, announced)


def _member_share(member: GlobalMemberStatus) -> MemberShareItem:
    return MemberShareItem(
        member.tenant,
        member.service,
        share_in_words(member),
        member.tier,
        member.endpoints,
        member.state,
        MEMBER_TROUBLES.get(member.state, Trouble.NONE),
        member.message,
        member.silent_since or "",
    )


def _condition(condition: WireCondition) -> ConditionItem:
    return ConditionItem(
        condition.type, condition.status, condition.reason, condition.message, condition.last_transition_time or ""
    )


def _backends(registered: Mapping[Place, RegisteredStatus], records: Iterable[BackendRecord]) -> Iterator[BackendItem]:
    """Yield what is on record or registered, by listener and address; the record says most."""
    by_place = {(listener_of(record), target_of(record).key): record for record in records}
    for place in sorted({*by_place, *registered}):
        listener, address = str(place[0]), str(place[1])
        record = by_place.get(place)
        standing = registered.get(place)
        target = standing.target if standing is not None else target_of(record) if record is not None else None
        source, member = (source_of(target), target.locality) if target is not None else ("", "")
        if record is not None:
            state = "Deregistering" if record.deleting else record.status.state or "Pending"
            why = record.status.message or (reason_text(record.status.reason) if record.status.reason else "")
            yield BackendItem(listener, address, source, state, record.status.since or "", why, member)
        elif standing is not None:
            yield BackendItem(listener, address, source, standing.state, standing.since, standing.why, member)


def _routes(
    key: LoadBalancerKey, obj: Any, inventory: Inventory, only: RouteKey | None
) -> list[tuple[LoadBalancerRoute, str]]:
    """Return the routes of a load balancer with why each is not served; those that are not come first."""
    cache = inventory.caches.get(LOAD_BALANCER_ROUTES.plural)
    if key.kind != HTTP_LOAD_BALANCERS.kind or cache is None:
        return []
    parts: Mapping[str, Sequence[tuple[str, str]]] = ServedRoutes.of(obj).refused if obj is not None else {}
    refused = {name: "; ".join(filter(None, (reason for _, reason in of_route))) for name, of_route in parts.items()}
    named = [
        route
        for route in cache.values()
        if route.metadata.namespace == key.namespace and route.spec.load_balancer == key.name
        if only is None or route.subject == only
    ]
    named.sort(key=lambda route: (route.metadata.name not in refused, route.key))
    return [(route, refused.get(route.metadata.name, "")) for route in named]


def _route(route: LoadBalancerRoute, refused: str) -> RouteItem:
    spec, origin = route.spec, route.spec.origin
    return RouteItem(
        origin.kind or spec.kind,
        "/".join(filter(None, (origin.namespace, origin.name))) or route.metadata.name,
        refused,
        tuple(dict.fromkeys(host for attachment in spec.attachments for host in attachment.hostnames)),
        tuple(_rule(rule, with_matches=spec.kind in ("HTTP", "GRPC")) for rule in spec.rules[:MOST_RULES]),
        max(0, len(spec.rules) - MOST_RULES),
    )


def _rule(rule: Rule, *, with_matches: bool) -> RuleItem:
    matches = rule.matches or (RequestMatch(),)
    takes = tuple(map(match_text, matches)) if with_matches else ()
    total = sum(backend.weight for backend in rule.backends)
    destinations = [
        f"{backend.backend or 'not resolved'}{f' {100 * backend.weight / total:g} %' if total > backend.weight else ''}"
        for backend in rule.backends
    ]
    return RuleItem(takes, (*destinations, *actions_of(rule, matches[0])))


T = TypeVar("T", bound=KubeObject)
Changed = Callable[[Hashable], None]

#: The kinds of load balancers that have traffic, with their resources.
RESOURCE_OF = {kind.kind: kind.plural for kind in LOAD_BALANCER_KINDS}


class LoadBalancers(TableSource):
    """The load balancers of all kinds; a key is (kind, namespace, name)."""

    table = "lb"

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def watch(self, changed: Changed) -> None:
        """Call ``changed`` for each object that changes, and for all of a member that does."""
        for kind in RESOURCE_OF:
            if (objects := self._inventory.intents.get(kind)) is not None:
                objects.cache.on_object(lambda obj, kind=kind: changed((kind, *obj.key)))

        def tenant_changed(old: Tenant | None, new: Tenant | None) -> None:
            if old is None or new is None or old.spec != new.spec:
                for tenant in filter(None, (old, new)):
                    for kind, objects in self._inventory.intents.items():
                        if kind in RESOURCE_OF:
                            for obj in objects.cache.by_index("namespace", tenant.namespace):
                                changed((kind, *obj.key))

        self._inventory.tenants.on_change(tenant_changed)

    def all_keys(self) -> Iterable[Hashable]:
        """Return the key of each load balancer, whichever hub serves it."""
        return [(key.kind, key.namespace, key.name) for key, _ in self._inventory.objects() if key.kind in RESOURCE_OF]

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of one."""
        kind, namespace, name = cast("tuple[str, str, str]", key)
        obj = self._inventory.intents[kind].cache.get(namespace, name)
        if obj is None:
            return None
        return VisibleItem(load_balancer_item(obj, self._inventory.tenant_of(namespace)), RESOURCE_OF[kind], namespace)


class Members(TableSource):
    """The members; a key is the name of the Tenant. Also polled: an agent that has ended causes no watch event."""

    table = "member"
    every_s = 2.0

    def __init__(self, inventory: Inventory, now: Callable[[], datetime]) -> None:
        self._inventory = inventory
        self._now = now

    def watch(self, changed: Changed) -> None:
        """Call ``changed`` for each Tenant that changes, and when its agent reports."""
        self._inventory.tenants.on_object(lambda tenant: changed(tenant.metadata.name))

        def lease_changed(lease: StampedLease) -> None:
            if lease.metadata.name == AGENT_LEASE:
                for tenant in self._inventory.tenants.by_index("namespace", lease.metadata.namespace):
                    changed(tenant.metadata.name)

        self._inventory.leases.on_object(lease_changed)

    def all_keys(self) -> Iterable[Hashable]:
        """Return the names of all Tenants."""
        return [tenant.metadata.name for tenant in self._inventory.tenants.values()]

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of one."""
        tenant = self._inventory.tenants.get("", str(key))
        if tenant is None:
            return None
        lease = self._inventory.leases.get(tenant.namespace, AGENT_LEASE)
        return VisibleItem(member_item(tenant, lease, self._now()), TENANTS.plural)


class SetServices(TableSource):
    """The Services that members of cluster sets share; a key is a ``SetKey``."""

    table = "shared"

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._caches: tuple[WatchCache[ExportedService] | WatchCache[ImportedService], ...] = (
            inventory.exports,
            inventory.imports,
        )

    def watch(self, changed: Changed) -> None:
        """Call ``changed`` for each export and import that changes, and for those of a member that changes its set."""

        def tenant_changed(old: Tenant | None, new: Tenant | None) -> None:
            if old is None or new is None or old.spec != new.spec:
                for tenant in filter(None, (old, new)):
                    for obj in self._objects():
                        if obj.metadata.namespace == tenant.namespace:
                            changed(set_key(obj, tenant))

        for cache in self._caches:
            cache.on_object(lambda obj: changed(self._key(obj)))
        self._inventory.tenants.on_change(tenant_changed)

    def all_keys(self) -> Iterable[Hashable]:
        """Return the keys of all."""
        return {self._key(obj) for obj in self._objects()}

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of one."""
        if not isinstance(key, SetKey):
            return None
        inventory, place = self._inventory, (key.namespace, key.name)
        exports, imports = inventory.exports.by_index("service", place), inventory.imports.by_index("service", place)
        tenants = (inventory.tenant_of(obj.metadata.namespace) for obj in (*exports, *imports))
        row = shared_service_rows(exports, imports, filter(None, tenants)).get(key)
        if row is None:
            return None
        item = SharedItem(
            id="/".join(key),
            state=row.state,
            problems=(row.message,) if row.message else (),
            service=row.service,
            cluster_set=row.cluster_set,
            exported_by=tuple(row.exported_by),
            imported_by=tuple(row.imported_by),
            reason=row.reason,
        )
        return VisibleItem(item, TENANTS.plural)

    def _objects(self) -> Iterator[ExportedService | ImportedService]:
        for cache in self._caches:
            yield from cache.values()

    def _key(self, obj: ExportedService | ImportedService) -> SetKey:
        return set_key(obj, self._inventory.tenant_of(obj.metadata.namespace))


class Objects(TableSource, Generic[T]):
    """The objects of one kind, a row each: certificates, host names, shares of Services that regions have."""

    def __init__(
        self,
        table: str,
        cache: WatchCache[T],
        resource: Resource[T],
        item: Callable[[T], Item],
        *,
        every_s: float = 0.0,
    ) -> None:
        self.table = table
        self.every_s = every_s
        self._cache = cache
        self._resource = resource
        self._item = item

    def watch(self, changed: Changed) -> None:
        """Call ``changed`` for each that changes."""
        self._cache.on_object(lambda obj: changed(obj.key))

    def all_keys(self) -> Iterable[Hashable]:
        """Return the keys of all."""
        return [obj.key for obj in self._cache.values()]

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of one."""
        obj = self._cache.get(*cast("ObjectKey", key))
        return VisibleItem(self._item(obj), self._resource.plural, obj.metadata.namespace) if obj is not None else None


class PoolTable(Objects[AddressPool]):
    """The AddressPools, and the hub's ``--address-pool`` (``own``, empty for none), which is polled."""

    def __init__(self, inventory: Inventory, own: str) -> None:
        super().__init__("pool", inventory.address_pools, ADDRESS_POOLS, pool_item, every_s=2.0)
        self._inventory = inventory
        self._own = own

    def all_keys(self) -> Iterable[Hashable]:
        """Return the keys of all."""
        return [*super().all_keys(), *([OWN_POOL] if self._own else [])]

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of one."""
        if key != OWN_POOL:
            return super().visible_item(key)
        given = (
            address
            for kind in RESOURCE_OF
            if (objects := self._inventory.intents.get(kind)) is not None
            for obj in objects.cache.values()
            for address in obj.status.addresses
        )
        return VisibleItem(own_pool_item(self._own, given), ADDRESS_POOLS.plural)


class Proxies(TableSource):
    """The proxies that are connected to this hub; looked at now and then, since an acknowledgement takes a moment."""

    table = "proxy"
    every_s = 2.0

    def __init__(self, proxies: Callable[[], Sequence[ProxyRow]]) -> None:
        self._proxies = proxies
        self._rows: dict[str, ProxyRow] = {}

    def all_keys(self) -> Iterable[Hashable]:
        """Return the names of all that are connected."""
        self._rows = {row.node: row for row in self._proxies()}
        return sorted(self._rows)

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of one."""
        row = self._rows.get(str(key))
        if row is None:
            return None
        synced = row.state == "SYNCED"
        state = Trouble.NONE if synced else Trouble.ATTENTION
        item = ProxyItem(id=row.node, state=state, group=row.group, synced=synced, refused=row.refused)
        return VisibleItem(item, TENANTS.plural)


class ThisHub(TableSource):
    """This replica."""

    table = "hub"
    every_s = 2.0

    def __init__(
        self,
        *,
        identity: str,
        version: str,
        started: str,
        leading: Callable[[], bool],
        leader: Callable[[], str] = str,
        problems: Callable[[], list[str]],
    ) -> None:
        self._identity = identity
        self._version = version
        self._started = started
        self._leading = leading
        self._leader = leader
        self._problems = problems

    def all_keys(self) -> Iterable[Hashable]:
        """Return the one key."""
        return [self._identity]

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of this replica, which every viewer may see."""
        problems, leading, leader = tuple(self._problems()), self._leading(), self._leader()
        item = HubItem(
            id=str(key),
            state=Trouble.ATTENTION if problems else Trouble.NONE,
            problems=problems,
            leading=leading,
            # A lease that has our own name while we do not lead is one that we have lost.
            leader="" if leading or leader == self._identity else leader,
            version=self._version,
            started=self._started,
        )
        return VisibleItem(item, "")


#: More rows of one load balancer than that are counted, not listed.
MOST_ROWS = 20
_HIDDEN = ("parameters.", "attributes.")


class PlanRow(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """One change; ``held_by`` names what holds it, and then ``message`` says why. ``fields``: name, old and new."""

    action: str
    what: str
    reason: str
    held_by: str = ""
    message: str = ""
    fields: tuple[tuple[str, str, str], ...] = ()


class PlanItem(Item, frozen=True, gc=False):
    """The plan of one load balancer, or name; ``held`` and ``more`` count rows, those not listed."""

    title: str
    provider: str
    rows: tuple[PlanRow, ...]
    held: int = 0
    more: int = 0
    command: str = ""


class Plans(TableSource):
    """The plans that have a row; a key is that of the load balancer."""

    table = "plan"
    #: What waits for a provider or a moment changes without an object that does.
    every_s = 2.0

    def __init__(self, inventory: Inventory, providers: ProviderRegistry, clock: Clock) -> None:
        self._inventory = inventory
        self._providers = providers
        self._clock = clock

    def watch(self, changed: Callable[[Hashable], None]) -> None:
        """Call ``changed`` for each object that changes: what is held is in its status."""
        for objects in self._inventory.intents.values():
            objects.cache.on_object(lambda obj, key=objects.key: changed(key(obj)))

    def all_keys(self) -> Iterable[Hashable]:
        """Return every key that may have a plan."""
        return {*self.polled_keys(), *self._inventory.all_keys(), *self._providers.restored()}

    def polled_keys(self) -> Iterable[Hashable]:
        """Return the keys that may have changed without their object."""
        return pending_keys(self._providers)

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the plan of one; None when there is nothing to do, and nothing is held."""
        if not isinstance(key, LoadBalancerKey) or key.kind not in self._inventory.intents:
            return None
        plans = running_plans(key, inventory=self._inventory, providers=self._providers, now_s=self._clock.monotonic())
        item = plan_item(key, self._inventory.intent(key), plans)
        if item is None:
            return None
        return VisibleItem(item, self._inventory.intents[key.kind].resource.plural, key.namespace)


def plan_item(key: LoadBalancerKey, obj: IntentObject | None, plans: Sequence[Previewed]) -> PlanItem | None:
    """Return the item of what is planned, None for nothing; what is held comes first."""
    rows = sorted((row for plan in plans for row in rows_of(plan)), key=lambda row: not row.held_by)
    if not rows:
        return None
    more = sum(plan.more_held for plan in plans)
    held = sum(bool(row.held_by) for row in rows) + more
    ref = ObjectRef(*key)
    title, problems = _known(obj, key)
    return PlanItem(
        id=str(key),
        state=Trouble.ATTENTION if held else Trouble.NONE,
        # What is not held and not done yet waits for what is wrong with the load balancer.
        problems=problems if any(not row.held_by for row in rows) else (),
        title=title,
        provider=", ".join(dict.fromkeys(filter(None, (plan.provider for plan in plans)))),
        rows=tuple(_row(row) for row in rows[:MOST_ROWS]),
        held=held,
        more=more + max(0, len(rows) - MOST_ROWS),
        command=f"fairlead plan {ref.argument}",
    )


def _known(obj: Any, key: LoadBalancerKey) -> tuple[str, tuple[str, ...]]:
    """Return what people call it, and what is wrong with it; what is gone has its key only."""
    if obj is None:
        return f"{key.namespace}/{key.name}", ()
    if key.kind in RESOURCE_OF:
        item = load_balancer_item(obj, None)
        return item.title, item.problems
    name = name_item(obj)
    return name.host, name.problems


def _row(row: Row) -> PlanRow:
    description = " ".join(filter(None, (row.listener, row.target, f"({row.source})" if row.source else "")))
    return PlanRow(
        row.action,
        description or "the load balancer itself",
        reason_text(row.reason),
        row.held_by,
        row.message,
        tuple(_fields(row)),
    )


def _fields(row: Row) -> Iterator[tuple[str, str, str]]:
    for field in row.fields:
        if not field.field.startswith(_HIDDEN):
            yield field.field, field.ledger, field.wanted
