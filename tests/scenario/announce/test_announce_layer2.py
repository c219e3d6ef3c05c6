"""The layer 2 announcer on real links in network namespaces: failover, neighbours' caches, interfaces, the way back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

import pytest

from fairlead.announce import layer2_moves
from fairlead.announce import layer2_packets as packets
from fairlead.announce.layer2_netlink import Kernel
from fairlead.announce.layer2_state import ANNOUNCE_AT_S
from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.networks import connect_inside, inside, ip
from fairlead_demo.worlds.processes import PATIENCE_S
from tests.worlds.layer2_link import LOST_S, Host, Layer2Link, Machine, Probe
from tests.worlds.own_time import Moment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2"
    ),
]

A, B = "10.77.1.1", "2001:db8:77::1:1"
BOTH = pytest.mark.parametrize("address", [A, B], ids=["IPv4", "IPv6"])
#: The figure of the requirement; the lag of the prober is not part of a gap.
WORST_S, FAST_S = 2.0, 0.5
ECHO_PORT = 8081


@pytest.fixture
async def link(tmp_path) -> AsyncIterator[Layer2Link]:
    async with contextlib.aclosing(Layer2Link(tmp_path)) as made:
        yield made


async def started(link: Layer2Link, address: str, *, fast: bool = False) -> None:
    link.plan({address: link.machines}, fast=fast)
    await link.start()
    await link.settled(address, link.machines[0].name)


async def cut_link(machine: Machine) -> None:
    machine.set_cable(plugged=False)


async def set_interface_down(machine: Machine) -> None:
    machine.ip("link", "set", "eth0", "down")


async def kill_machine(machine: Machine) -> None:
    machine.lose_power()


async def kill_process(machine: Machine) -> None:
    machine.kill()


async def drop_frames(machine: Machine) -> None:
    machine.cut_off(on=True)


@pytest.mark.req("P-12", "P-37")
@BOTH
@pytest.mark.parametrize("fault", [cut_link, set_interface_down, kill_machine, kill_process, drop_frames])
async def test_new_connections_work_again_within_two_seconds(link, address, fault):
    """No hub exists in any of these tests: its death at the same time costs nothing."""
    first, second = link.machines
    await started(link, address)
    async with Probe(link.client, address) as probe:
        at_s = time.monotonic()
        await fault(first)
        await link.taken(address, second.name)
        await probe.works()
        gap_s = probe.gap_s(at_s)
    print(f"{fault.__name__}: {gap_s:.2f} s, lag {probe.lag_s:.2f} s")
    assert gap_s <= WORST_S
    assert second.address(address).trigger == "OwnerSilent"
    assert second.address(address).cause == f"{first.name} is silent"


@pytest.mark.req("P-13")
@BOTH
async def test_the_kernel_of_a_machine_stops_answering_after_its_processes_were_killed(link, address):
    first, second = link.machines
    await started(link, address)
    first.kill()
    await link.taken(address, second.name)
    assert first.name in link.owners(address), "the kernel still answers"
    await link.settled(address, second.name)
    await link.reported(second, address, reason="")
    assert set(link.client.ask(address, 10)) == {second.mac}


@pytest.mark.req("P-13", "P-21")
async def test_an_address_that_no_other_machine_would_take_outlives_the_process(link):
    first, second = link.machines
    await started(link, A)
    await link.eventually(lambda: "forever" not in lifetime(first, A))
    second.lose_power()
    await link.eventually(lambda: lifetime(first, A).startswith("valid_lft forever"))
    first.kill()
    assert link.owners(A) == [first.name]


@pytest.mark.req("P-13")
async def test_an_owner_that_was_stopped_for_long_does_not_take_the_address_back(link):
    first, second = link.machines
    await started(link, A)
    link.plan({A: [second, first]}, machines=[second])
    with contextlib.closing(link.client.raw()) as heard:
        first.process.send_signal(signal.SIGSTOP)
        try:
            await link.settled(A, second.name)
            link.client.heard(heard)
        finally:
            first.process.send_signal(signal.SIGCONT)
        await link.reported(first, A, cause=f"{second.name} owns the address with a later claim")
        answers = [answer for answer in link.client.heard(heard) if answer.address == A and not answer.probe]
    assert first.mac not in {answer.mac for answer in answers}
    assert link.owners(A) == [second.name]


def lifetime(machine: Machine, address: str) -> str:
    """Return what ``ip`` shows of the lifetime of an address."""
    lines = machine.text("ip", "-o", "address", "show", "dev", "eth0").splitlines()
    return next((line.partition("\\")[2].strip() for line in lines if f" {address}/" in line), "")


@pytest.mark.req("P-12")
async def test_fast_addresses_work_again_within_half_a_second(link):
    """The median of three faults is held to the figure: a machine with other load may be late once."""
    first, second = link.machines
    await started(link, A, fast=True)
    gaps: list[float] = []
    async with Probe(link.client, A) as probe:
        for _ in range(3):
            await probe.works()
            at_s = time.monotonic()
            first.set_cable(plugged=False)
            await link.taken(A, second.name)
            await probe.works()
            gaps.append(probe.gap_s(at_s))
            first.set_cable(plugged=True)
            await link.settled(A, first.name)
    assert statistics.median(gaps) <= FAST_S, gaps


@pytest.mark.req("P-13")
@BOTH
async def test_after_a_partition_one_machine_answers_every_question(link, address):
    first, second = link.machines
    await started(link, address)
    first.cut_off(on=True)
    await link.taken(address, second.name)
    assert first.name in link.owners(address)
    link.plan({address: [second, first]})  # so that nothing moves while questions are asked
    await asyncio.sleep(0.5)
    healed = Moment.now()
    first.cut_off(on=False)
    await link.settled(address, second.name)
    yielded_s = healed.own_s(time.time() - healed.at)
    answers = link.client.ask(address, 100)
    assert (set(answers), len(answers) >= 100) == ({second.mac}, True)
    # The bridge forwards again at once; a second for the machine, and one for this test.
    assert yielded_s <= 2.0


@pytest.mark.req("P-13")
async def test_a_machine_without_peers_and_gateway_stops_answering(link):
    first, second = link.machines
    await started(link, A)
    for machine in link.machines:
        machine.ip("route", "add", "default", "via", link.router.v4)
    await asyncio.sleep(3)  # the gateway is heard
    assert first.address(A).announced
    first.cut_off(on=True)
    await link.settled(A, second.name)
    await link.reported(first, A, reason="Isolated")


@pytest.mark.req("P-6", "P-9")
@BOTH
async def test_a_planned_move_and_a_drain_fail_no_connection(link, address):
    first, second = link.machines
    await started(link, address)
    async with Probe(link.client, address, try_s=LOST_S) as probe:
        await asyncio.sleep(6)  # until the second machine is no longer new
        at_s = time.monotonic()
        link.plan({address: [second, first]})
        await link.settled(address, second.name)
        link.plan({address: [second, first]}, drained=[second])
        await link.settled(address, first.name)
        await probe.works()
        assert probe.failures(at_s) == 0


@pytest.mark.req("P-6", "P-27")
@BOTH
async def test_an_address_that_leaves_its_only_machine_is_reported_until_it_is_gone(link, address):
    first, second = link.machines
    second.lose_power()
    link.plan({address: [first]})
    await link.start(hear=False)
    await link.settled(address, first.name)
    await link.reported(first, address, cause="no other machine owns the address")
    link.plan({})
    version = str(link.version)
    await link.eventually(lambda: first.state().plan == version and not first.address(address).announced)
    assert link.owners(address) == []


@contextlib.asynccontextmanager
async def talking(link: Layer2Link, address: str) -> AsyncGenerator[Callable[[], Awaitable[bool]]]:
    """Open a connection to an echo service of every machine; the callback returns whether it still answers."""
    servers: list[asyncio.Server] = []
    ended = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                writer.write(line)
        writer.close()
        ended.set()

    for machine in link.machines:
        with inside(machine.namespace):
            opened = socket.create_server(("::", ECHO_PORT), family=socket.AF_INET6, dualstack_ipv6=True)
        servers.append(await asyncio.start_server(echo, sock=opened))
    reader, writer = await connect_inside(link.client.namespace, address, ECHO_PORT)

    async def answers() -> bool:
        writer.write(b"hello\n")
        async with asyncio.timeout(PATIENCE_S):
            return await reader.readline() == b"hello\n"

    try:
        yield answers
    finally:
        writer.close()
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()
        for server in servers:
            await stop_listening(server)


@pytest.mark.req("P-6")
@pytest.mark.skipif(shutil.which("nft") is None, reason="open connections are forwarded by nftables")
@BOTH
async def test_connections_that_are_open_at_a_planned_move_go_on(link, address):
    first, second = link.machines
    await started(link, address)
    async with talking(link, address) as answers, Probe(link.client, address, try_s=LOST_S) as probe:
        assert await answers()
        await asyncio.sleep(6)  # until the second machine is no longer new
        at_s = time.monotonic()
        link.plan({address: [second, first]})
        await link.settled(address, second.name)
        await link.eventually(lambda: link.client.who_has(address) == {second.mac})
        assert await answers()
        link.plan({address: [second, first]}, drained=[second])
        await link.settled(address, first.name)
        await link.eventually(lambda: link.client.who_has(address) == {first.mac})
        assert await answers(), "the machine where the connection began has the address again"
        await probe.works()
        assert probe.failures(at_s) == 0
    assert link.client.who_has(address) == {first.mac}, "the machine that keeps an address on lo does not answer ARP"


class CountingSocket:
    """A netlink socket that counts the messages it receives."""

    def __init__(self, inner):
        self.inner, self.messages = inner, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def recv(self, size):
        data = self.inner.recv(size)
        at = 0
        while at < len(data):
            self.messages += 1
            at += int.from_bytes(data[at : at + 4], sys.byteorder) + 3 & ~3
        return data


def test_the_kernel_answers_only_errors_and_the_last_of_many_addresses(link, monkeypatch):
    addresses = [f"10.77.90.{number}" for number in range(1, 61)]
    with inside(link.machines[0].namespace), contextlib.closing(Kernel()) as kernel:
        answers = CountingSocket(kernel._socket)
        monkeypatch.setattr(kernel, "_socket", answers)
        index = socket.if_nametoindex("eth0")
        errors = kernel.add(index, {**dict.fromkeys(addresses, 90), addresses[30]: 0})  # without a lifetime: an error
        assert (list(errors), answers.messages) == ([addresses[30]], 2)
        assert len(kernel.snapshot().links[index].ours) == 59
        errors = kernel.add(index, {**dict.fromkeys(addresses, 90), addresses[-1]: 0})
        assert list(errors) == [addresses[-1]], "an error of the last one is its answer"


def test_changes_of_addresses_go_on_when_their_numbers_begin_again(link, monkeypatch):
    addresses = [f"10.77.90.{number}" for number in range(1, 61)]
    with inside(link.machines[0].namespace), contextlib.closing(Kernel()) as kernel:
        monkeypatch.setattr(kernel, "_sequence", 0x7FFFFFFF - 30)
        kernel._socket.settimeout(5)
        index = socket.if_nametoindex("eth0")
        lifetimes = dict.fromkeys(addresses, 90)
        assert list(kernel.add(index, {**lifetimes, addresses[10]: 0, addresses[50]: 0})) == addresses[10::40]
        assert len(kernel.snapshot().links[index].ours) == 58


@pytest.mark.req("P-6")
@pytest.mark.skipif(shutil.which("nft") is None, reason="open connections are forwarded by nftables")
def test_many_moved_addresses_are_forgotten_at_once_also_if_some_have_expired(link, monkeypatch):
    table, host = "netdev fairlead_moves_1", link.machines[0]
    runs = []

    def nft(commands, *, quiet=False):
        runs.append(commands)
        return run_nft(commands, quiet=quiet)

    run_nft = layer2_moves.nft
    monkeypatch.setattr(layer2_moves, "nft", nft)
    addresses = [f"10.77.{number // 250}.{number % 250 + 1}" for number in range(500)]
    with inside(host.namespace):
        moves = layer2_moves.Moves(1)
        moves.taken("lo", addresses, "10.77.9.1")
        assert run_nft(f"delete element {table} former4 {{ {addresses[7]} }}\n")
        runs.clear()
        moves.left(addresses)
        listing = ("nft", "list", "map", *table.split(), "former4")
        left = subprocess.run(listing, check=False, capture_output=True, text=True)
    assert (len(runs), left.returncode, left.stdout.count("goto")) == (1, 0, 0)


@pytest.mark.req("P-5")
async def test_an_address_leaves_a_machine_that_cannot_serve_it(link):
    first, second = link.machines
    await started(link, A)
    async with Probe(link.client, A, try_s=LOST_S) as probe:
        at_s = time.monotonic()
        link.plan({A: link.machines}, serving={(first.name, A): False})
        await link.settled(A, second.name)
        await probe.works()
        assert probe.failures(at_s) == 0


@pytest.mark.req("P-21")
@BOTH
async def test_a_restart_sends_nothing_that_changes_a_neighbour(link, address):
    first, second = link.machines
    await started(link, address)
    with contextlib.closing(link.client.raw()) as heard:

        def answers() -> list[packets.Answer]:
            return [answer for answer in link.client.heard(heard) if answer.address == address and not answer.probe]

        async def sent_by_restart() -> list[packets.Answer] | None:
            """Restart the owner; return None if this computer was too busy, so that the other machine took over."""
            await link.settled(address, first.name)
            quiet = False
            while not quiet:  # the burst of the take-over
                await asyncio.sleep(max(ANNOUNCE_AT_S) + 1)
                quiet = not answers()
            before = second.address(address)
            first.stop()
            first.start()
            adopted = "adopted after a restart"
            await link.eventually(lambda: first.address(address).cause == adopted or second.address(address) != before)
            await asyncio.sleep(2)
            sent = answers()
            taken_over = second.address(address) != before or second.mac in {answer.mac for answer in sent}
            return None if taken_over else sent

        sent = None
        for _ in range(3):
            if sent is None:
                sent = await sent_by_restart()
        assert sent == []
    assert link.owners(address) == [first.name]


@pytest.mark.req("P-14")
@BOTH
async def test_a_take_over_reaches_clients_bridges_and_old_stacks(tmp_path, address):
    """A bridge that forgets MACs after 5 s; a client of Linux; one that takes replies of ARP only."""
    async with contextlib.aclosing(Layer2Link(tmp_path, ageing_s=5)) as link:
        first, second = link.machines
        await started(link, address)
        async with Probe(link.client, address) as probe:
            with contextlib.closing(link.client.raw()) as heard:
                link.client.heard(heard)
                at_s = time.monotonic()
                first.set_cable(plugged=False)
                await link.taken(address, second.name)
                await probe.works()
                frames: list[bytes] = []
                announced = packets.announcements(second.mac, address)

                def heard_four_times() -> bool:
                    frames.extend(link.client.frames(heard))
                    counts = [frames.count(frame) for frame in announced]
                    return (sum(counts) if packets.is_v6(address) else min(counts)) >= 4

                await link.eventually(heard_four_times)
            assert probe.gap_s(at_s) <= WORST_S
            await asyncio.sleep(6)  # the bridge has forgotten all that was silent
            quiet_s = time.monotonic()
            await probe.works()
            assert probe.failures(quiet_s) == 0
        if not packets.is_v6(address):
            assert set(replies_only(frames, address)) == {second.mac}


def replies_only(frames: list[bytes], address: str) -> list[str]:
    """Return the MACs that a stack learns that takes nothing but ARP replies to its own or the sender's address."""
    learned: list[str] = []
    for frame in frames:
        answer = packets.read_arp(frame)
        if answer is not None and answer.address == address and frame[21] == 2:
            learned.append(answer.mac)
    return learned


