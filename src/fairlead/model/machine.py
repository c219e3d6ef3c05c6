"""The plan of a proxy machine, which the hub sends it, and the report that the machine sends back.

    hub ──MachinePlan──► machine    the addresses it may announce, how, and the machines that may announce them, too
    hub ◄─MachineReport─ machine    what it announces now, its proxy, its sessions and what is wrong with it

Both are whole states, never changes: a plan that was missed costs nothing, and the machine keeps the last one on disk.
What the proxy of a machine serves is not in the plan: it comes over xDS. What its kernel forwards is a table:

    hub ──ForwardingTable──► machine    all load balancers, or those that changed since a version that the machine has
    hub ◄─ForwardingState─── machine    the version that its kernel follows, and the targets that do not answer

The values say what is to be forwarded where. The rules of the kernel follow on the machine, from these and its own
health checks. Changes exist because one changed pod must not send thousands of load balancers to every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from fairlead.model.keys import Protocol

Announcement = Literal["L2", "BGP", "External", "None"]

_Asn = Annotated[int, Meta(ge=1, le=4_294_967_295)]
_Port = Annotated[int, Meta(ge=1, le=65_535)]


def fingerprint_of(authorities: str) -> str:
    """Return the fingerprint of a hub's authorities (PEM), as the command that joins a machine has it."""
    return f"sha256:{sha256(authorities.encode()).hexdigest()}"


