"""Any part may die: traffic goes on, nothing changes, and nothing is left behind: SIGKILL of every part, in turn."""

from __future__ import annotations

import pytest

from fairlead.api.kubernetes import LEASES
from fairlead.api.names import AGENT_LEADER_LEASE, HUB_LEASE, SYSTEM_NAMESPACE
from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import run_fairlead, wait_until
from fairlead_demo.worlds.traffic import Traffic
from tests.e2e.e2e_backends import ask, echoes, http, ready, refused
from tests.e2e.e2e_own import changes_of_envoy, no_services

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]


async def holder(fleet: Fleet) -> str:
    lease = await fleet.cluster.get(LEASES, SYSTEM_NAMESPACE, HUB_LEASE)
    return str(lease.spec.holder_identity)


async def agent_term(member: Member) -> tuple[str, int]:
    """Return which agent of a member leads, and how often the lease has changed hands."""
    lease = await member.cluster.get(LEASES, "kube-system", AGENT_LEADER_LEASE)
    return str(lease.spec.holder_identity), lease.spec.lease_transitions or 0


@pytest.mark.req("KI-1", "KI-6", "I-3", "I-6", "I-8", "K-31")
async def test_hub_and_agent_die_and_come_back_without_a_trace(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pods = [east.new_address() for _ in range(2)]
    async with echoes(*((address, 8080, address) for address in pods)):
        await east.endpoints("steady", 8080, *pods)
        await east.endpoints("leaving", 8080, *pods)
        await east.service("steady", http())
        await east.service("leaving", http(81))
        address, leaving = await ready(east, "steady", 80), await ready(east, "leaving", 81)
        version = (await east.get("steady")).metadata.resource_version
        traffic = Traffic(host=address, kept=0)
        traffic.start()

        await fleet.hub.kill()
        sent = traffic.count.sent

        async def more() -> bool:
            return traffic.count.sent >= sent + 20

        await wait_until(more, "traffic goes on without a hub")
        await fleet.hub.start_ready()
        await wait_until(lambda: connected(fleet), "Envoy is back at the hub")
        assert await changes_of_envoy(fleet) == 0
        assert (await east.get("steady")).metadata.resource_version == version

        name, term = await agent_term(east)
        waits = east.agent.log.read_text().count("standing by")
        await east.agent.kill()
        await east.delete("leaving")  # returns at once: no finalizer of ours holds a user's Service
        assert await fleet.at_hub("east", "default.leaving") is not None
        await east.agent.start()
        await fleet.gone("east", "default.leaving")
        assert await agent_term(east) == (name, term + 1)
        assert east.agent.log.read_text().count("standing by") == waits, "its own lease was not waited for"

        async def closed() -> bool:
            return await refused(leaving, 81)

        await wait_until(closed, "the address of the deleted Service is closed")
        assert await east.address("steady") == address
        assert (await east.get("steady")).metadata.resource_version == version
        await traffic.stop()
        assert traffic.count.failed == 0, traffic.count.failures
    await no_services(fleet, east, "steady")


async def connected(fleet: Fleet) -> bool:
    return await fleet.hub.metric("fairlead_xds_streams") == 1


@pytest.mark.req("KI-7", "I-1", "I-8")
async def test_the_hubs_api_dies_and_what_happened_meanwhile_is_caught_up_with(fleet: Fleet) -> None:
    east = fleet.members["east"]
    old, new = east.new_address(), east.new_address()
    async with echoes((old, 8080, "old"), (new, 8080, "new")):
        await east.endpoints("caught", 8080, old)
        await east.service("caught", http())
        address = await ready(east, "caught", 80)
        traffic = Traffic(host=address, kept=0)
        traffic.start()
        await fleet.apis.kill("hub")
        await east.endpoints("caught", 8080, old, new)
        sent = traffic.count.sent

        async def more() -> bool:
            return traffic.count.sent >= sent + 20

        await wait_until(more, "traffic goes on without the hub's API")
        assert fleet.hub.running
        assert east.agent.running
        await fleet.apis.restart("hub")

        async def both() -> bool:
            return {await ask(address, 80) for _ in range(6)} == {"old", "new"}

        await wait_until(both, "the new pod answers")
        assert await east.address("caught") == address
        await traffic.stop()
        assert traffic.count.failed == 0, traffic.count.failures
    await no_services(fleet, east, "caught")


@pytest.mark.req("I-5", "I-6")
async def test_a_second_hub_waits_and_changes_nothing(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pod = east.new_address()
    async with echoes((pod, 8080, "one hub")):
        await east.endpoints("twin", 8080, pod)
        await east.service("twin", http())
        address = await ready(east, "twin", 80)
        before = await holder(fleet)
        second = fleet.hub_process("second hub", fleet.directory / "second")
        version = (await east.get("twin")).metadata.resource_version
        at_hub = await fleet.at_hub("east", "default.twin")
        assert at_hub is not None
        await second.start()
        try:

            async def serves() -> bool:
                second.check_running()
                return "hub publishes" in second.log.read_text()

            await wait_until(serves, "the second hub has read everything")

            async def named() -> bool:
                text = second.log.read_text()
                return "ports are taken" in text and str(fleet.hub.envoy_directory) in text

            await wait_until(named, "the second hub says whose Envoy has its ports")
            assert await holder(fleet) == before
            assert await ask(address, 80) == "one hub"
            assert (await east.get("twin")).metadata.resource_version == version
            again = await fleet.at_hub("east", "default.twin")
            assert again is not None
            assert again.status.allocation == at_hub.status.allocation
        finally:
            await second.close()
        same_directory = fleet.hub_process("third hub", fleet.hub.envoy_directory)
        third = await run_fairlead(*same_directory.command[3:])
        assert third[0] == 2
        assert "another hub uses the data directory" in third[2].lower()
    await no_services(fleet, east, "twin")


@pytest.mark.req("KI-12", "K-63")
async def test_hub_and_member_may_be_the_same_cluster(fleet: Fleet) -> None:
    network = fleet.apis.network(9)
    member = await fleet.add_member("self", fleet.apis.kubeconfig("hub"), targets="Pod", network=network)
    pod = member.new_address()
    async with echoes((pod, 8080, "at home")):
        await member.endpoints("home", 8080, pod)
        await member.service("home", http())
        address = await ready(member, "home", 80)
        assert await ask(address, 80) == "at home"
        from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS

        names = [obj.metadata.name for obj in await fleet.cluster.list(TCP_LOAD_BALANCERS, "tenant-self")]
        assert names == ["default.home"]
    await no_services(fleet, member, "home")
    # For other tests the fleet has two members.
    await member.agent.kill()
    code, _, problem = await run_fairlead("tenant", "remove", "self", "--kubeconfig", str(fleet.kubeconfig))
    assert code == 0, problem
    del fleet.members["self"]
    await member.cluster.aclose()


@pytest.mark.req("KI-8", "K-8")
async def test_a_tenants_key_opens_its_own_namespace_only(fleet: Fleet) -> None:
    from fairlead.api.kubernetes import SECRETS
    from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
    from fairlead.api.tenant import TENANTS
    from fairlead.errors import Forbidden

    kubeconfig = await fleet.tenant_kubeconfig("west")
    async with Cluster.from_kubeconfig(kubeconfig, name="west at the hub") as key:
        await key.list(TCP_LOAD_BALANCERS, "tenant-west")
        # The copies of its own certificates.
        await key.list(SECRETS, "tenant-west")
        for resource, namespace in (
            (TCP_LOAD_BALANCERS, "tenant-east"),
            (TCP_LOAD_BALANCERS, ""),
            (SECRETS, "tenant-east"),
            (SECRETS, "kube-system"),
            (TENANTS, ""),
        ):
            with pytest.raises(Forbidden):
                await key.list(resource, namespace)
        with pytest.raises(Forbidden):
            await key.merge_patch(TCP_LOAD_BALANCERS, "tenant-west", "any", {"status": {}}, subresource="status")


@pytest.mark.req("KI-8")
async def test_a_made_up_token_is_a_sentence_and_not_a_traceback(fleet: Fleet) -> None:
    real = await fleet.tenant_kubeconfig("west")
    fake = fleet.directory / "fake.kubeconfig"
    lines = [line if "token:" not in line else "    token: made-up" for line in real.read_text().splitlines()]
    fake.write_text("\n".join(lines))
    member = str(fleet.apis.kubeconfig("west"))
    code, _, problem = await run_fairlead(
        "agent", "--kubeconfig", member, "--hub-kubeconfig", str(fake), "--tenant", "west", "--log-level", "error"
    )
    assert code == 2
    assert "does not accept the credentials" in problem
    assert "made-up" not in problem
    assert "Traceback" not in problem


@pytest.mark.req("KI-10")
async def test_status_shows_members_load_balancers_and_proxies(fleet: Fleet) -> None:
    import json

    east = fleet.members["east"]
    pod = east.new_address()
    async with echoes((pod, 8080, "shown")):
        await east.endpoints("shown", 8080, pod)
        await east.service("shown", http())
        await ready(east, "shown", 80)
        hub = str(fleet.apis.kubeconfig("hub"))

        async def complete() -> bool:
            _, out, _ = await run_fairlead("status", "--kubeconfig", hub, "-o", "json")
            report = json.loads(out)
            rows = {row["origin"]: row for row in report["loadBalancers"]}
            states = [row["state"] for row in report["proxies"]]
            members = {row["name"]: row["state"] for row in report["members"]}
            return (
                rows.get("east/default/shown", {}).get("programmed") is True
                and "SYNCED" in states
                and members.get("east") == "Engaged"
                and report["hub"]["leading"]
            )

        await wait_until(complete, "status shows it all")
        _, out, _ = await run_fairlead("status", "--kubeconfig", hub)
        assert "east/default/shown" in out
    await no_services(fleet, east, "shown")


@pytest.mark.req("I-8")
async def test_sigterm_ends_the_hub_soon_and_leaves_envoy_serving(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pod = east.new_address()
    async with echoes((pod, 8080, "served on")):
        await east.endpoints("on", 8080, pod)
        await east.service("on", http())
        address = await ready(east, "on", 80)
        await fleet.hub.terminate()
        assert await fleet.hub.ended() == 0
        assert await ask(address, 80) == "served on"
        await fleet.hub.start_ready()
        assert await east.address("on") == address
    await no_services(fleet, east, "on")