@pytest.mark.req("P-15")
@BOTH
async def test_an_address_of_a_foreign_host_is_reported_and_not_taken(link, address):
    foreign = link.host("foreign", 99)
    foreign.ip("address", "add", f"{address}/{128 if packets.is_v6(address) else 32}", "dev", "eth0")
    await asyncio.sleep(2)  # until its kernel has detected no duplicate
    link.plan({address: link.machines})
    await link.start()
    for machine in link.machines:
        state = await link.reported(machine, address, reason="AddressInUse")
        assert (state.announced, state.other_mac) == (False, foreign.mac)
    assert link.owners(address) == []


@pytest.mark.req("P-13", "P-15")
@BOTH
async def test_a_foreign_host_next_to_the_owner_is_contested(link, address):
    first, _ = link.machines
    await started(link, address)
    foreign = link.host("foreign", 99)
    length, options = (128, ("nodad",)) if packets.is_v6(address) else (32, ())
    foreign.ip("address", "add", f"{address}/{length}", "dev", "eth0", *options)
    with contextlib.closing(foreign.raw()) as opened:
        for frame in packets.announcements(foreign.mac, address):
            opened.send(frame)
    state = await link.reported(first, address, reason="Contested")
    assert (state.announced, state.mac, state.other_mac) == (True, first.mac, foreign.mac)
    async with Probe(link.client, address) as probe:
        await probe.works()
    foreign.ip("address", "delete", f"{address}/{length}", "dev", "eth0")
    await link.reported(first, address, reason="")


