"""Pods that leave with the address of a Service: the published annotation, and the rules of their node.

    labelled pods, Services ──► egress_pods ─┬─► annotation of the TCPLoadBalancer, when its pods change
                                             └─► Warning on a pod whose label cannot be followed

In: watches of the member. Out: Services enqueued, Events. Never: takes pods away before all have been read.

With ``fairlead egress-node``, packets of labelled pods go to the machine that has the address of their Service:

    pod ──► rules of the node: what the default route would take goes to the next hop <address of the load balancer>
        ──► the machine that answers ARP or NDP for that address; when it fails, the one that takes the address over

    7700  from POD lookup main suppress_prefixlength 0    other pods, nodes and local networks are reached as before
    7701  from POD lookup TABLE                           default via ADDRESS
    7702  from POD unreachable                            never with another address

The next hop is the address itself, so nothing here needs to know the machines. The node does not translate the packets
(table ``inet fairlead_egress_node``); the machine does. While a label cannot be followed, the pod reaches nothing
outside. The refusal comes first and depends on nothing else: when ``ip`` fails, nftables drops what the pod begins.
In: watches of the cluster. Out: rules, routes, Events. Never: changes rules or routes of others, or anything before all
was read. Rules and routes are kept when this process ends.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
from collections.abc import Awaitable, Collection, Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from fairlead.agent.engine import Engine
from fairlead.agent.identity import ServiceKey
from fairlead.agent.sources.caches import MemberService
from fairlead.agent.sources.service.plan import CloudLoadBalancer, NotOurs, Ours, Scenario, decide
from fairlead.api.json_text import decode
from fairlead.api.kubernetes import PODS, SERVICES, Pod, Service
from fairlead.api.meta import ObjectKey
from fairlead.api.names import LABEL_EGRESS
from fairlead.errors import FairleadError
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder, EventWriter
from fairlead.model.condition import ObjectEvent, warning_event
from fairlead.model.machine import EGRESS_TABLE
from fairlead.publish.objects import Refused
from fairlead.runtime.clock import wait_for
from fairlead.runtime.commands import run_network_program
from fairlead.translate.egress import INVALID_LABEL, NOT_POSSIBLE, EgressPods, addresses_of, egress_pods

SOURCE = "egress"
#: Changes within this time are one, and how often Events are looked at: this agent may have become the leader.
_GATHER_S, _LOOK_S = 0.1, 5.0


class EgressLabels:
    """The labelled pods of a member."""

    def __init__(
        self,
        *,
        member: Cluster,
        services: WatchCache[MemberService],
        cloud: CloudLoadBalancer,
        engine: Engine,
        recorder: EventRecorder,
    ) -> None:
        self._clock = member.clock
        self._pods: WatchCache[Pod] = WatchCache(member, PODS, label_selector=LABEL_EGRESS)
        self._services = services
        self._cloud: CloudLoadBalancer = cloud
        self._engine = engine
        self._events = EventWriter(recorder=recorder, resource=PODS)
        self._dirty = asyncio.Event()
        self._decided: EgressPods | None = None
        self._pods.on_change(self._pod_changed)
        services.on_object(lambda _service: self._dirty.set(), part=lambda service: (service.spec, service.deleting))

    @property
    def problem(self) -> str:
        """Return why labels cannot be followed; empty when they can."""
        return self._pods.problem

    def sources_of(self, key: ServiceKey) -> str | None:
        """Return the addresses of the pods that leave with a Service, after commas; None while they are unknown."""
        if self._decided is None or self._pods.broken:
            return None
        return ",".join(self._decided.sources.get(ObjectKey(*key), ()))

    async def run(self) -> None:
        """Follow the labels until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        await self._pods.wait_synced()
        await self._services.wait_synced()
        self._dirty.set()
        while True:
            if self._dirty.is_set():
                await self._clock.sleep(_GATHER_S)
                self._dirty.clear()
                self._decide()
            if self._engine.may_write():
                problems = (self._decided or EgressPods()).problems
                for pod in self._pods.values():
                    problem = problems.get(pod.key)
                    self._events.emit_new(SOURCE, pod, () if problem is None else (problem,))
            await wait_for(self._dirty, self._clock, _LOOK_S)

    def _decide(self) -> None:
        first, before = self._decided is None, self._decided or EgressPods()
        self._decided = egress_pods(self._pods.values(), lambda key: self._services.get(*key), self._why_not)
        if first:
            # Also what an agent before this one has published for pods that are gone.
            self._engine.enqueue_all()
            return
        now = self._decided.sources
        for key in before.sources.keys() | now.keys():
            if before.sources.get(key) != now.get(key):
                self._engine.publish((SERVICES.kind, key.namespace, key.name))

    def _why_not(self, service: Service) -> str:
        match decide(service, cloud=self._cloud):
            case NotOurs(why) | Refused(sentence=why):
                return why
            case Ours(scenario):
                return "" if scenario is Scenario.IMPLEMENTED else "another implementation has its address"

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is None:
            self._events.forget(old.key)
        self._dirty.set()


