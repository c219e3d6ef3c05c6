"""One load balancer in detail: its conditions since when, its backends, its routes, what is held, and its history.

In: the caches and the memory of a running hub. Out: ``Detail``. Never: targets' parameters, or a credential.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from fairlead.api.backendgroup import BackendRecord
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, LoadBalancerRoute
from fairlead.api.meta import WireCondition
from fairlead.hub.inspect.debug import KeyState, ProviderState
from fairlead.hub.inventory import Inventory
from fairlead.ledger.held import held_changes
from fairlead.ledger.wire import listener_of, target_of
from fairlead.model.change import HistoryEntry
from fairlead.model.desired import Target
from fairlead.model.http import RequestMatch, Rule
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Seen
from fairlead.status.formatting import actions_of, match_text, reason_text
from fairlead.status.plan_rows import source_of
from fairlead.sync.tracker import Registered

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
    conditions: list[ConditionItem]
    providers: list[ProviderState]
    history: list[HistoryEntry]
    backends: list[BackendItem] = msgspec.field(default_factory=list[BackendItem])
    more_backends: int = 0
    routes: list[RouteItem] = msgspec.field(default_factory=list[RouteItem])
    more_routes: int = 0
    held: list[HeldItem] = msgspec.field(default_factory=list[HeldItem])
    more_held: int = 0


def detail_of(
    key: LoadBalancerKey,
    state: KeyState | None,
    inventory: Inventory,
    registered: Mapping[Place, RegisteredStatus] | None = None,
) -> Detail | None:
    """Return the detail of ``key``, None when nothing is known of it.

    ``registered`` are the targets that the hub has at the provider.
    """
    objects = inventory.intents.get(key.kind)
    obj: Any = objects.cache.get(key.namespace, key.name) if objects is not None else None
    if obj is None and state is None:
        return None
    backends = list(_backends(registered or {}, inventory.records.by_index("lb", key)))
    routes = _routes(key, obj, inventory)
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
        source = source_of(target) if target is not None else ""
        if record is not None:
            state = "Deregistering" if record.deleting else record.status.state or "Pending"
            why = record.status.message or (reason_text(record.status.reason) if record.status.reason else "")
            yield BackendItem(listener, address, source, state, record.status.since or "", why)
        elif standing is not None:
            yield BackendItem(listener, address, source, standing.state, standing.since, standing.why)


def _routes(key: LoadBalancerKey, obj: Any, inventory: Inventory) -> list[tuple[LoadBalancerRoute, str]]:
    """Return the routes of a load balancer with why each is not served; those that are not come first."""
    cache = inventory.caches.get(LOAD_BALANCER_ROUTES.plural)
    if key.kind != HTTP_LOAD_BALANCERS.kind or cache is None:
        return []
    refused: dict[str, str] = {}
    for part in obj.status.refused if obj is not None else ():
        if part.kind in ("route", "rule"):
            refused[part.name] = "; ".join(filter(None, (refused.get(part.name), part.reason)))
    named = [
        route
        for route in cache.values()
        if route.metadata.namespace == key.namespace and route.spec.load_balancer == key.name
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
