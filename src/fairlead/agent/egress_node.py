"""``fairlead egress-node``: packets of labelled pods go to the machine that has the address of their Service.

    pod ──► rules of the node: what the default route would take goes to the next hop <address of the load balancer>
        ──► the machine that answers ARP or NDP for that address; when it fails, the one that takes the address over

    7700  from POD lookup main suppress_prefixlength 0    other pods, nodes and local networks are reached as before
    7701  from POD lookup TABLE                           default via ADDRESS
    7702  from POD unreachable                            never with another address

The next hop is the address itself, so nothing here needs to know the machines. The node does not translate the packets
(table ``inet fairlead_egress_node``); the machine does. While a label cannot be followed, the pod reaches nothing
outside. In: watches of the cluster. Out: rules, routes, Events. Never: changes rules or routes of others, or anything
before all was read; what is there stays when this process ends.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
import structlog

from fairlead.api.json_text import decode
from fairlead.api.kubernetes import PODS, SERVICES, Pod, Service
from fairlead.api.meta import ObjectKey
from fairlead.api.names import LABEL_EGRESS
from fairlead.errors import BadConfiguration, FairleadError, Retry
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder, EventWriter
from fairlead.model.condition import ObjectEvent, warning_event
from fairlead.runtime.clock import wait_for
from fairlead.runtime.commands import run_command
from fairlead.translate.egress import INVALID_LABEL, NOT_POSSIBLE, addresses_of, egress_pods

TABLE = "inet fairlead_egress_node"
#: Of our rules and routes, so that those of others are left alone.
PROTOCOL = 178
MAIN, IDENTITY, REFUSE = 7700, 7701, 7702
SOURCE = "egress-node"
_GATHER_S = 0.1
#: How often next hops are looked at, and everything else: another program may have changed it.
_LOOK_S, _REPAIR_S = 1.0, 10.0
#: A datagram to this port makes the kernel ask for an address.
_DISCARD = 9
#: Without IPv6, the kernel refuses to show its rules.
_FAMILIES = {4: "-4"} | ({6: "-6"} if Path("/proc/net/if_inet6").exists() else {})

log = structlog.get_logger(__name__)

Rule = tuple[int, str, int]


class Hop(msgspec.Struct, frozen=True):
    """How this node reaches an address: by ``device``, because it has it itself, or not (``problem``)."""

    device: str = ""
    own: bool = False
    problem: str = ""


def wanted_rules(identities: Mapping[str, str], hops: Mapping[str, Hop]) -> dict[Rule, None]:
    """Return the rules for the pods of ``identities``: address of each pod, and that with which it leaves, or none."""
    rules: dict[Rule, None] = {}
    for pod, address in sorted(identities.items()):
        hop = hops.get(address, Hop())
        if hop.own:
            continue  # this node is the machine: it translates what leaves by its own routes
        rules[MAIN, pod, 0] = rules[REFUSE, pod, 0] = None
        if hop.device:
            rules[IDENTITY, pod, table_of(address)] = None
    return rules


def table_of(address: str) -> int:
    """Return the routing table of an address; those of IPv4 and IPv6 are apart."""
    ip = ip_address(address)
    if ip.version == 4:
        return int(ip)
    return int.from_bytes(blake2b(ip.packed, digest_size=4).digest()) | 1 << 31


def rule_commands(wanted: Iterable[Rule], present: Iterable[Rule]) -> str:
    """Return what ``ip -batch`` has to do: new rules first, so that no packet leaves in another way meanwhile."""
    wanted, present = list(wanted), set(present)
    new = [f"rule add {_rule(rule)}\n" for rule in wanted if rule not in present]
    return "".join([*new, *(f"rule del {_rule(rule)}\n" for rule in sorted(present.difference(wanted)))])


def _rule(rule: Rule) -> str:
    priority, pod, table = rule
    action = {MAIN: "lookup main suppress_prefixlength 0", REFUSE: "unreachable"}.get(priority, f"lookup {table}")
    return f"pref {priority} from {pod} {action} protocol {PROTOCOL}"


def nft_rules(identities: Mapping[str, str]) -> str:
    """Return the commands by which the node leaves the source of these packets as it is."""
    lines = [
        f"table {TABLE} {{",
        " chain leaving { type nat hook postrouting priority srcnat - 10; policy accept; }",
        "}",
        f"flush chain {TABLE} leaving",
    ]
    for version, payload in ((4, "ip"), (6, "ip6")):
        mine = {pod: address for pod, address in identities.items() if address and ip_address(pod).version == version}
        if mine:
            pods, addresses = ", ".join(sorted(mine)), ", ".join(sorted(set(mine.values())))
            lines.append(
                f"add rule {TABLE} leaving {payload} saddr {{ {pods} }} rt {payload} nexthop {{ {addresses} }} "
                f"snat {payload} to {payload} saddr"
            )
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
        self._problem = ""
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
            try:
                await self._apply()
                problem = ""
            except FairleadError as error:
                problem = error.sentence
            if problem != self._problem:
                self._problem = problem
                log.warning("egress", sentence=problem or "rules and routes can be written again")
            await wait_for(self._dirty, self._clock, _LOOK_S)
            if self._dirty.is_set():
                await self._clock.sleep(_GATHER_S)

    async def _apply(self) -> None:
        identities, problems = self._identities()
        addresses = sorted({address for address in identities.values() if address})
        hops = {address: await _hop_to(address) for address in addresses}
        if self._applied != (identities, hops) or self._clock.monotonic() - self._applied_s >= _REPAIR_S:
            await _program(identities, hops)
            if self._applied != (identities, hops):
                log.info("egress", pods=len(identities), addresses=", ".join(addresses))
            self._applied, self._applied_s = (identities, hops), self._clock.monotonic()
        self._emit(identities, hops, problems)

    def _identities(self) -> tuple[dict[str, str], dict[ObjectKey, ObjectEvent]]:
        """Return the address with which each address of a pod leaves, empty for none; and why, by pod."""
        decided = egress_pods(self._pods.values(), lambda key: self._services.get(*key), _why_not)
        # The agent reports invalid labels, once for all nodes.
        problems = {key: event for key, event in decided.problems.items() if event.reason != INVALID_LABEL}
        refused = [pod for pod in self._pods.values() if pod.key in decided.problems and not pod.spec.host_network]
        identities = {address: "" for pod in refused if pod.status.phase == "Running" for address in addresses_of(pod)}
        for key, sources in decided.sources.items():
            service = self._services.get(*key)
            ingress = (service.status.load_balancer.ingress or ()) if service is not None else ()
            by_family = {ip_address(entry.ip).version: entry.ip for entry in ingress if entry.ip}
            for source in sources:
                identities[source] = by_family.get(ip_address(source).version, "")
        return identities, problems

    def _emit(
        self, identities: Mapping[str, str], hops: Mapping[str, Hop], problems: Mapping[ObjectKey, ObjectEvent]
    ) -> None:
        for pod in self._pods.values():
            wrong: list[str] = []
            for source in addresses_of(pod) if pod.key not in problems else ():
                address = identities.get(source)
                if address == "":
                    family = ip_address(source).version
                    wrong.append(f"Service {pod.label(LABEL_EGRESS)} has no IPv{family} address yet")
                elif address is not None and hops[address].problem:
                    wrong.append(hops[address].problem)
            text = f"Connections of Pod {pod.metadata.name} to the outside are refused: {'; '.join(wrong)}"
            events = [warning_event(NOT_POSSIBLE, text)] if wrong else []
            self._events.emit_new(SOURCE, pod, events)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is None:
            self._events.forget(old.key)
        self._dirty.set()


async def _program(identities: Mapping[str, str], hops: Mapping[str, Hop]) -> None:
    """Make rules and routes of the kernel those of these pods."""
    await _write_routes(hops)
    # Before the rules: a packet that takes them must not be translated here.
    if identities or await _has_table():
        await run_program("nft", "-f", "-", text=nft_rules(identities))
    wanted = wanted_rules(identities, hops)
    for version, family in _FAMILIES.items():
        of_family = [rule for rule in wanted if ip_address(rule[1]).version == version]
        if commands := rule_commands(of_family, await _present_rules(family)):
            await run_program("ip", family, "-batch", "-", text=commands)


def _why_not(service: Service) -> str:
    return "" if service.spec.type == "LoadBalancer" else f"type {service.spec.type} has none"


async def _hop_to(address: str) -> Hop:
    """Return how this node reaches an address, and have the kernel ask for it where no machine is known to answer."""
    family = f"-{ip_address(address).version}"
    try:
        route = (await _json("ip", family, "-j", "route", "get", address))[0]
    except Retry:
        return Hop(problem=f"this node has no route to {address}")
    if route.get("type") == "local":
        return Hop(own=True)
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


def _ask_for(address: str, device: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as asking:
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        asking.sendto(b"", (address, _DISCARD))


async def _write_routes(hops: Mapping[str, Hop]) -> None:
    """Have one default route for each address that is reached, and no other of ours."""
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
        if commands:
            await run_program("ip", family, "-batch", "-", text="".join(commands))


async def _present_rules(family: str) -> list[Rule]:
    rules: list[Rule] = []
    for entry in await _json("ip", family, "-j", "rule", "show"):
        if str(entry.get("protocol")) == str(PROTOCOL):
            priority = int(entry["priority"])
            rules.append((priority, str(entry["src"]), int(entry["table"]) if priority == IDENTITY else 0))
    return rules


async def _has_table() -> bool:
    return bool(shutil.which("nft")) and f"table {TABLE}" in (await run_program("nft", "list", "tables")).splitlines()


async def _json(*command: str) -> list[dict[str, Any]]:
    return decode(await run_program(*command) or "[]", list[dict[str, Any]])


async def run_program(program: str, *arguments: str, text: str = "") -> str:
    """Run a program to its end; return what it prints.

    Raises:
        BadConfiguration: it is missing.
        Retry: it failed.
    """
    try:
        ended = await run_command(program, *arguments, stdin=text.encode())
    except FileNotFoundError:
        package = {"nft": "nftables", "ip": "iproute2"}.get(program, program)
        raise BadConfiguration(f"{program} is missing here; install {package}") from None
    except OSError as error:
        raise Retry(f"{program} cannot be run: {error}") from error
    if ended.code:
        first = ended.errors.decode(errors="replace").strip().partition("\n")[0]
        raise Retry(f"{program} {' '.join(arguments)} failed: {first}; this process needs the capability NET_ADMIN")
    return ended.output.decode()