TABLE = "inet fairlead_egress_node"
#: Of our rules and routes, so that those of others are left alone.
PROTOCOL = 178
MAIN, IDENTITY, REFUSE = 7700, 7701, 7702
NODE_SOURCE = "egress-node"
_NODE_GATHER_S = 0.1
#: How often next hops and our table are looked at, and the rest: another program may have changed it. What failed is
#: tried again sooner.
_NODE_LOOK_S, _REPAIR_S, _RETRY_S = 1.0, 10.0, 3.0
#: A datagram to this port makes the kernel ask for an address.
_DISCARD = 9
#: Without IPv6, the kernel refuses to show its rules.
_FAMILIES = {4: "-4"} | ({6: "-6"} if Path("/proc/net/if_inet6").exists() else {})

_NO_ROUTE = ("unreachable", "No route to host", "Permission denied", "Invalid argument")
_T = TypeVar("_T")

log = structlog.get_logger(__name__)

Rule = tuple[int, str, int]


class Hop(msgspec.Struct, frozen=True):
    """How this node reaches an address: by ``device``, because it has it itself, or not (``problem``).

    ``pods`` are those that a machine on this node translates to its ``own`` address.
    """

    device: str = ""
    own: bool = False
    pods: frozenset[str] = frozenset()
    problem: str = ""

    def problem_of(self, pod: str, address: str) -> str:
        """Return why a pod's connections do not leave with the address; empty if they do."""
        if self.own and pod not in self.pods:
            return f"the machine on this node does not translate to {address} yet"
        return self.problem


def wanted_rules(identities: Mapping[str, str], hops: Mapping[str, Hop]) -> dict[Rule, None]:
    """Return the rules for the pods of ``identities``: each pod's address and its egress address, or none."""
    rules: dict[Rule, None] = {}
    for pod, address in sorted(identities.items()):
        hop = hops.get(address, Hop())
        if hop.own and pod in hop.pods:
            continue  # the machine on this node translates what leaves by the routes of the node
        rules[MAIN, pod, 0] = rules[REFUSE, pod, 0] = None
        if hop.device:
            rules[IDENTITY, pod, table_of(address)] = None
    return rules


def table_of(address: str) -> int:
    """Return the routing table of an address; IPv4 and IPv6 have separate tables."""
    ip = ip_address(address)
    if ip.version == 4:
        return int(ip)
    return int.from_bytes(blake2b(ip.packed, digest_size=4).digest()) | 1 << 31


def rule_commands(wanted: Iterable[Rule], present: Iterable[Rule]) -> str:
    """Return the commands for ``ip -batch``: new rules first, so that no packet takes another path meanwhile."""
    wanted, present = list(wanted), set(present)
    new = [f"rule add {_rule(rule)}\n" for rule in wanted if rule not in present]
    return "".join([*new, *(f"rule del {_rule(rule)}\n" for rule in sorted(present.difference(wanted)))])


def _rule(rule: Rule) -> str:
    priority, pod, table = rule
    action = {MAIN: "lookup main suppress_prefixlength 0", REFUSE: "unreachable"}.get(priority, f"lookup {table}")
    return f"pref {priority} from {pod} {action} protocol {PROTOCOL}"


