"""A row for each Ingress and route of members, and the chain that a request passes, from its client to a backend.

    client ─► address ─► listener ─► route ─► Service ─► backend

A row is one object of a member: its parts at all load balancers, and what the member's agent rejects of it.
Where a load balancer does not serve, neither do its routes. A status lists a bounded number of rejected and failing
routes; once that is reached, the state of the others is unknown. What is unknown is never shown as serving.
In: routes, load balancers and the reports of agents as the hub's caches hold them. Out: the table ``route``, and
``Chain``. Pure, except for the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self, cast

import msgspec

from fairlead.api.globalservice import global_status
from fairlead.api.httploadbalancer import (
    FAILING_LISTED,
    HTTP_LOAD_BALANCERS,
    LOAD_BALANCER_ROUTES,
    FailingRoute,
    HTTPLoadBalancer,
    LoadBalancerRoute,
    RouteKey,
)
from fairlead.api.meta import ObjectKey
from fairlead.api.names import AGENT_LEASE, ANNOTATION_REFUSED
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import StampedLease, Tenant
from fairlead.hub.intents.http import REFUSED_SHOWN
from fairlead.hub.inventory import Inventory
from fairlead.kube.cache import WatchCache
from fairlead.model.keys import LoadBalancerKey
from fairlead.page.board import TableSource, VisibleItem
from fairlead.status.fleet import (
    MEMBER_TROUBLES,
    LoadBalancerRow,
    ObjectFault,
    Trouble,
    load_balancer_row,
    member_row,
    refusal_faults,
    worst_of,
)
from fairlead.status.machines import AnnouncedRow
from fairlead.status.object_ref import IN_MEMBERS, SERVICE, ObjectRef
from fairlead.translate.global_service import share_in_words

#: Hosts and Services that a row names; more are counted.
_NAMED = 3
#: States of a load balancer that are those of all its routes, too.
_WHOLE = (Trouble.NOT_KNOWN, Trouble.NOT_SERVING, Trouble.UNCONFIRMED)


class RouteRow(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """One Ingress, route, or other object that the agent of its member rejects.

    ``load_balancers`` are the ids of those that serve it, ``routes`` how its traffic is named in their figures.
    """

    id: str
    state: str = Trouble.NONE
    problems: tuple[str, ...] = ()
    kind: str
    namespace: str
    title: str
    member: str = ""
    region: str = ""
    address: str = ""
    reason: str = ""
    targets: str = ""
    hosts: str = ""
    load_balancers: tuple[str, ...] = ()
    command: str = ""


class ServedRoutes(NamedTuple):
    """What a load balancer says of its routes, read once for all of them."""

    lb: HTTPLoadBalancer
    row: LoadBalancerRow
    refused: Mapping[str, Sequence[tuple[str, str]]]
    failing: Mapping[str, FailingRoute]
    maintained: Mapping[str, str]
    #: The status lists as many as it can, so nothing is known of the others.
    full: bool

    @classmethod
    def of(cls, lb: HTTPLoadBalancer) -> Self:
        """Read the status of ``lb``."""
        refused: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for part in lb.status.refused:
            if part.kind in ("route", "rule"):
                refused[part.name].append((part.kind, part.reason))
        return cls(
            lb,
            load_balancer_row(lb),
            refused,
            {route.name: route for route in lb.status.failing_routes},
            {entry.host: entry.sentence for entry in lb.status.maintenance},
            len(lb.status.failing_routes) >= FAILING_LISTED or len(lb.status.refused) >= REFUSED_SHOWN,
        )

    @property
    def of_all_routes(self) -> object:
        """Return what the rows of all its routes depend on."""
        row = self.row
        whole = (row.state, row.reason, row.message) if row.state in _WHOLE else ()
        return whole, row.title, row.address, row.routes == 0, self.full


class _Fault(NamedTuple):
    trouble: Trouble
    reason: str
    sentence: str


def faults_of_route(route: LoadBalancerRoute, served: ServedRoutes | None) -> Iterator[_Fault]:
    """Yield what is wrong with a route at its load balancer, None for one that does not exist."""
    if served is None:
        text = f"load balancer {route.spec.load_balancer} does not exist"
        yield _Fault(Trouble.NOT_SERVING, "NoLoadBalancer", text)
        return
    row, name = served.row, route.metadata.name
    if row.state in _WHOLE:
        verb = "does not serve" if row.state is Trouble.NOT_SERVING else "is not known to serve yet"
        yield _Fault(row.state, row.reason, f"load balancer {row.title} {verb}: {row.message or row.reason}")
    if row.routes == 0:
        text = f"load balancer {row.title} has not reported a route yet"
        yield _Fault(Trouble.UNCONFIRMED, "NotReported", text)
    for kind, reason in served.refused.get(name, ()):
        trouble = Trouble.NOT_SERVING if kind == "route" else Trouble.ATTENTION
        yield _Fault(trouble, "Refused", f"{'not' if kind == 'route' else 'a rule is not'} served: {reason}")
    if (failing := served.failing.get(name)) is not None:
        whole = _sent_to(route) <= set(failing.backends)
        yield _Fault(Trouble.NOT_SERVING if whole else Trouble.ATTENTION, "NoHealthyTargets", failing.sentence)
    elif served.full:
        text = f"load balancer {row.title} has more failing routes than its status lists"
        yield _Fault(Trouble.UNCONFIRMED, "NotListed", text)
    if route.unresolved:
        yield _Fault(Trouble.ATTENTION, "BackendNotFound", "one of its backends is not a Service that can be used")
    for host in dict.fromkeys(_hosts(route)):
        if sentence := served.maintained.get(host, "") or served.maintained.get("", ""):
            yield _Fault(Trouble.ATTENTION, "Maintenance", sentence)


def _sent_to(route: LoadBalancerRoute) -> set[str]:
    rules = (rule for rule in route.spec.rules if rule.filters.redirect is None)
    return {share.backend for rule in rules for share in rule.backends if share.weight}


def _hosts(route: LoadBalancerRoute) -> Iterator[str]:
    return (host for attachment in route.spec.attachments for host in attachment.hostnames or ("",))


def route_row(
    key: RouteKey,
    routes: Sequence[LoadBalancerRoute],
    served: Mapping[str, ServedRoutes | None],
    tenant: Tenant | None,
    refusals: Sequence[ObjectFault] = (),
) -> RouteRow:
    """Return the row of one object; ``refusals`` are what the agent of its member rejects of it."""
    member = tenant.metadata.name if tenant is not None else ""
    by_route = [list(faults_of_route(route, served.get(route.spec.load_balancer))) for route in routes]
    faults = [fault for faults in by_route for fault in faults]
    worst = [worst_of(fault.trouble for fault in faults) for faults in by_route]
    state = worst_of(worst)
    if state is Trouble.NOT_SERVING and any(trouble is not Trouble.NOT_SERVING for trouble in worst):
        state = Trouble.ATTENTION  # some of its hosts are served
    # What is rejected is not served, unless an earlier version of it is.
    rejected = [Trouble.ATTENTION if routes else Trouble.NOT_SERVING] if refusals else []
    faults.sort(key=lambda fault: fault.trouble.rank)
    problems = dict.fromkeys((*(fault.sentence for fault in faults), *(fault.text for fault in refusals)))
    names = sorted({route.spec.load_balancer for route in routes})
    known = [served[name] for name in names]
    ref = ObjectRef(key.kind, key.namespace, key.name, member)
    title = (
        ref.path
        if key.kind in IN_MEMBERS
        else "/".join(filter(None, (key.kind.lower(), member, key.namespace, key.name)))
    )
    return RouteRow(
        id=str(key),
        state=worst_of((state, *rejected)),
        problems=tuple(problems),
        kind=key.kind,
        namespace=key.space,
        title=title,
        member=member,
        region=tenant.spec.region if tenant is not None else "",
        address=",".join(dict.fromkeys(entry.row.address for entry in known if entry and entry.row.address)),
        reason=faults[0].reason if faults else "Refused" if refusals else "Programmed",
        targets=_named(backend.service.rpartition("/")[2] for route in routes for backend in route.spec.backends),
        hosts=_named(host or "all hosts" for route in routes for host in _hosts(route)),
        load_balancers=tuple(f"HTTPLoadBalancer/{key.space}/{name}" for name in names),
        command=f"fairlead explain {title}" if key.kind in IN_MEMBERS else "",
    )


def _named(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(filter(None, names)))
    more = len(listed) - _NAMED
    return ", ".join(listed[:_NAMED]) + (f" and {more} more" if more > 0 else "")


class RouteRows(TableSource):
    """The table of Ingresses, routes and rejected objects; a key is a ``RouteKey``."""

    table = "route"

    def __init__(
        self, inventory: Inventory, routes: WatchCache[LoadBalancerRoute], load_balancers: WatchCache[HTTPLoadBalancer]
    ) -> None:
        self._inventory = inventory
        self._routes = routes
        self._load_balancers = load_balancers
        self._served: dict[ObjectKey, ServedRoutes] = {}

    def watch(self, changed: Callable[[Hashable], None]) -> None:
        """Call ``changed`` for each object whose routes, load balancers or rejections change."""

        def route_changed(old: LoadBalancerRoute | None, new: LoadBalancerRoute | None) -> None:
            for route in filter(None, (old, new)):
                changed(route.subject)

        def load_balancer_changed(old: HTTPLoadBalancer | None, new: HTTPLoadBalancer | None) -> None:
            lb = cast("HTTPLoadBalancer", new or old)
            self._served.pop(lb.key, None)
            if (touched := _touched(old, new)) is not None:
                key = LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, *lb.key)
                for route in filter(touched, self._routes.indexed("lb", key)):
                    changed(route.subject)

        def lease_changed(old: StampedLease | None, new: StampedLease | None) -> None:
            texts = [lease.annotation(ANNOTATION_REFUSED) if lease is not None else "" for lease in (old, new)]
            if texts[0] != texts[1]:
                for lease in filter(None, (old, new)):
                    for fault in self._refusals(lease):
                        changed(_key_of(lease.metadata.namespace, fault))

        self._routes.on_change(route_changed)
        self._load_balancers.on_change(load_balancer_changed)
        self._inventory.leases.on_change(lease_changed)

    def all_keys(self) -> Iterable[Hashable]:
        """Return the keys of all objects with a route, and of those that agents reject."""
        leases = (lease for lease in self._inventory.leases.values() if lease.metadata.name == AGENT_LEASE)
        rejected = (_key_of(lease.metadata.namespace, fault) for lease in leases for fault in self._refusals(lease))
        return list(dict.fromkeys((*(route.subject for route in self._routes.values()), *rejected)))

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the row of one."""
        wanted = cast("RouteKey", key)
        routes = self.routes_of(wanted)
        lease = self._inventory.leases.get(wanted.space, AGENT_LEASE)
        refusals = [fault for fault in self._refusals(lease) if _key_of(wanted.space, fault) == wanted] if lease else []
        if not routes and not refusals:
            return None
        served = {name: self._served_by(wanted.space, name) for name in {route.spec.load_balancer for route in routes}}
        row = route_row(wanted, routes, served, self._inventory.tenant_of(wanted.space), refusals)
        resource = TCP_LOAD_BALANCERS if wanted.kind == SERVICE else LOAD_BALANCER_ROUTES
        return VisibleItem(row, resource.plural, wanted.space)

    def forget(self) -> None:
        """Drop what was read from statuses."""
        self._served.clear()

    def routes_of(self, key: RouteKey) -> Sequence[LoadBalancerRoute]:
        """Return the routes of one object, ordered by name."""
        return self._routes.by_index("subject", key)

    def _served_by(self, space: str, name: str) -> ServedRoutes | None:
        key = ObjectKey(space, name)
        lb = self._load_balancers.get(space, name)
        if lb is None:
            self._served.pop(key, None)
            return None
        known = self._served.get(key)
        if known is None or known.lb is not lb:
            known = self._served[key] = ServedRoutes.of(lb)
        return known

    def _refusals(self, lease: StampedLease) -> list[ObjectFault]:
        """Return what an agent rejects, as its Lease lists it."""
        tenant = self._inventory.tenant_of(lease.metadata.namespace)
        if tenant is None or lease.metadata.name != AGENT_LEASE:
            return []
        row = member_row(tenant, lease, 0, datetime.fromtimestamp(0, UTC))
        return [fault for fault in refusal_faults([row], {tenant.namespace: lease}) if fault.name]


