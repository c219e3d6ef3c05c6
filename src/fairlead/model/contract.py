"""The protocol of a provider: the only interface between the core and any load balancer.

Everything is idempotent and safe to repeat; not-found on delete is success; ``apply`` answers per item and verifies
effects, not return codes. A provider never decides what should be there, and changes only what it was asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from fairlead.model.change import BackendFacts, Outcome, TargetChange
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.keys import Protocol as TransportProtocol
from fairlead.model.observed import Ensured, Observed, Seen


class AllocationKind(StrEnum):
    """What the hub must allocate, and record, before this provider can be asked for a load balancer."""

    NONE = "None"
    #: One address from the hub's pool for each load balancer.
    ADDRESS = "Address"
    #: One port on the group's shared proxies for each listener.
    PROXY_PORT = "ProxyPort"


class Capabilities(msgspec.Struct, frozen=True):
    """The capabilities of a provider; the core checks these and never a provider's name."""

    protocols: frozenset[TransportProtocol] = frozenset({TransportProtocol.TCP})
    allocation: AllocationKind = AllocationKind.NONE
    ipv6: bool = False
    host_name_targets: bool = False
    #: It connects from the hub's own machine: a name that leads to loopback leads to the hub itself.
    on_hub_machine: bool = False
    source_ranges: bool = False
    affinity: bool = False
    proxy_protocol: bool = False
    weights: bool = False
    #: The types of health checks that users may set. Empty: those of a class are all that there are.
    health_checks: frozenset[str] = frozenset()
    #: Users may set when failing targets are left out (``FrontendSpec.outlier_detection``).
    outlier_detection: bool = False
    #: It shares connections between members by weight and tier (``FrontendSpec.shares``), by its own health checks.
    localities: bool = False
    #: Users may limit what their load balancers take (parameter ``limits``).
    limits: bool = False
    #: Clients may come with a header of the PROXY protocol (parameter ``acceptProxyProtocol``).
    accepts_proxy_protocol: bool = False
    #: It speaks TLS to targets (``FrontendSpec.backend_tls``).
    backend_tls: bool = False
    #: It routes requests (``FrontendSpec.l7``), not only connections.
    l7: bool = False
    #: It publishes names: its targets are the records of Hostnames, and its zones are those of DNSZones.
    publishes_names: bool = False
    #: The provider supports TXT records, too.
    publishes_texts: bool = True
    #: ``ensure`` of what it does not have makes nothing, so that nothing needs to be on record before it is called.
    ensure_only_asks: bool = False
    #: It makes its own address of a backend, so a change names the object behind the one that we know.
    generates_addresses: bool = False
    #: Parameters that only a class may set: with whom we speak, and as whom. A name that ends in a dot is a
    #: prefix.
    class_parameters: frozenset[str] = frozenset()
    #: Parameters of a class that name something at the other end that others may have, too, with placeholders such as
    #: {member}. A name that ends in a dot is a prefix.
    place_parameters: frozenset[str] = frozenset()
    #: The most target changes that one ``apply`` takes; 0 means no limit.
    max_batch: int = 0
    #: One ``apply`` about several load balancers is cheaper than one for each of them.
    batches_span_load_balancers: bool = False
    #: True when we serve the provider's whole state ourselves, so that a lost ledger costs nothing.
    serves_whole_state: bool = False


#: The capabilities of a provider that has every feature of a load balancer.
EVERY_FEATURE = Capabilities(
    protocols=frozenset(TransportProtocol),
    ipv6=True,
    host_name_targets=True,
    source_ranges=True,
    affinity=True,
    proxy_protocol=True,
    weights=True,
    health_checks=frozenset({"tcp", "http", "grpc"}),
    outlier_detection=True,
    localities=True,
    limits=True,
    accepts_proxy_protocol=True,
    backend_tls=True,
    l7=True,
)


