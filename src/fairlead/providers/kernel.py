"""Load balancers that the kernels of proxy machines forward: what each machine gets, and what it has answered.

    ensure, apply ──► load balancers ──► table of a machine, whole or what changed since its version
    pods that leave with an address ──► every table
    reports of machines ──► acknowledged versions and targets that do not answer ──► observe

For TCP and UDP only: a packet gets another destination, and nothing reads what is in it. The hub keeps the load
balancers in memory, as for Envoy; machines keep the last table on disk. No table is sent before the hub has read
everything, and what it cannot read stays at the machines as it is.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from fairlead.errors import Terminal
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import AllocationKind, Capabilities
from fairlead.model.desired import Affinity, FrontendSpec, Target
from fairlead.model.in_words import listed
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.model.machine import (
    EgressIdentity,
    ForwardedLoadBalancer,
    ForwardedPort,
    ForwardedTarget,
    ForwardingState,
    ForwardingTable,
    target_name,
)
from fairlead.model.observed import Ensured, Health, Observed, Seen, health_of
from fairlead.runtime.clock import Clock

CLIENT_ADDRESS = "clientAddress"
_KEEP, _REPLACE = "Keep", "Replace"
CAPABILITIES = Capabilities(
    protocols=frozenset(Protocol),
    allocation=AllocationKind.ADDRESS,
    ipv6=True,
    affinity=True,
    weights=True,
    class_parameters=frozenset({CLIENT_ADDRESS}),
    serves_whole_state=True,
)
#: A machine that has not reported for so long holds nothing back.
SILENT_S = 20.0
_NOT_CHECKED = "the kernel does not check UDP targets, and the class may have turned checks off"


class _Forwarded:
    def __init__(self, spec: FrontendSpec) -> None:
        self.spec = spec
        self.targets: dict[ListenerKey, dict[TargetKey, Target]] = {}

    def forwarded(self) -> ForwardedLoadBalancer:
        """Return it as a machine gets it."""
        spec = self.spec
        return ForwardedLoadBalancer(
            kind=spec.key.kind,
            name=f"{spec.key.namespace}/{spec.key.name}",
            addresses=spec.addresses,
            ports=tuple(
                ForwardedPort(
                    protocol=listener.protocol,
                    port=listener.port,
                    targets=tuple(
                        ForwardedTarget(
                            address=key.address, port=key.port, weight=target.weight, draining=target.draining
                        )
                        for key, target in sorted(self.targets.get(listener.key, {}).items())
                    ),
                )
                for listener in spec.listeners
            ),
            affinity=spec.affinity is Affinity.CLIENT_IP,
            keep_client=spec.parameters.get(CLIENT_ADDRESS) == _KEEP,
            checked=spec.health_check is not None,
        )


class _Kernel(msgspec.Struct):
    """What a machine has answered: the number of the change that its kernel has, and when it was heard."""

    number: int = -1
    unhealthy: frozenset[str] = frozenset()
    problem: str = ""
    heard_s: float = float("-inf")


class KernelProvider:
    """Load balancers in the kernels of proxy machines."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._load_balancers: dict[LoadBalancerKey, _Forwarded] = {}
        #: The number of the last change of each load balancer that is or was there; the newest last.
        self._numbers: dict[LoadBalancerKey, int] = {}
        self._number = 0
        #: Numbers of another process mean other changes.
        self._life = secrets.token_hex(6)
        self._kept: set[LoadBalancerKey] = set()
        self._machines: dict[str, _Kernel] = {}
        self._published = False
        #: The addresses with which pods leave, and the number of their last change.
        #: All identities, and the addresses whose identities are unknown.
        self._egress: tuple[tuple[EgressIdentity, ...], tuple[str, ...]] = ((), ())
        self._egress_number = 0
        #: The machine of this hub, where load balancers without a recorded machine are; empty for none.
        self.own_machine = ""
        self._news = asyncio.Event()
        self._notify: list[Callable[[LoadBalancerKey], None]] = []

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Do nothing: machines ask."""

    def publish(self) -> None:
        """Answer machines from now on: everything has been read once."""
        self._published = True
        self._wake()

    async def close(self) -> None:
        """Do nothing: the kernels keep their rules."""

    # --- the Provider protocol --------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """Return what the kernel can do."""
        return CAPABILITIES

    def class_problem(self, parameters: Mapping[str, str]) -> str:
        """Return which parameter of a class is wrong; empty when none is."""
        if unknown := sorted(parameters.keys() - {CLIENT_ADDRESS}):
            return (
                f"parameters.{unknown[0]} is not known to provider kernel, which has {CLIENT_ADDRESS} only; remove it"
            )
        value = parameters.get(CLIENT_ADDRESS, _REPLACE)
        if value not in (_KEEP, _REPLACE):
            return (
                f"parameters.{CLIENT_ADDRESS} is {value[:20]!r}; write {_KEEP}, where replies of the targets come back "
                f"through the proxy machine, or {_REPLACE}"
            )
        return ""

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` with each load balancer that ``observe`` reports differently."""
        self._notify.append(notify)

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Forward the ports of the load balancer; ``Terminal`` for a check that the machines cannot make."""
        if spec.health_check is not None and spec.health_check.request is not None:
            raise Terminal(
                f"{spec.key}: provider kernel checks that a target accepts connections, and asks for no path; use a "
                "LoadBalancerClass with provider envoy",
                reason=ConditionReason.INVALID,
            )
        forwarded = self._load_balancers.get(spec.key)
        if forwarded is None:
            forwarded = self._load_balancers[spec.key] = _Forwarded(spec)
        elif forwarded.spec == spec:
            return Ensured(spec.addresses)
        forwarded.spec = spec
        listeners = {listener.key for listener in spec.listeners}
        forwarded.targets = {key: targets for key, targets in forwarded.targets.items() if key in listeners}
        self._changed(spec.key)
        return Ensured(spec.addresses)

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Change targets; the machines have them some milliseconds later (``observe`` says when)."""
        outcomes = [self._apply(change) for change in changes]
        for key in dict.fromkeys(change.load_balancer for change in changes):
            if key in self._load_balancers:
                self._changed(key)
        return outcomes

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Return what the machines that were heard lately have."""
        load_balancer = self._load_balancers.get(key)
        if load_balancer is None:
            return None
        machines = self._heard(load_balancer)
        number = self._numbers[key]
        with_it = [name for name, machine in machines.items() if machine.number >= number]
        problems = [f"machine {name}: {machine.problem}" for name, machine in machines.items() if machine.problem]
        return Observed(
            addresses=load_balancer.spec.addresses,
            programmed=bool(machines) and len(with_it) == len(machines),
            proxies=len(machines),
            acknowledged=len(with_it),
            rejected="; ".join(problems),
            message=_message(self._machines_of(load_balancer), machines, with_it),
            data_path=_data_path(load_balancer),
            health=self._health(load_balancer, machines, with_it),
        )

    async def delete(self, key: LoadBalancerKey) -> None:
        """Stop forwarding; established connections end after a while."""
        self._kept.discard(key)
        if self._load_balancers.pop(key, None) is not None:
            self._changed(key)

    def keep(self, key: LoadBalancerKey, *, unread: bool) -> None:
        """Have the machines keep what they have of ``key`` and this hub has not read since it started."""
        if unread:
            if key not in self._load_balancers or not self._published:
                self._kept.add(key)
        elif key in self._kept:
            self._kept.discard(key)
            if key in self._load_balancers:
                self._changed(key)

    def seen_of(self, key: LoadBalancerKey, listener: ListenerKey, target: TargetKey) -> Seen:
        """Return what the machines see of one target."""
        load_balancer = self._load_balancers.get(key)
        if load_balancer is None:
            return Seen.UNCHECKED
        registered = load_balancer.targets.get(listener, {}).get(target)
        if registered is None or registered.draining:
            return Seen.WAITING
        machines = self._heard(load_balancer)
        seen = [self._seen(load_balancer, listener, target, machine) for machine in machines.values()]
        if not seen:
            return Seen.SILENT
        return next((kind for kind in (Seen.UNHEALTHY, Seen.WAITING, Seen.HEALTHY) if kind in seen), Seen.UNCHECKED)

    # --- the machines -----------------------------------------------------------------------------------------

    async def table(self, machine: str, after: str, *, wait_s: float) -> ForwardingTable | None:
        """Return the table of a machine once its version is not ``after``; None when that takes too long."""
        end_s = self._clock.monotonic() + wait_s
        while True:
            news = self._news
            if self._published and (table := self._table(machine, after)) is not None:
                return table
            try:
                async with asyncio.timeout(max(0.0, end_s - self._clock.monotonic())):
                    await news.wait()
            except TimeoutError:
                return None

    def set_egress(self, identities: tuple[EgressIdentity, ...], *, kept: tuple[str, ...] = ()) -> None:
        """Have pods leave with these addresses; packets arrive at the machine that announces one, so all have them.

        Machines keep the pods that they have of the addresses in ``kept``.
        """
        if (identities, kept) != self._egress:
            self._egress = (identities, kept)
            self._number += 1
            self._egress_number = self._number
            self._wake()

    def reported(self, machine: str, state: ForwardingState | None) -> None:
        """Take in what a machine says of its kernel; None: its release has no kernel data path."""
        known, now_s = self._machines.setdefault(machine, _Kernel()), self._clock.monotonic()
        state = state or ForwardingState(
            problem="this release has no kernel data path; upgrade the machine, or use a class with provider envoy"
        )
        was_silent, known.heard_s = now_s - known.heard_s >= SILENT_S, now_s
        number, unhealthy = self._number_of(state.version), frozenset(state.unhealthy)
        if not was_silent and (number, unhealthy, state.problem) == (known.number, known.unhealthy, known.problem):
            return
        known.number, known.unhealthy, known.problem = number, unhealthy, state.problem
        for key, load_balancer in self._load_balancers.items():
            if machine in self._machines_of(load_balancer):
                self._notify_about(key)

    def machines(self) -> frozenset[str]:
        """Return no machine: Envoy's connection shows whether one is there."""
        return frozenset()

    def machines_with(self, key: LoadBalancerKey) -> frozenset[str]:
        """Return the machines whose kernel has all of a load balancer."""
        load_balancer = self._load_balancers.get(key)
        if load_balancer is None:
            return frozenset()
        heard = self._heard(load_balancer)
        return frozenset(name for name, machine in heard.items() if machine.number >= self._numbers[key])

    def is_here(self, key: LoadBalancerKey) -> bool:
        """Return whether the hub's own machine forwards a load balancer that has no recorded machine."""
        load_balancer = self._load_balancers.get(key)
        return bool(self.own_machine and load_balancer is not None and "" in (load_balancer.spec.machines or ("",)))

    # --- inside -----------------------------------------------------------------------------------------------

    def _apply(self, change: TargetChange) -> Outcome:
        load_balancer = self._load_balancers.get(change.load_balancer)
        if load_balancer is None or all(listener.key != change.listener for listener in load_balancer.spec.listeners):
            if change.is_removal:
                return DONE
            text = f"{change.load_balancer} has no listener {change.listener}; it must be ensured again"
            return Outcome(OutcomeStatus.RETRY, text)
        targets = load_balancer.targets.setdefault(change.listener, {})
        if change.action is Action.DEREGISTER:
            targets.pop(change.key, None)
        elif change.action is Action.DRAIN:
            if change.key in targets:
                targets[change.key] = replace(change.target, draining=True)
        else:
            targets[change.key] = change.target
        return DONE

    def _changed(self, key: LoadBalancerKey) -> None:
        self._number += 1
        self._numbers.pop(key, None)
        self._numbers[key] = self._number
        self._wake()
        self._notify_about(key)

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _notify_about(self, key: LoadBalancerKey) -> None:
        for notify in self._notify:
            notify(key)

    def _table(self, machine: str, after: str) -> ForwardingTable | None:
        version = f"{self._life}-{self._number}"
        since = self._number_of(after)
        if since == self._number:
            return None
        keys: Iterable[LoadBalancerKey] = self._load_balancers if since < 0 else self._since(since)
        mine: list[ForwardedLoadBalancer] = []
        removed: list[str] = []
        for key in keys:
            if since >= 0 and key in self._kept:
                continue
            load_balancer = self._load_balancers.get(key)
            if load_balancer is not None and machine in self._machines_of(load_balancer):
                mine.append(load_balancer.forwarded())
            elif since >= 0:
                removed.append(str(key))
        if since < 0:
            kept = tuple(map(str, sorted(self._kept)))
            table = ForwardingTable(version=version, load_balancers=tuple(mine), kept=kept)
        else:
            table = ForwardingTable(version=version, whole=False, load_balancers=tuple(mine), removed=tuple(removed))
        if self._egress_number <= since:
            return table
        identities, kept_addresses = self._egress
        return replace(table, egress=identities, kept_egress=kept_addresses)

    def _since(self, number: int) -> list[LoadBalancerKey]:
        keys: list[LoadBalancerKey] = []
        for key, changed in reversed(self._numbers.items()):
            if changed <= number:
                break
            keys.append(key)
        return keys

    def _number_of(self, version: str) -> int:
        """Return the number of a version of this process; -1 of any other."""
        life, _, number = version.rpartition("-")
        return int(number) if life == self._life and number.isdigit() else -1

    def _machines_of(self, load_balancer: _Forwarded) -> list[str]:
        names = {name or self.own_machine for name in load_balancer.spec.machines or ("",)}
        return sorted(names - {""})

    def _heard(self, load_balancer: _Forwarded) -> dict[str, _Kernel]:
        now_s = self._clock.monotonic()
        machines = {name: self._machines.get(name) for name in self._machines_of(load_balancer)}
        return {
            name: machine
            for name, machine in machines.items()
            if machine is not None and now_s - machine.heard_s < SILENT_S
        }

    def _seen(self, load_balancer: _Forwarded, listener: ListenerKey, target: TargetKey, machine: _Kernel) -> Seen:
        if listener.protocol is not Protocol.TCP or load_balancer.spec.health_check is None:
            return Seen.UNCHECKED
        if target_name(listener.protocol, target.address, target.port) in machine.unhealthy:
            return Seen.UNHEALTHY
        return Seen.HEALTHY if machine.number >= self._numbers[load_balancer.spec.key] else Seen.WAITING

    def _health(self, load_balancer: _Forwarded, machines: Mapping[str, _Kernel], with_it: Sequence[str]) -> Health:
        reporting = [machines[name] for name in with_it]
        if not reporting:
            return Health(reason=ConditionReason.WAITING_FOR_FIRST_CHECK, message="no proxy machine forwards it yet")
        views = {
            listener.key: {
                key: [self._seen(load_balancer, listener.key, key, machine) for machine in reporting]
                for key, target in load_balancer.targets.get(listener.key, {}).items()
                if target.weight and not target.draining
            }
            for listener in load_balancer.spec.listeners
        }
        return health_of(views, not_checked=_NOT_CHECKED)


def _message(assigned: Sequence[str], machines: Mapping[str, _Kernel], with_it: Sequence[str]) -> str:
    """Return why it is not programmed everywhere; empty when it is."""
    if not assigned:
        return "provider kernel needs a proxy machine, and none is assigned yet; add one with: fairlead proxy token"
    if not machines:
        return f"the hub does not hear {listed(assigned, 3)}, which forward it in the kernel"
    if waiting := sorted(machines.keys() - set(with_it)):
        return f"the kernel of {listed(waiting, 3)} does not have it yet"
    return ""


def _data_path(load_balancer: _Forwarded) -> str:
    keeps = load_balancer.spec.parameters.get(CLIENT_ADDRESS) == _KEEP
    whose = "the client's address" if keeps else "the address of the load balancer or of a machine"
    return f"Forwarded by the kernel of proxy machines; targets see {whose}"
