"""Proxy machines in network namespaces: they join, serve, boot without a hub, and renew certificates under load."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fairlead.api.kubernetes import CONFIG_MAPS_WITH_DATA
from fairlead.api.meta import condition_of
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.proxymachine import PROXY_GROUPS, PROXY_MACHINES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.cli.run import ATTENTION
from fairlead.hub.machines.control import ENDPOINTS, read_endpoints
from fairlead.hub.machines.plans import only_announced_by
from fairlead.machine.app import NICENESS
from fairlead.providers.envoy.envoy_process import find_binary
from fairlead_demo.worlds.networks import connect_inside, ip
from fairlead_demo.worlds.processes import PATIENCE_S, Child, fairlead, run_fairlead, wait_until
from fairlead_demo.worlds.proxy_machines import API_PORT, NAMESPACE, ProxyMachine, ProxySite, why_no_namespaces
from fairlead_demo.worlds.traffic import Count, Traffic
from tests.e2e.conftest import working_directory
from tests.worlds.node_token import pod_token

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

#: ``fairlead`` whose hub signs certificates of machines for a minute.
SHORT_LIVES = Path(__file__).with_name("e2e_short_lives.py")


@pytest.fixture
async def site() -> AsyncIterator[ProxySite]:
    if why := why_no_namespaces():
        pytest.skip(why)
    with working_directory() as directory:
        site = ProxySite(directory)
        try:
            await site.start()
            yield site
        finally:
            await site.close()


async def refused(site: ProxySite, machine: ProxyMachine, *arguments: str, before: tuple[str, ...] = ()) -> str:
    """Run ``fairlead proxy`` on a machine, which has to end at once; return what it says."""
    options = ("--state-dir", str(machine.state_dir))
    command = machine.namespace.command([*before, *fairlead(*arguments, *options)])
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE_S):
        out, problem = await process.communicate()
    assert process.returncode in (1, 2, 3), (out, problem)
    assert out == b""
    assert not (machine.state_dir / "envoy").exists(), "nothing is started"
    (line,) = problem.decode().splitlines()
    return line


async def status(site: ProxySite) -> dict[str, object]:
    _, out, problem = await run_fairlead("status", "-o", "json", "--kubeconfig", str(site.kubeconfig))
    assert out, problem
    return json.loads(out)


@pytest.mark.req("P-1")
async def test_what_keeps_a_machine_from_joining_is_one_sentence(site: ProxySite) -> None:
    machine = site.machine("m1")
    command = await site.token()
    place, _, token, _, fingerprint = command[2:]

    def join(*, token: str = token, fingerprint: str = fingerprint, place: str = place) -> tuple[str, ...]:
        return ("proxy", "join", place, "--token", token, "--ca-fingerprint", fingerprint, "--name", machine.name)

    assert "--ca-fingerprint" in await refused(site, machine, *join(fingerprint="sha256:" + "0" * 64))
    assert "token" in await refused(site, machine, *join(token=token[:-1] + ("A" if token[-1] != "A" else "B")))
    assert "does not answer" in await refused(site, machine, *join(place=f"{site.hub_namespace.address}:1"))
    without = ("setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw")
    if shutil.which("setpriv"):
        assert "CAP_NET_RAW" in await refused(site, machine, *join(), before=without)
    assert "not joined" in await refused(site, machine, "proxy", "run")

    # None of these has used the token up.
    await machine.start(command)

    async def joined() -> bool:
        machine.process.check_running()
        return (machine.state_dir / "machine.json").exists()

    await wait_until(joined, "m1 joins")
    other = site.machine("m2")
    assert "used before" in await refused(site, other, *join()[:-1], other.name)
    fresh = (await site.token())[4]
    assert "m1" in await refused(site, other, *join(token=fresh)), "a name is of one machine"

    # A clone of the disk is another machine.
    shutil.copytree(
        machine.state_dir, other.state_dir, ignore=shutil.ignore_patterns("envoy", "xds.sock"), dirs_exist_ok=True
    )
    identity = json.loads((other.state_dir / "machine.json").read_text())
    (other.state_dir / "machine.json").write_text(json.dumps({**identity, "hostName": "the-original"}))
    assert "the-original" in await refused(site, other, "proxy", "run")


def owners(site: ProxySite, address: str) -> list[str]:
    """Return the machines that have an address."""
    return [machine.name for machine in site.machines.values() if address in machine.addresses]


async def owner_of(site: ProxySite, address: str) -> str:
    """Wait until exactly one machine has an address; return its name."""
    names: list[str] = []

    async def is_single() -> bool:
        names[:] = owners(site, address)
        return len(names) == 1

    await wait_until(is_single, f"{address} has one owner")
    return names[0]


async def until_each_can_be_drained(site: ProxySite) -> None:
    """Wait until the status of each machine shows that it can take over: a machine serves before it reports so."""

    async def can_be_drained() -> bool:
        machines = await site.cluster.list(PROXY_MACHINES)
        return all(not only_announced_by(machine, machines) for machine in machines)

    await wait_until(can_be_drained, "each machine can be drained")


async def answered(site: ProxySite, address: str) -> Traffic:
    """Wait until the client is answered at an address; return traffic to it that is not started."""
    traffic = site.traffic(address)
    await wait_until(traffic.is_answered, f"{address} answers")
    return traffic


def check(count: Count) -> None:
    """Check that traffic was answered without an exception."""
    assert (count.failed, count.cut, count.lost) == (0, 0, 0), count.failures
    assert count.answered > 20


async def diagnosis(machine: ProxyMachine) -> dict[str, str]:
    """Run ``fairlead doctor`` on a machine; return what it finds about the machine, by check."""
    options = ("--state-dir", str(machine.state_dir), "-o", "json")
    command = machine.namespace.command(fairlead("doctor", *options))
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE_S):
        out, problem = await process.communicate()
    assert out, problem
    findings = json.loads(out)["findings"]
    return {finding["check"]: finding["fault"] for finding in findings if finding["check"].startswith("proxy-")}


def set_kernel(machine: ProxyMachine, *settings: str) -> None:
    subprocess.run(machine.namespace.command(("sysctl", "-qw", *settings)), check=True)


@pytest.mark.req("P-28")
async def test_the_doctor_of_a_machine_finds_faults_of_its_network(site: ProxySite) -> None:
    for name in ("m1", "m2"):
        await site.join(name)
    await site.load_balancer("web", await site.pod("web-1"))
    address = await site.address("web")
    await answered(site, address)
    owner = await owner_of(site, address)
    first = site.machines[owner]
    second = site.machines["m2" if owner == "m1" else "m1"]

    async def finds(machine: ProxyMachine, *checks: str) -> dict[str, str]:
        """Wait until these checks find something about a machine, and no others do."""
        faults: dict[str, str] = {}

        async def so() -> bool:
            nonlocal faults
            faults = await diagnosis(machine)
            return faults.keys() == set(checks)

        await wait_until(so, f"the doctor of {machine.name} finds {checks}")
        return faults

    await finds(first)
    await finds(second)
    ip("-n", site.client.name, "address", "add", f"{address}/32", "dev", "eth0")
    assert site.client.mac in (await finds(first, "proxy-owners"))["proxy-owners"]
    await finds(second, "proxy-owners")
    ip("-n", site.client.name, "address", "delete", f"{address}/32", "dev", "eth0")
    ip("-n", second.namespace.name, "link", "set", "eth0", "mtu", "1400")
    set_kernel(first, "net.ipv4.ip_nonlocal_bind=0", "net.ipv4.conf.eth0.arp_ignore=0")
    await site.hub.terminate()
    faults = await finds(first, "proxy-mtu", "proxy-settings", "proxy-hubs")
    assert second.namespace.address in faults["proxy-mtu"]


@pytest.mark.req("P-27")
async def test_a_failover_and_its_cause_survive_a_restart_of_the_hub(site: ProxySite) -> None:
    for name in ("m1", "m2"):
        await site.join(name)
    await site.load_balancer("web", await site.pod("web-1"))
    address = await site.address("web")
    await answered(site, address)
    owner = await owner_of(site, address)
    other = site.machines["m2" if owner == "m1" else "m1"]

    async def explained(*parts: str) -> bool:
        _, out, _ = await run_fairlead("explain", "tcplb/web", "--kubeconfig", str(site.kubeconfig))
        return all(part in out for part in (f"Address {address}: ", *parts))

    mac = site.machines[owner].namespace.mac
    await wait_until(lambda: explained(f"announced by {owner}, at {mac}"), "explain names the owner")
    await site.machines[owner].lose_power()
    parts = f"announced by {other.name}, at {other.namespace.mac}", f"{owner} is silent"
    await wait_until(lambda: explained(*parts), "explain names the new owner, and why")
    await site.hub.kill()
    await site.start_hub()
    await wait_until(lambda: explained(*parts), "explain names both after the restart of the hub")


async def api_version(site: ProxySite, address: str) -> str:
    """Ask the hub's API for its version, from the client at an announced address; empty without an answer."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(10):
            reader, writer = await connect_inside(site.client.name, address, API_PORT)
            with contextlib.closing(writer):
                if site.cluster.server.startswith("https://"):
                    await writer.start_tls(trusting)
                writer.write(b"GET /version HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
                return (await reader.read()).decode(errors="replace")
    except (OSError, TimeoutError):
        return ""


@pytest.mark.req("P-38")
async def test_the_api_of_the_hub_has_an_announced_address(site: ProxySite) -> None:
    """The address moves, and returns after a boot, while the hub that configured it is dead."""
    host, _, port = site.cluster.server.partition("://")[2].rpartition(":")
    machines = [await site.join(name) for name in ("m1", "m2")]

    def reach_the_hub(machine: ProxyMachine) -> None:
        ip("-n", machine.namespace.name, "route", "add", host, "via", site.hub_namespace.address)

    for machine in machines:
        reach_the_hub(machine)
    await site.load_balancer("hub-api", f"{host}:{port}", port=API_PORT)
    address = await site.address("hub-api")

    async def answers() -> bool:
        return "HTTP/1.1 " in await api_version(site, address)

    await wait_until(answers, "the API answers at its address")
    await site.hub.kill()
    owner = site.machines[await owner_of(site, address)]
    await owner.lose_power()

    async def moved() -> bool:
        return bool(owners(site, address))

    await wait_until(moved, "the other machine has the address")
    for machine in machines:
        if machine is not owner:
            await machine.lose_power()
        machine.namespace.make()
        reach_the_hub(machine)
        await machine.start()
    await wait_until(moved, "a machine has the address after the boot, without a hub")
    await site.start_hub()
    await wait_until(answers, "the API answers again")


@pytest.mark.req("P-4")
async def test_a_machine_that_boots_while_a_hub_answers_follows_the_hub_again(site: ProxySite) -> None:
    machine = await site.join("m1")
    pod = await site.pod("web-1")
    await site.load_balancer("web", pod)
    await answered(site, await site.address("web"))
    await machine.lose_power()
    await machine.power_on()
    await site.load_balancer("late", pod)
    await answered(site, await site.address("late"))


def nicenesses(process: int) -> set[int]:
    threads = [int(thread.name) for thread in Path("/proc", str(process), "task").iterdir()]
    return {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}


@pytest.mark.req("P-1")
@pytest.mark.req("P-4")
async def test_two_machines_join_serve_and_boot_without_a_hub(site: ProxySite) -> None:
    for name in ("m1", "m2"):
        await site.join(name)

    async def listed() -> bool:
        groups = {proxy["group"] for proxy in (await status(site))["proxies"]}  # type: ignore[index, union-attr]
        return {"machine:m1", "machine:m2"} <= groups

    await wait_until(listed, "status lists both machines")
    pod = await site.pod("web-1")
    names = [f"web-{number}" for number in range(3)]
    for name in names:
        await site.load_balancer(name, pod)
    addresses = [await site.address(name) for name in names]
    for address in addresses:
        await answered(site, address)

    for address in addresses:
        await owner_of(site, address)
    mine = addresses[0]
    owner = site.machines[await owner_of(site, mine)]
    (other,) = [machine for machine in site.machines.values() if machine is not owner]

    # A hub that starts on the same machine, or anything else there, does not keep Envoy from running.
    assert {*nicenesses(owner.process.pid), *nicenesses(owner.envoy[1])} == {NICENESS}

    # The hub is killed and started again: no request fails.
    traffic = await answered(site, mine)
    traffic.start()
    await site.hub.kill()
    await site.start_hub()
    await wait_until(listed, "both machines are back at the hub")
    await traffic.stop()
    check(traffic.count)

    # The process on a machine is restarted: Envoy and its addresses are adopted.
    traffic = await answered(site, mine)
    traffic.start()
    envoy = (owner.state_dir / "envoy" / "envoy.pid").read_text()
    await owner.process.terminate()
    await owner.start()
    await wait_until(owner.ready, "the process is ready again")
    await asyncio.sleep(2)
    await traffic.stop()
    check(traffic.count)
    assert (owner.state_dir / "envoy" / "envoy.pid").read_text() == envoy
    assert owners(site, mine) == [owner.name]

    # The machine boots while no hub answers.
    await site.hub.kill()
    await owner.lose_power()
    await answered(site, mine)
    assert owners(site, mine) == [other.name]
    await other.lose_power()
    await owner.power_on()
    for address in addresses:
        await answered(site, address)
    assert owner.addresses >= set(addresses)
    assert "local state" in owner.process.log.read_text()


@pytest.mark.req("P-6")
async def test_a_drained_or_removed_machine_takes_nothing_over(site: ProxySite) -> None:
    for name in ("m1", "m2"):
        await site.join(name)
    await site.load_balancer("web", await site.pod("web-1"))
    address = await site.address("web")
    await answered(site, address)

    async def on_both() -> bool:
        placement = (await site.cluster.get(TCP_LOAD_BALANCERS, NAMESPACE, "web")).status.placement
        ready = placement is not None and set(placement.machines) == set(site.machines)
        return ready and len(owners(site, address)) == 1

    await wait_until(on_both, "both machines serve, and one owns the address")
    (owner,) = owners(site, address)
    (other,) = set(site.machines) - {owner}
    api = ("--kubeconfig", str(site.kubeconfig))

    async def drained() -> bool:
        # Refused until the other machine has reported that it can announce the address.
        return (await run_fairlead("proxy", "drain", owner, "--for", "3m", *api))[0] == 0

    await wait_until(drained, "the owner is drained")
    assert owners(site, address) == [other]
    code, _, problem = await run_fairlead("proxy", "undrain", owner, *api)
    assert code == 0, problem
    assert (await run_fairlead("proxy", "remove", owner, "--for", "3m", *api))[0] == 0

    async def refused() -> bool:
        return "was removed at the hub" in site.machines[owner].process.log.read_text()

    await wait_until(refused, "the machine learns that it was removed")
    # Twice as long as it takes to take over an address.
    await asyncio.sleep(4)
    assert owners(site, address) == [other]
    await answered(site, address)


@pytest.mark.req("P-9")
@pytest.mark.req("P-6")
async def test_a_drained_machine_hands_its_load_balancers_over(site: ProxySite) -> None:
    spec = {"mode": "Replicas", "replicas": 1}
    await site.cluster.create(PROXY_GROUPS, {"metadata": {"name": "default"}, "spec": spec})
    for name in ("m1", "m2"):
        await site.join(name)
    pod = await site.pod("web-1")
    await site.load_balancer("web", pod)
    address = await site.address("web")
    await answered(site, address)
    # Connections that are open end with their machine; new ones must not notice.
    traffic = site.traffic(address, kept=0)
    before = await owner_of(site, address)
    traffic.start()

    async def moved() -> bool:
        return owners(site, address) not in ([], [before])

    with traffic.address_moves():
        await site.cluster.merge_patch(PROXY_MACHINES, "", before, {"spec": {"drained": True}}, manager="user")
        await wait_until(moved, "another machine owns the address")

    async def placed() -> bool:
        placement = (await site.cluster.get(TCP_LOAD_BALANCERS, NAMESPACE, "web")).status.placement
        return placement is not None and before not in placement.machines[:1]

    await wait_until(placed, "the record names another machine first")
    await asyncio.sleep(2)
    await traffic.stop()
    count = traffic.count
    assert (count.failed, count.cut) == (0, 0), count.failures
    assert count.answered > 20


@pytest.mark.req("P-3")
async def test_three_machines_are_upgraded_one_after_another_under_load(site: ProxySite) -> None:
    for name in ("m1", "m2", "m3"):
        await site.join(name)
    pod = await site.pod("web-1")
    names = [f"web-{number}" for number in range(3)]
    for name in names:
        await site.load_balancer(name, pod)
    addresses = [await site.address(name) for name in names]
    for address in addresses:
        await answered(site, address)

    async def placed() -> bool:
        placements = [(await site.cluster.get(TCP_LOAD_BALANCERS, NAMESPACE, name)).status.placement for name in names]
        return all(placement is not None and set(placement.machines) == set(site.machines) for placement in placements)

    await wait_until(placed, "each machine has everything")
    api = ("--kubeconfig", str(site.kubeconfig))
    better, broken = site.directory / "envoy-better", site.directory / "envoy-broken"
    shutil.copyfile(find_binary(), better)
    broken.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'version: 0a/9.9.9/Clean' || exit 1\n")
    for path in (better, broken):
        path.chmod(0o755)

    async def upgrade(*arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
        # A machine is left sooner when no client uses it any longer; a busy one moves its addresses late.
        code, out, problem = await run_fairlead("proxy", "upgrade", *arguments, "--for", "60s", "-o", "json", *api)
        assert out, problem
        return code, {row["name"]: row for row in json.loads(out)}

    await until_each_can_be_drained(site)
    traffics = [site.traffic(address, kept=0, new_per_s=10.0) for address in addresses]
    for traffic in traffics:
        traffic.start()

    # The first machine goes back to its former Envoy, and no other one begins.
    envoys = {name: machine.envoy for name, machine in site.machines.items()}
    code, rows = await upgrade("--binary", str(broken))
    assert code == ATTENTION
    assert {name: row["upgrade"] for name, row in rows.items()} == {"m1": "Failed", "m2": "Waiting", "m3": "Waiting"}
    assert "not healthy" in rows["m1"]["message"]
    assert site.machines["m1"].envoy[0] == envoys["m1"][0]
    assert [site.machines[name].envoy for name in ("m2", "m3")] == [envoys[name] for name in ("m2", "m3")]

    # The hub is killed meanwhile: the next one goes on.
    upgrading = asyncio.create_task(upgrade("--binary", str(better)))

    async def begun() -> bool:
        machines = await site.cluster.list(PROXY_MACHINES)
        return any(machine.status.upgrade.phase == "Restarting" for machine in machines)

    await wait_until(begun, "the first machine restarts its Envoy")
    await site.hub.kill()
    await site.start_hub()
    upgrading.cancel()
    await asyncio.gather(upgrading, return_exceptions=True)
    code, rows = await upgrade("--binary", str(better))
    assert code == 0, rows
    assert {row["upgrade"] for row in rows.values()} == {"Done"}
    assert {machine.envoy[0] for machine in site.machines.values()} == {str(better)}
    for traffic in traffics:
        await traffic.stop()
        assert (traffic.count.failed, traffic.count.cut) == (0, 0), traffic.count.failures
        assert traffic.count.answered > 20


@pytest.mark.req("P-2")
async def test_renewals_under_load_lose_nothing(site: ProxySite) -> None:
    site.hub.command = [str(SHORT_LIVES) if part == "-m" else part for part in site.hub.command]
    site.hub.command.remove("fairlead.cli.main")
    assert sys.executable in site.hub.command
    await site.hub.terminate()
    await site.start_hub()
    machine = await site.join("m1")
    pod = await site.pod("web-1")
    await site.load_balancer("web", pod)
    address = await site.address("web")
    traffic = await answered(site, address)
    traffic.start()
    log = machine.process.log

    async def renewed() -> bool:
        return log.read_text().count("certificate renewed") >= 3

    await wait_until(renewed, "three renewals", timeout_s=300)
    # What comes after the first certificate has expired proves that the streams use the new ones.
    successor = await site.pod("web-2")
    await site.load_balancer("web", successor)

    async def moved() -> bool:
        return traffic.count.by_pod["web-2"] > 0

    await wait_until(moved, "a change reaches the machine")
    await traffic.stop()
    check(traffic.count)


@pytest.mark.req("P-1")
@pytest.mark.req("P-6")
async def test_one_machine_announces_the_addresses_of_its_own_hub() -> None:
    if why := why_no_namespaces():
        pytest.skip(why)
    with working_directory() as directory:
        site = ProxySite(directory, hub_options=("--announce",))
        try:
            await site.start()
            await _one_machine(site)
        finally:
            await site.close()


async def _one_machine(site: ProxySite) -> None:
    hub = ProxyMachine("hub", site.hub_namespace, site.directory)
    pod = await site.pod("web-1")
    await site.load_balancer("web", pod)
    address = await site.address("web")
    traffic = await answered(site, address)
    assert address in hub.addresses
    obj = await site.cluster.get(TCP_LOAD_BALANCERS, NAMESPACE, "web")
    assert obj.status.placement is None, "one machine needs no record"
    rows: list[dict[str, object]] = []

    async def listed() -> bool:
        _, out, _ = await run_fairlead("proxy", "list", "-o", "json", "--kubeconfig", str(site.kubeconfig))
        rows[:] = json.loads(out)
        return [(row["state"], row["announcing"], row["addresses"]) for row in rows] == [
            ("Ready", "Announcing", [address])
        ]

    await wait_until(listed, "the hub's machine is listed with its address")
    name = str(rows[0]["name"])

    # The hub is killed and started again: its Envoy and its addresses stay.
    traffic.start()
    await site.hub.kill()
    await site.start_hub()

    async def leads() -> bool:
        return '"event": "plan"' in site.hub.log_of_this_run()

    await wait_until(leads, "the hub plans again")
    await asyncio.sleep(1)
    await traffic.stop()
    check(traffic.count)

    async def verb(*arguments: str) -> tuple[int, str]:
        code, out, problem = await run_fairlead("proxy", *arguments, "--kubeconfig", str(site.kubeconfig))
        return code, out + problem

    code, text = await verb("drain", name, "--for", "3m")
    assert code == 1
    assert address in text, "the only machine of an address"
    code, text = await verb("drain", name, "--for", "3m", "--force")
    assert code == 0, text
    assert address not in hub.addresses, "the command waits for that"
    await verb("undrain", name)
    await answered(site, address)

    # A second machine: from then on there are records, and nothing was interrupted.
    traffic = await answered(site, address)
    traffic.start()
    await site.join("m1")

    async def both() -> bool:
        obj = await site.cluster.get(TCP_LOAD_BALANCERS, NAMESPACE, "web")
        return obj.status.placement is not None and set(obj.status.placement.machines) == {name, "m1"}

    await wait_until(both, "both machines serve")
    await asyncio.sleep(1)
    await traffic.stop()
    check(traffic.count)
    assert address in hub.addresses
    await until_each_can_be_drained(site)
    code, text = await verb("drain", name, "--for", "3m")
    assert code == 0, text
    assert owners(site, address) == ["m1"]
    await answered(site, address)
    await verb("undrain", name)

    # Nothing of a hub that is stopped for good is left on the network.
    await site.hub.terminate()
    stop = site.hub_namespace.command(fairlead("standalone", "--stop", "--data-dir", str(site.directory / "hub")))
    process = await asyncio.create_subprocess_exec(*stop)
    assert await process.wait() == 0
    assert address not in hub.addresses
    await answered(site, address)


@pytest.mark.req("P-1")
@pytest.mark.req("P-6")
async def test_nodes_join_by_the_tokens_of_their_pods_and_leave_without_a_gap(site: ProxySite) -> None:
    async def published() -> bool:
        return bool(await read_endpoints(site.cluster))

    await wait_until(published, "the hub publishes its address")
    hubs = await site.cluster.get(CONFIG_MAPS_WITH_DATA, SYSTEM_NAMESPACE, ENDPOINTS)
    volumes: dict[str, Path] = {}
    for name in ("m1", "m2"):
        machine, volume = site.machine(name), site.directory / f"{name}-volume"
        volumes[name] = volume
        volume.mkdir()
        (volume / "token").write_text(await pod_token(site.cluster, name))
        (volume / "hubs.json").write_text(json.dumps(hubs.data))
        await machine.start(("proxy", "join", "--node", str(volume)))
        await wait_until(machine.ready, f"{name} has joined and is ready")
    await site.load_balancer("web", await site.pod("web-1"))
    address = await site.address("web")
    traffic = await answered(site, address)
    owner = site.machines[await owner_of(site, address)]

    # The Pod of the owner is deleted: its Envoy ends with it.
    traffic.start()
    await owner.process.terminate()
    assert owners(site, address) != [owner.name]
    owner.namespace.kill_all()
    await asyncio.sleep(1)
    await traffic.stop()
    # As with every move at layer 2, what is under way can end.
    assert traffic.count.failed + traffic.count.cut <= 4, traffic.count.failures
    assert traffic.count.lost == 0

    # The next Pod on that node has joined already, and the token of its volume is not asked for.
    (volumes[owner.name] / "token").unlink()
    await owner.start(("proxy", "join", "--node", str(volumes[owner.name])))
    await wait_until(owner.ready, "the node is back")
    await answered(site, address)


class TwoHubs(ProxySite):
    """An API of its own, and two hubs in the place of one; ``hub`` is the first."""

    async def start_hub(self) -> None:
        """Start the API and both hubs; the first one leads."""
        namespace, data_dir = self.hub_namespace, self.kubeconfig.parent
        listen = self.hub.command[self.hub.command.index("--listen") + 1]
        options = ("--data-dir", str(data_dir), "--listen", listen)
        self.api = Child("api", namespace.command(fairlead("apiserver", *options)), log=self.directory / "api.log")
        await self.api.start(first_line_s=PATIENCE_S)
        self.hub, self.second = (
            Child(name, namespace.command(self._hub(name, port)), log=self.directory / f"{name}.log")
            for name, port in (("first", 7443), ("second", 7543))
        )
        await self.hub.start()
        await wait_until(self.leads(self.hub), "the first hub leads")
        await self.second.start()

    def _hub(self, name: str, port: int) -> list[str]:
        machines = ("--machines", f"{self.hub_namespace.address}:{port}", "--address-pool", self.pool)
        logs = ("--log-level", "info", "--log-format", "json")
        return fairlead(
            "hub", "--kubeconfig", str(self.kubeconfig), "--data-dir", str(self.directory / name), *machines, *logs
        )

    def leads(self, hub: Child) -> Callable[[], Awaitable[bool]]:
        async def leading() -> bool:
            return hub.log_of_this_run().count('"event": "leading"') > 0

        return leading

    async def close(self) -> None:
        """End everything."""
        await self.second.terminate()
        await super().close()
        await self.api.ended()


@pytest.mark.req("P-37")
async def test_another_hub_goes_on_with_the_machines_of_a_hub_that_is_killed() -> None:
    if why := why_no_namespaces():
        pytest.skip(why)
    with working_directory() as directory:
        site = TwoHubs(directory)
        try:
            await site.start()
            await _two_hubs(site)
        finally:
            await site.close()


async def _two_hubs(site: TwoHubs) -> None:
    async def published() -> bool:
        return len(await read_endpoints(site.cluster)) == 2

    await wait_until(published, "both hubs publish their addresses")
    for name in ("m1", "m2"):
        await site.join(name)
    pod = await site.pod("web-1")
    await site.load_balancer("web", pod)
    address = await site.address("web")
    traffic = await answered(site, address)

    async def known() -> bool:
        plans = [json.loads((machine.state_dir / "plan.json").read_text()) for machine in site.machines.values()]
        return all(len(plan["hubs"]) == 2 for plan in plans)

    await wait_until(known, "both machines know both hubs")
    traffic.start()
    await site.hub.kill()
    await wait_until(site.leads(site.second), "the second hub leads")
    await site.load_balancer("late", pod)
    late = await site.address("late")
    await answered(site, late)
    await traffic.stop()
    check(traffic.count)

    async def ready() -> bool:
        machines = await site.cluster.list(PROXY_MACHINES)
        conditions = [condition_of(machine.status.conditions, "Ready") for machine in machines]
        return all(condition is not None and condition.status == "True" for condition in conditions)

    await wait_until(ready, "both machines report to the second hub")
    await site.cluster.delete(TCP_LOAD_BALANCERS, NAMESPACE, "late")

    async def withdrawn() -> bool:
        return not owners(site, late)

    await wait_until(withdrawn, "the second hub plans for both machines")
    await owner_of(site, address)
