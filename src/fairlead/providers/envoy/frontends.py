"""The load balancers of the provider with their targets, and the Envoy resources that a change concerns.

In: specs and target changes. Out: ``ResourceChange``s for the store, by group; outcomes with a sentence. It keeps the
targets of each listener, so that one changed target re-encodes that target only. No input or output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from ipaddress import ip_network
from itertools import product
from secrets import token_bytes

import msgspec
from msgspec.structs import replace

from fairlead.errors import Terminal
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.http import IdleBackends, differing_keys
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey, backend_key
from fairlead.model.observed import HealthTally, Seen
from fairlead.providers.envoy.clusters import TargetPort, is_dns_name
from fairlead.providers.envoy.connection_frontend import ConnectionFrontend
from fairlead.providers.envoy.connections import ConnectionsTo, Place
from fairlead.providers.envoy.fleet import Fleet
from fairlead.providers.envoy.http.frontend import HttpFrontend
from fairlead.providers.envoy.http.refused_routes import invalid_config
from fairlead.providers.envoy.resources import NAME_PART, Schema, cluster_name, is_backend_of, load_balancer_of
from fairlead.providers.envoy.settings import invalid_connections
from fairlead.providers.envoy.store import ResourceChange

#: The resources of one load balancer in its groups.
Serving = ConnectionFrontend | HttpFrontend
#: group, address, port, protocol: what only one listener can have.
Bind = tuple[str, str, int, Protocol]


class JudgedHealth(msgspec.Struct):
    """The health of one load balancer as it was judged last, and the listeners to judge again.

    ``basis`` is what it depends on as a whole; None for nothing that is known. ``listeners`` are those judged.
    """

    basis: object = None
    tally: HealthTally = msgspec.field(default_factory=HealthTally)
    checked: set[ListenerKey] = msgspec.field(default_factory=set[ListenerKey])
    moved: set[ListenerKey] = msgspec.field(default_factory=set[ListenerKey])
    ports: Mapping[ListenerKey, TargetPort] = {}
    idle: IdleBackends = msgspec.field(default_factory=IdleBackends)

    @property
    def listeners(self) -> bool:
        """Return whether the health of any listener counts."""
        return bool(len(self.tally))

    def take_moved(self, frontend: EnvoyFrontend) -> list[ListenerKey]:
        """Return the listeners of ``frontend`` to judge; those that do not count by now are forgotten."""
        ports = frontend.ports
        if ports is not self.ports:
            self.moved |= differing_keys(self.ports, ports)
            self.ports = ports
        before = self.idle.names
        idle = self.idle.update(frontend.spec.l7)
        self.moved |= set(map(backend_key, idle ^ before))
        moved, self.moved = self.moved, set()
        for key in moved:
            if key not in ports or key.backend in idle:
                self.tally.drop(key)
                self.checked.discard(key)
        return [key for key in moved if key in ports and key.backend not in idle]

    def put(self, key: ListenerKey, targets: Mapping[TargetKey, Sequence[Seen]], *, checked: bool) -> None:
        """Store what is seen of the targets of a listener."""
        self.tally.put(key, targets)
        if checked:
            self.checked.add(key)
        else:
            self.checked.discard(key)


class EnvoyFrontend(msgspec.Struct):
    """One load balancer; all its node groups have the same resources, each encoded once."""

    spec: FrontendSpec
    groups: tuple[str, ...]
    bind_addresses: tuple[str, ...]
    serving: Serving
    judged: JudgedHealth = msgspec.field(default_factory=JudgedHealth)
    #: Some targets that drain keep their connections for a limited time.
    limits_drains: bool = False

    @property
    def ports(self) -> Mapping[ListenerKey, TargetPort]:
        """Return the ports that targets may be registered behind."""
        return self.serving.ports

    @property
    def opened(self) -> int:
        """Return the number of listeners: each port at each address."""
        return len(self.spec.listeners) * len(self.bind_addresses)

    def place_of(self, listener: ListenerKey, target: TargetKey) -> Place:
        """Return where its proxies have connections to a target of a listener."""
        return (self.ports[listener].name, ConnectionsTo(target, self.spec.shares_of(listener) is not None))


def _changes(
    frontend: EnvoyFrontend | None, change: Callable[[HttpFrontend], list[ResourceChange]]
) -> dict[str, list[ResourceChange]]:
    """Change an HTTP load balancer, and return what differs in each of its node groups; others are left alone."""
    if frontend is None or not isinstance(frontend.serving, HttpFrontend):
        return {}
    return dict.fromkeys(frontend.groups, change(frontend.serving))


class EnvoyFrontends:
    """All load balancers of this provider."""

    def __init__(self, *, schema: Schema, fleet: Fleet) -> None:
        self._schema = schema
        self._fleet = fleet
        #: Seals the sessions of clients. All hubs of an API share one; that of a lone process is its own.
        self.session_key = token_bytes(32)
        self._frontends: dict[LoadBalancerKey, EnvoyFrontend] = {}
        self._binds: dict[Bind, LoadBalancerKey] = {}
        self._listener_counts: dict[str, int] = {}

    def get(self, key: LoadBalancerKey) -> EnvoyFrontend | None:
        """Return one load balancer."""
        return self._frontends.get(key)

    def _owner(self, name: str) -> EnvoyFrontend | None:
        """Return the load balancer that has a resource of this name."""
        key = load_balancer_of(name)
        return self._frontends.get(key) if key is not None else None

    def port(self, name: str) -> tuple[FrontendSpec, ListenerKey, TargetPort] | None:
        """Return the targets whose cluster has this name, with their key and their load balancer."""
        frontend = self._owner(name)
        if frontend is None:
            return None
        if is_backend_of(frontend.spec.key, name):
            at = backend_key(name.removeprefix(cluster_name(frontend.spec.key, "")))
            return (frontend.spec, at, frontend.ports[at]) if at in frontend.ports else None
        if frontend.spec.l7 is not None:
            return None
        return next(((frontend.spec, at, port) for at, port in frontend.ports.items() if port.name == name), None)

    def groups_of(self, name: str) -> tuple[str, ...]:
        """Return the node groups that have a resource of this name."""
        frontend = self._owner(name)
        return frontend.groups if frontend is not None else ()

    def wants(self, group: str, name: str) -> bool:
        """Return whether a load balancer in this group has a resource of this name."""
        frontend = self._owner(name)
        return frontend is not None and group in frontend.groups and name in frontend.serving.labels

    def in_group(self, group: str) -> list[LoadBalancerKey]:
        """Return the load balancers of a group."""
        return [key for key, frontend in self._frontends.items() if group in frontend.groups]

    def places_of(self, targets: Collection[TargetKey], groups: Collection[str]) -> Iterator[tuple[Place, bool]]:
        """Yield each place of these targets at the proxies of these groups, and whether the target drains there."""
        for frontend in self._frontends.values():
            if set(groups).isdisjoint(frontend.groups):
                continue
            for listener, port in frontend.ports.items():
                for target in port.targets.among(targets):
                    yield frontend.place_of(listener, target.key), target.draining

    def ensure(self, spec: FrontendSpec) -> dict[str, list[ResourceChange]]:
        """Store a frontend, keeping the targets of listeners that stay; ``Terminal`` says what is wrong with it."""
        groups, addresses = self._fleet.groups_of(spec), self._fleet.bind_addresses(spec)
        old = self._frontends.get(spec.key)
        self._check(spec, groups, addresses, old)
        left = [group for group in old.groups if group not in groups] if old is not None else []
        changes = dict.fromkeys(left, old.serving.removal() if old is not None and left else [])
        # A group that joins gets what has not changed from the store.
        kind = ConnectionFrontend if spec.l7 is None else partial(HttpFrontend, session_key=self.session_key)
        serving: Serving = (
            old.serving
            if old is not None and old.groups
            else kind(self._schema, self._fleet, spec, ports=old.ports if old is not None else None)
        )
        changes |= dict.fromkeys(groups, serving.update(spec, bind_addresses=addresses))
        if old is not None:
            self._forget(old)
        judged = old.judged if old is not None else JudgedHealth()
        self._store(EnvoyFrontend(spec, groups, addresses, serving, judged, _limits_drains(spec, old)))
        return changes

    def apply(self, targets: Iterable[TargetChange]) -> tuple[dict[str, list[ResourceChange]], list[Outcome]]:
        """Store target changes; the outcomes are in the order of the changes."""
        outcomes: list[Outcome] = []
        #: Each touched listener with whether its targets were inline, by load balancer.
        touched: dict[LoadBalancerKey, dict[ListenerKey, bool]] = {}
        for change in targets:
            frontend = self._frontends.get(change.load_balancer)
            port = frontend.ports.get(change.listener) if frontend is not None else None
            if frontend is None or port is None:
                missing = f"{change.load_balancer} has no listener {change.listener} yet"
                gone = change.action is Action.DEREGISTER
                outcomes.append(DONE if gone else Outcome(OutcomeStatus.RETRY, missing))
                continue
            was_inline = port.inline
            outcome, changed = _apply_target(change, port)
            outcomes.append(outcome)
            if changed:
                touched.setdefault(change.load_balancer, {}).setdefault(change.listener, was_inline)
                frontend.judged.moved.add(change.listener)
        changes: dict[str, list[ResourceChange]] = {}
        for key, listeners in touched.items():
            frontend = self._frontends[key]
            resources = frontend.serving.target_changes(listeners)
            for group in frontend.groups:
                changes.setdefault(group, []).extend(resources)
        return changes, outcomes

    def answered_by_proxy(self, name: str, version: str, refusal: str) -> dict[str, list[ResourceChange]]:
        """Record that a proxy accepted or rejected a version of a resource of a load balancer."""
        # The last good version of a port's resources stays as a whole.
        if refusal:
            return _changes(self._owner(name), lambda http: http.refused_by_proxy(name, version, refusal))
        return _changes(self._owner(name), lambda http: http.accepted_by_proxy(name, version))

    def resumed_from_proxy(self, name: str, version: str) -> dict[str, list[ResourceChange]]:
        """Record the version of a resource that a proxy has, possibly from an earlier hub."""
        return _changes(self._owner(name), lambda http: http.resumed_from_proxy(name, version))

    def release(self, key: LoadBalancerKey, backends: frozenset[str]) -> dict[str, list[ResourceChange]]:
        """Serve load balancers that wait for targets of these backends without them."""
        return _changes(self._frontends.get(key), lambda http: http.release(backends))

    def fleet_changed(self, key: LoadBalancerKey) -> dict[str, list[ResourceChange]]:
        """Return the resource changes after the fleet has changed how it serves a load balancer."""
        return _changes(self._frontends.get(key), HttpFrontend.fleet_changed)

    def delete(self, key: LoadBalancerKey) -> dict[str, list[ResourceChange]]:
        """Delete a load balancer; an unknown one needs no change."""
        old = self._frontends.get(key)
        if old is None:
            return {}
        self._forget(old)
        return dict.fromkeys(old.groups, old.serving.removal())

    def _check(
        self, spec: FrontendSpec, groups: tuple[str, ...], addresses: tuple[str, ...], old: EnvoyFrontend | None
    ) -> None:
        if not addresses:
            raise Terminal(f"{spec.key}: no address is assigned", reason=ConditionReason.ADDRESS_NOT_ASSIGNED)
        settings = invalid_connections(spec.parameters) if spec.l7 is None else invalid_config(spec, spec.l7)
        reasons = [*invalid_spec(spec, bind_addresses=addresses), *settings]
        if reasons:
            raise Terminal(f"{spec.key}: {'; '.join(reasons)}", reason=ConditionReason.INVALID)
        for group, address, listener in product(groups, addresses, spec.listeners):
            holder = self._binds.get((group, address, listener.bind_port, listener.protocol), spec.key)
            if holder != spec.key:
                raise Terminal(
                    f"{spec.key}: {address} port {listener.protocol}/{listener.bind_port} belongs to {holder}; "
                    "choose another port or address",
                    reason=ConditionReason.PORT_CONFLICT,
                )
        opened = len(spec.listeners) * len(addresses)
        for group in groups:
            before = old.opened if old is not None and group in old.groups else 0
            if opened > before:
                listeners = self._listener_counts.get(group, 0) - before + opened
                refused = self._fleet.refuse(group=group, listeners=listeners)
                if refused:
                    raise Terminal(f"{spec.key}: {refused}", reason=ConditionReason.QUOTA_EXCEEDED)

    def _store(self, frontend: EnvoyFrontend) -> None:
        self._frontends[frontend.spec.key] = frontend
        for group in frontend.groups:
            self._listener_counts[group] = self._listener_counts.get(group, 0) + frontend.opened
        for bind in _binds(frontend):
            self._binds[bind] = frontend.spec.key

    def _forget(self, frontend: EnvoyFrontend) -> None:
        del self._frontends[frontend.spec.key]
        for group in frontend.groups:
            self._listener_counts[group] -= frontend.opened
        for bind in _binds(frontend):
            del self._binds[bind]


def _limits_drains(spec: FrontendSpec, old: EnvoyFrontend | None) -> bool:
    if spec.l7 is None:
        return spec.drain_s is not None
    if any(shares.drain_s is not None for shares in spec.backend_shares.values()):
        return True
    if old is not None and old.spec.l7 is not None and old.spec.l7.backends is spec.l7.backends:
        return old.limits_drains
    return any(backend.drain for backend in spec.l7.backends)


def _binds(frontend: EnvoyFrontend) -> list[Bind]:
    return [
        (group, address, listener.bind_port, listener.protocol)
        for group, address, listener in product(frontend.groups, frontend.bind_addresses, frontend.spec.listeners)
    ]


def _apply_target(change: TargetChange, port: TargetPort) -> tuple[Outcome, bool]:
    """Apply one change; the second value is whether anything changed."""
    target = change.target
    if change.action is Action.DEREGISTER:
        return DONE, port.drop(target.key)
    if change.action in {Action.ENSURE, Action.DELETE}:
        return Outcome(OutcomeStatus.REJECTED, f"{change.action} concerns load balancers, not targets"), False
    reason = invalid_target(target)
    if reason:
        return Outcome(OutcomeStatus.REJECTED, reason), False
    if change.action is Action.DRAIN:
        target = replace(target, draining=True)
    return DONE, port.put(target)


_DNS_NAME = re.compile(
    r"(?=.{1,253}\.?$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
    r"(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?"
)
_LOOKS_NUMERIC = re.compile(r"[0-9.]+")
_MAX_WEIGHT = 65_535


def invalid_spec(spec: FrontendSpec, *, bind_addresses: Collection[str]) -> list[str]:
    """Return the errors in a load balancer, one sentence each; empty if it is valid."""
    reasons = [
        f"{what} {part!r} is not a valid name"
        for what, part in zip(("kind", "namespace", "name"), spec.key, strict=True)
        if not NAME_PART.fullmatch(part)
    ]
    if not spec.listeners:
        reasons.append("no ports; at least one is required")
    keys = [listener.key for listener in spec.listeners]
    reasons += [f"port {key} is listed twice" for key in sorted({key for key in keys if keys.count(key) > 1})]
    binds = [(listener.protocol, listener.bind_port) for listener in spec.listeners]
    if len(set(keys)) == len(keys):
        reasons += [
            f"two ports would share the proxy port {protocol}/{port}"
            for protocol, port in sorted({bind for bind in binds if binds.count(bind) > 1})
        ]
    for listener in spec.listeners:
        reasons += [
            f"port {port} of {listener.key} is not in 1..65535"
            for port in sorted({listener.port, listener.bind_port})
            if not 1 <= port <= 65_535
        ]
    if not bind_addresses:
        reasons.append("no address is assigned")
    reasons += [
        f"address {address!r} is not an IP address"
        for address in bind_addresses
        if "%" in address or is_dns_name(address)
    ]
    reasons += [
        f"source range {text!r} is not a CIDR such as 10.0.0.0/8" for text in spec.source_ranges if not _is_cidr(text)
    ]
    if (check := spec.health_check) is not None:
        if check.interval_s < 0.01 or check.timeout_s < 0.01:
            reasons.append("health check interval and timeout must be 10 ms or more")
        if check.unhealthy_threshold < 1 or check.healthy_threshold < 1:
            reasons.append("health check thresholds must be 1 or more")
    return reasons


def invalid_target(target: Target) -> str:
    """Return the error in a target; empty if it is valid."""
    address, port = target.key
    if not 1 <= port <= 65_535:
        return f"target {target.key}: port {port} is not in 1..65535"
    # A zone ("fe80::1%eth0") means something on one machine only.
    if "%" in address or (
        is_dns_name(address) and (_LOOKS_NUMERIC.fullmatch(address) or not _DNS_NAME.fullmatch(address))
    ):
        return f"target {target.key}: {address!r} is neither an IP address nor a DNS name"
    if not 0 <= target.weight <= _MAX_WEIGHT:
        return f"target {target.key}: weight {target.weight} is not in 0..{_MAX_WEIGHT}"
    return ""


def _is_cidr(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True
