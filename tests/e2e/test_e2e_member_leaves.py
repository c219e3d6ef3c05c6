"""A member that serves real traffic is removed by the command line: refused, then drained, then gone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from fairlead.api.kubernetes import NAMESPACES
from fairlead.errors import NotFound
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.processes import run_fairlead, wait_until
from tests.e2e.conftest import working_directory
from tests.e2e.e2e_backends import ask, echoes, http, ready, refused

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(900)]


@pytest.fixture
async def guests() -> AsyncIterator[Fleet]:
    with working_directory() as directory:
        apis = EmbeddedApis(directory / "api", ("hub", "guest"))
        fleet = Fleet(apis=apis, directory=directory, members={"guest": "Pod"}, drain="1s")
        try:
            await fleet.start()
            yield fleet
        finally:
            await fleet.close()


async def tenant(fleet: Fleet, verb: str, *arguments: str) -> tuple[int, str, str]:
    return await run_fairlead("tenant", verb, *arguments, "--kubeconfig", str(fleet.kubeconfig))


@pytest.mark.req("X-5")
async def test_a_member_is_listed_then_removed(guests: Fleet) -> None:
    guest = guests.members["guest"]
    pod = guest.new_address()
    async with echoes((pod, 5678, "hello")):
        await guest.endpoints("web", 5678, pod)
        await guest.service("web", http(80, 5678))
        address = await ready(guest, "web", 80)

        async def listed() -> bool:
            code, out, _ = await tenant(guests, "list")
            assert code == 0
            rows = [line.split()[:3] for line in out.splitlines()]
            return rows == [["NAME", "READY", "STATE"], ["guest", "True", "Engaged"]] and address in out

        await wait_until(listed, "the member is listed with its address")
        row = msgspec.json.decode((await tenant(guests, "list", "-o", "json"))[1])[0]
        assert (row["loadBalancers"], row["addresses"], row["clockAheadS"]) == (1, [address], 0)
        code, out, problem = await tenant(guests, "remove", "guest")
        assert code == 1
        assert f"guest/default/web   {address}" in " ".join(out.split()).replace(f" {address}", f"   {address}")
        assert "nothing was changed" in problem
        assert "--stop-serving" in problem
        assert await ask(address, 80) == "hello"
        code, out, _ = await tenant(guests, "remove", "guest", "--stop-serving", "--dry-run")
        assert (code, out.splitlines()[-1]) == (0, "Nothing was changed (--dry-run).")
        assert await ask(address, 80) == "hello"
        # As when the command is killed: the hub goes on, and the same command watches it again.
        code, _, problem = await tenant(guests, "remove", "guest", "--stop-serving", "--no-wait")
        assert code == 0, problem
        code, out, problem = await tenant(guests, "remove", "guest", "--ignore-not-found")
        assert code == 0, problem

        async def withdrawn() -> bool:
            return not (await guest.get("web")).status.load_balancer.ingress

        await wait_until(withdrawn, "the Service shows no address")

        async def ended() -> bool:
            return "TenantRemoved" in await guest.events("web") and await refused(address, 80)

        await wait_until(ended, "an Event says why, and the address is closed")

        async def without_namespace() -> bool:
            try:
                await guests.cluster.get(NAMESPACES, "", "tenant-guest")
            except NotFound:
                return True
            return False

        await wait_until(without_namespace, "the namespace is gone")
        code, out, problem = await tenant(guests, "remove", "guest")
        assert code == 1, problem
        assert "Tenant guest does not exist" in problem
        assert (await tenant(guests, "list"))[1].startswith("No members yet")
