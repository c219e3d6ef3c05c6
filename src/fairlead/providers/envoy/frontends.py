"""Which load balancers are there, with which targets, and what does a wish change for Envoy?

In: specs and target changes. Out: ``Change``s for the store, by group; outcomes with a sentence. It remembers the
targets of each listener, so that one changed target re-encodes that target only. No input or output.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.errors import Terminal
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.providers.envoy.clusters import is_dns_name
from fairlead.providers.envoy.endpoints import EndpointSet
from fairlead.providers.envoy.fleet import Fleet
from fairlead.providers.envoy.names import resource_name
from fairlead.providers.envoy.schema import Schema
from fairlead.providers.envoy.store import Change
from fairlead.providers.envoy.translate import cluster_change, endpoints_change, listener_change, removal
from fairlead.providers.envoy.validate import invalid_spec, invalid_target

#: group, address, port, protocol: what only one listener can have.
Bind = tuple[str, str, int, Protocol]


class Port(msgspec.Struct):
    """One listener with its targets. ``dns_names`` are those that Envoy must resolve itself."""

    name: str
    listener: Listener
    targets: EndpointSet
    dns_names: set[TargetKey] = msgspec.field(default_factory=set[TargetKey])

    @property
    def inline(self) -> bool:
        """Say whether the targets must be inside the cluster."""
        return bool(self.dns_names)


class Frontend(msgspec.Struct):
    """One load balancer."""

    spec: FrontendSpec
    group: str
    bind_address: str
    ports: dict[ListenerKey, Port]

    def names(self) -> list[str]:
        """Return the names of its resources."""
        return [port.name for port in self.ports.values()]


class Frontends:
    """All load balancers of this provider."""

    def __init__(self, *, schema: Schema, fleet: Fleet) -> None:
        self._schema = schema
        self._fleet = fleet
        self._known: dict[LoadBalancerKey, Frontend] = {}
        self._binds: dict[Bind, LoadBalancerKey] = {}
        self._listeners: dict[str, int] = {}

    def get(self, key: LoadBalancerKey) -> Frontend | None:
        """Return one load balancer."""
        return self._known.get(key)

    def in_group(self, group: str) -> list[LoadBalancerKey]:
        """Return the load balancers of a group."""
        return [key for key, frontend in self._known.items() if frontend.group == group]

    def ensure(self, spec: FrontendSpec) -> dict[str, list[Change]]:
        """Take over a frontend, keeping the targets of listeners that stay; ``Terminal`` says what is wrong with it."""
        group, address = self._fleet.group_of(spec), self._fleet.bind_address(spec)
        old = self._known.get(spec.key)
        self._check(spec, group, address, old)
        changes: dict[str, list[Change]] = {group: []}
        kept = old.ports if old is not None and old.group == group else {}
        moved = old.ports if old is not None else {}
        ports: dict[ListenerKey, Port] = {}
        for listener in spec.listeners:
            before = moved.get(listener.key)
            port = Port(resource_name(spec.key, listener.key), listener, EndpointSet())
            if before is not None:
                port.targets, port.dns_names = before.targets, before.dns_names
            ports[listener.key] = port
            changes[group] += self._port_changes(spec, port, address)
        if old is not None:
            gone = [port.name for key, port in old.ports.items() if kept is not old.ports or key not in ports]
            changes.setdefault(old.group, []).extend(change for name in gone for change in removal(name))
            self._forget(old)
        self._remember(Frontend(spec, group, address, ports))
        return changes

    def apply(self, rows: Iterable[TargetChange]) -> tuple[dict[str, list[Change]], list[Outcome]]:
        """Take over target changes; the outcomes are in the order of the rows."""
        outcomes: list[Outcome] = []
        touched: dict[str, tuple[Frontend, Port, bool]] = {}
        for row in rows:
            frontend = self._known.get(row.load_balancer)
            port = frontend.ports.get(row.listener) if frontend is not None else None
            if frontend is None or port is None:
                outcomes.append(_absent(row))
                continue
            was_inline = touched[port.name][2] if port.name in touched else port.inline
            outcome, changed = _apply_row(row, port)
            outcomes.append(outcome)
            if changed:
                touched[port.name] = (frontend, port, was_inline)
        changes: dict[str, list[Change]] = {}
        for frontend, port, was_inline in touched.values():
            found = changes.setdefault(frontend.group, [])
            if was_inline or port.inline:
                found.append(
                    cluster_change(self._schema, frontend.spec, port.listener, port.targets, inline=port.inline)
                )
            found.append(endpoints_change(port.name, port.targets, inline=port.inline))
        return changes, outcomes

    def delete(self, key: LoadBalancerKey) -> dict[str, list[Change]]:
        """Forget a load balancer; there is nothing to do when it is not known."""
        old = self._known.get(key)
        if old is None:
            return {}
        self._forget(old)
        return {old.group: [change for name in old.names() for change in removal(name)]}

    def _port_changes(self, spec: FrontendSpec, port: Port, address: str) -> list[Change]:
        # Where clients hide behind a node's address, their ranges are checked in front of the proxy, not here.
        seen = spec if self._fleet.sees_clients(spec) else msgspec.structs.replace(spec, source_ranges=())
        return [
            cluster_change(self._schema, spec, port.listener, port.targets, inline=port.inline),
            endpoints_change(port.name, port.targets, inline=port.inline),
            listener_change(self._schema, seen, port.listener, bind_address=address, reuse_port=self._fleet.reuse_port),
        ]

    def _check(self, spec: FrontendSpec, group: str, address: str, old: Frontend | None) -> None:
        if not address:
            raise Terminal(f"{spec.key}: no address is assigned", reason=ConditionReason.ADDRESS_NOT_ASSIGNED)
        reasons = invalid_spec(spec, bind_address=address)
        if reasons:
            raise Terminal(f"{spec.key}: {'; '.join(reasons)}", reason=ConditionReason.INVALID)
        for listener in spec.listeners:
            holder = self._binds.get((group, address, listener.bind_port, listener.protocol), spec.key)
            if holder != spec.key:
                raise Terminal(
                    f"{spec.key}: {address} port {listener.protocol}/{listener.bind_port} belongs to {holder}; "
                    "choose another port or address",
                    reason=ConditionReason.PORT_CONFLICT,
                )
        before = len(old.ports) if old is not None and old.group == group else 0
        if len(spec.listeners) > before:
            listeners = self._listeners.get(group, 0) - before + len(spec.listeners)
            refused = self._fleet.refuse(group=group, listeners=listeners)
            if refused:
                raise Terminal(f"{spec.key}: {refused}", reason=ConditionReason.QUOTA_EXCEEDED)

    def _remember(self, frontend: Frontend) -> None:
        self._known[frontend.spec.key] = frontend
        self._listeners[frontend.group] = self._listeners.get(frontend.group, 0) + len(frontend.ports)
        for bind in _binds(frontend):
            self._binds[bind] = frontend.spec.key

    def _forget(self, frontend: Frontend) -> None:
        del self._known[frontend.spec.key]
        self._listeners[frontend.group] -= len(frontend.ports)
        for bind in _binds(frontend):
            del self._binds[bind]


def _binds(frontend: Frontend) -> list[Bind]:
    return [
        (frontend.group, frontend.bind_address, listener.bind_port, listener.protocol)
        for listener in frontend.spec.listeners
    ]


def _absent(row: TargetChange) -> Outcome:
    if row.action is Action.DEREGISTER:
        return DONE
    return Outcome(OutcomeStatus.RETRY, f"{row.load_balancer} has no listener {row.listener} yet")


def _apply_row(row: TargetChange, port: Port) -> tuple[Outcome, bool]:
    """Apply one row; the second value says whether anything changed."""
    target = row.target
    if row.action is Action.DEREGISTER:
        port.dns_names.discard(target.key)
        return DONE, port.targets.drop(target.key)
    if row.action in {Action.ENSURE, Action.DELETE}:
        return Outcome(OutcomeStatus.REJECTED, f"{row.action} concerns load balancers, not targets"), False
    reason = invalid_target(target)
    if reason:
        return Outcome(OutcomeStatus.REJECTED, reason), False
    if row.action is Action.DRAIN:
        target = msgspec.structs.replace(target, draining=True)
    if is_dns_name(target.key.address):
        port.dns_names.add(target.key)
    return DONE, port.targets.put(target)