class MachineValue(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of a plan or a report, JSON in camelCase. Unknown fields are ignored, for other releases."""


class BgpAttributes(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The attributes of an announced route. Communities are ``65000:1``, large ones ``65000:1:2``."""

    communities: tuple[str, ...] = ()
    local_preference: int | None = None
    med: int | None = None
    prepend: Annotated[int, Meta(ge=0, le=16)] = 0
    #: The prefix that is announced in place of the address while one address in it serves, as a CIDR.
    aggregate: str = ""
    #: The names of the BGPPeers that get the route; all of the machine when empty.
    peers: tuple[str, ...] = ()


class AnnouncedAddress(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One address of one family, and how it is announced.

    ``machines`` are those that may announce it, in the order of the recorded placement: with L2 the first one that
    is alive owns it, with BGP all announce it. ``load_balancers`` are ``namespace/name``, for messages.
    """

    address: str
    announcement: Announcement = "None"
    machines: tuple[str, ...] = ()
    load_balancers: tuple[str, ...] = ()
    #: Interfaces that it may be announced on; those of its subnet when empty.
    interfaces: tuple[str, ...] = ()
    #: L2: watch the other machines ten times a second in place of five.
    fast: bool = False
    bgp: BgpAttributes | None = None
    #: Withdraw the route where the proxy sees no healthy target.
    withdraw_when_unhealthy: bool = False
    #: The last machine withdraws its route, too, when it sees no healthy target.
    anycast: bool = False
    #: The machine that keeps its route without a healthy target, chosen by the hub; every machine when empty.
    keeper: str = ""
    #: The first and last source port of connections that leave with the address; empty where none do.
    egress_ports: tuple[int, ...] = ()

    def may_announce(self, machine: str, *, listening: bool, healthy: bool) -> bool:
        """Return whether ``machine`` may announce the address while its proxy is in this state.

        ``listening``: the proxy is alive and opened the listeners; ``healthy``: it sees a healthy target. Of the
        machines that see none, the keeper still announces: only the hub knows all machines, and without a hub its last
        decision holds, so that they cannot all withdraw because one backend died.
        """
        if not listening or healthy or not self.withdraw_when_unhealthy:
            return listening
        return not self.anycast and self.keeper in ("", machine)


class Neighbour(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Another machine, and its own addresses on its links, without prefix length."""

    name: str
    addresses: tuple[str, ...] = ()
    drained: bool = False


class BgpPeerPlan(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A router that the machine has a session with: by ``address``, or by link-local address on ``interface``."""

    name: str
    asn: _Asn
    local_asn: _Asn
    address: str = ""
    interface: str = ""
    port: _Port = 179
    password: str = ""
    hold_s: Annotated[int, Meta(ge=3, le=65_535)] = 90
    bfd: bool = False
    #: Milliseconds between two packets of BFD; a session is down after three that were missed.
    bfd_interval_ms: Annotated[int, Meta(ge=10, le=10_000)] = 100
    #: How many hops away the router may be; 1 is the same link.
    hops: Annotated[int, Meta(ge=1, le=255)] = 1
    ttl_security: bool = False
    graceful_restart: bool = False
    #: The hub cannot read the password now: the machine continues with the last one that it got.
    keep_password: bool = False

    def __repr__(self) -> str:
        """Keep the password out of logs and tracebacks."""
        return f"BgpPeerPlan({self.name!r})"


class EnvoyUpgrade(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The Envoy that a machine changes to now: it is drained, and restarts its Envoy with another binary.

    ``requested`` identifies the upgrade. ``binary`` is a path on the machine, the installed one when empty;
    with ``version`` the machine refuses an Envoy of another version.
    """

    requested: str
    binary: str = ""
    version: str = ""


class MachinePlan(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """All that a machine does besides serving what its proxy gets over xDS.

    ``version`` differs whenever anything else does. ``epoch`` grows with each leader of the hub, and a machine
    that takes an address over sends its own; ``drained`` withdraws everything.
    """

    machine: str
    version: str
    epoch: int = 0
    group: str = ""
    drained: bool = False
    addresses: tuple[AnnouncedAddress, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    bgp_peers: tuple[BgpPeerPlan, ...] = ()
    #: The HTTPS ``host:port`` of all hubs; the machine asks another one when one does not answer or does not lead.
    hubs: tuple[str, ...] = ()
    #: Secret that machines of a group share to sign the packets by which they watch each other, as hexadecimal digits.
    link_key: str = ""
    upgrade: EnvoyUpgrade | None = None

    def __repr__(self) -> str:
        """Keep the key out of logs and tracebacks."""
        return f"MachinePlan({self.machine!r}, {self.version!r})"


class AddressState(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a machine does with one address now.

    ``problem`` is a sentence: why it is not announced here although it should be; ``reason`` is its PascalCase word.
    ``mac`` is that of our interface; ``other_mac`` of another host that answers for the address. ``trigger`` is the
    word for the kind of ``cause``, one of ``Trigger``.
    """

    address: str
    announced: bool
    interface: str = ""
    mac: str = ""
    other_mac: str = ""
    epoch: int = 0
    #: Seconds since the epoch of Unix at which ``announced`` last changed, and why.
    since: float = 0.0
    cause: str = ""
    trigger: str = ""
    reason: str = ""
    problem: str = ""


class Trigger(StrEnum):
    """The kind of event that made a machine begin, or cease, to announce an address."""

    UNKNOWN = "Unknown"
    #: No machine owned the address.
    VACANT = "Vacant"
    #: The owner failed.
    OWNER_SILENT = "OwnerSilent"
    #: The owner gave the address up: a planned move, a drain, or its proxy does not serve.
    OWNER_YIELDED = "OwnerYielded"
    #: The address was announced before the process of the machine was started again.
    ADOPTED = "Adopted"
    SESSION_UP = "SessionUp"
    ROUTED = "Routed"
    #: Another machine owns the address with a later claim.
    LATER_CLAIM = "LaterClaim"
    ISOLATED = "Isolated"
    LINK_DOWN = "LinkDown"
    NOT_PLANNED = "NotPlanned"
    NOT_SERVING = "NotServing"
    #: A machine that comes first in the plan can serve again.
    BETTER_RANKED = "BetterRanked"
    STOPPED = "Stopped"
    DRAINED = "Drained"
    SPEAKER_FAILED = "SpeakerFailed"
    NO_SESSION = "NoSession"


#: The triggers of take-overs from another machine.
FAILOVERS = (Trigger.OWNER_SILENT, Trigger.OWNER_YIELDED)


class SessionState(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A session with a router: ``state`` as the speaker calls it, ``up`` when routes are exchanged.

    ``next_hop`` is the machine's own address in the session, to which the router sends packets.
    """

    peer: str
    state: str
    up: bool = False
    since: float = 0.0
    announced: int = 0
    bfd: str = ""
    next_hop: str = ""
    problem: str = ""


class ProxyState(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The proxy of a machine. ``refused`` are sentences of listeners that it could not open, by ``address:port``.

    ``upgrade`` is the last upgrade that has ended, ``upgrade_problem`` why it failed: the former Envoy runs then.
    """

    alive: bool = False
    version: str = ""
    listeners: int = 0
    refused: tuple[str, ...] = ()
    synced: bool = False
    upgrade: str = ""
    upgrade_problem: str = ""


class LinkState(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A network interface of a machine: its own addresses with prefix length, and whether it is up."""

    name: str
    mac: str = ""
    up: bool = True
    addresses: tuple[str, ...] = ()
    #: Machines that are heard on this interface.
    hears: tuple[str, ...] = ()


class ConnectionSyncState(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How far another machine has the open connections of this one; ``peer`` is its address.

    ``connections`` are open here, ``waiting`` messages were not confirmed yet, and ``lost`` ones had to be sent again.
    """

    peer: str
    connections: int = 0
    waiting: int = 0
    lost: int = 0


class ForwardingState(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the kernel of a machine follows: the ``version`` of a table, with everything that it says.

    ``unhealthy`` are targets that do not answer the machine, by ``target_name``. ``problem`` is a sentence: why the
    kernel does not follow the newest table. ``egress`` are the addresses with which sources leave here.
    ``connections``: None where they are not synchronized.
    """

    version: str = ""
    unhealthy: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    problem: str = ""
    connections: ConnectionSyncState | None = None


class DrainState(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The targets of a load balancer that drain at the proxy of a machine, and the connections that they still have.

    ``load_balancer`` is ``kind/namespace/name``; ``since`` is when the first began, in seconds since 1970.
    """

    load_balancer: str
    targets: int = 0
    connections: int = 0
    since: float = 0.0


class CountedTraffic(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What one proxy process has counted for a load balancer, or a backend of it, since its start.

    ``active`` is of now; ``requests`` are the answers by class of status, 1xx to 5xx; ``failed`` as in ``Totals``.
    """

    load_balancer: Annotated[str, Meta(pattern="^[^/]+/[^/]+/.+$")]
    backend: str = ""
    connections: int = 0
    active: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    failed: int = 0


class ProcessTraffic(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The counts of one proxy process that changed lately. ``process`` is its name, ``uptime_s`` its age."""

    process: str
    uptime_s: int = 0
    counts: tuple[CountedTraffic, ...] = ()


#: A proxy accepts a connection for so many files of its limit: each takes two, and half of the files are for listeners.
FILES_OF_CONNECTION = 4
_FULL = 0.9


class MachineReport(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The state of a machine: ``plan`` is the version that it follows, ``sent`` its clock in seconds since 1970."""

    machine: str
    plan: str = ""
    #: The plan that it follows drains it.
    drained: bool = False
    sent: float = 0.0
    release: str = ""
    proxy: ProxyState = ProxyState()
    links: tuple[LinkState, ...] = ()
    addresses: tuple[AddressState, ...] = ()
    sessions: tuple[SessionState, ...] = ()
    #: Files that its proxy has open, and may have.
    files: int = 0
    max_files: int = 0
    #: Listeners that its proxy can open with that limit; 0: unknown.
    max_listeners: int = 0
    #: New connections a second at its proxy, over the last seconds.
    connections_per_s: float = 0.0
    #: Connections that are open at its proxy.
    open_connections: int = 0
    #: Addresses of the plan for which its proxy sees no healthy target.
    unhealthy: tuple[str, ...] = ()
    #: What its kernel forwards; None from a release that cannot.
    forwarding: ForwardingState | None = None
    #: What drains for a limited time at its proxy; None from a release that closes no connections.
    draining: tuple[DrainState, ...] | None = None
    #: What its proxy has counted; of a process that has ended too, until the hub has it.
    traffic: tuple[ProcessTraffic, ...] = ()
    #: Fingerprint of the authorities of hubs that it trusts.
    authorities: str = ""
    #: Sentences with a next step: what is wrong with the machine as a whole.
    problems: tuple[str, ...] = ()

    @property
    def is_full(self) -> bool:
        """Return whether the proxy has almost no open files left, or is close to its limit of connections."""
        used = max(self.files, self.open_connections * FILES_OF_CONNECTION)
        return self.max_files > 0 and used >= _FULL * self.max_files


class EnrolRequest(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Body of ``POST /v1/enrol``: the one-time token, the wanted name, and a certificate request as PEM."""

    token: str
    name: str
    csr: str
    #: The clock of the machine, in seconds since 1970; not compared when 0.
    clock: float = 0.0

    def __repr__(self) -> str:
        """Keep the token out of logs and tracebacks."""
        return f"EnrolRequest({self.name!r})"


class RenewRequest(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Body of ``POST /v1/renew``: a certificate request as PEM."""

    csr: str


class EnrolAnswer(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The answer to both: the certificate of the machine and the authorities that it trusts, as PEM.

    ``xds`` is the ``host:port`` of the hub that answered, ``hubs`` are the HTTPS ``host:port`` of all hubs; the xDS
    port of each is the next one. Every hub's certificate has the DNS name ``HUB_NAME`` besides its host.
    """

    machine: str
    certificate: str
    ca: str
    xds: str
    hubs: tuple[str, ...] = ()
    #: Seconds after which the certificate is to be renewed: two thirds of its life.
    renew_after_s: float = 0.0


class HubProblem(MachineValue, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Body of an answer with status 4xx or 5xx: one sentence with the next step."""

    message: str


#: A DNS name in the certificate of every hub: machines verify it, by whatever address they reach the hub.
HUB_NAME = "hub.fairlead"


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
