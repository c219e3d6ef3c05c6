"""Stories: what users do and what goes wrong, and when. A seed makes one; a text holds one.

In: a seed or a text. Out: a shape and events; ``play`` runs them in a world and returns what was violated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from fairlead.api.names import SYSTEM_NAMESPACE, hub_lease
from fairlead.api.times import parsed_time
from tests.simulate import invariants, zone
from tests.simulate.api import Obj
from tests.simulate.link import TROUBLES, Network
from tests.simulate.simulated_world import (
    HARDWARE,
    SECOND_SITE,
    Intended,
    Shape,
    Violation,
    World,
    group_of,
    hub_name,
    new_random,
)

#: Seconds after the end of all faults by which everything must be as it should be.
CALM_S = 900.0
_POLL_S = 5.0
#: Seconds without a write after which everything is at rest.
_REST_S = 40.0
_LEASE_KINDS = {"leases", "events"}


class Event(NamedTuple):
    """One thing that happens, at so many seconds."""

    at_s: float
    verb: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((f"{self.at_s:g}", self.verb, *self.arguments))


class Story(msgspec.Struct, frozen=True):
    """A shape, the seed of the link, and events in order."""

    seed: str
    shape: Shape
    events: tuple[Event, ...]

    def __str__(self) -> str:
        head = f"seed {self.seed} shape {msgspec.json.encode(self.shape).decode()}"
        return "; ".join([head, *map(str, self.events)])


def parse(text: str) -> Story:
    """Return the story of a text: ``seed S shape JSON; AT VERB WORD...; ...``, or a line each."""
    lines = [line.strip() for line in text.replace(";", "\n").splitlines() if line.strip()]
    _, seed, _, shape = lines[0].split(" ", 3)
    events: list[Event] = []
    for line in lines[1:]:
        at, verb, *arguments = line.split(" ")
        events.append(Event(float(at), verb, tuple(arguments)))
    return Story(seed, msgspec.json.decode(shape, type=Shape), tuple(events))


class Result(NamedTuple):
    """What became of a story."""

    violation: Violation | None
    digest: int
    trace: Sequence[str]
    virtual_s: float
    steps: int


# --- making a story -----------------------------------------------------------------------------------------------


_STATES = {"R": "R", "T": "T0", "S": "TS", "N": "N"}
#: The life of a pod: it may crash, terminate with or without serving on, and vanish without a word.
_NEXT = {"R": ("R", "TS", "TS", "T0", "N", "-"), "TS": ("TS", "T0", "T0", "-"), "T0": ("-",), "N": ("R", "N", "T0")}


class _Author:
    """Makes up a story."""

    def __init__(self, seed: int) -> None:
        self.random = new_random("story", seed)
        self.first_region = "" if seed % 2 == 0 else "us"
        self.events: list[Event] = []
        self.names = ("a", "b", "c", "d")
        self.shape = self._shape()
        self.tenants = ["east", "west"]
        self.processes = self._processes()
        #: Which troubles this seed knows: few kinds at once find more than all at once.
        self.troubles = self.random.sample(sorted(TROUBLES), self.random.choice((1, 2, 4, 8)))
        self.verbs = self._verbs()
        self.states: dict[tuple[str, str], dict[int, str]] = {}

    def _processes(self) -> list[str]:
        return [f"hub-{n}" for n in range(self.shape.hubs)] + [f"agent-{t}" for t in self.shape.agents]

    def _shape(self) -> Shape:
        draw = self.random.random()
        lease_s = self.random.choice((15.0, 15.0, 30.0))
        pool = self.random.choice(("192.0.2.0/29", "192.0.2.0/30", "192.0.2.0/29"))
        if draw < 0.001:
            return Shape(kind="long", hubs=0, agents=("east",), lease_s=3600.0, heartbeat_s=3600.0, no_rights=True)
        if draw < 0.05:
            return Shape(kind="region", hubs=2, regions=(self.first_region, "eu"), lease_s=lease_s, pool=pool)
        if draw < 0.10:
            return Shape(kind="hub", hubs=1, lease_s=lease_s, pool="")
        if draw < 0.30:
            return Shape(kind="hub", hubs=2, lease_s=lease_s, pool=pool)
        if draw < 0.62:
            return Shape(kind="hub", hubs=1, lease_s=lease_s, pool=pool)
        if draw < 0.9:
            return Shape(kind="agent", hubs=1, agents=("east",), lease_s=lease_s, pool=pool)
        return Shape(kind="agent", hubs=1, agents=("east", "west"), lease_s=lease_s, pool=pool)

    def _verbs(self) -> list[str]:
        """Return the kinds of faults that this story may have, so that not all happen in all."""
        every = ["weather", "lag", "cut", "restart", "kill", "suspend", "sleep", "jump", "webhook", "spoil", "expire",
                 "droplease", "dropns", "tenants", "foreign", "pools", "provider", "regions", "fence"]  # fmt: skip
        return self.random.sample(every, self.random.choice((0, 1, 2, 2, 3, 4)))

    def write(self) -> Story:
        draw, at_s = self.random, 0.0
        if self.shape.kind == "long":
            return Story(str(draw.random()), self.shape, (Event(36_000.0, "end", ()),))
        for tenant in self.tenants:
            self.add(0.0, "tenant", tenant, "{}")
        self.add(0.0, "class", HARDWARE)
        if not self.shape.pool:
            self.add(0.0, "pool", "p", "198.51.100.0/29")
        at_s = 6.0
        for _ in range(draw.choice((6, 10, 16, 24))):
            at_s += draw.choice((0.0, 0.1, 0.5, 1.0, 2.0, 4.0))
            if draw.random() < 0.04:
                at_s += 75.0  # long enough that nothing before it is late news
            if self.verbs and draw.random() < 0.35:
                self._fault(at_s, draw.choice(self.verbs))
            else:
                self._user(at_s)
        at_s += draw.choice((1.0, 5.0, 20.0))
        self.add(at_s, "end")
        return Story(str(draw.randrange(10**9)), self.shape, tuple(sorted(self.events, key=lambda event: event.at_s)))

    def drill(self) -> Story:
        """Write of one moment: much is served for long, then something is wrong while processes change or users act."""
        draw = self.random
        if self.shape.kind == "long":
            return self.write()
        for tenant in self.tenants:
            self.add(0.0, "tenant", tenant, "{}")
        self.add(0.0, "class", HARDWARE)
        if not self.shape.pool:
            self.add(0.0, "pool", "p", "198.51.100.0/29")
        for number in range(draw.choice((2, 3, 4))):
            self._load_balancer(8.0 + number / 2, self.tenants[number % 2], draw.choice(self.names[:2]))
        hubs = [name for name in self.processes if name.startswith("hub")]
        at_s = draw.choice((12.0, 20.0, 85.0, 85.0))
        if draw.random() < 0.3:
            # Several terms leave epochs on record.
            for number in range(draw.choice((1, 2, 3))):
                self.add(at_s + 8.0 * number, "stop", hubs[0])
                self.add(at_s + 8.0 * number + 1.0, "start", hubs[0])
            at_s += 30.0
        end_s = at_s + draw.choice((6.0, 15.0, 30.0))
        for wrong in draw.sample(self._WRONG, draw.choice((0, 1, 1, 1, 2))):
            self._go_wrong(at_s, end_s, wrong)
        start_s = self._change(at_s + draw.choice((0.5, 1.5, 3.0)), draw.choice(hubs))
        for _ in range(draw.choice((2, 4, 7))):
            self._act(draw.choice((at_s - 1.0, at_s + 0.7, start_s, start_s)) + 3.0 * draw.random())
        self.add(end_s + draw.choice((1.0, 12.0)), "end")
        return Story(str(draw.randrange(10**9)), self.shape, tuple(sorted(self.events, key=lambda event: event.at_s)))

    # --- two hubs that share a zone ----------------------------------------------------------------------------

    def zone(self) -> Story:
        """Write of hubs with separate APIs that publish the same names in one zone; some have a second replica."""
        draw = self.random
        self.shape = Shape(kind="zone", hubs=draw.choice((2, 2, 3)))
        self.processes = self._processes()
        lease = draw.choice((15, 15, 30))
        sites = {"hub": lease, SECOND_SITE: draw.choice((lease, lease, lease, 0))}
        for site, lease_s in sites.items():
            self.add(0.0, "share", site, str(lease_s))
        at_s = 8.0
        for site in sites:
            for host in zone.HOSTS:
                self._publish(at_s, site, host)
        at_s += draw.choice((4.0, 15.0, 75.0, 75.0))
        verbs = draw.sample(
            ("zonecut", "zonetrouble", "down", "gone", "weather", "suspend", "fail"), draw.choice((1, 2, 3))
        )
        for _ in range(draw.choice((4, 8, 12))):
            at_s += draw.choice((0.0, 0.5, 2.0, 5.0, 15.0))
            if draw.random() < 0.04:
                at_s += 75.0
            if draw.random() < 0.5:
                self._wrong_in_zone(at_s, draw.choice(verbs))
            elif draw.random() < 0.15:
                self.add(at_s, "unpublish", draw.choice(list(sites)), draw.choice(zone.HOSTS))
            else:
                self._publish(at_s, draw.choice(list(sites)), draw.choice(zone.HOSTS))
        if draw.random() < 0.15:
            self.add(at_s + 5.0, "share", SECOND_SITE, draw.choice(("0", "15", "30")))
        self.add(at_s + draw.choice((1.0, 20.0, 45.0)), "end")
        return Story(str(draw.randrange(10**9)), self.shape, tuple(sorted(self.events, key=lambda event: event.at_s)))

    def _publish(self, at_s: float, site: str, host: str) -> None:
        draw = self.random
        own = [f"192.0.2.{number + (128 if site == SECOND_SITE else 0)}" for number in (1, 2)]
        addresses = draw.sample([*own, "203.0.113.9"], draw.choice((1, 1, 2)))
        unhealthy = draw.sample(addresses, draw.choice((0, 0, 0, 1, len(addresses))))
        self.add(at_s, "publish", site, host, ",".join(addresses), ",".join(unhealthy) or "-")

    def _wrong_in_zone(self, at_s: float, verb: str) -> None:
        draw, process = self.random, self.random.choice(self.processes)
        for_s = draw.choice((2.0, 8.0, 20.0, 50.0))
        match verb:
            case "zonecut":
                self.add(at_s, "zonecut", process)
                self.add(at_s + for_s, "zoneopen", process)
            case "down":  # the server of the zone, or the network before it
                for_s = draw.choice((for_s, 35.0, 50.0))
                for each in self.processes:
                    self.add(at_s, "zonecut", each)
                    self.add(at_s + for_s + 4.0 * draw.random(), "zoneopen", each)
            case "zonetrouble":
                self.add(at_s, "zonetrouble", process, str(draw.choice((0.1, 0.4))))
                self.add(at_s + for_s, "zoneopen", process)
            case "gone":
                self.add(at_s, draw.choice(("kill", "kill", "stop")), process)
                self.add(at_s + for_s, "start", process)
            case "weather":
                host = SECOND_SITE if process == "hub-1" else "hub"
                self.add(at_s, "weather", process, host, str(draw.choice((0.1, 0.4))), ",".join(self.troubles))
                self.add(at_s + for_s, "clear", process, host)
            case "suspend":
                self.add(at_s, "suspend", process)
                self.add(at_s + for_s, "resume", process)
            case _:  # all load balancers of a name fail at once, everywhere
                host = draw.choice(zone.HOSTS)
                for site, address in (("hub", "192.0.2.1"), (SECOND_SITE, "192.0.2.129")):
                    self.add(at_s + draw.choice((0.0, 0.0, 0.02)), "publish", site, host, address, address)
                    self.add(at_s + for_s + draw.random(), "publish", site, host, address, "-")

    # --- one moment at which a fault of Fairlead showed --------------------------------------------------------

    def moment(self) -> Story:
        """Write of what has to come together for a fault to show: by chance that is rare."""
        draw = self.random
        if self.shape.kind == "long":
            return self.write()
        for tenant in self.tenants:
            self.add(0.0, "tenant", tenant, "{}")
        self.add(0.0, "class", HARDWARE)
        if not self.shape.pool:
            self.add(0.0, "pool", "p", "198.51.100.0/29")
        moments = (
            self._page_instead_of_an_answer,
            self._unreadable_at_a_start,
            self._lease_lost_after_terms,
            self._watch_behind_at_a_term,
            self._asleep_beyond_a_term,
            self._last_pods_leave,
        )
        end_s = draw.choice(moments)()
        self.add(end_s, "end")
        return Story(str(draw.randrange(10**9)), self.shape, tuple(sorted(self.events, key=lambda event: event.at_s)))

    def _hubs(self) -> list[str]:
        return [name for name in self.processes if name.startswith("hub")]

    def _serve_some(self, at_s: float, klass: str = "") -> list[tuple[str, str]]:
        """Add a load balancer of each tenant, which has pods from the start; return whose they are."""
        made = [(tenant, self.random.choice(self.names[:2])) for tenant in self.tenants]
        for tenant, name in made:
            self._load_balancer(at_s, tenant, name, plain=True, klass=klass)
        return made

    def _page_instead_of_an_answer(self) -> float:
        """A proxy before the API answers 404 for it, while what must not be lost is deleted or changed."""
        draw = self.random
        served = self._serve_some(7.0, klass=draw.choice(("", HARDWARE)))
        at_s = draw.choice((12.0, 80.0, 80.0))
        kinds = [each for each in sorted(TROUBLES) if "404" in each]
        self.add(at_s - 2.0, "namespace", "prod", "-")
        for process in self.processes:
            self.add(at_s, "weather", process, "hub", str(draw.choice((0.3, 0.6))), draw.choice(kinds))
            self.add(at_s + 20.0, "clear", process, "hub")
        for number in range(draw.choice((2, 3, 4))):
            tenant, name = draw.choice(served)
            when_s = at_s + 1.0 + 3.0 * number
            match draw.randrange(4):
                case 0:
                    self.add(when_s, "untenant", tenant)
                case 1:
                    self.add(when_s, "unlb", tenant, name)
                case 2:
                    self.add(when_s, "tenant", "xen", '{"namespace":"prod"}')
                    self.add(when_s + 4.0, "untenant", "xen")
                case _:
                    self.add(when_s, "endpoints", tenant, name, f"{draw.randrange(1, 6)}:R")
        return at_s + 21.0

    def _unreadable_at_a_start(self) -> float:
        """No hub runs while objects become unreadable; others ask for what these have."""
        draw = self.random
        served = self._serve_some(7.0)
        at_s = draw.choice((12.0, 80.0))
        for _ in range(draw.choice((1, 1, 2))):
            plural = draw.choice(("tcploadbalancers", "tcploadbalancers", "tenants", "addresspools", "hostnames"))
            self.add(at_s, "spoil", plural, *draw.choice(served), draw.choice(("spec", "deep", "status")))
        for each in self._hubs():
            self.add(at_s + 0.5, draw.choice(("stop", "kill")), each)
            self.add(at_s + 3.0, "start", each)
        for _ in range(draw.choice((2, 3))):
            self._act(at_s + draw.choice((1.0, 2.0, 5.0)))
        return at_s + draw.choice((8.0, 20.0))

    def _lease_lost_after_terms(self) -> float:
        """Records of several terms remain, and the Lease is deleted while no hub runs, or while one leads."""
        draw = self.random
        served = self._serve_some(7.0, klass=HARDWARE)
        at_s = 12.0
        for _ in range(draw.choice((1, 2, 3))):
            for each in self._hubs():
                self.add(at_s, "stop", each)
                self.add(at_s + 1.0, "start", each)
            at_s += 8.0
        for tenant, name in served:
            self.add(at_s, "endpoints", tenant, name, draw.choice(("1:R,2:R", "3:R", "1:R,4:R,5:R")))
        at_s += 4.0
        runs = draw.random() < 0.3
        for each in () if runs else self._hubs():
            self.add(at_s, "stop", each)
            self.add(at_s + 3.0, "start", each)
        self.add(at_s + 2.0, "droplease", "fairlead-hub")
        for tenant, name in served:
            if draw.random() < 0.5:
                self.add(at_s + 6.0, "unlb", tenant, name)
            else:
                self.add(at_s + 6.0, "endpoints", tenant, name, "2:R")
        return at_s + 15.0

    def _watch_behind_at_a_term(self) -> float:
        """Much waits to be recorded; the leader records it and ends, and the watch of the next one does not show it."""
        draw, at_s = self.random, 10.0
        if not self.shape.regions:
            self.shape = msgspec.structs.replace(self.shape, hubs=2)
            self.processes = self._processes()
        self.add(at_s, "webhook", "hub", "tcploadbalancers", draw.choice(("400", "403", "422")))
        for each in self._hubs():
            self.add(at_s + 3.5, "lag", each, "hub", draw.choice(("tcploadbalancers", "tcploadbalancers", "*")), "24")
        self.add(at_s + 4.0, "unwebhook", "hub", "tcploadbalancers")
        for number, name in enumerate(self.names):
            for tenant in self.tenants:
                self._load_balancer(at_s + 0.5 + number / 10, tenant, name, plain=True)
        at_s += draw.choice((8.0, 10.0, 13.0))
        self.add(at_s, draw.choice(("stop", "stop", "kill")), "leader")
        for number in range(draw.choice((0, 1, 2))):
            self.add(at_s + 0.5, "unlb", draw.choice(self.tenants), self.names[number])
        return at_s + 20.0

    def _asleep_beyond_a_term(self) -> float:
        """The machine of the leader sleeps for about a term, and users act before it wakes."""
        draw = self.random
        self._serve_some(7.0)
        at_s = 14.0 + 5.0 * draw.random()
        for_s = (2 / 3) * self.shape.lease_s + draw.choice((-1.5, -0.5, 0.5, 2.0))
        for each in self._hubs():
            self.add(at_s, "sleep", each, f"{for_s:g}")
        for tenant in self.tenants:
            for name in self.names[2:]:
                self._load_balancer(at_s + for_s - 1.0, tenant, name, plain=True)
        return at_s + for_s + 10.0

    def _last_pods_leave(self) -> float:
        """All pods terminate and are gone, while hubs run or are replaced."""
        draw = self.random
        served = self._serve_some(7.0)
        at_s = 12.0
        if draw.random() < 0.3:
            self.add(at_s + draw.choice((1.0, 4.5)), "stop", "leader")
            for each in self._hubs():
                self.add(at_s + 6.0, "start", each)
        for tenant, name in served:
            before = sorted(self.states.get((tenant, name), {1: "R"}))
            for state in ("TS", "T0") if draw.random() < 0.4 else ("T0",):
                self.add(at_s, "endpoints", tenant, name, ",".join(f"{number}:{state}" for number in before))
                at_s += draw.choice((3.5, 5.0))
            self.add(at_s, "endpoints", tenant, name, "-")
        return at_s + 4.0

    _WRONG = ("404", "unreadable", "late", "refused", "no-lease", "webhook")

    def _go_wrong(self, at_s: float, end_s: float, wrong: str) -> None:
        draw = self.random
        match wrong:
            case "404":
                kinds = [each for each in sorted(TROUBLES) if "404" in each]
                for process in self.processes:
                    self.add(at_s, "weather", process, "hub", str(draw.choice((0.1, 0.3, 0.6))), draw.choice(kinds))
                    self.add(end_s, "clear", process, "hub")
            case "unreadable":
                for _ in range(draw.choice((1, 2, 3))):
                    plural = draw.choice(
                        (
                            "tcploadbalancers",
                            "tcploadbalancers",
                            "endpointslices",
                            "tenants",
                            "addresspools",
                            "hostnames",
                        )
                    )
                    tenant, name = draw.choice(self.tenants), draw.choice(self.names[:2])
                    self.add(at_s, "spoil", plural, tenant, name, draw.choice(("spec", "deep", "status")))
            case "late":
                process, plural = draw.choice(self.processes), draw.choice(("tcploadbalancers", "*", "hostnames"))
                self.add(at_s, "lag", process, "hub", plural, str(draw.choice((6.0, 12.0))))
                self.add(end_s, "unlag", process, "hub", plural)
            case "refused":
                self.add(at_s, "tenant", "aaa", '{"namespace":"tenant-east","maxPorts":1}')
            case "no-lease":
                self.add(at_s + 2.0, "droplease", "fairlead-hub")
            case _:
                plural = draw.choice(("tcploadbalancers", "backendrecords", "namespaces"))
                self.add(at_s, "webhook", "hub", plural, draw.choice(("400", "403", "422")))
                self.add(end_s, "unwebhook", "hub", plural)

    def _change(self, at_s: float, hub: str) -> float:
        """Change which processes run; return when that is over."""
        draw = self.random
        hubs = [name for name in self.processes if name.startswith("hub")]
        match draw.randrange(5):
            case 0:  # one is replaced
                self.add(at_s, draw.choice(("stop", "kill")), hub)
                self.add(at_s + 2.0, "start", hub)
                return at_s + 2.0
            case 1 | 2:  # none runs for a while
                for each in hubs:
                    self.add(at_s, draw.choice(("stop", "kill")), each)
                    self.add(at_s + 3.0, "start", each)
                return at_s + 3.0
            case 3:  # their machine sleeps
                for_s = draw.choice((2 / 3, 2 / 3, 1.0)) * self.shape.lease_s + draw.choice((-1.0, -0.5, 0.0, 0.5))
                self.add(at_s, "sleep", hub, str(for_s))
                return at_s + for_s - 1.0
            case _:
                return at_s

    def _act(self, at_s: float) -> None:
        """Add what one user does, at a moment that matters."""
        draw = self.random
        tenant, name = draw.choice(self.tenants), draw.choice(self.names)
        match draw.randrange(8):
            case 0:
                self.add(at_s, "untenant", tenant)
            case 1:
                self.add(at_s, "unlb", tenant, name)
            case 2:
                # Scaled to none: its pods terminate, and then they are gone.
                before = self.states.pop((tenant, name), {})
                if before:
                    self.add(at_s, "endpoints", tenant, name, ",".join(f"{number}:T0" for number in sorted(before)))
                    self.add(at_s + 4.0, "endpoints", tenant, name, "-")
            case 3 | 4:
                self.add(at_s, "endpoints", tenant, name, self._endpoints(tenant, name))
            case _:
                self._load_balancer(at_s, tenant, name)

    def add(self, at_s: float, verb: str, *arguments: str) -> None:
        self.events.append(Event(round(at_s, 2), verb, arguments))

    def _user(self, at_s: float) -> None:
        draw = self.random
        tenant, name = draw.choice(self.tenants), draw.choice(self.names[: draw.choice((1, 2, 4))])
        dice = draw.random()
        if dice < 0.40:
            self._load_balancer(at_s, tenant, name)
        elif dice < 0.55:
            self.add(at_s, "unlb", tenant, name)
        else:
            self.add(at_s, "endpoints", tenant, name, self._endpoints(tenant, name))

    def _load_balancer(self, at_s: float, tenant: str, name: str, *, plain: bool = False, klass: str = "") -> None:
        draw = self.random
        if plain:
            region = self.shape.regions[0] or "-" if self.shape.regions else "-"
            klass = klass or draw.choice(("envoy", "envoy", HARDWARE))
            self.add(at_s, "lb", tenant, name, klass, draw.choice(("80", "80,443")), "-", "-", region)
            self.add(at_s + 0.3, "endpoints", tenant, name, self._endpoints(tenant, name, alive=True))
            return
        ports = draw.choice(("80", "80", "80,443", "443"))
        klass = draw.choice(("envoy", "envoy", "envoy", HARDWARE))
        base = "192.0.2." if self.shape.pool else "198.51.100."
        request = base + str(draw.choice((1, 2))) if draw.random() < 0.3 and klass == "envoy" else "-"
        host = draw.choice(("x.example.org", "y.example.org")) if draw.random() < 0.15 else "-"
        region = draw.choice(self.shape.regions) or "-" if self.shape.regions else "-"
        if "regions" in self.verbs and self.shape.kind == "hub":
            region = "eu"
        self.add(at_s, "lb", tenant, name, klass, ports, request, host, region)
        if draw.random() < 0.85:
            self.add(
                at_s + draw.choice((0.0, 0.5)), "endpoints", tenant, name, self._endpoints(tenant, name, alive=True)
            )

    def _endpoints(self, tenant: str, name: str, *, alive: bool = False) -> str:
        """Return the next endpoints: those of before one step further in their lives, or others."""
        draw = self.random
        before = self.states.get((tenant, name), {})
        after: dict[int, str] = {}
        if alive or not before or draw.random() < 0.3:
            if alive or draw.random() < 0.85:
                states = "R" if alive else draw.choice(("R", "R", "RRT", "RS", "T", "SN", "S", "N"))
                for number in draw.sample(range(1, 6), draw.choice((1, 1, 2, 3))):
                    after[number] = _STATES[draw.choice(states)]
        else:
            pace = draw.random()
            for number, state in before.items():
                after[number] = draw.choice(_NEXT[state]) if draw.random() < pace else state
            after = {number: state for number, state in after.items() if state != "-"}
            if draw.random() < 0.4:
                after.setdefault(draw.randrange(1, 6), "R")
        self.states[tenant, name] = after
        return ",".join(f"{number}:{state}" for number, state in sorted(after.items())) or "-"

    def _fault(self, at_s: float, verb: str) -> None:
        draw = self.random
        process = draw.choice(self.processes)
        host = "hub" if process.startswith("hub") or draw.random() < 0.6 else process.replace("agent-", "m-")
        for_s = draw.choice((2.0, 5.0, 15.0, 40.0))
        match verb:
            case "weather":
                self.add(at_s, "weather", process, host, str(draw.choice((0.1, 0.3, 0.6))), ",".join(self.troubles))
                self.add(at_s + for_s, "clear", process, host)
            case "lag":
                plural = draw.choice(
                    ("tcploadbalancers", "endpointslices", "tenants", "*", "backendrecords", "hostnames")
                )
                self.add(at_s, "lag", process, host, plural, str(draw.choice((2.0, 6.0, 12.0))))
                if self.shape.hubs > 1 and process.startswith("hub") and draw.random() < 0.6:
                    # What lags takes over while users go on.
                    for later_s in (0.5, 1.0, 1.5):
                        self._load_balancer(at_s + later_s, draw.choice(self.tenants), draw.choice(self.names))
                    other = "hub-1" if process == "hub-0" else "hub-0"
                    self.add(at_s + 2.0, "stop", other)
                    self.add(at_s + 22.0, "start", other)
                self.add(at_s + for_s, "unlag", process, host, plural)
            case "cut":
                self.add(at_s, "cut", process, host)
                self.add(at_s + for_s, "clear", process, host)
            case "restart":
                self.add(at_s, "stop", process)
                self.add(at_s + draw.choice((0.5, 3.0, 20.0)), "start", process)
            case "kill":
                self.add(at_s, "kill", process)
                self.add(at_s + draw.choice((0.5, 3.0, 20.0)), "start", process)
            case "suspend":
                self.add(at_s, "suspend", process)
                self.add(at_s + draw.choice((3.0, 11.0, 20.0)), "resume", process)
            case "sleep":
                self.add(at_s + draw.random(), "sleep", process, str(draw.choice((9.0, 10.0, 10.5, 11.0, 20.0))))
            case "jump":
                self.add(at_s, "jump", process, str(draw.choice((-7200.0, -60.0, 60.0, 86400.0))))
            case "webhook":
                plural = draw.choice(("tcploadbalancers", "backendrecords", "tenants", "namespaces", "endpointslices"))
                self.add(at_s, "webhook", "hub", plural, draw.choice(("400", "403", "422")))
                self.add(at_s + for_s, "unwebhook", "hub", plural)
            case "spoil":
                plural = draw.choice(
                    ("tcploadbalancers", "tcploadbalancers", "endpointslices", "tenants", "addresspools", "hostnames")
                )
                self.add(
                    at_s,
                    "spoil",
                    plural,
                    draw.choice(self.tenants),
                    draw.choice(self.names),
                    draw.choice(("spec", "spec", "deep", "status")),
                )
                if draw.random() < 0.7:
                    self.add(at_s + 1.0, draw.choice(("kill", "stop")), "hub-0")
                    self.add(at_s + 2.0, "start", "hub-0")
            case "expire":
                self.add(at_s, "expire", host)
            case "droplease":
                stopped = draw.random() < 0.4
                if stopped:
                    for each in self.processes:
                        self.add(at_s - 1.0, draw.choice(("stop", "kill")), each)
                self.add(at_s, "droplease", draw.choice(("fairlead-hub", "fairlead-hub", "fairlead-agent")))
                if stopped:
                    for each in self.processes:
                        self.add(at_s + 1.0, "start", each)
            case "dropns":
                self.add(at_s, "dropns", draw.choice(self.tenants))
            case "tenants":
                match draw.randrange(4):
                    case 0:
                        self.add(at_s, "tenant", "aaa", '{"namespace":"tenant-east","maxPorts":1}')
                    case 1:
                        self.add(at_s, "untenant", draw.choice(self.tenants))
                    case 2:
                        self.add(
                            at_s,
                            "tenant",
                            draw.choice(self.tenants),
                            draw.choice(('{"maxPorts":2}', "{}", '{"maxPorts":1}')),
                        )
                    case _:
                        self.add(at_s, "untenant", "aaa")
            case "foreign":
                self.add(at_s, "namespace", "prod", "-")
                self.add(at_s + 0.1, "tenant", "xen", '{"namespace":"prod"}')
                if draw.random() < 0.5:
                    self.add(at_s + 8.0, "namespace", "prod", "xen")
                elif draw.random() < 0.6:
                    self.add(at_s + 6.0, "tenant", "xen", '{"namespace":"prod","maxPorts":3}')
                    self.add(at_s + 12.0, "untenant", "xen")
            case "pools":
                # The hub without a region serves all of them: its pools and theirs must not overlap.
                base = "203.0.113.128" if self.shape.regions else "203.0.113.0"
                match draw.randrange(3):
                    case 0:
                        self.add(at_s, "pool", "q", base + draw.choice(("/30", "/29")))
                    case 1:
                        self.add(at_s, "unpool", draw.choice(("q", "p")))
                    case _:
                        self.add(at_s, "pool", draw.choice(("q", "p")), base + "/31")
            case "provider":
                self.add(at_s, "trouble", str(draw.choice((0.2, 0.5))))
                self.add(at_s + for_s, "trouble", "0")
            case "regions":
                if self.shape.kind == "hub":
                    self.add(at_s, "stop", "hub-0")
                    self.add(at_s + 2.0, "start", "hub-0", "region=" + draw.choice(("eu", "")))
            case _:
                self.add(at_s, "suspend", process)
                self.add(at_s + 0.5, "kill", process)
                self.add(at_s + 4.0, "start", process)


def story_of(seed: int) -> Story:
    """Return the story of a seed."""
    author = _Author(seed)
    if seed % 32 == 13:
        return author.zone()
    if seed % 8 == 4:
        return author.moment()
    return author.drill() if seed % 8 == 0 else author.write()


# --- playing it ---------------------------------------------------------------------------------------------------


def play(story: Story, *, trace: bool = False, skip: Iterable[str] = ()) -> Result:
    """Run a story; the same story always gives the same result."""
    random.seed(story.seed)
    world = World(story.shape, story.seed)
    Network.current = world.network
    world.trace = [] if trace else None
    invariants.watch(world, skip)
    _Player(world, story).run()
    Network.current = None
    end = world.loop.now_s
    for running in world.processes.values():
        if running.process is not None:
            running.process.kill()
    _keep(world)
    return Result(world.violation, world.digest, world.trace or (), end, world.loop.steps)


_ENDED: list[World] = []


def _keep(world: World) -> None:
    """Keep a world that has ended: to end its coroutines would run code that no killed process runs."""
    _ENDED.append(world)


class _Player:
    """Runs the events of a story, then waits for everything to be as it should be."""

    def __init__(self, world: World, story: Story) -> None:
        self.world = world
        self.story = story
        self.writes = 0
        self.loud: list[str] = []

    def run(self) -> None:
        world, shape = self.world, self.story.shape
        for number in range(shape.hubs):
            region = shape.regions[number] if number < len(shape.regions) else ""
            site = SECOND_SITE if shape.kind == "zone" and number == 1 else "hub"
            world.start(f"hub-{number}", "hub", region=region, site=site)
        for tenant in shape.agents:
            world.start(f"agent-{tenant}", "agent", tenant=tenant)
            if shape.no_rights:
                api = world.members[tenant]
                world.apply(world.hub_api, "namespaces", {"metadata": {"name": f"tenant-{tenant}"}})
                api.lacking |= {
                    (f"agent-{tenant}", "*", plural) for plural in ("ingresses", "ingressclasses", "secrets")
                }
        world.on_write.append(self._count)
        for event in self.story.events:
            self._until(event.at_s)
            if world.violation is not None:
                return
            world.note(f"--- {event.verb} {' '.join(event.arguments)}")
            if (tenant := _troubled(event)) is not None:
                world.troubled.add(tenant)
            try:
                _VERBS[event.verb](world, *event.arguments)
            except Exception as error:
                world.note(f"event failed: {error!r}")
                raise
        self._calm()
        self._settle()

    def _count(self, _api: Any, bucket: Any, change: Any, by: str) -> None:
        if bucket.plural not in _LEASE_KINDS and by not in ("kubectl", "storage"):
            self.writes += 1
            if len(self.loud) > 20:
                del self.loud[0]
            self.loud.append(f"{by} {bucket.plural} {'/'.join(change.key)}")

    def _until(self, at_s: float) -> None:
        world = self.world
        while world.loop.now_s < at_s and world.violation is None:
            step_s = min(at_s, world.loop.now_s + 1.0) if self.story.shape.kind != "long" else at_s
            world.loop.run_until(step_s)
            invariants.tick(world)

    def _calm(self) -> None:
        """End all faults."""
        world = self.world
        world.note("--- calm")
        for line in world.network.lines.values():
            line.weather.clear()
        world.network.webhooks.clear()
        world.trouble.rate = 0.0
        for name in world.processes:
            world.zone.open(name)
        for api in world.network.apis.values():
            spoilt, api.spoilt = api.spoilt, {}
            for plural, key in spoilt:
                api.touch(api.bucket(plural, group_of(plural)), key)
        for name, running in world.processes.items():
            if running.process is not None and running.process.suspended:
                running.process.resume()
            if not running.alive or running.ended:
                running.ended = ""
                if running.process is not None:
                    running.process.kill()
                world.start(name)
        world.calm_since_s = world.loop.now_s

    def _settle(self) -> None:
        """Wait until everything is as it should be, and all writes have ended."""
        world = self.world
        end_s = world.loop.now_s + CALM_S
        problems: list[tuple[str, str]] = []
        quiet_since_s = world.loop.now_s
        before = self.writes
        while world.violation is None:
            self._until(world.loop.now_s + _POLL_S)
            if (writes := self.writes + world.zone.changes) != before:
                before, quiet_since_s = writes, world.loop.now_s
            problems = invariants.problems(world)
            if not problems and world.loop.now_s - quiet_since_s >= _REST_S:
                return
            if world.loop.now_s >= end_s:
                break
        if world.violation is not None:
            return
        if problems:
            world.fail(*problems[0])
        else:
            world.fail("quiet", f"writes never end: {', '.join(self.loud[-4:])}")


# --- events -------------------------------------------------------------------------------------------------------


def _namespace(tenant: str) -> str:
    return f"tenant-{tenant}"


def _lb(world: World, tenant: str, name: str, klass: str, ports: str, request: str, host: str, region: str) -> None:
    service = (tenant, "shop", name) if tenant in world.members else None
    full = hub_name("shop", name) if service else name
    intended = Intended(
        _namespace(tenant),
        full,
        klass,
        tuple(map(int, ports.split(","))),
        request.strip("-"),
        host.strip("-"),
        region.strip("-"),
        since_s=world.loop.now_s,
        service=service,
    )
    there = world.hub_api.get("tcploadbalancers", intended.namespace, intended.name)
    if service is None and there is not None and there["metadata"].get("deletionTimestamp"):
        return  # its user waits until the former one is gone
    home = world.hub_api.get("namespaces", "", intended.namespace, "")
    if service is None and home is not None and home["metadata"].get("deletionTimestamp"):
        return
    if service is None and home is not None:
        intended.home = home["metadata"]["uid"]
    old = world.intended.get(intended.key)
    if old is not None:
        # A class cannot be changed here: that is a story of its own.
        intended.class_name = old.class_name
        intended.request = intended.request if old.class_name != HARDWARE else ""
        intended.endpoints = old.endpoints
        intended.finished, intended.terminated_s = old.finished, old.terminated_s
        if old.ports != intended.ports or old.region != intended.region:
            intended.wanted_since_s = dict.fromkeys(old.wanted_since_s, world.loop.now_s)
        else:
            intended.wanted_since_s = old.wanted_since_s
            if (old.request, old.host) == (intended.request, intended.host):
                intended.since_s = old.since_s
    if world.load_balancer(intended):
        world.intended[intended.key] = intended
        if old is None or old.ports != intended.ports:
            world.slices(intended)


def _unlb(world: World, tenant: str, name: str) -> None:
    service = tenant in world.members
    full = hub_name("shop", name) if service else name
    key = Intended(_namespace(tenant), full, "", ()).key
    if world.intended.pop(key, None) is None:
        return
    if service:
        api = world.members[tenant]
        world.delete(api, "services", "shop", name)
        world.delete(api, "endpointslices", "shop", f"{name}-1")
    else:
        world.delete(world.hub_api, "tcploadbalancers", _namespace(tenant), full)
        world.delete(world.hub_api, "endpointslices", _namespace(tenant), f"{full}-1")


def _endpoints(world: World, tenant: str, name: str, text: str) -> None:
    full = hub_name("shop", name) if tenant in world.members else name
    intended = world.intended.get(Intended(_namespace(tenant), full, "", ()).key)
    if intended is None:
        return
    base = f"10.{1 if tenant == 'east' else 2}.{ord(name) - 96}."
    before = intended.targets()
    old = intended.endpoints
    intended.endpoints = {}
    for part in filter(None, text.strip("-").split(",")):
        number, _, state = part.partition(":")
        intended.endpoints[base + number] = state
    if not world.slices(intended):
        intended.endpoints = old
        return
    now_s = world.loop.now_s
    wanted = intended.targets()
    for address in wanted - before:
        intended.wanted_since_s[address] = now_s
    for address in before - wanted:
        intended.wanted_since_s.pop(address, None)
    for address, state in old.items():
        # Long enough for a process that looks at the present to have seen it terminate.
        shown_s = now_s - intended.terminated_s.get(address, now_s)
        if state == "T0" and address not in intended.endpoints and shown_s >= 3.0 and not world.troubled:
            intended.finished.add(address)
    intended.finished -= intended.endpoints.keys()
    terminated = (address for address, state in intended.endpoints.items() if state == "T0")
    intended.terminated_s = {address: intended.terminated_s.get(address, now_s) for address in terminated}


def _tenant(world: World, name: str, spec: str) -> None:
    there = world.hub_api.get("tenants", "", name)
    content: Obj = msgspec.json.decode(spec)
    if there is not None and (
        there["metadata"].get("deletionTimestamp") or there["spec"].get("namespace") != content.get("namespace")
    ):
        return
    world.tenant(name, content)


def _untenant(world: World, name: str) -> None:
    world.delete(world.hub_api, "tenants", "", name)


def _class(world: World, name: str) -> None:
    spec = {"provider": "memory", "parameters": {"address": "198.51.100.200"}, "drain": "2s"}
    world.apply(world.hub_api, "loadbalancerclasses", {"metadata": {"name": name}, "spec": spec})


def _pool(world: World, name: str, addresses: str) -> None:
    world.apply(world.hub_api, "addresspools", {"metadata": {"name": name}, "spec": {"addresses": [addresses]}})


def _namespace_made(world: World, name: str, tenant: str) -> None:
    body: Obj = {"metadata": {"name": name}}
    if tenant != "-":
        body["metadata"]["labels"] = {"fairlead.dev/tenant": tenant}
    world.apply(world.hub_api, "namespaces", body)


def _drop_namespace(world: World, tenant: str) -> None:
    namespace = _namespace(tenant)
    if world.delete(world.hub_api, "namespaces", "", namespace) >= 300:
        return
    now_s = world.loop.now_s
    for key in [key for key in world.intended if key.namespace == namespace]:
        if tenant in world.members:
            intended = world.intended[key]
            intended.since_s = now_s
            intended.wanted_since_s = dict.fromkeys(intended.wanted_since_s, now_s)
        else:
            del world.intended[key]


def _line(world: World, name: str, host: str) -> Any:
    running = world.processes.get(name)
    if running is None or running.process is None or host not in world.network.apis:
        return None
    return world.network.line(running.process, host)


def _weather(world: World, name: str, host: str, rate: str, troubles: str) -> None:
    if (line := _line(world, name, host)) is not None:
        line.weather.rate, line.weather.troubles = float(rate), tuple(troubles.split(","))


def _clear(world: World, name: str, host: str) -> None:
    if (line := _line(world, name, host)) is not None:
        line.weather.clear()
        for stream in list(line.streams):
            stream.woken()


def _lag(world: World, name: str, host: str, plural: str, seconds: str) -> None:
    if (line := _line(world, name, host)) is not None:
        line.weather.lag_s[plural] = float(seconds)


def _unlag(world: World, name: str, host: str, plural: str) -> None:
    if (line := _line(world, name, host)) is not None:
        line.weather.lag_s.pop(plural, None)


def _cut(world: World, name: str, host: str) -> None:
    if (line := _line(world, name, host)) is not None:
        line.weather.cut = True


def _now_leading(world: World, name: str) -> str:
    """Return the name of a process; ``leader`` is the hub that leads now, the first one when none does."""
    if name != "leader":
        return name
    leading = (each.name for each in world.hubs() if each.app is not None and each.app.elector.is_leader)
    return next(leading, "hub-0")


def _start(world: World, name: str, *flags: str) -> None:
    running = world.processes.get(name)
    if running is None:
        return
    if running.ended and running.process is not None:
        running.process.kill()
    running.ended = ""
    if not running.alive:
        former = running.flags.get("region", "")
        world.start(name, **dict(flag.split("=", 1) for flag in flags))
        if former and all(each.flags.get("region", "") != former for each in world.processes.values()):
            # The hub of a region is gone for good: its Lease is deleted, so that another hub may decide.
            world.delete(world.hub_api, "leases", SYSTEM_NAMESPACE, hub_lease(former))


def _suspend(world: World, name: str) -> None:
    if (running := world.processes.get(name)) and running.process:
        running.process.suspend()


def _resume(world: World, name: str) -> None:
    if (running := world.processes.get(name)) and running.process and running.process.suspended:
        running.process.resume()


def _sleep(world: World, name: str, seconds: str) -> None:
    if (running := world.processes.get(name)) and running.process and not running.process.suspended:
        running.process.sleep(float(seconds))


def _jump(world: World, name: str, seconds: str) -> None:
    if (running := world.processes.get(name)) and running.process:
        running.process.clock.skew_s += float(seconds)


def _webhook(world: World, host: str, plural: str, code: str) -> None:
    world.network.webhooks[host, plural, ""] = int(code)


def _unwebhook(world: World, host: str, plural: str) -> None:
    world.network.webhooks.pop((host, plural, ""), None)


def _deep(raw: bytes) -> bytes:
    depth = 1200
    return raw.replace(
        b'"metadata":{',
        b'"metadata":{"managedFields":[{"fieldsV1":' + b'{"f:a":' * depth + b"{}" + b"}" * depth + b"}],",
        1,
    )


def _wrong(part: str) -> Callable[[bytes], bytes]:
    def change(raw: bytes) -> bytes:
        obj = msgspec.json.decode(raw)
        content = obj.get(part)
        if part == "spec" and "endpoints" in obj:
            obj["endpoints"] = [{"addresses": "10.1.0.2"}]
        elif isinstance(content, dict):
            for name in ("ports", "maxPorts", "addresses", "conditions", "host"):
                if name in content:
                    content[name] = 80 if name != "maxPorts" else "one"
                    break
            else:
                content["maxPorts" if part == "spec" else "conditions"] = "one"
        return msgspec.json.encode(obj)

    return change


def _spoil(world: World, plural: str, tenant: str, name: str, how: str) -> None:
    api = world.hub_api
    bucket = api.bucket(plural, group_of(plural))
    full = hub_name("shop", name) if tenant in world.members else name
    keys = {
        "tcploadbalancers": (_namespace(tenant), full),
        "endpointslices": (_namespace(tenant), f"{full}-1"),
        "tenants": ("", tenant),
    }
    key = keys.get(plural) or next(iter(sorted(bucket.entries)), None)
    if key is None or key not in bucket.entries:
        return
    api.spoilt[plural, key] = _deep if how == "deep" else _wrong(how)
    api.touch(bucket, key)


def _expire(world: World, host: str) -> None:
    if host in world.network.apis:
        world.network.apis[host].expire()


def _drop_lease(world: World, name: str) -> None:
    """Delete the leases of this name that are old enough for each candidate to have seen them."""
    for api in world.network.apis.values():
        for (namespace, lease), entry in list(api.bucket("leases", "coordination.k8s.io").entries.items()):
            created, now = (parsed_time(text) for text in (entry.obj["metadata"]["creationTimestamp"], api.now()))
            if lease.startswith(name) and created is not None and now is not None and (now - created).seconds > 1:
                world.delete(api, "leases", namespace, lease)


def _trouble(world: World, rate: str) -> None:
    world.trouble.rate = float(rate)


def _troubled(event: Event) -> str | None:
    """Return the tenant that an event is a fault for, "*" when for more than one; None when it is none."""
    verb, arguments = event.verb, event.arguments
    if verb in _PEACEFUL:
        return None
    if verb == "spoil" and arguments[0] in ("tcploadbalancers", "endpointslices"):
        return arguments[1]
    if verb == "dropns":
        return arguments[0]
    first, _, tenant = arguments[0].partition("-")
    return tenant if first in ("agent", "m") else "*"


#: What happens without a fault.
_PEACEFUL = {
    "lb",
    "unlb",
    "endpoints",
    "tenant",
    "untenant",
    "class",
    "pool",
    "unpool",
    "namespace",
    "share",
    "publish",
    "unpublish",
    "end",
}
_VERBS: dict[str, Callable[..., None]] = {
    "lb": _lb,
    "unlb": _unlb,
    "endpoints": _endpoints,
    "tenant": _tenant,
    "untenant": _untenant,
    "class": _class,
    "pool": _pool,
    "unpool": lambda world, name: world.delete(world.hub_api, "addresspools", "", name) and None,
    "namespace": _namespace_made,
    "dropns": _drop_namespace,
    "weather": _weather,
    "clear": _clear,
    "lag": _lag,
    "unlag": _unlag,
    "cut": _cut,
    "start": _start,
    "stop": lambda world, name: world.stop(_now_leading(world, name)),
    "kill": lambda world, name: world.kill(_now_leading(world, name)),
    "suspend": _suspend,
    "resume": _resume,
    "sleep": _sleep,
    "jump": _jump,
    "webhook": _webhook,
    "unwebhook": _unwebhook,
    "spoil": _spoil,
    "expire": _expire,
    "droplease": _drop_lease,
    "trouble": _trouble,
    "share": zone.share,
    "publish": zone.publish,
    "unpublish": zone.unpublish,
    "zonecut": zone.cut,
    "zonetrouble": zone.trouble,
    "zoneopen": lambda world, name: world.zone.open(name),
    "end": lambda _world: None,
}

__all__ = ["Event", "Result", "Story", "parse", "play", "story_of"]
