"""Labelled pods leave their cluster with the address of their Service, through whichever machine has it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fairlead.agent.egress import Programmed
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, EgressStatus
from fairlead_demo.worlds.processes import PATIENCE_S, wait_until
from fairlead_demo.worlds.proxy_machines import ProxySite, why_no_namespaces
from tests.e2e.conftest import working_directory
from tests.e2e.e2e_egress import EgressPath, EgressWorld

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


def leaves_as(world: EgressWorld | EgressPath, address: str, pod: str = "client") -> Callable[[], Awaitable[bool]]:
    async def seen() -> bool:
        return await world.seen(pod) == address

    return seen


@pytest.mark.req("P-35")
@pytest.mark.parametrize("version", [4, 6])
async def test_packets_of_both_families_leave_with_the_address_or_not_at_all(version: int, tmp_path: Path) -> None:
    if why := why_no_namespaces():
        pytest.skip(why)
    if not shutil.which("nft"):
        pytest.skip("nft is missing: .ci/nftables installs it")
    path = EgressPath(version, tmp_path)
    async with path.server():
        await wait_until(leaves_as(path, path.node), "without rules, the node translates")
        path.machine_translates()
        assert path.follow() == Programmed()
        await wait_until(leaves_as(path, path.service), "the machine translates")

        # Another program deletes the table of the node, and nft fails: the node would translate.
        path.delete_table()
        path.breaks("nft", "*-f*")
        assert "broken" in path.follow().problem
        assert await path.seen() == ""
        # Nothing works that would change rules: nftables drops what the pod begins.
        path.repaired()
        path.follow(pods=())
        await wait_until(leaves_as(path, path.node), "the node translates again")
        path.breaks("ip", "*-batch*")
        failed = path.follow()
        assert ("broken" in failed.problem, failed.refused, failed.exposed) == (True, {path.pod}, frozenset())
        assert await path.seen() == ""

        path.repaired()
        assert path.follow() == Programmed()
        await wait_until(leaves_as(path, path.service), "the machine translates again")
        path.follow(pods=())
        await wait_until(leaves_as(path, path.node), "the node translates in the end")
        assert "77" not in {line[:2] for line in path.run(path.names[1], "ip", f"-{version}", "rule").splitlines()}


@pytest.fixture
async def site() -> AsyncIterator[ProxySite]:
    if why := why_no_namespaces():
        pytest.skip(why)
    if not shutil.which("nft"):
        pytest.skip("nft is missing: .ci/nftables installs it")
    with working_directory() as directory:
        site = ProxySite(directory, routed=True)
        try:
            await site.start()
            yield site
        finally:
            await site.close()


@pytest.mark.req("P-35")
@pytest.mark.req("A-20")
@pytest.mark.req("A-49")
@pytest.mark.req("A-50")
async def test_labelled_pods_leave_with_the_address_of_their_service(site: ProxySite) -> None:
    member = await site.start_member("east", "--egress")
    world = EgressWorld(site, member, site.directory)
    try:
        await world.start()
        for name in ("m1", "m2"):
            world.route_to_pods(await site.join(name))
        backend = await site.pod("backend")
        host, _, port = backend.partition(":")
        await member.service("web", {"name": "http", "port": 80})
        await member.endpoints("web", int(port), host, port_name="http")
        address = await member.address("web")

        async def egress() -> EgressStatus | None:
            return (await site.cluster.get(TCP_LOAD_BALANCERS, "tenant-east", "default.web")).status.egress

        # Without a label, pods leave with the address of their node.
        await world.pod("client")
        await wait_until(leaves_as(world, world.node.address), "the pod leaves with the address of its node")
        await world.start_process()
        await world.label("client", "web")
        await wait_until(leaves_as(world, address), "the pod leaves with the address of the Service")

        async def both() -> bool:
            status = await egress()
            return status is not None and (status.sources, {*status.machines}, status.message) == (1, {"m1", "m2"}, "")

        await wait_until(both, "both machines translate one pod")
        traffic = site.traffic(address)
        await wait_until(traffic.is_answered, "the Service is served at the same address")

        async def as_placed() -> bool:
            placement = (await site.cluster.get(TCP_LOAD_BALANCERS, "tenant-east", "default.web")).status.placement
            return placement is not None and await site.owners(address) == [*placement.machines[:1]]

        await wait_until(as_placed, "the machine that comes first has the address")

        # The owner loses its power: new connections and an open one go on at the other machine.
        (owner,) = await site.owners(address)
        open_connection = await world.connect("client", port=40_000)
        assert await open_connection.ask() == (address, 40_000)
        await site.machines[owner].lose_power()
        await wait_until(leaves_as(world, address), "the pod leaves through the other machine")
        async with asyncio.timeout(PATIENCE_S):
            assert await open_connection.ask() == (address, 40_000)
        open_connection.close()
        await site.machines[owner].power_on()
        world.route_to_pods(site.machines[owner])
        await wait_until(site.machines[owner].ready, "the machine is back")

        # A planned move: the new owner gets the answers at once.
        async def back() -> bool:
            return await site.owners(address) == [owner]

        await wait_until(back, "the address is back at its first machine")
        await wait_until(leaves_as(world, address), "the pod leaves after the move")

        # Counts are exact, down to none.
        await world.pod("second", label="web")
        await wait_until(leaves_as(world, address, "second"), "the second pod leaves with it, too")
        for label, pod, left in (("client", None, 1), ("second", None, 0)):
            await world.label(label, pod)

            async def counted(left: int = left) -> bool:
                status = await egress()
                return (status.sources if status is not None else 0) == left

            await wait_until(counted, f"{left} pods are left")
        await wait_until(leaves_as(world, world.node.address), "the pod leaves as before")

        async def without_status() -> bool:
            return await egress() is None

        await wait_until(without_status, "the status has no identity")

        async def no_rules() -> bool:
            return not world.rules()

        await wait_until(no_rules, "the node has no rules left")

        # A label that cannot be followed: an Event, and no other address.
        await world.pod("wrong", label="no-such-service")

        async def warned() -> bool:
            return "no Service" in (await member.events("wrong")).get("EgressNotPossible", "")

        await wait_until(warned, "the pod has a Warning")
        await wait_until(leaves_as(world, "", "wrong"), "the pod reaches nothing outside")
    finally:
        await world.close()