def nft_rules(identities: Mapping[str, str], unruled: Collection[str] = ()) -> str:
    """Return the commands that exempt these packets from source translation by the node.

    New connections of pods ``unruled`` are dropped: their rules could not be written.
    """
    lines = [
        f"table {TABLE} {{",
        " chain leaving { type nat hook postrouting priority srcnat - 10; policy accept; }",
        " chain refused { type filter hook forward priority filter - 10; policy accept; }",
        "}",
        f"flush chain {TABLE} leaving",
        f"flush chain {TABLE} refused",
    ]
    for version, payload in ((4, "ip"), (6, "ip6")):
        mine = {pod: address for pod, address in identities.items() if address and ip_address(pod).version == version}
        if mine:
            pods, addresses = ", ".join(sorted(mine)), ", ".join(sorted(set(mine.values())))
            lines.append(
                f"add rule {TABLE} leaving {payload} saddr {{ {pods} }} rt {payload} nexthop {{ {addresses} }} "
                f"snat {payload} to {payload} saddr"
            )
        if of_family := sorted(pod for pod in unruled if ip_address(pod).version == version):
            sources = f"{payload} saddr {{ {', '.join(of_family)} }}"
            lines.append(f"add rule {TABLE} refused {sources} ct direction original drop")
    return "\n".join(lines) + "\n"


class EgressNode:
    """The labelled pods of one node."""

    def __init__(self, cluster: Cluster, *, node: str) -> None:
        self._clock = cluster.clock
        self._pods: WatchCache[Pod] = WatchCache(
            cluster, PODS, label_selector=LABEL_EGRESS, field_selector=f"spec.nodeName={node}"
        )
        self._services: WatchCache[Service] = WatchCache(cluster, SERVICES)
        self._recorder = EventRecorder(cluster, component="fairlead-egress-node")
        self._events = EventWriter(recorder=self._recorder, resource=PODS)
        self._dirty = asyncio.Event()
        #: What the kernel has, and when that was made sure of.
        self._applied: tuple[Mapping[str, str], Mapping[str, Hop]] = ({}, {})
        self._applied_s = float("-inf")
        self._programmed = Programmed()
        self._pods.on_change(self._pod_changed)
        self._services.on_change(lambda _old, _new: self._dirty.set())

    async def run(self) -> None:
        """Follow the labels until cancelled; rules and routes stay."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            group.create_task(self._pods.run())
            group.create_task(self._services.run())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        await self._pods.wait_synced()
        await self._services.wait_synced()
        await self._recorder.read_earlier()
        while True:
            self._dirty.clear()
            await self.apply()
            await wait_for(self._dirty, self._clock, _NODE_LOOK_S)
            if self._dirty.is_set():
                await self._clock.sleep(_NODE_GATHER_S)

    async def apply(self) -> None:
        """Apply the labels to the kernel once, and report failures."""
        identities, problems = self._identities()
        addresses = sorted({address for address in identities.values() if address})
        hops = {address: await self._hop(address) for address in addresses}
        waited_s = self._clock.monotonic() - self._applied_s
        changed = self._applied != (identities, hops)
        due = changed or waited_s >= (_RETRY_S if self._programmed.problem else _REPAIR_S)
        if due or (identities and not self._programmed.problem and await _is_lost()):
            problem, self._programmed = self._programmed.problem, await program(identities, hops)
            if changed:
                log.info("egress", pods=len(identities), addresses=", ".join(addresses))
            self._applied, self._applied_s = (identities, hops), self._clock.monotonic()
            if self._programmed.problem != problem:
                log.warning("egress", sentence=self._programmed.problem or "rules and routes can be written again")
        for pod in self._pods.values():
            wrong: list[str] = []
            sources = addresses_of(pod)
            for source in sources if pod.key not in problems else ():
                address = identities.get(source)
                if address == "":
                    family = ip_address(source).version
                    wrong.append(f"Service {pod.label(LABEL_EGRESS)} has no IPv{family} address yet")
                elif address is not None and (problem := hops[address].problem_of(source, address)):
                    wrong.append(problem)
            if self._programmed.refused.intersection(sources):
                wrong.append(self._programmed.problem)
            exposed = self._programmed.exposed.intersection(sources)
            effect = "may leave with the address of the node" if exposed else "are refused"
            text = f"Connections of Pod {pod.metadata.name} to the outside {effect}: {'; '.join(wrong)}"
            events = [warning_event(NOT_POSSIBLE, text)] if wrong else []
            self._events.emit_new(NODE_SOURCE, pod, events)

    async def _hop(self, address: str) -> Hop:
        try:
            return await _hop_to(address)
        except FairleadError as error:
            return self._applied[1].get(address, Hop(problem=error.sentence))

    def _identities(self) -> tuple[dict[str, str], dict[ObjectKey, ObjectEvent]]:
        """Return the address with which each address of a pod leaves, empty for none; and why, by pod."""
        decided = egress_pods(self._pods.values(), lambda key: self._services.get(*key), _why_not)
        # The agent reports invalid labels, once for all nodes.
        problems = {key: event for key, event in decided.problems.items() if event.reason != INVALID_LABEL}
        refused = [pod for pod in self._pods.values() if pod.key in decided.problems and not pod.spec.host_network]
        # Unreadable entries are kept.
        last, unread = self._applied[0], self._services.remains()
        identities = dict(last) if self._pods.broken else {}
        for pod in refused:
            is_unread = ObjectKey(pod.metadata.namespace, pod.label(LABEL_EGRESS)) in unread
            identities |= {address: last.get(address, "") if is_unread else "" for address in addresses_of(pod)}
        for key, sources in decided.sources.items():
            service = self._services.get(*key)
            ingress = (service.status.load_balancer.ingress or ()) if service is not None else ()
            by_family = {ip_address(entry.ip).version: entry.ip for entry in ingress if entry.ip}
            for source in sources:
                identities[source] = by_family.get(ip_address(source).version, "")
        return identities, problems

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is None:
            self._events.forget(old.key)
        self._dirty.set()


class Programmed(msgspec.Struct, frozen=True):
    """The failure (``problem``), the pods without a rule, and those that may leave with the node's address."""

    problem: str = ""
    refused: frozenset[str] = frozenset()
    exposed: frozenset[str] = frozenset()


