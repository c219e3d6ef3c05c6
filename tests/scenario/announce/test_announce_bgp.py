"""Addresses announced by BGP to a real router, in network namespaces.

Times are those at which the kernel of the router changed its routes: they hold on a busy machine, too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from fairlead.announce.bird import ALIVE
from fairlead.model.machine import AnnouncedAddress, BgpAttributes, MachinePlan
from fairlead.runtime.commands import running_as
from fairlead.runtime.private_file import readable_by_others
from fairlead_demo.worlds.bgp import PASSWORD, ROUTER, ROUTER6, BgpWorld, Machine, router_peer
from fairlead_demo.worlds.networks import inside, ip
from fairlead_demo.worlds.processes import wait_until
from tests.worlds.own_time import Moment

WEB, WEB6, SHOP, DNS = "192.0.2.1", "2001:db8::1", "192.0.2.2", "203.0.113.7"
GRACEFUL = router_peer(graceful_restart=True)
FAST = router_peer(graceful_restart=True, bfd=True)


async def machines(world: BgpWorld, count: int, addresses: dict[str, bool | None], *peers) -> list[Machine]:
    """Return machines that announce ``addresses``, and whose sessions are up."""
    made = [await world.add_machine() for _ in range(count)]
    for machine in made:
        await machine.apply(addresses, peers=peers or None)
    for machine in made:
        await machine.until_up(*(peer.name for peer in peers))
    return made


@pytest.mark.req("P-19", "P-24")
async def test_connections_spread_over_all_machines_that_serve(world: BgpWorld) -> None:
    world.start_router()
    made = await machines(world, 3, {WEB: True, WEB6: True}, router_peer(), router_peer("six", address=ROUTER6))
    await world.until_hops(WEB, {"10.77.0.11", "10.77.0.12", "10.77.0.13"})
    await world.until_hops(WEB6, {"fd77::b", "fd77::c", "fd77::d"})
    assert [machine.sessions["router"].next_hop for machine in made] == ["10.77.0.11", "10.77.0.12", "10.77.0.13"]
    assert [machine.sessions["six"].next_hop for machine in made] == ["fd77::b", "fd77::c", "fd77::d"]
    accepted: Counter[str] = Counter()
    with ExitStack() as stack:
        listeners: list[tuple[str, socket.socket]] = []
        for machine in made:
            with inside(machine.namespace):
                listener = stack.enter_context(socket.create_server((WEB, 8080), backlog=1024))
            listener.setblocking(False)
            listeners.append((machine.name, listener))
        with inside(world.router_namespace):
            clients = [stack.enter_context(socket.socket()) for _ in range(1000)]
        for client in clients:
            client.settimeout(10)
            client.connect((WEB, 8080))
        for name, listener in listeners:
            while True:
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:
                    break
                connection.close()
                accepted[name] += 1
    assert sum(accepted.values()) == 1000
    assert all(abs(count - 1000 / 3) <= 0.2 * 1000 / 3 for count in accepted.values()), accepted


@pytest.mark.req("P-23")
async def test_a_leave_cuts_nothing_elsewhere_where_the_router_hashes_resiliently(world: BgpWorld) -> None:
    world.start_router()
    *_, leaving = await machines(world, 3, {WEB: True})
    await world.until_hops(WEB, 3)
    cut, others = await world.cut_by_a_leave(WEB, leaving, resilient=True)
    assert others > 30
    assert cut == 0


@pytest.mark.req("P-20")
async def test_a_route_goes_where_the_proxy_is_dead_and_everywhere_on_drain(world: BgpWorld) -> None:
    router = world.start_router()
    first, second = await machines(world, 2, {WEB: True, SHOP: True})
    await world.until_hops(WEB, 2)
    before = router.updates()[0]
    at = Moment.now()
    await first.apply({WEB: False, SHOP: True})
    assert at.own_s(await world.log.changed(at.at, WEB)) <= 1
    assert world.next_hops(WEB) == {"10.77.0.12"}
    assert await world.log.since(at.at, SHOP) == [], "only one route was withdrawn"
    assert router.updates() == (before, 1)
    assert not first.addresses[WEB].announced
    assert first.addresses[SHOP].announced
    with inside(first.namespace), socket.create_server((WEB, 8081)):
        pass  # the address is still there: its connections end in their own time
    at = Moment.now()
    await second.apply({WEB: True, SHOP: True}, drained=True)
    assert at.own_s(await world.log.changed(at.at, WEB)) <= 1
    assert (world.next_hops(WEB), world.next_hops(SHOP)) == (set(), {"10.77.0.11"})
    assert second.sessions["router"].up, "a drained machine keeps its session"
    assert "drained" in second.addresses[WEB].cause


@pytest.mark.req("P-21")
async def test_a_restarted_announcer_adopts_the_speaker(world: BgpWorld) -> None:
    router = world.start_router()
    [machine] = await machines(world, 1, {WEB: True, SHOP: False}, GRACEFUL)
    await world.until_hops(WEB, 1)
    counted, since, pid = router.updates(), router.since(), machine.speaker_pid()
    await machine.kill()
    await machine.start()
    await machine.apply({WEB: None, SHOP: None}, peers=(GRACEFUL,))
    await machine.until_up()
    assert machine.addresses[WEB].announced, "the state of the proxy is unknown: what is announced stays"
    assert machine.addresses[WEB].trigger == "Adopted"
    assert not machine.addresses[SHOP].announced
    await machine.apply({WEB: True, SHOP: False}, peers=(GRACEFUL,))
    assert (router.updates(), router.since(), machine.speaker_pid()) == (counted, since, pid)


@pytest.mark.req("P-20", "P-21")
@pytest.mark.parametrize(
    ("speaker", "alive"), [("bird", [ALIVE]), ("frr", [f"{WEB}/32", f"{WEB6}/128", f"{DNS}/32"])], ids=["bird", "frr"]
)
async def test_a_speaker_alone_announces_only_what_no_other_machine_does(world: BgpWorld, alive) -> None:
    router = world.start_router()
    first, second = [await world.add_machine() for _ in range(2)]
    for router_address in (ROUTER, ROUTER6):
        # FRR must not take the default route for that of an address which has expired.
        ip("-n", first.namespace, "route", "add", "default", "via", router_address)
    shared = AnnouncedAddress(address=WEB, announcement="BGP", machines=("m1", "m2"))
    shared6 = msgspec.structs.replace(shared, address=WEB6)
    part = msgspec.structs.replace(shared, address=DNS, bgp=BgpAttributes(aggregate="203.0.113.0/24"))
    own = AnnouncedAddress(address=SHOP, announcement="BGP", machines=("m1",))
    every = (shared, shared6, part, own)
    peers = (GRACEFUL, router_peer("six", address=ROUTER6, graceful_restart=True))
    plans = {
        machine: MachinePlan(machine=machine.name, version="1", addresses=every, bgp_peers=peers)
        for machine in (first, second)
    }
    serving = {WEB: True, WEB6: True, DNS: True, SHOP: True}
    for machine, plan in plans.items():
        await machine.send(plan, serving)
        await machine.until_up("router", "six")
    await world.until_hops(WEB, 2)
    await world.until_hops(WEB6, 2)
    await world.until_hops("203.0.113.0/24", 2)
    await world.until_hops(SHOP, 1)
    assert world.next_hops(DNS) == set(), "a router gets the aggregate only"

    # A restart is shorter than the lifetime, and changes nothing.
    await asyncio.sleep(5 if world.speaker == "frr" else 0)  # FRR sends new routes again while its route-maps settle
    counted = router.updates()
    await first.kill()
    await first.start()
    await first.send(plans[first], {})
    await first.until_up("router", "six")
    await first.send(plans[first], serving)
    assert router.updates() == counted

    # Nothing on the machine but the speaker: the lifetime ends, here sooner than by itself.
    await first.kill()
    first.expire(*alive)
    await world.until_hops(WEB, {"10.77.0.12"})
    await world.until_hops(WEB6, {"fd77::c"})
    await world.until_hops("203.0.113.0/24", {"10.77.0.12"})
    assert world.next_hops(SHOP) == {"10.77.0.11"}, "no other machine announces it"

    # What is not known to serve stays away; what serves is back.
    await first.start()
    await first.send(plans[first], {})
    await first.until_up("router", "six")
    assert world.next_hops(WEB) == {"10.77.0.12"}
    await first.send(plans[first], serving)
    await world.until_hops(WEB, 2)
    await world.until_hops(WEB6, 2)


@pytest.mark.req("P-21")
async def test_a_planned_stop_withdraws_and_ends_the_speaker(world: BgpWorld) -> None:
    world.start_router()
    first, second = await machines(world, 2, {WEB: True}, GRACEFUL)
    await world.until_hops(WEB, 2)
    at, pid = Moment.now(), first.speaker_pid()
    await first.withdraw()
    assert at.own_s(await world.log.changed(at.at, WEB)) <= 1
    assert world.next_hops(WEB) == {"10.77.0.12"}
    assert (first.sessions, first.addresses[WEB].announced) == ({}, False)
    assert running_as(pid) is None
    await first.apply({WEB: True}, peers=(GRACEFUL,))
    await world.until_hops(WEB, 2)
    assert second.addresses[WEB].announced


@pytest.mark.req("P-21", "P-22")
@pytest.mark.parametrize(
    ("router", "peer", "kept", "gone_s"),
    [
        pytest.param("graceful restart on;", GRACEFUL, True, None, id="graceful restart"),
        pytest.param("graceful restart on; bfd on;", FAST, False, 0.5, id="with BFD"),
        pytest.param("graceful restart on; bfd graceful;", FAST, True, None, id="with graceful BFD"),
    ],
)
async def test_a_crash_of_the_speaker_and_a_cut_link(world: BgpWorld, router, peer, kept, gone_s) -> None:
    """Graceful BFD at the router keeps routes after a cut, too: it is not the default, because they lead nowhere."""
    started = world.start_router(router)
    [machine] = await machines(world, 1, {WEB: True}, peer)
    await world.until_hops(WEB, 1)
    if peer.bfd:
        await world.until_bfd(machine)
    at, pid = Moment.now(), machine.speaker_pid()
    os.kill(pid, signal.SIGKILL)
    await machine.until(lambda: not machine.sessions["router"].up)
    await machine.until_up()
    assert machine.speaker_pid() != pid
    if kept:

        async def sent_again() -> bool:
            return started.updates()[0] == 2

        await wait_until(sent_again, "the new speaker has sent its route")
        assert await world.log.since(at.at, WEB) == []
    else:
        assert at.own_s(await world.log.changed(at.at, WEB)) <= 1
        assert at.own_s(await world.log.changed(at.at, WEB, number=2)) <= 10
    if peer.bfd:
        await world.until_bfd(machine)
    at = Moment.now()
    world.link(machine, up=False)
    if gone_s is not None:
        assert at.own_s(await world.log.changed(at.at, WEB)) <= gone_s
    else:
        await asyncio.sleep(3)
        assert await world.log.since(at.at, WEB) == [], "without plain BFD the cut is not seen so soon"


@pytest.mark.req("P-22")
async def test_a_session_is_back_soon_after_a_cut(world: BgpWorld) -> None:
    world.start_router("bfd on;")
    [machine] = await machines(world, 1, {WEB: True}, router_peer(bfd=True))
    await world.until_hops(WEB, 1)
    world.link(machine, up=False)
    await world.until_hops(WEB, 0)
    await machine.until(lambda: not machine.sessions["router"].up)
    assert "link" in machine.sessions["router"].problem
    at = Moment.now()
    world.link(machine, up=True)
    assert at.own_s(await world.log.changed(at.at, WEB)) <= 5


@pytest.mark.req("P-24")
@pytest.mark.parametrize("speaker", ["bird", "frr"])
async def test_a_machine_is_reached_through_each_of_two_routers_while_the_other_is_down(world: BgpWorld) -> None:
    first, second = world.start_router(), world.start_second_router(2)
    peers = (router_peer(bfd=True), router_peer("second", address="10.77.0.2", bfd=True))
    [machine] = await machines(world, 1, {WEB: True}, *peers)

    async def at_second(*, present: bool) -> None:
        async def reached() -> bool:
            return (WEB in second.ask("show route")) is present

        await wait_until(reached, f"the second router {'has' if present else 'does not have'} a route")

    await world.until_hops(WEB, {"10.77.0.11"})
    await at_second(present=True)
    at = Moment.now()
    second.close()
    await machine.until(lambda: not machine.sessions["second"].up)
    assert machine.sessions["second"].problem
    assert machine.addresses[WEB].announced
    second.start()
    await machine.until_up("second")
    await at_second(present=True)
    # FRR may announce the same route once more when the second session is back.
    assert (first.updates()[1], await world.log.since(at.at, WEB)) == (0, [])
    await machine.apply({WEB: True}, peers=peers, drained=True)
    await world.until_hops(WEB, set())
    await at_second(present=False)


@pytest.mark.req("P-22")
async def test_without_bfd_a_cut_is_seen_within_the_hold_time(world: BgpWorld) -> None:
    world.start_router("hold time 3;")
    [machine] = await machines(world, 1, {WEB: True}, router_peer(hold_s=3))
    await world.until_hops(WEB, 1)
    at = Moment.now()
    world.link(machine, up=False)
    took_s = await world.log.changed(at.at, WEB)
    assert took_s >= 1
    assert at.own_s(took_s) <= 4


@pytest.mark.req("P-18")
async def test_a_wrong_password_is_a_problem_with_a_next_step(world: BgpWorld) -> None:
    world.start_router(f'password "{PASSWORD}";')
    peer = router_peer(password="another")
    machine = await world.add_machine()
    await machine.apply({WEB: True}, peers=(peer,))
    await machine.until(lambda: "router" in machine.sessions and "password" in machine.sessions["router"].problem)
    assert "another" not in str(machine.sessions)
    assert "password" in machine.addresses[WEB].problem
    await machine.apply({WEB: True}, peers=(router_peer(password=PASSWORD),))
    await machine.until_up()
    unreadable = router_peer(keep_password=True)
    await machine.apply({WEB: True}, peers=(unreadable,))
    await machine.kill()
    await machine.start()
    await machine.apply({WEB: True}, peers=(unreadable,))
    await machine.until_up()
    assert machine.addresses[WEB].problem == ""
    files = [path for path in machine.directory.iterdir() if path.is_file()]
    secret = [path for path in files if PASSWORD in path.read_text(errors="replace")]
    assert secret, "the configuration has it"
    assert [path.name for path in secret if readable_by_others(path.stat().st_mode)] == []


@pytest.mark.req("P-18")
@pytest.mark.parametrize(
    ("peer", "parts"),
    [
        ({"asn": 64999}, ("AS 65000", "64999")),
        ({"local_asn": 64999}, ("AS 64999",)),
        ({"port": 1179}, ("port 1179",)),
        ({"address": "10.99.0.1"}, ("10.99.0.1", "network")),
    ],
    ids=["wrong AS", "wrong own AS", "wrong port", "on no network"],
)
async def test_a_session_that_fails_has_a_next_step(world: BgpWorld, peer, parts) -> None:
    world.start_router()
    machine = await world.add_machine()
    good = router_peer("good", address=ROUTER6)
    await machine.apply({WEB: True, WEB6: True}, peers=(good, router_peer("bad", **peer)))
    await machine.until_up("good")
    await machine.until(lambda: all(part in machine.sessions["bad"].problem for part in parts))
    assert machine.addresses[WEB6].announced, "the other session goes on"
    await world.until_hops(WEB6, 1)


@pytest.mark.req("P-18", "P-25")
async def test_the_router_gets_the_attributes_and_aggregates(world: BgpWorld) -> None:
    router = world.start_router()
    attributes = BgpAttributes(communities=("65000:1", "65000:1:2", "65535:65281"), med=20, prepend=2)
    [machine] = await machines(world, 1, {WEB: True}, router_peer())
    await machine.apply({WEB: True}, attributes=attributes)
    await world.until_hops(WEB, 1)
    route = router.ask(f"show route all {WEB}/32")
    assert "BGP.as_path: 65001 65001 65001\n" in route
    assert "BGP.origin: IGP" in route
    assert "BGP.med: 20" in route
    assert "(65000,1) (65535,65281)" in route
    assert "(65000, 1, 2)" in route
    aggregate = BgpAttributes(aggregate="192.0.2.0/24")
    await machine.apply({WEB: True, SHOP: False}, attributes=aggregate)
    await world.until_hops("192.0.2.0/24", 1)
    assert world.next_hops(WEB) == set()
    await machine.apply({WEB: False, SHOP: True}, attributes=aggregate)
    assert router.updates()[1] == 1, "only the /32 was withdrawn"
    at = Moment.now()
    await machine.apply({WEB: False, SHOP: False}, attributes=aggregate)
    assert at.own_s(await world.log.changed(at.at, "192.0.2.0/24")) <= 1
    elsewhere = BgpAttributes(peers=("another",))
    await machine.apply({WEB: True}, attributes=elsewhere)
    await asyncio.sleep(1)
    assert world.next_hops(WEB) == set(), "an Advertisement names the peers of its routes"
    assert machine.addresses[WEB].problem


def link_local_of(machine: Machine) -> str:
    with inside(machine.namespace):
        lines = Path("/proc/thread-self/net/if_inet6").read_text().splitlines()
    [digits] = [line.split()[0] for line in lines if line.startswith("fe80") and "eth0" in line]
    return ":".join(digits[start : start + 4] for start in range(0, 32, 4))


@pytest.mark.req("P-24")
async def test_a_router_without_addresses_is_found_on_its_link(world: BgpWorld) -> None:
    [machine] = [await world.add_machine()]
    world.start_router(
        "",
        extra=f"""
protocol bgp unnumbered from machine {{
  neighbor {link_local_of(machine)} as 65001; interface "eth0";
  ipv4 {{ import all; export none; extended next hop on; }}; ipv6 {{ import all; export none; }};
}}
""",
    )
    await machine.apply({WEB: True, WEB6: True}, peers=(router_peer(address="", interface="eth0"),))
    await machine.until_up()
    await world.until_hops(WEB, 1)
    await world.until_hops(WEB6, 1)
    assert world.next_hops(WEB).pop().startswith("fe80"), "IPv4 over an IPv6 next hop"