@pytest.mark.req("P-15", "P-16")
async def test_addresses_are_never_first_tentative_or_preferred(link):
    first, _ = link.machines
    link.plan({A: link.machines, B: link.machines})
    await link.start()
    await link.settled(A, first.name)
    await link.settled(B, first.name)
    lines = first.text("ip", "-o", "address", "show", "dev", "eth0").splitlines()
    assert f"{first.v4}/16" in next(line.split()[3] for line in lines if " inet " in line)
    for line in lines:
        if A in line or B in line:
            assert "deprecated" in line
            assert "tentative" not in line
            assert "dadfailed" not in line
    # As networkd does at a restart: its own address goes, and comes back behind ours.
    first.ip("address", "delete", f"{first.v4}/16", "dev", "eth0")
    first.ip("address", "add", f"{first.v4}/16", "dev", "eth0")
    await link.eventually(
        lambda: f"{first.v4}/16" in first.text("ip", "-o", "-4", "address", "show", "dev", "eth0").splitlines()[0]
    )
    assert A in first.addresses()


@pytest.mark.req("P-16")
async def test_what_others_do_to_the_interface_is_put_right_within_a_second(link):
    first, _ = link.machines
    link.plan({A: [first], B: [first]})
    await link.start()
    await link.settled(A, first.name)
    await link.settled(B, first.name)

    def flushed() -> None:
        first.ip("address", "flush", "dev", "eth0", "to", A)

    def flapped() -> None:
        first.ip("link", "set", "eth0", "down")
        first.ip("link", "set", "eth0", "up")

    def renamed() -> None:
        first.ip("link", "set", "eth0", "down")
        first.ip("link", "set", "eth0", "name", "lan7")
        first.ip("link", "set", "lan7", "up")
        first.ip("address", "replace", f"{first.v6}/64", "dev", "lan7", "nodad")

    for happens in (flushed, flapped, renamed):
        async with Probe(link.client, A) as probe:
            at_s = time.monotonic()
            happens()
            await link.eventually(lambda: {A, B} <= first.addresses() or first.v6 not in first.addresses())
            await probe.works()
            # The server's own part, and the retry of the client's first packet.
            assert probe.gap_s(at_s) <= 1.5, happens.__name__
    assert first.address(A).interface == "lan7"


