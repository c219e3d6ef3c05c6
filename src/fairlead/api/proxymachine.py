"""ProxyMachine, a machine outside the cluster whose Envoy serves load balancers and which announces their addresses.

A machine that joins with a one-time token creates its object through the hub. Operators write the spec; the hub writes
the status from the reports of the machine, and the time of the last report into the Lease ``proxy-machine-<name>``.
A ProxyGroup says which machines serve which load balancers; without any, each machine serves all of them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.announcing import MachineChoice, Names
from fairlead.api.crd import AGE, READY, CelRule, Column, Crd
from fairlead.api.meta import LIST_ATOMIC, ONE_LINE, Conditions, KubeObject, Resource, Wire, list_by
from fairlead.api.names import GROUP, VERSION
from fairlead.model.condition import ConditionReason

#: Serial number in place of a certificate, of the machine of the hub itself: it needs none.
OF_THE_HUB = "hub"
#: The group of a machine that names none.
DEFAULT_GROUP = "default"
#: Addresses that a status lists; those with a problem come first.
ADDRESSES_LISTED = 1000
#: Reasons for which a condition is False although nothing is wrong.
EXPECTED = frozenset(
    {ConditionReason.DRAINED, ConditionReason.PENDING, ConditionReason.STANDBY, ConditionReason.NOTHING_TO_ANNOUNCE}
)
ANNOUNCING = '.status.conditions[?(@.type=="Announcing")]'


class MachineUpgrade(Wire, frozen=True, gc=False):
    """The Envoy that the machine is to run, as fairlead proxy upgrade writes it.

    The hub upgrades one machine after another, and drains each one first. requested identifies the upgrade: machines
    with the same value are upgraded together, and none of them is after one that failed. binary is a path on
    the machine, empty: the Envoy that pip has installed there. With version, an Envoy of another version is refused.
    drainSeconds: how long connections may stay open. force: even if no other machine can announce an address.
    """

    requested: Annotated[str, Meta(min_length=1, max_length=64, extra_json_schema=ONE_LINE)]
    binary: Annotated[str, Meta(max_length=1024, pattern="^(/[ -~]*)?$")] = ""
    version: Annotated[str, Meta(max_length=32, extra_json_schema=ONE_LINE)] = ""
    drain_seconds: Annotated[int, Meta(ge=0, le=86_400)] = 300
    force: bool = False


class ProxyMachineSpec(Wire, frozen=True, gc=False):
    """The group of the machine, and whether it is drained: it then announces nothing and gets no new connections."""

    group: Annotated[str, Meta(min_length=1, max_length=63)] = DEFAULT_GROUP
    drained: bool = False
    upgrade: MachineUpgrade | None = None


class MachineCertificate(Wire, frozen=True, gc=False):
    """The certificate of the machine: serial numbers in hexadecimal digits, and its end.

    previousSerial is accepted until the machine first uses its latest certificate.
    """

    serial: str = ""
    previous_serial: str = ""
    expires: str = ""


class MachineLink(Wire, frozen=True, gc=False):
    """A network interface of the machine, with its own addresses."""

    name: str
    mac: str = ""
    up: bool = False
    addresses: Annotated[tuple[str, ...], Meta(extra_json_schema=LIST_ATOMIC)] = ()


class AddressStatus(Wire, frozen=True, gc=False):
    """One address that the machine announces, or does not although it should; problem says why.

    lastFailover and failoverCause are of the last time at which this machine took the address over from another one.
    """

    address: str
    announced: bool = False
    interface: str = ""
    mac: str = ""
    other_mac: str = ""
    since: str = ""
    cause: str = ""
    last_failover: str = ""
    failover_cause: str = ""
    problem: str = ""


class RouterSession(Wire, frozen=True, gc=False):
    """A session of the machine with a router."""

    peer: str
    state: str = ""
    up: bool = False
    since: str = ""
    announced: int = 0
    bfd: str = ""
    next_hop: str = ""
    problem: str = ""


class Failover(Wire, frozen=True, gc=False):
    """The last time at which the machine took an address over, and why."""

    address: str
    time: str
    cause: str


UpgradePhase = Literal["", "Waiting", "Draining", "Restarting", "Returning", "Done", "Failed"]


class UpgradeStatus(Wire, frozen=True, gc=False):
    """How far the upgrade of the machine is, and since when; message says what it waits for, or why it failed.

    The machine is out of service while it is Draining or Restarting. requested is that of the spec.
    """

    requested: str = ""
    phase: UpgradePhase = ""
    since: str = ""
    message: str = ""


class ProxyMachineStatus(Wire, frozen=True, gc=False):
    """The machine as its last report, or the hub, sees it.

    announced counts the addresses that it announces. newConnections and openConnections are reported only while the
    machine is out of service.
    """

    envoy: str = ""
    release: str = ""
    certificate: MachineCertificate = MachineCertificate()
    announced: int = 0
    addresses: Annotated[
        tuple[AddressStatus, ...], Meta(max_length=ADDRESSES_LISTED, extra_json_schema=list_by("address"))
    ] = ()
    links: Annotated[tuple[MachineLink, ...], Meta(max_length=256, extra_json_schema=list_by("name"))] = ()
    sessions: Annotated[tuple[RouterSession, ...], Meta(max_length=256, extra_json_schema=list_by("peer"))] = ()
    last_failover: Failover | None = None
    new_connections: Literal["", "None", "Some"] = ""
    open_connections: int = 0
    upgrade: UpgradeStatus = UpgradeStatus()
    problems: Annotated[tuple[str, ...], Meta(max_length=16, extra_json_schema=LIST_ATOMIC)] = ()
    observed_generation: int = 0
    conditions: Conditions = None


class ProxyMachine(KubeObject, frozen=True, gc=False):
    """A machine that serves load balancers with its own Envoy and announces their addresses to its network."""

    spec: ProxyMachineSpec = ProxyMachineSpec()
    status: ProxyMachineStatus = msgspec.field(default_factory=ProxyMachineStatus)

    @property
    def is_of_hub(self) -> bool:
        """Return whether this is the machine of the hub, whose Envoys serve what has no recorded machine."""
        return self.status.certificate.serial == OF_THE_HUB

    @property
    def drained(self) -> bool:
        """Return whether the machine is out of service: drained by an operator, or for its upgrade."""
        return self.spec.drained or self.status.upgrade.phase in ("Draining", "Restarting")


PROXY_MACHINES = Resource(GROUP, VERSION, "ProxyMachine", "proxymachines", False, ProxyMachine)

PROXY_MACHINE_CRD = Crd(
    PROXY_MACHINES,
    short_names=("pm",),
    columns=(
        Column("Group", ".spec.group"),
        Column("Ready", f"{READY}.status"),
        Column("Reason", f"{READY}.reason"),
        Column("Announcing", f"{ANNOUNCING}.reason"),
        Column("Addresses", ".status.announced", "integer", description="addresses that it announces"),
        Column("Drained", ".spec.drained", "boolean"),
        Column("Envoy", ".status.envoy", priority=1),
        Column("Upgrade", ".status.upgrade.phase", priority=1),
        Column("Certificate ends", ".status.certificate.expires", priority=1),
        AGE,
    ),
    rules=(CelRule("self.metadata.name.size() <= 63", "metadata.name has at most 63 characters", whole=True),),
)


class ProxyGroupSpec(Wire, frozen=True, gc=False):
    """The machines of the group, and the load balancers that they serve.

    machines empty: those whose spec.group is the name of the group. mode All: each machine serves every load balancer;
    Replicas: so many machines serve each, in zones apart if possible; with 1, no other machine takes over at once.
    zonesKey is the label of a machine with its zone. classes and pools say which load balancers are served, all when
    empty. If several groups serve one, the group that names its pool is used, then one that names its class; of equal
    ones the oldest.
    """

    machines: MachineChoice = MachineChoice()
    mode: Literal["All", "Replicas"] = "All"
    replicas: Annotated[int, Meta(ge=1, le=64)] = 2
    zones_key: Annotated[str, Meta(max_length=316, extra_json_schema=ONE_LINE)] = "topology.kubernetes.io/zone"
    classes: Names = msgspec.field(default_factory=list[str])
    pools: Names = msgspec.field(default_factory=list[str])


class ProxyGroupStatus(Wire, frozen=True, gc=False):
    """The numbers of machines in the group, and of load balancers that it serves."""

    machines: int = 0
    load_balancers: int = 0
    observed_generation: int = 0
    conditions: Conditions = None


class ProxyGroup(KubeObject, frozen=True, gc=False):
    """Machines that serve the same load balancers."""

    spec: ProxyGroupSpec = ProxyGroupSpec()
    status: ProxyGroupStatus = ProxyGroupStatus()


PROXY_GROUPS = Resource(GROUP, VERSION, "ProxyGroup", "proxygroups", False, ProxyGroup)

PROXY_GROUP_CRD = Crd(
    PROXY_GROUPS,
    short_names=("pg",),
    columns=(
        Column("Mode", ".spec.mode"),
        Column("Replicas", ".spec.replicas", "integer", priority=1),
        Column("Machines", ".status.machines", "integer"),
        Column("Load-Balancers", ".status.loadBalancers", "integer"),
        Column("Ready", f"{READY}.status"),
        Column("Reason", f"{READY}.reason"),
        Column("Classes", ".spec.classes", priority=1),
        Column("Pools", ".spec.pools", priority=1),
        AGE,
    ),
)


def lease_name(machine: str) -> str:
    """Return the name of the Lease in the hub's namespace whose renewTime is that of the machine's last report."""
    return f"proxy-machine-{machine}"