class Provider(Protocol):
    """One kind of load balancer.

    Errors: ``errors.Retry`` for a failure that may be temporary, ``errors.Terminal`` for one that a user must fix. Both
    concern the whole call; what concerns single items is in their ``Outcome``.
    """

    @property
    def capabilities(self) -> Capabilities:
        """Return what this provider can do; constant over its life."""
        ...

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` whenever the result of ``observe`` changes for a load balancer."""
        ...

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Create or update the frontend as in ``spec``; registered targets stay. Returns its addresses."""
        ...

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Apply target changes, all or some; the answers are in the order of the changes."""
        ...

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Read one load balancer back from the provider; None when it does not exist there."""
        ...

    async def delete(self, key: LoadBalancerKey) -> None:
        """Delete the load balancer, or only our entries of a shared one; no error if it does not exist."""
        ...


@runtime_checkable
class Restorable(Protocol):
    """A provider that needs to know, after a restart, what an earlier process had ensured."""

    def restore(self, spec: FrontendSpec, info: Mapping[str, str]) -> None:
        """Restore a load balancer and the ``Ensured.info`` that was stored for it; makes no request."""
        ...


class RestoredBackend(NamedTuple):
    """One backend that is on record as registered, or as draining (then its target says so)."""

    listener: ListenerKey
    target: Target
    facts: BackendFacts


@runtime_checkable
class RestoresBackends(Protocol):
    """A provider that cannot ask which entries are ours, and so is given them after a restart."""

    def restore_backends(self, key: LoadBalancerKey, backends: Sequence[RestoredBackend]) -> None:
        """Restore backends of a load balancer that was restored; makes no request.

        Called once with all of them, and again with each that another process registers later.
        """
        ...


@runtime_checkable
class WorksWhileLeading(Protocol):
    """A provider with work of its own, which only the leader does."""

    async def work(self) -> None:
        """Work until cancelled; called once a provider has started, in each term of leadership."""
        ...


@runtime_checkable
class Releasable(Protocol):
    """A provider that remembers load balancers: one that already existed is released, and never deleted."""

    def release(self, key: LoadBalancerKey) -> None:
        """Drop all that is remembered of it, since the next of that name is another one; makes no request."""
        ...


@runtime_checkable
class Reachable(Protocol):
    """A provider that can try, before anything is recorded, whether the other side takes a connection.

    Else a hub that is killed before its first call would leave the record of a call that was never made.
    """

    async def reach(self, spec: FrontendSpec) -> None:
        """Return once this load balancer could be asked for; ``Retry`` when it cannot. Asks for nothing."""
        ...


@runtime_checkable
class KeepsUnread(Protocol):
    """A provider whose whole state the hub serves: what the hub has never read is kept by the data plane alone."""

    def keep(self, key: LoadBalancerKey, *, unread: bool) -> None:
        """Leave there what it has of a load balancer that is ``unread``, or whose targets are; or no longer.

        What this process has read before is not concerned. Makes no request.
        """
        ...


@runtime_checkable
class SeesHealth(Protocol):
    """A provider that knows which targets pass their health check now, without a request."""

    def seen_of(self, key: LoadBalancerKey, listener: ListenerKey, target: TargetKey) -> Seen:
        """Return the health of one target: ``UNCHECKED`` without a check, ``SILENT`` while no proxy reports."""
        ...


@runtime_checkable
class FailureDomains(Protocol):
    """A provider behind which several parties answer, each on its own: one that hangs holds up no other."""

    def failure_domain(self, spec: FrontendSpec) -> str:
        """Return what answers for this load balancer; any text, the same for the same party. Never fails."""
        ...


@runtime_checkable
class Lifecycle(Protocol):
    """A provider with a life of its own: connections, or a watch on the load balancer."""

    async def start(self) -> None:
        """Start watching; called once, before everything else."""
        ...

    async def close(self) -> None:
        """Close connections and stop tasks; registered targets stay."""
        ...


@runtime_checkable
class Validates(Protocol):
    """A provider that validates a user's object before anything is made of it."""

    async def validate(self, spec: FrontendSpec, *, old: FrontendSpec | None = None) -> None:
        """Raise ``Terminal`` with the provider's own message when it refuses."""
        ...

    async def validate_backends(
        self,
        spec: FrontendSpec,
        *,
        backend_type: str,
        parameters: Mapping[str, str],
        old_parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Raise ``Terminal`` when it refuses backends (Pod, Service or Static) with these parameters."""
        ...


@runtime_checkable
class ValidatesClasses(Protocol):
    """A provider that can say of a class, before any load balancer uses it, that its parameters are wrong."""

    def class_problem(self, parameters: Mapping[str, str]) -> str:
        """Return the wrong parameter of a class and what to write instead; empty if all are valid; asks no server."""
        ...


@runtime_checkable
class PodRetention(Protocol):
    """A provider that can decide which pods that are not ready are kept."""

    async def judge_pods(
        self, parameters: Mapping[str, str], pods: Sequence[Mapping[str, object]]
    ) -> frozenset[tuple[str, str]]:
        """Return (namespace, name) of those to keep; an error is the caller's ``failurePolicy``."""
        ...


class Ledger(Protocol):
    """The durable memory of what was, or may have been, done at a provider.

    ``record`` returns only once the intent is stored; the provider is called after that; ``settle`` stores what
    came of it. A crash between any two of these loses nothing. ``ensuring`` and ``ensured`` are the same for the
    load balancer itself.
    """

    async def ensuring(self, spec: FrontendSpec) -> None:
        """Store that the provider is about to be called for this load balancer."""
        ...

    async def ensured(self, spec: FrontendSpec, answer: Ensured) -> None:
        """Store the provider's answer."""
        ...

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop the records of a deleted load balancer; the next of that name is another one."""
        ...

    async def record(self, spec: FrontendSpec, changes: Sequence[TargetChange]) -> Sequence[TargetChange | Outcome]:
        """Store that these changes are about to be made; the answers are in the order of the changes.

        A change comes back with what is known of it added. An ``Outcome`` says that the provider must not be called
        for it: its intent could not be stored, or nothing is left to do.
        """
        ...

    async def settle(
        self, spec: FrontendSpec, changes: Sequence[TargetChange], outcomes: Sequence[Outcome]
    ) -> Sequence[Outcome]:
        """Store the outcomes, item by item; items that could not be stored are returned for a retry."""
        ...
