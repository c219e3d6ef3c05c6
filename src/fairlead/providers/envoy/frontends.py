"""Which load balancers are there, with which targets, and which Envoy resources does a change concern?

In: specs and target changes. Out: ``ResourceChange``s for the store, by group; outcomes with a sentence. It keeps the
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
from fairlead.providers.envoy.store import ResourceChange
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
        """Return whether the targets must be inside the cluster."""
        return bool(self.dns_names)


class Frontend(msgspec.Struct):
    """One load balancer."""

    spec: FrontendSpec
    group: str
    bind_address: str
    ports: dict[ListenerKey, Port]


class EnvoyFrontends:
    """All load balancers of this provider."""

    def __init__(self, *, schema: Schema, fleet: Fleet) -> None:
        self._schema = schema
        self._fleet = fleet
        self._frontends: dict[LoadBalancerKey, Frontend] = {}
        self._binds: dict[Bind, LoadBalancerKey] = {}
        self._listener_counts: dict[str, int] = {}

    def get(self, key: LoadBalancerKey) -> Frontend | None:
        """Return one load balancer."""
        return self._frontends.get(key)

    def in_group(self, group: str) -> list[LoadBalancerKey]:
        """Return the load balancers of a group."""
        return [key for key, frontend in self._frontends.items() if frontend.group == group]

    def ensure(self, spec: FrontendSpec) -> dict[str, list[ResourceChange]]:
        """Store a frontend, keeping the targets of listeners that stay; ``Terminal`` says what is wrong with it."""
        group, address = self._fleet.group_of(spec), self._fleet.bind_address(spec)
        old = self._frontends.get(spec.key)
        self._check(spec, group, address, old)
        changes: dict[str, list[ResourceChange]] = {group: []}
        old_ports = old.ports if old is not None else {}
        ports: dict[ListenerKey, Port] = {}
        for listener in spec.listeners:
            port = Port(resource_name(spec.key, listener.key), listener, EndpointSet())
            if (before := old_ports.get(listener.key)) is not None:
                port.targets, port.dns_names = before.targets, before.dns_names
            ports[listener.key] = port
            changes[group] += self._port_changes(spec, port, address)
        if old is not None:
            moved = old.group != group
            gone = [port.name for key, port in old.ports.items() if moved or key not in ports]
            changes.setdefault(old.group, []).extend(change for name in gone for change in removal(name))
            self._forget(old)
        self._store(Frontend(spec, group, address, ports))
        return changes

    def apply(self, targets: Iterable[TargetChange]) -> tuple[dict[str, list[ResourceChange]], list[Outcome]]:
        """Store target changes; the outcomes are in the order of the changes."""
        outcomes: list[Outcome] = []
        touched: dict[str, tuple[Frontend, Port, bool]] = {}
        for change in targets:
            frontend = self._frontends.get(change.load_balancer)
            port = frontend.ports.get(change.listener) if frontend is not None else None
            if frontend is None or port is None:
                outcomes.append(_without_listener(change))
                continue
            was_inline = touched[port.name][2] if port.name in touched else port.inline
            outcome, changed = _apply_target(change, port)
            outcomes.append(outcome)
            if changed:
                touched[port.name] = (frontend, port, was_inline)
        changes: dict[str, list[ResourceChange]] = {}
        for frontend, port, was_inline in touched.values():
            in_group = changes.setdefault(frontend.group, [])
            if was_inline or port.inline:
                in_group.append(
                    cluster_change(self._schema, frontend.spec, port.listener, port.targets, inline=port.inline)
                )
            in_group.append(endpoints_change(port.name, port.targets, inline=port.inline))
        return changes, outcomes

    def delete(self, key: LoadBalancerKey) -> dict[str, list[ResourceChange]]:
        """Forget a load balancer; one that is not known needs no change."""
        old = self._frontends.get(key)
        if old is None:
            return {}
        self._forget(old)
        return {old.group: [change for port in old.ports.values() for change in removal(port.name)]}

    def _port_changes(self, spec: FrontendSpec, port: Port, address: str) -> list[ResourceChange]:
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
            listeners = self._listener_counts.get(group, 0) - before + len(spec.listeners)
            refused = self._fleet.refuse(group=group, listeners=listeners)
            if refused:
                raise Terminal(f"{spec.key}: {refused}", reason=ConditionReason.QUOTA_EXCEEDED)

    def _store(self, frontend: Frontend) -> None:
        self._frontends[frontend.spec.key] = frontend
        self._listener_counts[frontend.group] = self._listener_counts.get(frontend.group, 0) + len(frontend.ports)
        for bind in _binds(frontend):
            self._binds[bind] = frontend.spec.key

    def _forget(self, frontend: Frontend) -> None:
        del self._frontends[frontend.spec.key]
        self._listener_counts[frontend.group] -= len(frontend.ports)
        for bind in _binds(frontend):
            del self._binds[bind]


def _binds(frontend: Frontend) -> list[Bind]:
    return [
        (frontend.group, frontend.bind_address, listener.bind_port, listener.protocol)
        for listener in frontend.spec.listeners
    ]


def _without_listener(change: TargetChange) -> Outcome:
    if change.action is Action.DEREGISTER:
        return DONE
    return Outcome(OutcomeStatus.RETRY, f"{change.load_balancer} has no listener {change.listener} yet")


def _apply_target(change: TargetChange, port: Port) -> tuple[Outcome, bool]:
    """Apply one change; the second value is whether anything changed."""
    target = change.target
    if change.action is Action.DEREGISTER:
        port.dns_names.discard(target.key)
        return DONE, port.targets.drop(target.key)
    if change.action in {Action.ENSURE, Action.DELETE}:
        return Outcome(OutcomeStatus.REJECTED, f"{change.action} concerns load balancers, not targets"), False
    reason = invalid_target(target)
    if reason:
        return Outcome(OutcomeStatus.REJECTED, reason), False
    if change.action is Action.DRAIN:
        target = msgspec.structs.replace(target, draining=True)
    if is_dns_name(target.key.address):
        port.dns_names.add(target.key)
    return DONE, port.targets.put(target)