@pytest.mark.req("P-16")
async def test_an_address_outside_every_subnet_is_reported(link):
    first, _ = link.machines
    link.plan({"192.0.2.1": link.machines})
    await link.start(hear=False)
    state = await link.reported(first, "192.0.2.1", reason="NoInterface")
    assert "192.0.2.1" in state.problem
    assert not state.announced


@pytest.mark.req("P-16")
async def test_an_interface_without_an_address_watches_by_broadcast(link):
    first, second = link.machines
    for number, machine in enumerate(link.machines):
        add_interface(link, machine, "bare0", number)
    link.plan({"198.51.100.7": link.machines}, interfaces=("bare0",))
    await link.start()
    await link.settled("198.51.100.7", first.name)
    first.ip("link", "set", "bare0", "down")
    await link.taken("198.51.100.7", second.name)


@pytest.mark.req("P-11")
async def test_machines_whose_addresses_are_unknown_yet_find_each_other(link):
    first, second = link.machines
    link.plan({A: [first, second]}, neighbours_known=False)
    await link.start()
    await link.settled(A, first.name)
    first.set_cable(plugged=False)
    await link.taken(A, second.name)


@pytest.mark.req("P-16")
async def test_a_second_interface_on_the_link_does_not_answer(link):
    """As with kube-proxy in IPVS mode, whose interface has the addresses of all Services."""
    first, second = link.machines
    link.plan({A: link.machines})
    await link.start()
    await link.settled(A, first.name)
    second.ip("address", "add", f"{A}/32", "dev", "lo")
    for _ in range(10):
        assert link.client.who_has(A, wait_s=0.1) == {first.mac}