def _touched(old: HTTPLoadBalancer | None, new: HTTPLoadBalancer | None) -> Callable[[LoadBalancerRoute], bool] | None:
    """Return whether a change of a load balancer may change the row of a route; None: of no route, as for counts."""
    if old is None or new is None:
        return lambda _route: True
    before, after = ServedRoutes.of(old), ServedRoutes.of(new)
    names = _differing(before.refused, after.refused) | _differing(before.failing, after.failing)
    hosts = _differing(before.maintained, after.maintained)
    if before.of_all_routes != after.of_all_routes or "" in hosts:
        return lambda _route: True
    if not names and not hosts:
        return None
    return lambda route: route.metadata.name in names or not hosts.isdisjoint(_hosts(route))


def _differing(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    return {name for name in {**before, **after} if before.get(name) != after.get(name)}


def _key_of(space: str, fault: ObjectFault) -> RouteKey:
    return RouteKey(fault.kind, space, fault.namespace, fault.name)


#: More parts of one kind than that are counted, not drawn; those with a problem come first.
MOST_PARTS = 10


class ChainNode(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One part that requests pass; ``note`` says what is special about it, or what is wrong."""

    id: str
    text: str
    state: str = Trouble.NONE
    note: str = ""


class ChainColumn(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The parts of one kind, the worst first; ``more`` counts those that are not listed."""

    title: str
    nodes: tuple[ChainNode, ...]
    more: int = 0


class Chain(msgspec.Struct, frozen=True, rename="camel"):
    """What requests pass, from client to backend; ``links`` are pairs of ids of listed nodes."""

    columns: tuple[ChainColumn, ...]
    links: tuple[tuple[str, str], ...]


class ChainBackend(NamedTuple):
    """One backend that the hub has registered; ``behind`` is its listener, or the backend of routes that it is of."""

    behind: str
    address: str
    source: str
    trouble: Trouble
    note: str
    #: Of a GlobalService.
    member: str = ""


def chain_of(
    obj: Any,
    row: LoadBalancerRow,
    routes: Sequence[LoadBalancerRoute],
    backends: Sequence[ChainBackend],
    announced: Sequence[AnnouncedRow] = (),
) -> Chain:
    """Return the chain of a load balancer, or of some of its ``routes``."""
    by_backend: defaultdict[str, list[ChainBackend]] = defaultdict(list)
    for backend in backends:
        by_backend[backend.behind].append(backend)
    served = ServedRoutes.of(obj) if isinstance(obj, HTTPLoadBalancer) else None
    members = {each.tenant: each for each in global_status(obj).members or ()}
    if backends and not any(backend.member for backend in backends):
        # A class that only weighs backends does not say which member each is of.
        members = {}
    columns: list[tuple[str, list[ChainNode]]] = [("Clients", [ChainNode("clients", "Clients", row.state)])]
    links: list[tuple[str, str]] = []
    addresses = _addresses(obj, row, announced)
    columns.append(("Address", addresses))
    links += [("clients", node.id) for node in addresses]
    if served is not None:
        attached = {attachment.listener for route in routes for attachment in route.spec.attachments}
        of_listeners = {part.name: part.reason for part in served.lb.status.refused if part.kind == "listener"}
        open_listeners = [each for each in served.lb.spec.listeners if each.name in attached or not routes]
        listeners = [
            ChainNode(
                f"listener {each.name}",
                f"{each.protocol}/{each.port}",
                Trouble.NOT_SERVING if each.name in of_listeners or not row.programmed else Trouble.NONE,
                of_listeners.get(each.name, "") or each.hostname,
            )
            for each in open_listeners
        ]
        of_routes: list[ChainNode] = []
        services: dict[str, list[str]] = {}
        for route in routes:
            worst = min(faults_of_route(route, served), key=lambda fault: fault.trouble.rank, default=None)
            node = ChainNode(
                f"route {route.metadata.name}",
                f"{route.subject.kind} {'/'.join(filter(None, route.subject[2:]))}",
                worst.trouble if worst is not None else Trouble.NONE,
                worst.sentence if worst is not None else _named(host or "all hosts" for host in _hosts(route)),
            )
            of_routes.append(node)
            links += [(f"listener {each.listener}", node.id) for each in route.spec.attachments]
            sent_to = _sent_to(route)
            for backend in route.spec.backends:
                if backend.name in sent_to:
                    service = backend.service or backend.name
                    services.setdefault(service, []).append(backend.name)
                    links.append((node.id, f"service {service}"))
        columns += [("Listener", listeners), ("Route", of_routes)]
    else:
        ports = {behind: _trouble_of(parts) for behind, parts in by_backend.items()}
        for port in getattr(obj.spec, "ports", None) or getattr(obj.spec, "listeners", ()):
            ports.setdefault(f"{port.protocol}/{port.port}", Trouble.NONE if row.programmed else Trouble.NOT_SERVING)
        listeners = [ChainNode(f"listener {port}", port, trouble) for port, trouble in sorted(ports.items())]
        columns.append(("Listener", listeners))
        services = {name: sorted(by_backend) for name in members or (row.title,)}
        links += [(node.id, f"service {name}") for node in listeners for name in services]
    links += [(address.id, listener.id) for address in addresses for listener in listeners]
    of_services: list[ChainNode] = []
    targets: dict[str, ChainNode] = {}
    for service, names in services.items():
        member = members.get(service)
        listed = (part for name in dict.fromkeys(names) for part in by_backend[name])
        parts = [part for part in listed if member is None or part.member == service]
        trouble, note = _trouble_of(parts), "" if parts else "no backend"
        if member is not None:
            trouble = MEMBER_TROUBLES.get(member.state, Trouble.NONE)
            note = "; ".join(filter(None, (f"{share_in_words(member)}, tier {member.tier}", member.message)))
        of_services.append(ChainNode(f"service {service}", service, trouble, note))
        for part in parts:
            node = ChainNode(f"backend {part.address}", part.address, part.trouble, part.note or part.source)
            before = targets.get(node.id)
            if before is None or part.trouble.rank < Trouble(before.state).rank:
                targets[node.id] = node
            links.append((f"service {service}", node.id))
    columns += [("Members" if members else "Service", of_services), ("Backends", list(targets.values()))]
    if row.state in (Trouble.NOT_KNOWN, Trouble.UNCONFIRMED, Trouble.IDLE):
        # Nothing says that a part serves; the fault of a part is known all the same.
        replace = msgspec.structs.replace
        columns = [
            (title, [replace(node, state=row.state) if node.state == Trouble.NONE else node for node in nodes])
            for title, nodes in columns
        ]
    return _bounded(columns, links)


def _bounded(columns: Iterable[tuple[str, list[ChainNode]]], links: Iterable[tuple[str, str]]) -> Chain:
    kept: list[ChainColumn] = []
    for title, nodes in columns:
        nodes.sort(key=lambda node: Trouble(node.state).rank)
        kept.append(ChainColumn(title, tuple(nodes[:MOST_PARTS]), max(0, len(nodes) - MOST_PARTS)))
    listed = {node.id for column in kept for node in column.nodes}
    return Chain(tuple(kept), tuple(dict.fromkeys(link for link in links if listed.issuperset(link))))


def _addresses(obj: Any, row: LoadBalancerRow, announced: Sequence[AnnouncedRow]) -> list[ChainNode]:
    """Return the addresses of a load balancer, with the machines that announce them."""
    by_address = {each.address: each for each in announced}
    nodes: list[ChainNode] = []
    for address in obj.status.addresses:
        known = by_address.get(address)
        trouble, note = Trouble.NONE if row.programmed else Trouble.NOT_SERVING, ""
        if known is not None:
            note = known.problem or f"on {', '.join(known.machines)}"
            if known.problem:
                trouble = Trouble.ATTENTION if known.machines else Trouble.NOT_SERVING
        nodes.append(ChainNode(f"address {address}", address, trouble, note))
    if not nodes:
        nodes.append(ChainNode("address", "no address yet", Trouble.NOT_SERVING))
    return nodes


def _trouble_of(parts: Sequence[ChainBackend]) -> Trouble:
    """Return the trouble of a listener or Service with these backends: one good backend is enough to serve."""
    if not parts or all(part.trouble is Trouble.NOT_SERVING for part in parts):
        return Trouble.NOT_SERVING
    good = all(part.trouble is Trouble.NONE for part in parts)
    return Trouble.NONE if good else Trouble.ATTENTION
