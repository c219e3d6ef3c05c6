"""Load balancers that the kernel of a proxy machine forwards, from the object to the answer."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.proxymachine import PROXY_MACHINES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.machine.connections import ConnectionSync
from fairlead_demo.worlds.networks import inside, ip
from fairlead_demo.worlds.processes import run_fairlead, wait_until
from fairlead_demo.worlds.proxy_machines import NAMESPACE, ProxyMachine, ProxySite, make_namespace, why_no_namespaces
from tests.e2e.conftest import working_directory

pytestmark = [pytest.mark.envoy, pytest.mark.slow]
FOREIGN = "table ip foreign {\n\tchain none {\n\t}\n}\n"


@pytest.fixture
async def site(request: pytest.FixtureRequest) -> AsyncIterator[ProxySite]:
    if why := why_no_namespaces():
        pytest.skip(why)
    if not (shutil.which("nft") and shutil.which("conntrack")):
        pytest.skip("nft or conntrack is missing: .ci/nftables installs both")
    with working_directory() as directory:
        site = ProxySite(directory, hub_options=getattr(request, "param", ()))
        try:
            await site.start()
            await site.cluster.create(
                LOAD_BALANCER_CLASSES, {"metadata": {"name": "fast"}, "spec": {"provider": "kernel", "drain": "1s"}}
            )
            yield site
        finally:
            await site.close()


def on(machine: ProxyMachine, *command: str, text: str = "") -> str:
    """Run a command on a machine; return what it prints."""
    done = subprocess.run(machine.namespace.command(command), input=text, capture_output=True, text=True, check=True)
    return done.stdout


def condition(obj: object, kind: str) -> tuple[str, str, str]:
    conditions = obj.status.conditions or ()  # type: ignore[attr-defined]
    return next(((each.status, each.reason, each.message) for each in conditions if each.type == kind), ("", "", ""))


@pytest.mark.req("P-30")
@pytest.mark.req("P-31")
@pytest.mark.req("P-32")
async def test_the_kernel_of_a_machine_serves_a_load_balancer(site: ProxySite) -> None:
    machine = await site.join("m1")
    on(machine, "nft", "-f", "-", text=FOREIGN)
    pods = [await site.pod("web-1"), await site.pod("web-2")]
    fast: JSONObject = {"className": "fast"}
    await site.load_balancer("web", *pods, spec=fast)
    address = await site.address("web")
    traffic = site.traffic(address)
    await wait_until(traffic.is_answered, "the kernel forwards")
    obj = await site.cluster.get(TCP_LOAD_BALANCERS, NAMESPACE, "web")
    assert "kernel" in condition(obj, "Programmed")[2]
    assert "address of the load balancer" in condition(obj, "Programmed")[2]
    assert not on(machine, "ss", "-Hltn", "sport", "=", "80"), "Envoy does not listen"

    # The process ends: connections, new and open, go on, and the next process adopts the table.
    traffic.start()
    await machine.process.terminate()
    before = on(machine, "nft", "list", "table", "inet", "fairlead")
    await machine.start()
    await wait_until(machine.ready, "the process is ready again")
    await site.load_balancer("other", pods[0], spec=fast)
    other = await site.address("other")
    await wait_until(site.traffic(other).is_answered, "another load balancer is forwarded")
    await site.cluster.delete(TCP_LOAD_BALANCERS, NAMESPACE, "other")

    async def forgotten() -> bool:
        return on(machine, "nft", "list", "table", "inet", "fairlead") == before

    await wait_until(forgotten, "nothing is left of the other one")
    assert on(machine, "nft", "list", "table", "ip", "foreign") == FOREIGN
    await traffic.stop()
    assert (traffic.count.failed, traffic.count.cut, traffic.count.lost) == (0, 0, 0), traffic.count.failures
    assert set(traffic.count.by_pod) == {"web-1", "web-2"}

    # A target that dies gets no connections, before the hub knows.
    await site.stop_pod("web-2")

    async def only_one() -> bool:
        return pods[1].replace(":", " . ") not in on(machine, "nft", "list", "map", "inet", "fairlead", "targets4")

    await wait_until(only_one, "the dead target is out")

    async def reported() -> bool:
        obj = await site.cluster.get(TCP_LOAD_BALANCERS, NAMESPACE, "web")
        return "1 of 2" in condition(obj, "Serving")[2]

    await wait_until(reported, "the hub knows")
    traffic = site.traffic(address)
    traffic.start()

    async def some() -> bool:
        return traffic.count.answered > 20

    await wait_until(some, "requests are answered")
    await traffic.stop()
    assert traffic.count.failed == 0
    assert set(traffic.count.by_pod) == {"web-1"}

    # Another program deletes all tables.
    on(machine, "nft", "flush", "ruleset")
    await wait_until(site.traffic(address).is_answered, "the table is back")

    # The machine boots while no hub answers.
    await site.hub.kill()
    await machine.lose_power()
    await machine.power_on()
    await wait_until(site.traffic(address).is_answered, "the kernel forwards from local state")


@pytest.mark.req("P-33")
async def test_open_connections_survive_the_loss_of_their_machine(site: ProxySite) -> None:
    if not shutil.which("conntrackd"):
        pytest.skip("conntrackd is missing: .ci/nftables installs it")
    first, second = site.machine("m1"), site.machine("m2")
    for machine, other in ((first, second), (second, first)):
        machine.options = ("--sync-connections", other.namespace.address)
        await machine.start(await site.token())
        await wait_until(machine.ready, f"{machine.name} is ready")
    await site.load_balancer("web", await site.pod("web-1"), await site.pod("web-2"), spec={"className": "fast"})
    address = await site.address("web")
    await wait_until(site.traffic(address).is_answered, "the kernel forwards")
    with ExitStack() as stack:
        clients = [HTTPConnection(address, timeout=30) for _ in range(20)]
        for client in clients:
            with inside(site.client.name):
                client.sock = stack.enter_context(socket.create_connection((address, 80), timeout=30))
        assert {await asyncio.to_thread(pod_behind, client) for client in clients} == {"web-1", "web-2"}
        [name] = await site.owners(address)
        owner, other = (first, second) if name == "m1" else (second, first)

        async def synchronized() -> bool:
            ports = {f"sport={client.sock.getsockname()[1]}" for client in clients}
            lines = on(other, "conntrack", "-L", "-p", "tcp", "--state", "ESTABLISHED").splitlines()
            return ports <= {word for line in lines for word in line.split()}

        await wait_until(synchronized, "the other kernel has all connections")
        pods = [await asyncio.to_thread(pod_behind, client) for client in clients]
        await owner.lose_power()
        assert [await asyncio.to_thread(pod_behind, client) for client in clients] == pods, "all connections go on"
        assert await site.owners(address) == [other.name]

    async def noticed() -> bool:
        status = (await site.cluster.get(PROXY_MACHINES, "", other.name)).status
        return any(owner.namespace.address in problem for problem in status.problems)

    await wait_until(noticed, "the machine that is left alone says so")


@pytest.mark.req("P-33")
async def test_connections_of_both_families_are_sent_over_ipv6_and_conntrackd_is_adopted(tmp_path: Path) -> None:
    if why := why_no_namespaces():
        pytest.skip(why)
    if not (shutil.which("conntrackd") and shutil.which("conntrack")):
        pytest.skip("conntrackd or conntrack is missing: .ci/nftables installs both")
    first, second = (f"fl{os.getpid()}{end}" for end in "ab")
    connections = {"ipv4": ("192.0.2.1", "192.0.2.2"), "ipv6": ("2001:db8::1", "2001:db8::2")}

    def conntrack(namespace: str, *arguments: str) -> str:
        command = ("ip", "netns", "exec", namespace, "conntrack", *arguments)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def processes(namespace: str) -> list[int]:
        command = ("ip", "netns", "pids", namespace)
        return [int(pid) for pid in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]

    async def process_of(namespace: str, peer: str) -> int:
        """Synchronize until conntrackd answers; return its process, which continues."""
        sync = ConnectionSync(tmp_path / namespace, peer, on_problem=lambda _problem: None)

        async def answers() -> bool:
            return sync.state is not None

        with inside(namespace):
            running = asyncio.create_task(sync.run())
            try:
                await wait_until(answers, f"conntrackd of {namespace} answers")
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running
        [process] = processes(namespace)
        return process

    async def synchronized() -> bool:
        return all(source in conntrack(second, "-L", "-f", family) for family, (source, _) in connections.items())

    for name in (first, second):
        make_namespace(name)
    try:
        ip("link", "add", "sync0", "netns", first, "type", "veth", "peer", "name", "sync0", "netns", second)
        for name, address in ((first, "fd00::1/64"), (second, "fd00::2/64")):
            ip("-n", name, "address", "add", address, "dev", "sync0", "nodad")
            ip("-n", name, "link", "set", "sync0", "up")
        started = await process_of(first, "fd00::2")
        await process_of(second, "fd00::1")
        assert await process_of(first, "fd00::2") == started, "another process adopts it"
        for source, target in connections.values():
            ports = ("-p", "tcp", "--sport", "4000", "--dport", "80", "--state", "ESTABLISHED", "-t", "300")
            conntrack(first, "-I", "-s", source, "-d", target, *ports, "-u", "SEEN_REPLY,ASSURED")
        await wait_until(synchronized, "the other kernel has both connections")
    finally:
        for name in (first, second):
            for process in processes(name):
                os.kill(process, signal.SIGKILL)
            ip("netns", "delete", name)


def pod_behind(client: HTTPConnection) -> str:
    """Send a request on an open connection; return which pod answers."""
    assert client.sock is not None, "the connection has ended"
    client.request("GET", "/")
    return client.getresponse().read().decode().strip()


@pytest.mark.req("P-30")
@pytest.mark.parametrize("site", [("--announce",)], indirect=True, ids=["announce"])
async def test_the_kernel_of_the_hubs_machine_serves_a_load_balancer(site: ProxySite) -> None:
    hub = ProxyMachine("hub", site.hub_namespace, site.directory)
    await site.load_balancer("web", await site.pod("web-1"), spec={"className": "fast"})
    address = await site.address("web")
    traffic = site.traffic(address)
    await wait_until(traffic.is_answered, "the kernel of the hub's machine forwards")
    assert address in hub.addresses
    assert not on(hub, "ss", "-Hltn", "sport", "=", "80"), "Envoy does not listen"
    assert address in on(hub, "nft", "list", "map", "inet", "fairlead", "services4")

    # The hub is killed and started again: its kernel goes on.
    traffic.start()
    await site.hub.kill()
    await site.start_hub()
    other = await site.pod("web-2")
    await site.load_balancer("other", other, spec={"className": "fast"})
    await wait_until(site.traffic(await site.address("other")).is_answered, "the next hub programs the kernel")
    await traffic.stop()
    assert (traffic.count.failed, traffic.count.cut, traffic.count.lost) == (0, 0, 0), traffic.count.failures
    assert traffic.count.answered > 20
    await site.cluster.delete(TCP_LOAD_BALANCERS, NAMESPACE, "web")

    async def gone() -> bool:
        return address not in on(hub, "nft", "list", "map", "inet", "fairlead", "services4")

    await wait_until(gone, "nothing is left of the deleted one")


@pytest.mark.req("P-32")
async def test_what_the_kernel_cannot_do_is_refused(site: ProxySite) -> None:
    await site.load_balancer("proxied", "198.51.100.1:80", spec={"className": "fast", "proxyProtocol": "v2"})

    async def refused() -> bool:
        obj = await site.cluster.get(TCP_LOAD_BALANCERS, NAMESPACE, "proxied")
        status, _, message = condition(obj, "Accepted")
        return status == "False" and "spec.proxyProtocol" in message and "provider envoy" in message

    await wait_until(refused, "the PROXY protocol is refused")
    _, out, problem = await run_fairlead("status", "-o", "json", "--kubeconfig", str(site.kubeconfig))
    assert json.loads(out), problem