@pytest.mark.req("P-17")
@BOTH
async def test_replies_leave_by_the_interface_they_came_in_by(tmp_path, address):
    """Two links, the default route by the first, a client behind the second one's router; strict rp_filter."""
    async with contextlib.aclosing(Layer2Link(tmp_path, machines=1)) as link:
        [machine] = link.machines
        router = link.router
        far = far_client(link, router)
        add_interface(link, machine, "eth1", 0)
        machine.ip("address", "add", "10.78.0.2/24", "dev", "eth1")
        machine.ip("address", "add", "2001:db8:78::2/64", "dev", "eth1", "nodad")
        for family, first, second in (("-4", "10.78.0.1", router.v4), ("-6", "2001:db8:78::1", router.v6)):
            machine.ip(family, "route", "add", "default", "via", first, "dev", "eth1", "metric", "100")
            machine.ip(family, "route", "add", "default", "via", second, "dev", "eth0", "metric", "200")
        for name in ("all", "eth0", "eth1"):
            machine.text("sysctl", "-qw", f"net.ipv4.conf.{name}.rp_filter=1")
        link.plan({address: [machine]})
        await link.start()
        await link.settled(address, machine.name)
        async with Probe(far, address, try_s=LOST_S) as probe:
            await probe.works()
            at_s = time.monotonic()
            await asyncio.sleep(2)
            assert probe.failures(at_s) == 0
        link.plan({})
        await link.eventually(lambda: "proto 179" not in machine.text("ip", "rule") + machine.text("ip", "-6", "rule"))


