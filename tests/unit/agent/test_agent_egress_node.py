"""Rules and routes of a node for its labelled pods."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import pytest

from fairlead.agent import egress
from fairlead.agent.egress import (
    IDENTITY,
    MAIN,
    REFUSE,
    TABLE,
    EgressNode,
    Hop,
    Programmed,
    nft_rules,
    program,
    rule_commands,
    table_of,
    wanted_rules,
)
from fairlead.api.kubernetes import Pod
from fairlead.api.names import LABEL_EGRESS
from fairlead.errors import BadConfiguration, FairleadError, Retry
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig

VIP, POD = "192.0.2.10", "10.0.0.1"


@pytest.mark.req("P-35")
def test_a_pod_has_its_own_route_and_never_another_one():
    here = {VIP: Hop(device="eth0")}
    assert list(wanted_rules({POD: VIP}, here)) == [(MAIN, POD, 0), (REFUSE, POD, 0), (IDENTITY, POD, table_of(VIP))]
    refused = [(MAIN, POD, 0), (REFUSE, POD, 0)]
    assert list(wanted_rules({POD: ""}, {})) == refused, "no address yet, or a label that cannot be followed"
    assert list(wanted_rules({POD: VIP}, {VIP: Hop(problem="not on a link")})) == refused
    assert list(wanted_rules({POD: VIP}, {VIP: Hop(device="eth0", problem="silent")})) == list(
        wanted_rules({POD: VIP}, here)
    )


def test_rules_that_differ_are_written_and_new_ones_come_first():
    before = wanted_rules({POD: VIP}, {VIP: Hop(device="eth0")})
    after = wanted_rules({"10.0.0.2": VIP}, {VIP: Hop(device="eth0")})
    assert rule_commands(before, before) == ""
    verbs = [line.split()[1] for line in rule_commands(after, before).splitlines()]
    assert verbs == ["add"] * 3 + ["del"] * 3
    (refuse,) = [line for line in rule_commands(before, ()).splitlines() if "unreachable" in line]
    assert f"pref {REFUSE} from {POD}" in refuse


def test_tables_of_addresses_differ_and_are_none_of_the_systems():
    tables = {table_of(address) for address in (VIP, "192.0.2.11", "1.0.0.1", "2001:db8::1", "2001:db8::2")}
    assert len(tables) == 5
    assert min(tables) > 255
    assert max(tables) < 1 << 32


def test_the_node_leaves_only_packets_to_these_next_hops_untranslated():
    text = nft_rules({POD: VIP, "10.0.0.2": "", "fd00::1": "2001:db8::10"})
    rules = [line for line in text.splitlines() if line.startswith("add rule")]
    assert "ip saddr { 10.0.0.1 } rt ip nexthop { 192.0.2.10 } snat ip to ip saddr" in rules[0]
    assert "ip6 saddr { fd00::1 } rt ip6 nexthop { 2001:db8::10 }" in rules[1]


VIP6, POD6 = "2001:db8::10", "fd00::1"
HERE = {VIP: Hop(device="eth0")}


class FakeKernel:
    """Rules, routes and our table of a node; ``fails`` are the beginnings of commands that fail, and how."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self.routes: list[str] = []
        self.table = ""
        self.fails: dict[str, FairleadError] = {}

    async def run(self, program: str, *arguments: str, text: str = "", ignored: Collection[str] = ()) -> bytes:
        del ignored
        failed: FairleadError | None = None
        for line in [f"{program} {' '.join(arguments)}"] if program == "nft" or not text else text.splitlines():
            if error := next((error for start, error in self.fails.items() if line.startswith(start)), None):
                failed = error
            elif line.startswith("rule add ") and arguments[0] == "-4":
                self.rules.append(line.removeprefix("rule add "))
            elif line.startswith("rule del "):
                self.rules.remove(line.removeprefix("rule del "))
            elif line.startswith("route "):
                self.routes.append(line)
        if failed is not None:
            raise failed
        if program == "nft":
            self.table = text or self.table
            return f"table {TABLE}\n".encode() if self.table else b""
        if arguments[1:] == ("-j", "rule", "show") and arguments[0] == "-4":
            return msgspec.json.encode([self._shown(rule) for rule in self.rules])
        return b"[]"

    @staticmethod
    def _shown(rule: str) -> dict[str, object]:
        parts = rule.split()
        table = parts[5] if parts[4] == "lookup" else ""
        return {"priority": int(parts[1]), "src": parts[3], "table": table, "protocol": "178"}

    def way_of(self, pod: str) -> str:
        """Return how what a pod begins leaves the node."""
        priorities = {int(rule.split()[1]) for rule in self.rules if f"from {pod} " in rule}
        dropped = any("refused" in line and pod in line and "drop" in line for line in self.table.splitlines())
        translated = not any("snat" in line and pod in line for line in self.table.splitlines())
        if dropped or (REFUSE in priorities and IDENTITY not in priorities):
            return "refused"
        return "node" if IDENTITY not in priorities or translated else "machine"


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    kernel = FakeKernel()
    monkeypatch.setattr(egress, "run_network_program", kernel.run)
    monkeypatch.setattr(egress.shutil, "which", lambda name: f"/usr/sbin/{name}")
    return kernel


