"""FRR as the router, FRR as the speaker of a machine, and a BIRD of the operator that gets external routes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from fairlead.announce.external import ALIVE
from fairlead.model.machine import BgpAttributes
from fairlead_demo.worlds.bgp import PASSWORD, ROUTER6, BgpWorld, Machine, in_namespace, router_peer
from fairlead_demo.worlds.networks import ip
from tests.worlds.own_time import Moment

WEB, WEB6, SHOP = "192.0.2.1", "2001:db8::1", "192.0.2.2"
FAST = router_peer(graceful_restart=True, bfd=True)


@pytest.mark.req("P-19", "P-21", "P-22", "P-24")
async def test_frr_as_the_router(world: BgpWorld) -> None:
    router = world.start_frr_router()
    peers = (router_peer(bfd=True), router_peer("six", address=ROUTER6, bfd=True))
    first, second = await world.add_machine(), await world.add_machine()
    for machine in (first, second):
        await machine.apply({WEB: True, WEB6: True}, peers=peers)
    for machine in (first, second):
        await machine.until_up("router", "six")
    await world.until_hops(WEB, {"10.77.0.11", "10.77.0.12"})
    await world.until_hops(WEB6, 2)
    updates = router.updates()
    await first.kill()
    await first.start()
    await first.apply({WEB: None, WEB6: None}, peers=peers)
    await first.until_up("router", "six")
    assert router.updates() == updates
    at = Moment.now()
    await first.apply({WEB: False, WEB6: True}, peers=peers)
    assert at.own_s(await world.log.changed(at.at, WEB)) <= 1
    await world.until_hops(WEB, {"10.77.0.12"})
    await second.until(lambda: second.sessions["router"].bfd == "Up")
    at = Moment.now()
    world.link(second, up=False)
    assert at.own_s(await world.log.changed(at.at, WEB)) <= 1, "FRR notices the end of a session of BFD a little later"
    at = Moment.now()
    world.link(second, up=True)
    assert at.own_s(await world.log.changed(at.at, WEB)) <= 5


@pytest.mark.req("P-24")
async def test_frr_finds_a_machine_without_addresses(world: BgpWorld) -> None:
    world.start_frr_router(unnumbered=True)
    machine = await world.add_machine()
    await machine.apply({WEB: True, WEB6: True}, peers=(router_peer(address="", interface="eth0"),))
    await machine.until_up()
    await world.until_hops(WEB, 1)
    await world.until_hops(WEB6, 1)
    assert world.next_hops(WEB).pop().startswith("fe80")


async def frr_machine(world: BgpWorld, *peers) -> Machine:
    machine = await world.add_machine()
    await machine.apply({WEB: True, SHOP: False}, peers=peers)
    await machine.until_up(*(peer.name for peer in peers))
    await world.until_hops(WEB, 1)
    return machine


@pytest.mark.req("P-18", "P-20", "P-21", "P-25")
@pytest.mark.parametrize("speaker", ["frr"])
async def test_frr_as_the_speaker_changes_only_what_differs(world: BgpWorld) -> None:
    peers = (router_peer(password=PASSWORD), router_peer("six", address=ROUTER6, password=PASSWORD))
    router = world.start_router(f'password "{PASSWORD}";')
    machine = await frr_machine(world, *peers)
    await asyncio.sleep(5)  # FRR sends new routes again while its route-maps settle
    before, since = router.updates(), router.since()
    await machine.kill()
    await machine.start()
    await machine.apply({WEB: None, SHOP: None}, peers=peers)
    await machine.until_up("router", "six")
    assert router.updates() == before
    assert [machine.sessions[name].next_hop for name in ("router", "six")] == ["10.77.0.11", "fd77::b"]
    at = Moment.now()
    await machine.apply({WEB: True, SHOP: True}, peers=peers)
    assert at.own_s(await world.log.changed(at.at, SHOP)) <= 1
    at = Moment.now()
    await machine.apply({WEB: False, SHOP: True}, peers=peers)
    assert at.own_s(await world.log.changed(at.at, WEB)) <= 1
    assert await world.log.since(at.at, SHOP) == []
    attributes = BgpAttributes(communities=("65000:1", "65000:1:2"), med=20, prepend=2)
    await machine.apply({WEB: True, SHOP: False}, peers=peers, attributes=attributes)
    await world.until_hops(WEB, 1)
    route = router.ask(f"show route all {WEB}/32")
    for text in ("as_path: 65001 65001 65001\n", "origin: IGP", "med: 20", "(65000,1)", "(65000, 1, 2)"):
        assert text in route
    aggregate = BgpAttributes(aggregate="192.0.2.0/24")
    await machine.apply({WEB: False, SHOP: True}, peers=peers, attributes=aggregate)
    await world.until_hops("192.0.2.0/24", 1)
    at = Moment.now()
    for serves in (True, False, True, False, True):
        await machine.apply({WEB: serves, SHOP: True}, peers=peers, attributes=aggregate)
    await machine.apply({WEB: True, SHOP: False}, peers=peers, attributes=aggregate)
    assert await world.log.since(at.at, "192.0.2.0/24") == [], "an address is in it all the time"
    await machine.apply({WEB: True, SHOP: False}, peers=peers, attributes=BgpAttributes(peers=("six",)))
    await world.until_hops("192.0.2.0/24", 0)
    assert world.next_hops(WEB) == set(), "only the other peer may get the route"
    await machine.apply({WEB: True, SHOP: False}, peers=peers)
    await world.until_hops(WEB, 1)
    assert router.since() == since, "no session was restarted"
    await machine.withdraw()
    await world.until_hops(WEB, 0)


@pytest.mark.req("P-21", "P-22")
@pytest.mark.parametrize("speaker", ["frr"])
async def test_frr_as_the_speaker_after_a_cut_and_a_crash(world: BgpWorld) -> None:
    world.start_router("bfd on; graceful restart on;")
    machine = await frr_machine(world, FAST)
    await machine.until(lambda: machine.sessions["router"].bfd == "Up")
    at = Moment.now()
    world.link(machine, up=False)
    assert at.own_s(await world.log.changed(at.at, WEB)) <= 0.5
    at = Moment.now()
    world.link(machine, up=True)
    assert at.own_s(await world.log.changed(at.at, WEB)) <= 5
    pid = machine.speaker_pid()
    os.kill(pid, signal.SIGKILL)
    await machine.until(lambda: not machine.sessions["router"].up)
    await machine.until_up()
    await world.until_hops(WEB, 1)
    assert machine.speaker_pid() != pid


@pytest.mark.req("P-18")
@pytest.mark.parametrize("speaker", ["frr"])
async def test_frr_as_the_speaker_reports_problems(world: BgpWorld) -> None:
    world.start_router()
    machine = await world.add_machine()
    await machine.apply({WEB: True}, peers=(router_peer(asn=64999),))
    await machine.until(lambda: "64999" in "".join(session.problem for session in machine.sessions.values()))
    await machine.apply({WEB: True}, peers=(router_peer(),))
    await machine.until_up()


_OPERATORS_BIRD = """
router id 10.77.0.11;
protocol device {{ }}
protocol static fairlead {{
  ipv4;
  include "{include}.ipv4";
}}
protocol bgp upstream {{
  local as 65001; neighbor 10.77.0.1 as 65000; connect delay time 1;
  ipv4 {{ import none; export all; next hop self; }};
}}
"""


@pytest.mark.req("P-26")
async def test_external_routes_in_files_of_a_bird_that_runs(world: BgpWorld, tmp_path: Path) -> None:
    router = world.start_router()
    control, include = tmp_path / "operators.ctl", tmp_path / "fairlead"
    world.speaker = f"include:{include},birdc -s {control} configure"
    machine = await world.add_machine()
    attributes = BgpAttributes(communities=("65000:1",))
    await machine.apply({WEB: True, SHOP: False}, peers=(), attributes=attributes)
    assert "birdc" in machine.addresses[WEB].problem, "it does not run yet"
    file = tmp_path / "operators.conf"
    file.write_text(_OPERATORS_BIRD.format(include=include))
    command = in_namespace(machine.namespace, ["bird", "-f", "-c", str(file), "-s", str(control)])
    bird = await asyncio.create_subprocess_exec(*command)
    try:
        await world.until_hops(WEB, 1)
        await machine.until(lambda: machine.addresses[WEB].announced)
        assert "(65000,1)" in router.ask(f"show route all {WEB}/32")
        at = Moment.now()
        await machine.apply({WEB: False, SHOP: True}, peers=(), attributes=attributes)
        assert at.own_s(await world.log.changed(at.at, WEB)) <= 1
        await machine.kill()
        await machine.start()
        await machine.apply({WEB: None, SHOP: None}, peers=(), attributes=attributes)
        assert machine.addresses[SHOP].announced
        assert len(await world.log.since(at.at, SHOP)) == 1

        # A route that another machine has, too, ends some time after this process.
        await machine.apply({WEB: True, SHOP: True}, peers=(), attributes=attributes, others=("m2",))
        await world.until_hops(WEB, 1)
        await machine.kill()
        await machine.start()
        at = Moment.now()
        await machine.apply({WEB: None, SHOP: None}, peers=(), attributes=attributes, others=("m2",))
        assert await world.log.since(at.at, WEB) == []
        await machine.kill()
        machine.expire(ALIVE)
        await world.until_hops(WEB, 0)
        await machine.start()
        await machine.apply({WEB: None, SHOP: None}, peers=(), attributes=attributes, others=("m2",))
        assert world.next_hops(SHOP) == set(), "nothing is known to serve"
        await machine.apply({WEB: None, SHOP: True}, peers=(), attributes=attributes, others=("m2",))
        await world.until_hops(SHOP, 1)
    finally:
        await ended(bird)


async def ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


@pytest.mark.req("P-26")
@pytest.mark.parametrize("speaker", ["table:7771"])
async def test_external_routes_in_a_kernel_table(world: BgpWorld) -> None:
    machine = await world.add_machine()

    def table() -> set[str]:
        commands = [
            ["ip", "-n", machine.namespace, family, "route", "show", "table", "7771"] for family in ("-4", "-6")
        ]
        outputs = [subprocess.run(command, capture_output=True, text=True, check=False).stdout for command in commands]
        return {line.split()[0] for output in outputs for line in output.splitlines()}

    await machine.apply({WEB: True, WEB6: True, SHOP: False}, peers=())
    assert table() == {WEB, WEB6}
    assert machine.addresses[WEB].announced
    ip("-n", machine.namespace, "route", "add", "198.51.100.0/24", "dev", "lo", "table", "7771")
    await machine.kill()
    await machine.start()
    await machine.apply({WEB: None, WEB6: None, SHOP: True}, peers=())
    assert table() == {WEB, WEB6, SHOP, "198.51.100.0/24"}
    await machine.withdraw()
    assert table() == {"198.51.100.0/24"}, "routes of others stay"