def far_client(link: Layer2Link, router: Host) -> Host:
    """Return a client whose only way is the router."""
    far = link.host("far", 210)
    far.ip("address", "flush", "dev", "eth0")
    ip("-n", link.bridge, "link", "delete", far.cable)
    peer = ("peer", "name", "far0", "netns", router.namespace)
    ip("-n", far.namespace, "link", "add", "eth0", "type", "veth", *peer)
    router.text("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
    for host, device, number in ((far, "eth0", 2), (router, "far0", 1)):
        host.ip("link", "set", device, "up")
        host.ip("address", "add", f"10.79.0.{number}/24", "dev", device)
        host.ip("address", "add", f"2001:db8:79::{number}/64", "dev", device, "nodad")
    far.ip("route", "add", "default", "via", "10.79.0.1")
    far.ip("-6", "route", "add", "default", "via", "2001:db8:79::1")
    return far


def add_interface(link: Layer2Link, machine: Machine, name: str, number: int) -> None:
    """Connect another interface of a machine to a second bridge."""
    with contextlib.suppress(Exception):
        ip("-n", link.bridge, "link", "add", "br1", "type", "bridge")
        ip("-n", link.bridge, "link", "set", "br1", "up")
    peer = ("peer", "name", name, "netns", machine.namespace)
    ip("-n", link.bridge, "link", "add", f"{name}{number}", "type", "veth", *peer)
    ip("-n", link.bridge, "link", "set", f"{name}{number}", "master", "br1", "up")
    machine.ip("link", "set", name, "up")


@pytest.mark.req("P-11")
async def test_addresses_spread_over_the_machines_by_the_recorded_order(link):
    first, second = link.machines
    orders = {f"10.77.2.{number}": [first, second] if number % 2 else [second, first] for number in range(1, 7)}
    link.plan(orders)
    await link.start()
    for address, order in orders.items():
        await link.settled(address, order[0].name)


@pytest.mark.req("P-12")
async def test_a_thousand_addresses_are_taken_over_together(link):
    first, second = link.machines
    addresses = [f"10.77.{100 + number // 250}.{number % 250 + 1}" for number in range(1000)]
    link.plan(dict.fromkeys(addresses, link.machines))
    await link.start()
    await link.eventually(lambda: len(first.addresses() & set(addresses)) == 1000)
    await link.eventually(lambda: not second.addresses() & set(addresses))
    async with Probe(link.client, addresses[0]) as probe, Probe(link.client, addresses[-1]) as last:
        at_s = time.monotonic()
        first.lose_power()
        await link.eventually(lambda: len(second.addresses() & set(addresses)) == 1000)
        await asyncio.gather(probe.works(), last.works())
        # The figure is one second without other load, measured by the benchmark; a machine with load needs longer.
        assert max(probe.gap_s(at_s), last.gap_s(at_s)) <= 2 * WORST_S


async def test_without_capabilities_the_announcer_says_what_it_needs(link):
    first, _ = link.machines
    link.plan({A: link.machines})
    command = ("setpriv", "--bounding-set", "-net_raw,-net_admin", "--inh-caps", "-net_raw,-net_admin")
    done = first.fails(*command)
    assert "NET_ADMIN and NET_RAW" in done