async def program(identities: Mapping[str, str], hops: Mapping[str, Hop]) -> Programmed:
    """Set the kernel's rules and routes for these pods.

    No step depends on another one. nftables drops new connections of pods without a refusal. A pod gets the rule of its
    address only after nftables has accepted that the node does not translate its packets.
    """
    failures: list[str] = []

    async def attempt(step: Awaitable[_T]) -> _T | None:
        try:
            return await step
        except FairleadError as error:
            failures.append(error.sentence)
            return None

    wanted = wanted_rules(identities, hops)
    present: dict[str, set[Rule]] = {}
    for family in _FAMILIES.values():
        refusals = [rule for rule in _of(family, wanted) if rule[0] != IDENTITY]
        had = await attempt(_present_rules(family))
        missing = [rule for rule in refusals if rule not in (had or ())]
        if await attempt(_batch(family, rule_commands(missing, ()))):
            present[family] = {*(had or ()), *missing}
        else:
            present[family] = {*(await attempt(_present_rules(family)) or ())}
    there = set[Rule]().union(*present.values())
    unruled = {pod for priority, pod, _ in wanted if priority == REFUSE and (REFUSE, pod, 0) not in there}
    await attempt(_write_routes(hops))
    translates = True
    if identities or await attempt(_has_table()):
        commands = nft_rules(identities, unruled)
        translates = await attempt(run_network_program("nft", "-f", "-", text=commands)) is not None
    # Without our table, the node translates what it sends to machines.
    lost = not translates and await attempt(_has_table()) is False
    allowed = {rule: None for rule in wanted if rule[0] != IDENTITY or translates or (rule in there and not lost)}
    for family in _FAMILIES.values():
        if await attempt(_batch(family, rule_commands(_of(family, allowed), present[family]))):
            there |= {*_of(family, allowed)}
    lacking = frozenset(rule[1] for rule in wanted if rule not in there or rule not in allowed)
    exposed = frozenset(() if translates else unruled)
    return Programmed("; ".join(dict.fromkeys(failures)), lacking, exposed)