NO_RIGHT, BROKEN = BadConfiguration("the capability NET_ADMIN is missing"), Retry("failed: no such device")


@pytest.mark.req("P-35")
@pytest.mark.parametrize(
    "fails",
    [
        "nft -f",
        "nft",
        "ip -4 -j rule",
        "rule add",
        "rule add pref 7702",
        "rule add pref 7701",
        "route",
        "ip -4 -j route",
    ],
)
async def test_a_pod_never_leaves_with_the_address_of_the_node(kernel: FakeKernel, fails: str) -> None:
    kernel.fails = {fails: BROKEN}
    programmed = await program({POD: VIP}, HERE)
    assert programmed.problem == BROKEN.sentence
    assert not programmed.exposed
    if fails in {"route", "ip -4 -j route", "ip -4 -j rule"}:
        assert kernel.way_of(POD) == "machine", "a table without a route leads on to the refusal"
    else:
        assert kernel.way_of(POD) == "refused"
        assert programmed.refused == {POD}
    kernel.fails = {}
    assert await program({POD: VIP}, HERE) == Programmed()
    assert kernel.way_of(POD) == "machine"


@pytest.mark.req("P-35")
async def test_without_the_right_to_change_anything_there_is_one_message(kernel: FakeKernel) -> None:
    kernel.fails = {"rule": NO_RIGHT, "route": NO_RIGHT, "nft -f": NO_RIGHT}
    programmed = await program({POD: VIP}, HERE)
    assert programmed.problem == NO_RIGHT.sentence
    assert programmed.exposed == {POD}, "the Event says so"


@pytest.mark.req("P-35")
@pytest.mark.parametrize("fails", ["nft -f", "rule", "route"])
async def test_what_works_goes_on_while_a_program_fails(kernel: FakeKernel, fails: str) -> None:
    await program({POD: VIP}, HERE)
    kernel.fails = {fails: BROKEN}
    programmed = await program({POD: VIP, "10.0.0.2": VIP}, HERE)
    assert kernel.way_of(POD) == "machine"
    assert kernel.way_of("10.0.0.2") == ("machine" if fails == "route" else "refused")
    assert POD not in programmed.refused
    if fails == "nft -f":
        kernel.table = ""
        programmed = await program({POD: VIP}, HERE)
        assert kernel.way_of(POD) == "refused", "another program deleted the table, and the node would translate"
        assert programmed.refused == {POD}


@pytest.mark.req("P-35")
def test_a_node_that_is_the_machine_refuses_pods_that_it_does_not_translate() -> None:
    own = Hop(own=True, pods=frozenset({POD}))
    assert list(wanted_rules({POD: VIP}, {VIP: own})) == []
    assert own.problem_of(POD, VIP) == ""
    assert "machine on this node" in own.problem_of("10.0.0.2", VIP)
    assert list(wanted_rules({"10.0.0.2": VIP}, {VIP: own})) == [(MAIN, "10.0.0.2", 0), (REFUSE, "10.0.0.2", 0)]


@pytest.mark.req("P-35")
async def test_pods_that_a_machine_on_the_node_translates_are_read_from_its_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(*_command: str, **_options: object) -> bytes:
        maps = "{ 10.0.0.1 : 192.0.2.10,\n 10.0.0.2 : 192.0.2.11 }", "{ fd00::1 : 2001:db8::10 } : 32768-60999"
        return "\n".join(f"snat to saddr map {entries}" for entries in maps).encode()

    monkeypatch.setattr(egress, "run_network_program", run)
    assert await egress._translated_here(VIP) == {POD}
    assert await egress._translated_here(VIP6) == {POD6}


@pytest.mark.req("P-35")
async def test_a_pod_that_gets_another_address_or_leaves_with_another_leaves_no_rule(kernel: FakeKernel) -> None:
    other = "192.0.2.11"
    both = {**HERE, other: Hop(device="eth0")}
    for identities in ({POD: VIP}, {POD: other}, {"10.0.0.2": other}):
        assert await program(identities, both) == Programmed()
        ((pod, address),) = identities.items()
        assert len(kernel.rules) == 3
        assert all(f"from {pod} " in rule for rule in kernel.rules)
        assert any(f"lookup {table_of(address)} " in rule for rule in kernel.rules)


@pytest.mark.req("P-35")
@pytest.mark.parametrize(("phase", "refused"), [("Pending", True), ("Running", True), ("Succeeded", False)])
async def test_a_pod_without_a_service_is_refused_from_its_first_container_to_its_last(phase: str, refused: bool):
    node = EgressNode(Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="member"), node="n")
    labelled = {"metadata": {"name": "a", "namespace": "shop", "labels": {LABEL_EGRESS: "no-such"}}}
    status = {"phase": phase, "podIP": POD, "podIPs": [{"ip": POD}, {"ip": POD6}]}
    pod = msgspec.convert({**labelled, "status": status}, Pod)
    node._pods.values = lambda: [pod]
    assert node._identities()[0] == ({POD: "", POD6: ""} if refused else {})
