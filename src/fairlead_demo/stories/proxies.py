"""Three proxy machines under load: power, a cable and the hub are lost, one is drained, Envoy is upgraded.

In: a ``ProxiesContext``. Out: lines of progress, and a table with a row for each event and address: connections that
were tried and failed, the longest gap, who announces the address afterwards. A gap above its limit, or a failed
connection where none may fail, makes the demo fail; so does ``ExpectationFailed``, with one sentence.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.api.names import ANNOTATION_REQUESTED_ADDRESS
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.model.in_words import counted
from fairlead.providers.envoy.envoy_process import find_binary
from fairlead.runtime.background import watched
from fairlead_demo.stories.context import StoryContext
from fairlead_demo.worlds.attempts import ANSWER_S, Attempts, Outcome, outcome
from fairlead_demo.worlds.processes import ExpectationFailed, run_fairlead, wait_until
from fairlead_demo.worlds.proxy_machines import ProxyMachine, ProxySite

MACHINES = ("m1", "m2", "m3")
_MEMBER = "edge"
_PODS = ("web-1", "web-2")
_BY_BGP = "203.0.113.10"
#: Each client opens a connection to each address so often.
_EVERY_S = 1 / 30
#: How long connections are counted after an event is over.
_AFTERWARDS_S = 1.5
_LOOK_S = 0.05
#: The longest gaps for new connections.
_ARP_GAP_S, _BGP_GAP_S, _BGP_CUT_GAP_S = 2.0, 1.0, 0.5
#: The longest time until the router has the route of a machine again whose cable is back.
_BACK_S = 5.0
_COLUMNS = (
    "\nTwo clients, on the link of the machines and behind the router, each try each address 30 times a second."
    "\nFAILED: no answer within 0.9 s.   CUT: open when the address or the route moved."
    "\nLONGEST GAP: of one client, from a failed connection to the next one that is answered.\n"
)


class Row(NamedTuple):
    """What an event did to the connections of one address; ``limit_s`` 0: no new connection may fail."""

    event: str
    address: str
    outcome: Outcome
    limit_s: float
    owners: str

    @property
    def kept(self) -> bool:
        """Return whether the limit is kept."""
        return self.outcome.gap_s <= self.limit_s if self.limit_s else not self.outcome.failed


class ProxiesContext(StoryContext):
    """The context of this demo. ``bgp_missing``: why there is no BGP, and the next step; empty when there is."""

    broken = "some limits were missed"

    def __init__(self, *, site: ProxySite, bgp_missing: str, console: Console, plain: bool) -> None:
        self.site = site
        self.bgp_missing = bgp_missing
        #: Addresses by the way in which they are announced, "ARP" or "BGP".
        self.addresses: dict[str, str] = {}
        self.loads: list[Attempts] = []
        self.rows: list[Row] = []
        self._event = ""
        self._since_s = 0.0
        #: When the machines of an address have changed for the last time.
        self._moved_s: dict[str, float] = {}
        super().__init__(console=console, plain=plain)

    def begin(self) -> None:
        """Count connections from now on."""
        self._since_s = time.monotonic()

    async def owners(self, way: str) -> list[str]:
        """Return the machines that announce an address."""
        address = self.addresses[way]
        return await (self.site.owners(address) if way == "ARP" else self.site.next_hops(address))

    async def observe(
        self,
        event: str,
        act: Callable[[], Awaitable[None]],
        over: Callable[[], Awaitable[bool]],
        *,
        limits: dict[str, float] | None = None,
        moves: bool = True,
    ) -> None:
        """Let something happen, wait until it is over, and add rows of the connections since the event before.

        ``limits``: the longest gaps; without them no new connection may fail. ``moves``: an address or a route moves,
        which cuts connections.
        """
        self._event = event
        watching = watched("owners", self._watch())
        try:
            await act()
            await wait_until(over, f"{event}: machines announce both addresses again")
            await asyncio.sleep(_AFTERWARDS_S)
        finally:
            watching.cancel()
        until_s = time.monotonic()
        await asyncio.sleep(ANSWER_S)
        for way in self.addresses:
            outcomes = [
                outcome(load.between(self._since_s, until_s), moved_s=self._moved_s.get(way, 0.0) if moves else 0.0)
                for load in self.loads
                if load.host == self.addresses[way]
            ]
            owners = ", ".join(await self.owners(way)) or "no machine"
            self.rows.append(Row(event, way, _sum(outcomes), (limits or {}).get(way, 0.0), owners))
        self._event, self._since_s = "", until_s

    async def _watch(self) -> None:
        """Note when the machines of each address have changed."""
        before: dict[str, list[str]] = {}
        while True:
            for way in self.addresses:
                owners = await self.owners(way)
                if owners != before.setdefault(way, owners):
                    self._moved_s[way] = time.monotonic()
                before[way] = owners
            await asyncio.sleep(_LOOK_S)

    def last(self) -> str:
        """Return the rows of the last event in words."""
        rows = [row for row in self.rows if row.event == self.rows[-1].event]
        return "; ".join(
            f"by {row.address} "
            + (
                f"{row.outcome.failed} failed within {row.outcome.gap_s * 1000:.0f} ms"
                if row.outcome.failed
                else "none failed"
            )
            + f", then {row.owners}"
            for row in rows
        )

    def failures(self) -> list[str]:
        """Return one sentence for each limit that was missed, and one if this machine is too busy for BFD."""
        missed = [
            f"{row.event}, by {row.address}: "
            + (
                f"a gap of {row.outcome.gap_s * 1000:.0f} ms, and {row.limit_s * 1000:.0f} ms are allowed"
                if row.limit_s
                else f"{counted(row.outcome.failed, 'connection')} failed, and none may"
            )
            for row in self.rows
            if not row.kept
        ]
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        if missed and load > 2 * cores:
            missed.append(
                f"this machine is busy (load {load:.0f}, {cores} cores), and BFD has to run every 0.3 s: try again"
            )
        return missed

    def table(self) -> Table | None:
        """Return the rows so far, and the one that is being counted."""
        if not self._since_s:
            return None
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold", caption_justify="left")
        table.caption = None if self._event else _COLUMNS
        table.add_column("EVENT")
        table.add_column("ADDRESS")
        for title in ("TRIED", "FAILED", "CUT", "LONGEST GAP", "ALLOWED"):
            table.add_column(title, justify="right")
        table.add_column("THEN ANNOUNCED BY")
        before = ""
        for row in self.rows:
            tried, failed, cut, gap_s = row.outcome
            style = ("green" if not failed else "yellow") if row.kept else "bold red"
            table.add_row(
                row.event if row.event != before else "",
                f"{row.address} {self.addresses[row.address]}",
                f"{tried:,}",
                Text(str(failed), style=style),
                str(cut),
                Text(f"{gap_s * 1000:.0f} ms" if failed else "-", style=style),
                f"{row.limit_s * 1000:,.0f} ms" if row.limit_s else "0 failed",
                row.owners,
            )
            before = row.event
        if self.bgp_missing:
            table.add_row("all of them", "BGP", *("-" * 5), self.bgp_missing)
        if self._event:
            now = outcome(attempt for load in self.loads for attempt in load.between(self._since_s))
            table.add_row(f"{self._event} …", "", f"{now.tried:,}", str(now.failed), style="dim")
        return table

    def counts(self) -> str:
        """Return what was tried in all."""
        now = _sum([outcome(load.between(self._since_s)) for load in self.loads]) if self._since_s else None
        return f"{self._event or 'nothing happens'}: {now.tried} connections tried, {now.failed} failed" if now else ""

    def summary(self) -> str:
        """Return what was tried in all, and what failed where nothing may."""
        tried, failed = (sum(row.outcome[index] for row in self.rows) for index in (0, 1))
        planned = sum(row.outcome.failed for row in self.rows if not row.limit_s)
        return f"{tried:,} connections tried, {failed} failed, {planned} of them where none may"

    def ending(self, *, passed: bool) -> str:
        """Return the suffix of the summary."""
        return "" if passed else ", or something else was not as it should be"

    def commands(self) -> list[str]:
        """Return commands that the user can try while everything is kept running."""
        hub = f"--kubeconfig {self.site.kubeconfig}"
        inside = [
            f"  ip netns exec {self.site.client.name} curl http://{address}/" for address in self.addresses.values()
        ]
        return [f"  fairlead proxy list {hub}", f"  fairlead status {hub}", *inside]

    async def close(self) -> None:
        """End everything."""
        await asyncio.gather(*(load.stop() for load in self.loads))
        await self.site.close()


async def start_everything(context: ProxiesContext) -> None:
    """Make the networks; start the hub, a member cluster and the machines."""
    context.progress.step_started("networks, a hub and a member cluster start")
    site = context.site
    await site.start()
    if not context.bgp_missing:
        await site.start_bgp()
    router = "a router with BIRD" if not context.bgp_missing else "a router"
    names = [namespace.name for namespace in (site.router_namespace, site.client, site.far_client, site.hub_namespace)]
    context.progress.step_done(
        f"{router}, two clients and a hub run, each in a network of its own",
        f"network namespaces: {', '.join(names)}",
        *([f"{context.bgp_missing}; without it there is no BGP here"] if context.bgp_missing else []),
    )
    context.progress.step_started("three machines join, by the command that fairlead proxy token prints")
    await asyncio.gather(_serve(context), *map(site.join, MACHINES))
    facts = [f"{name} {machine.namespace.address}" for name, machine in site.machines.items()]
    context.progress.step_done("three machines have joined, each with an Envoy of its own", ", ".join(facts))


async def give_addresses(context: ProxiesContext) -> None:
    """Wait until all machines serve both Services, and begin to connect."""
    context.progress.step_started("two Services get addresses")
    site = context.site
    for way in ("ARP", "BGP") if not context.bgp_missing else ("ARP",):
        context.addresses[way] = await site.member.address(_service(way))
    for where, client in (("client-1", site.client), ("client-2", site.far_client)):
        for address in context.addresses.values():
            context.loads.append(Attempts(where, address, 80, _EVERY_S, command=client.preferred))
    await asyncio.gather(*(load.start() for load in context.loads))

    async def all_serve() -> bool:
        placed = [set(await _placed(context, way)) for way in context.addresses]
        everywhere = all(machines == set(MACHINES) for machines in placed)
        return everywhere and await _as_recorded(context) and all(_answered(load) for load in context.loads)

    await wait_until(all_serve, "all machines serve both Services")
    ways = {"ARP": "one machine answers for it", "BGP": "the router spreads connections over three machines"}
    facts = [
        f"NAME {_service(way)}   TYPE LoadBalancer   EXTERNAL-IP {address}   by {way}: {ways[way]}"
        for way, address in context.addresses.items()
    ]
    context.progress.step_done("two Services have addresses, and both clients are answered at both", *facts)
    context.begin()


async def lose_power(context: ProxiesContext) -> None:
    """End everything on the machine that owns the address, and start it again."""
    machine = await _owner(context)
    event = f"{machine.name} loses power"
    context.progress.step_started(event)
    await context.observe(
        event,
        machine.lose_power,
        lambda: _others_announce(context, machine),
        limits={"ARP": _ARP_GAP_S, "BGP": _BGP_GAP_S},
    )
    context.progress.step_done(f"{event}: processes and addresses are gone at once", context.last())
    context.progress.step_started(f"{machine.name} boots")
    await context.observe(f"{machine.name} boots", machine.power_on, lambda: _as_recorded(context))
    context.progress.step_done(f"{machine.name} boots, and announces what it serves", context.last())


async def lose_hub_and_cable(context: ProxiesContext) -> None:
    """Kill the hub, pull the cable of the owner while it is dead, start it, plug the cable in."""
    site = context.site
    context.progress.step_started("the hub is killed with -9")
    await context.observe("hub killed", site.hub.kill, lambda: _all_announce(context), moves=False)
    context.progress.step_done("the hub is killed with -9, and no machine notices", context.last())

    machine = await _owner(context)
    event = f"cable of {machine.name} pulled"
    context.progress.step_started(f"{event}, while the hub is dead")

    async def pull() -> None:
        machine.namespace.set_cable(plugged=False)

    await context.observe(
        event, pull, lambda: _others_announce(context, machine), limits={"ARP": _ARP_GAP_S, "BGP": _BGP_CUT_GAP_S}
    )
    context.progress.step_done(f"{event}, while the hub is dead", context.last())

    context.progress.step_started("the hub starts again")
    before = site.router.updates() if site.router else (0, 0)
    await context.observe("hub started", site.start_hub, lambda: _others_announce(context, machine), moves=False)
    updates = sum(site.router.updates()) - sum(before) if site.router else 0
    if updates:
        raise ExpectationFailed(f"the router got {updates} updates when the hub started, and may get none")
    unchanged = ", and the router gets 0 updates" if site.router else ""
    context.progress.step_done(f"the hub starts again{unchanged}", context.last())

    context.progress.step_started(f"the cable of {machine.name} is back")
    back: list[float] = []

    async def plug_in() -> None:
        machine.namespace.set_cable(plugged=True)
        at_s = time.monotonic()
        if not context.bgp_missing:
            await wait_until(lambda: _is_hop(context, machine), f"the router has a route to {machine.name} again")
        back.append(time.monotonic() - at_s)

    await context.observe("cable plugged in", plug_in, lambda: _as_recorded(context))
    if back[0] > _BACK_S:
        raise ExpectationFailed(
            f"the router had a route to {machine.name} again after {back[0]:.1f} s, and {_BACK_S:g} s are allowed"
        )
    again = [f"the router has its route again after {back[0]:.1f} s"] if not context.bgp_missing else []
    context.progress.step_done(f"the cable of {machine.name} is back", context.last(), *again)


async def drain(context: ProxiesContext) -> None:
    """Drain the owner, and use it again."""
    machine = await _owner(context)
    event = f"{machine.name} drained"
    context.progress.step_started(f"{event}: fairlead proxy drain {machine.name}")
    await context.observe(
        event, lambda: _proxy(context, "drain", machine.name, "--for", "2s"), lambda: _others_announce(context, machine)
    )
    context.progress.step_done(f"{event}: its addresses move first", context.last())
    event = f"{machine.name} undrained"
    context.progress.step_started(event)
    await context.observe(event, lambda: _proxy(context, "undrain", machine.name), lambda: _as_recorded(context))
    context.progress.step_done(event, context.last())


async def upgrade(context: ProxiesContext) -> None:
    """Change Envoy on all machines, one after another: to a copy of itself, at another path."""
    binary = context.site.directory / "envoy-next"
    await asyncio.to_thread(shutil.copy, find_binary(), binary)
    before = [machine.envoy[1] for machine in context.site.machines.values()]
    event = "Envoy upgraded"
    context.progress.step_started("Envoy is upgraded: fairlead proxy upgrade --binary")
    await context.observe(
        event, lambda: _proxy(context, "upgrade", "--binary", str(binary), "--for", "2s"), lambda: _as_recorded(context)
    )
    after = [machine.envoy[1] for machine in context.site.machines.values()]
    if any(process in before for process in after):
        raise ExpectationFailed(f"Envoy was not restarted everywhere: {before} became {after}")
    context.progress.step_done("Envoy is upgraded, one machine after another, each drained first", context.last())


STEPS: Sequence[Callable[[ProxiesContext], Awaitable[None]]] = (
    start_everything,
    give_addresses,
    lose_power,
    lose_hub_and_cable,
    drain,
    upgrade,
)


def _service(way: str) -> str:
    return f"by-{way.lower()}"


def _sum(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        sum(part.tried for part in outcomes),
        sum(part.failed for part in outcomes),
        sum(part.cut for part in outcomes),
        max((part.gap_s for part in outcomes), default=0.0),
    )


def _answered(load: Attempts) -> bool:
    """Return whether the last connections of a client were all answered."""
    last = load.all[-15:]
    return len(last) == 15 and all(attempt.answered for attempt in last)


async def _serve(context: ProxiesContext) -> None:
    """Start a member cluster with pods and Services."""
    site = context.site
    member = await site.start_member(_MEMBER)
    pods = [(await site.pod(name)).partition(":")[0] for name in _PODS]
    for way in ("ARP", "BGP") if not context.bgp_missing else ("ARP",):
        request = {ANNOTATION_REQUESTED_ADDRESS: _BY_BGP} if way == "BGP" else {}
        await member.service(_service(way), {"port": 80, "targetPort": 8080}, annotations=request)
        await member.endpoints(_service(way), 8080, *pods)


async def _owner(context: ProxiesContext) -> ProxyMachine:
    (name,) = await context.owners("ARP")
    return context.site.machines[name]


async def _is_hop(context: ProxiesContext, machine: ProxyMachine) -> bool:
    return machine.name in await context.owners("BGP")


async def _all_announce(context: ProxiesContext) -> bool:
    """Return whether one machine owns the address on the link, and the router knows all of them."""
    by_arp = await context.owners("ARP")
    return len(by_arp) == 1 and (context.bgp_missing != "" or len(await context.owners("BGP")) == len(MACHINES))


async def _as_recorded(context: ProxiesContext) -> bool:
    """Return whether all announce, and the address on the link is at the machine that the hub has recorded first."""
    return await _all_announce(context) and (await _placed(context, "ARP"))[:1] == await context.owners("ARP")


async def _placed(context: ProxiesContext, way: str) -> list[str]:
    """Return the machines of an address in the order that the hub has recorded."""
    name = f"default.{_service(way)}"
    placement = (await context.site.cluster.get(TCP_LOAD_BALANCERS, f"tenant-{_MEMBER}", name)).status.placement
    return list(placement.machines) if placement is not None else []


async def _others_announce(context: ProxiesContext, machine: ProxyMachine) -> bool:
    """Return whether the others have taken over, as far as the network can see."""
    by_arp = set(await context.owners("ARP")) - {machine.name}
    others = set(MACHINES) - {machine.name}
    return len(by_arp) == 1 and (context.bgp_missing != "" or set(await context.owners("BGP")) == others)


async def _proxy(context: ProxiesContext, *arguments: str) -> None:
    code, out, problem = await run_fairlead("proxy", *arguments, "--kubeconfig", str(context.site.kubeconfig))
    if code not in (0, 4):
        raise ExpectationFailed(f"fairlead proxy {' '.join(arguments)} failed: {problem.strip() or out.strip()}")