def _of(family: str, rules: Iterable[Rule]) -> list[Rule]:
    return [rule for rule in rules if _FAMILIES.get(ip_address(rule[1]).version) == family]


async def _batch(family: str, commands: str) -> bool:
    """Run all commands with ``ip -batch``, even if one fails."""
    if commands:
        await run_network_program("ip", family, "-force", "-batch", "-", text=commands, ignored=("File exists",))
    return True


def _why_not(service: Service) -> str:
    return "" if service.spec.type == "LoadBalancer" else f"type {service.spec.type} has none"


async def _hop_to(address: str) -> Hop:
    """Return how this node reaches an address, and make the kernel resolve it if no machine is known to answer."""
    family = f"-{ip_address(address).version}"
    routes = await _json("ip", family, "-j", "route", "get", address, ignored=_NO_ROUTE)
    if not routes:
        return Hop(problem=f"this node has no route to {address}")
    route = routes[0]
    if route.get("type") == "local":
        return Hop(own=True, pods=await _translated_here(address))
    device = str(route.get("dev", ""))
    if "gateway" in route or not device:
        return Hop(problem=f"{address} is in no network of this node; announce an address of one by L2")
    entries = await _json("ip", family, "-j", "neigh", "show", "to", address, "dev", device)
    states = {state for entry in entries for state in entry.get("state", ())}
    if not states or states & {"FAILED", "INCOMPLETE"}:
        _ask_for(address, device)
    if "FAILED" in states:
        return Hop(device=device, problem=f"no machine answers for {address} on {device}; see: fairlead explain")
    return Hop(device=device)


async def _translated_here(address: str) -> frozenset[str]:
    """Return the pods that a machine on this node translates to an address."""
    listing = await run_network_program("nft", "list", "table", *EGRESS_TABLE.split(), ignored=("No such file",))
    pairs = re.findall(r"([0-9a-f.:]+) : ([0-9a-f.:]+)", listing.decode())
    return frozenset(pod for pod, identity in pairs if identity == address)


def _ask_for(address: str, device: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as asking:
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        asking.sendto(b"", (address, _DISCARD))


async def _write_routes(hops: Mapping[str, Hop]) -> None:
    """Write one default route for each reachable address, and delete our other routes."""
    for version, family in _FAMILIES.items():
        wanted = {
            table_of(address): (address, hop.device)
            for address, hop in hops.items()
            if hop.device and ip_address(address).version == version
        }
        listed = await _json("ip", family, "-j", "route", "show", "table", "all", "protocol", str(PROTOCOL))
        present = {
            int(entry["table"]): (entry.get("gateway"), entry.get("dev")) for entry in listed if "table" in entry
        }
        commands = [
            f"route replace default via {address} dev {device} table {table} protocol {PROTOCOL}\n"
            for table, (address, device) in sorted(wanted.items())
            if present.get(table) != (address, device)
        ]
        commands += [f"route flush table {table} protocol {PROTOCOL}\n" for table in sorted(present.keys() - wanted)]
        await _batch(family, "".join(commands))


async def _present_rules(family: str) -> list[Rule]:
    rules: list[Rule] = []
    for entry in await _json("ip", family, "-j", "rule", "show"):
        if str(entry.get("protocol")) == str(PROTOCOL):
            priority = int(entry["priority"])
            rules.append((priority, str(entry["src"]), int(entry["table"]) if priority == IDENTITY else 0))
    return rules


async def _has_table() -> bool:
    tables = await run_network_program("nft", "list", "tables") if shutil.which("nft") else b""
    return f"table {TABLE}" in tables.decode().splitlines()


async def _is_lost() -> bool:
    """Return whether another program has deleted our table, as far as that can be read."""
    try:
        return not await _has_table()
    except FairleadError:
        return True


async def _json(*command: str, ignored: Collection[str] = ()) -> list[dict[str, Any]]:
    return decode(await run_network_program(*command, ignored=ignored) or b"[]", list[dict[str, Any]])
