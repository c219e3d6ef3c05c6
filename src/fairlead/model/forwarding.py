"""The load balancers that the kernel of a proxy machine forwards, as the hub sends them, and the machine's answer.

    hub ──ForwardingTable──► machine    all load balancers, or those that changed since a version that the machine has
    hub ◄─ForwardingState─── machine    the version that its kernel follows, and the targets that do not answer

The values say what is to be forwarded where. The rules of the kernel follow on the machine, from these and its own
health checks. Changes exist because one changed pod must not send thousands of load balancers to every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from fairlead.model.keys import Protocol
from fairlead.model.machine import MachineValue

#: The nftables table of a machine that translates the sources of pods.
EGRESS_TABLE = "inet fairlead_egress"


class ForwardedTarget(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A backend of a port. ``draining``: it keeps its connections and gets no new ones."""

    address: str
    port: int
    weight: int = 1
    draining: bool = False


class ForwardedPort(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A port of a load balancer with its backends, which are of any family."""

    protocol: Protocol
    port: int
    targets: tuple[ForwardedTarget, ...] = ()


class ForwardedLoadBalancer(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One load balancer: ``namespace/name``, with ``kind`` the whole key.

    ``keep_client``: backends see the client's address, so their replies must come back through this machine.
    ``checked``: the machine connects to its TCP targets, and takes out those that do not answer.
    """

    kind: str
    name: str
    addresses: tuple[str, ...] = ()
    ports: tuple[ForwardedPort, ...] = ()
    affinity: bool = False
    keep_client: bool = False
    checked: bool = True

    @property
    def key(self) -> str:
        """Return the identity of the load balancer as one text."""
        return f"{self.kind}/{self.name}"


class EgressIdentity(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An address with which connections of ``sources`` leave the machine that announces it.

    Their source ports are ``first_port`` to ``last_port``, at which no load balancer of the address listens.
    """

    address: str
    sources: tuple[str, ...]
    first_port: int
    last_port: int


class ForwardingTable(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """All load balancers of one machine (``whole``), or what changed since the version that it asked with.

    ``removed`` and ``kept`` are keys. The hub cannot read those that are ``kept``, or a part of them: the machine keeps
    what it has. A machine without one of them takes the part that is in ``load_balancers``.
    ``egress`` are all identities, also where the rest is a change; None for those that the machine has. The hub does
    not know the identities of addresses in ``kept_egress``: the machine keeps the sources that have no other identity.
    """

    version: str
    whole: bool = True
    load_balancers: tuple[ForwardedLoadBalancer, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    egress: tuple[EgressIdentity, ...] | None = None
    kept_egress: tuple[str, ...] = ()

    def egress_after(self, before: Sequence[EgressIdentity]) -> tuple[EgressIdentity, ...]:
        """Return the identities of a machine that had those of ``before``."""
        if self.egress is None:
            return () if self.whole else tuple(before)
        new = {identity.address: identity for identity in self.egress}
        owned = {source for identity in self.egress for source in identity.sources}
        for identity in before:
            sources = tuple(source for source in identity.sources if source not in owned)
            if identity.address in self.kept_egress and identity.address not in new and sources:
                new[identity.address] = replace(identity, sources=sources)
        return tuple(identity for _, identity in sorted(new.items()))

    def applied_to(self, entries: Mapping[str, ForwardedLoadBalancer]) -> dict[str, ForwardedLoadBalancer]:
        """Return the load balancers by key of a machine that had ``entries``."""
        new = {each.key: each for each in self.load_balancers}
        if self.whole:
            return new | {key: entries[key] for key in self.kept if key in entries}
        after = {**entries, **new}
        for key in self.removed:
            after.pop(key, None)
        return after


def target_name(protocol: Protocol, address: str, port: int) -> str:
    """Return the name of a target in a state."""
    return f"{protocol} {address} {port}"
