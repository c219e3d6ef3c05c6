"""Machines join with a token, get configuration by their certificate alone, and lose it when they are removed."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import aiohttp
import grpc
import msgspec
import pytest
from grpc import aio
from machines_world import MachinesWorld, TestMachine, fingerprint, new_world

from fairlead.api.kubernetes import CONFIG_MAPS, SECRETS
from fairlead.api.names import MANAGER_HUB, SYSTEM_NAMESPACE
from fairlead.api.proxymachine import PROXY_MACHINES
from fairlead.errors import AlreadyExists, Retry
from fairlead.hub.machines.control import ENDPOINTS, HubEndpoint, read_endpoints
from fairlead.model.machine import MachineReport, ProxyState
from fairlead.providers.envoy.certificates import (
    AUTHORITY_SECRET,
    Pair,
    authority_data,
    authority_of,
    data_of,
    new_authority,
    secret_manifest,
)
from fairlead.standalone.own_machine import LedByThisHub
from tests.worlds.node_token import pod_token


@pytest.mark.req("P-1")
@pytest.mark.req("P-2")
async def test_a_machine_joins_and_gets_configuration_as_itself(world: MachinesWorld):
    endpoint = (await read_endpoints(world.user))["hub-0"]
    assert endpoint.address == f"127.0.0.1:{world.port}"
    assert endpoint.fingerprint == fingerprint(await world.authority())
    machine = await world.join("m1", group="edge")
    assert machine.answer is not None
    assert machine.answer.xds == f"127.0.0.1:{world.port + 1}"
    assert machine.answer.hubs == (endpoint.address,)
    obj = await world.machine("m1")
    assert obj is not None
    assert obj.spec.group == "edge"
    async with machine.xds():
        await world.until(lambda: world.xds.sessions, "the stream of the machine")
        # The node claims another group, and the subject of its request is another name.
        assert [session.group.name for session in world.xds.sessions] == ["machine:m1"]


@pytest.mark.req("P-1")
async def test_a_token_is_for_one_machine(world: MachinesWorld):
    token = await world.token()
    machines = [TestMachine(world, f"m{number}") for number in range(4)]
    answers = await asyncio.gather(*(machine.enrol(token) for machine in machines))
    assert sorted(answer.status for answer in answers) == [200, 401, 401, 401]
    used = next(answer for answer in answers if answer.status == 401)
    assert "fairlead proxy token" in used.body["message"]
    assert len(await world.user.list(PROXY_MACHINES)) == 1


@pytest.mark.req("P-1")
@pytest.mark.parametrize("damage", ["", "12345678.x", "nonsense", "swapped"])
async def test_wrong_tokens_are_refused_and_name_the_next_step(world: MachinesWorld, damage: str):
    token = await world.token()
    other = await world.token()
    sent = f"{token[:9]}{other[9:]}" if damage == "swapped" else damage
    answer = await TestMachine(world, "m1").enrol(sent)
    assert answer.status == 401
    assert "fairlead proxy token" in answer.body["message"]
    assert (await TestMachine(world, "m1").enrol(token)).status == 200


@pytest.mark.req("P-1")
async def test_an_expired_token_says_when_it_expired(world: MachinesWorld):
    answer = await TestMachine(world, "m1").enrol(await world.token(life=timedelta(seconds=-1)))
    assert answer.status == 401
    assert "expired at 20" in answer.body["message"]
    assert await world.machine("m1") is None


@pytest.mark.req("P-1")
async def test_a_clock_that_is_off_by_an_hour_keeps_the_token(world: MachinesWorld):
    token = await world.token()
    for ahead_s in (3600.0, -3600.0):
        answer = await TestMachine(world, "m1").enrol(token, clock=time.time() + ahead_s)
        assert answer.status == 400
        assert "clock" in answer.body["message"]
    assert (await TestMachine(world, "m1").enrol(token)).status == 200


@pytest.mark.req("P-1")
@pytest.mark.parametrize("name", ["", "M1", "a/b", "../x", "x" * 64, "m1\nm2"])
async def test_names_that_no_object_can_have_keep_the_token(world: MachinesWorld, name: str):
    token = await world.token()
    assert (await TestMachine(world, name).enrol(token)).status == 400
    assert (await TestMachine(world, "m1").enrol(token)).status == 200


@pytest.mark.req("P-1")
async def test_a_second_machine_of_one_name_is_refused_and_keeps_its_token(world: MachinesWorld):
    first = await world.join("m1")
    token = await world.token()
    second = TestMachine(world, "m1")
    answer = await second.enrol(token)
    assert answer.status == 409
    assert "fairlead proxy remove m1" in answer.body["message"]
    assert (await first.report()).status == 204
    assert (await TestMachine(world, "m2").enrol(token)).status == 200


@pytest.mark.req("P-1")
@pytest.mark.parametrize(
    "csr", ["", "not PEM", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----"]
)
async def test_invalid_certificate_requests_keep_the_token(world: MachinesWorld, csr: str):
    token = await world.token()
    answer = await TestMachine(world, "m1").enrol(token, csr=csr)
    assert (answer.status, await world.machine("m1")) == (400, None)
    assert (await TestMachine(world, "m1").enrol(token)).status == 200


@pytest.mark.req("P-2")
async def test_requests_without_a_certificate_of_the_hub_are_refused(world: MachinesWorld):
    machine = TestMachine(world, "m1")
    machine.ca = await world.authority()
    for method, path, body in (("GET", "/v1/plan", None), ("POST", "/v1/report", {}), ("POST", "/v1/renew", {})):
        answer = await machine.request(method, path, body)
        assert answer.status == 401
        assert "fairlead proxy join" in answer.body["message"]


@pytest.mark.req("P-2")
async def test_a_machine_cannot_report_as_another(world: MachinesWorld):
    machine = await world.join("m1")
    await world.join("m2")
    machine.name = "m2"
    assert (await machine.report()).status == 403


@pytest.mark.req("P-2")
@pytest.mark.req("P-6")
async def test_a_removed_machine_gets_nothing_and_its_stream_ends(world: MachinesWorld):
    machine = await world.join("m1")
    plan = await machine.plan()
    assert plan is not None
    waiting = asyncio.create_task(machine.request("GET", f"/v1/plan?after={plan.version}"))
    async with machine.xds() as stream:
        await world.until(lambda: world.xds.sessions, "the stream of the machine")
        await world.user.delete(PROXY_MACHINES, "", "m1")
        async with asyncio.timeout(180):
            while isinstance(await stream.read(), bytes):
                pass
    assert (await waiting).status == 403
    for answer in (await machine.request("GET", "/v1/plan"), await machine.report(), await machine.renew()):
        assert answer.status == 403
        assert "removed" in answer.body["message"]
    async with machine.xds() as stream:
        with pytest.raises(aio.AioRpcError) as refused:
            await stream.read()
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    # The old certificate is not that of a new machine of its name.
    again = await world.join("m1")
    assert (await machine.report()).status == 403
    assert (await again.report()).status == 204


@pytest.mark.req("P-2")
async def test_a_removed_machine_gets_nothing_while_another_joins_under_its_name(
    world: MachinesWorld, monkeypatch: pytest.MonkeyPatch
):
    removed = await world.join("m1")
    await world.user.delete(PROXY_MACHINES, "", "m1")
    record, asked = world.endpoint.machines._record, list[int]()

    async def late(machine, certificate):
        asked.append((await removed.report()).status)
        return await record(machine, certificate)

    monkeypatch.setattr(world.endpoint.machines, "_record", late)
    joined = await world.join("m1")
    assert asked == [403]
    assert (await removed.report()).status == 403
    assert (await joined.report()).status == 204


@pytest.mark.req("P-2")
async def test_a_removed_machine_gets_nothing_after_the_hub_died_while_another_joined(
    world: MachinesWorld, monkeypatch: pytest.MonkeyPatch
):
    removed = await world.join("m1")
    await world.user.delete(PROXY_MACHINES, "", "m1")

    async def die(_machine, _certificate):
        raise Retry("the hub dies here")

    with monkeypatch.context() as dying:
        dying.setattr(world.endpoint.machines, "_record", die)
        assert (await TestMachine(world, "m1").enrol(await world.token())).status == 503
    obj = await world.machine("m1")
    assert obj is not None
    assert not obj.status.certificate.serial
    assert (await removed.report()).status == 403
    async with removed.xds() as stream:
        with pytest.raises(aio.AioRpcError) as refused:
            await stream.read()
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert (await (await world.join("m1")).report()).status == 204


@pytest.mark.req("P-2")
async def test_a_machine_is_known_after_a_backup_without_statuses_was_restored(world: MachinesWorld):
    machine, renewed = await world.join("m1"), await world.join("m2")
    second = int(time.time())
    await world.until(lambda: time.time() >= second + 1, "times of certificates are in seconds")
    assert (await renewed.renew()).status == 200
    known = world.endpoint.machines.machines
    for name in ("m1", "m2"):
        nothing = {"status": {"certificate": None}}
        await world.user.merge_patch(PROXY_MACHINES, "", name, nothing, subresource="status")
        await world.until(lambda name=name: not known.get("", name).status.certificate.serial, "the hub sees that")
    assert [(await each.report()).status for each in (machine, renewed)] == [204, 204]


@pytest.mark.req("P-2")
async def test_renewal_keeps_the_last_certificate_until_the_next_is_used(world: MachinesWorld):
    machine = await world.join("m1")
    first = machine.certificate
    assert (await machine.renew()).status == 200
    second, machine.certificate = machine.certificate, first
    # The answer was lost: the machine asks again with the certificate that it has.
    assert (await machine.renew()).status == 200
    third = machine.certificate
    assert len({first, second, third}) == 3
    assert (await machine.report()).status == 204
    machine.certificate = first
    answer = await machine.report()
    assert answer.status == 403
    assert "copy" in answer.body["message"]


@pytest.mark.req("P-2")
async def test_certificates_that_live_a_minute_are_renewed_without_a_refusal(tmp_path):
    async with new_world(tmp_path, life=timedelta(seconds=60)) as world:
        machine = await world.join("m1")
        assert machine.answer is not None
        assert machine.answer.renew_after_s == 40.0
        for _ in range(3):
            assert (await machine.renew()).status == 200
            assert (await machine.report()).status == 204
            async with machine.xds():
                await world.until(lambda: world.xds.sessions, "the stream of the machine")


async def test_a_replica_that_does_not_lead_sends_machines_to_another(world: MachinesWorld):
    machine = await world.join("m1")
    world.leads = False
    for answer in (await machine.request("GET", "/v1/plan"), await machine.report(), await machine.renew()):
        assert answer.status == 503
    async with machine.xds():
        await world.until(lambda: world.xds.sessions, "the stream of the machine")


async def test_a_certificate_of_another_authority_does_not_get_in(world: MachinesWorld, tmp_path):
    machine = await world.join("m1")
    (tmp_path / "other").mkdir()
    async with new_world(tmp_path / "other") as other:
        other_machine = await other.join("m1")
        other_machine.world, other_machine.ca = world, machine.ca
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await other_machine.report()


async def test_a_hub_that_no_longer_exists_is_not_offered_to_machines(world: MachinesWorld):
    machine = await world.join("m1")
    meta = {"namespace": SYSTEM_NAMESPACE, "name": ENDPOINTS}
    old = msgspec.json.encode(HubEndpoint("old.example:1", "sha256:abc")).decode()
    await world.user.apply(CONFIG_MAPS, {"metadata": meta, "data": {"hub-9": old}}, manager="kubectl")
    assert set(await read_endpoints(world.user)) == {"hub-0", "hub-9"}
    await world.endpoint.machines.drop_replica("hub-9")
    assert set(await read_endpoints(world.user)) == {"hub-0"}
    plan = await machine.plan()
    assert plan is not None
    assert plan.hubs == (f"127.0.0.1:{world.port}",)


@pytest.mark.req("P-2")
async def test_a_new_authority_signs_once_each_machine_trusts_it(world: MachinesWorld):
    informed, late = await world.join("m1"), await world.join("m2")
    present = authority_of(data_of(await world.user.get(SECRETS, SYSTEM_NAMESPACE, AUTHORITY_SECRET)))
    following = new_authority(world.clock.now() - timedelta(days=1.5)).current
    both = msgspec.structs.replace(present, next=following, trusted=following.certificate + present.trusted)
    secret = secret_manifest(SYSTEM_NAMESPACE, AUTHORITY_SECRET, authority_data(both))
    await world.user.apply(SECRETS, secret, manager=MANAGER_HUB)

    async def signer() -> Pair:
        await world.endpoint.refresh()
        return authority_of(data_of(await world.user.get(SECRETS, SYSTEM_NAMESPACE, AUTHORITY_SECRET))).current

    assert await signer() == present.current, "no machine has it yet"
    informed.ca = await world.authority()
    for machine, authorities in ((informed, fingerprint(informed.ca)), (late, fingerprint(late.ca))):
        assert (await machine.report(authorities=authorities)).status == 204
    assert await signer() == present.current, "m2 lacks it"
    assert await late.plan() is not None
    late.ca = await world.authority()
    assert (await late.report(authorities=fingerprint(late.ca))).status == 204
    assert await signer() == following

    # The hub has a certificate of the new one; those of machines are of the old one until they are renewed.
    for machine in (informed, late):
        assert await machine.plan() is not None
        assert (await machine.renew()).status == 200
        assert await machine.plan() is not None
    newcomer = TestMachine(world, "m3")
    newcomer.ca = present.trusted.decode()
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await newcomer.enrol(await world.token())


@pytest.mark.req("P-1")
async def test_the_machine_of_the_hub_needs_no_certificate(world: MachinesWorld):
    led = LedByThisHub(world.endpoint.machines, name="host", epoch=lambda: 1, follows=lambda: not world.leads)
    plan = await led.plan("")
    assert plan is not None
    assert plan.machine == "host"
    await led.report(MachineReport(machine="host", plan=plan.version, proxy=ProxyState(alive=True, synced=True)))

    async def ready() -> bool:
        machine = await world.machine("host")
        return machine is not None and any(each.type == "Ready" for each in machine.status.conditions or ())

    await world.until(ready, "the machine of the hub has a status")

    # No other machine takes its name.
    answer = await TestMachine(world, "host").enrol(await world.token())
    assert answer.status == 409
    await world.join("m1")
    with pytest.raises(AlreadyExists, match="m1"):
        await world.endpoint.machines.register("m1")

    # A hub that follows withdraws, once; the machine of the next leader takes its place.
    world.leads = False
    following = await led.plan(plan.version)
    assert following is not None
    assert (following.addresses, following.drained) == ((), True)
    assert await led.plan(following.version) is None
    world.leads = True
    await world.endpoint.machines.register("other")
    assert await world.machine("host") is None
    machine = await world.machine("other")
    assert machine is not None
    assert machine.is_of_hub


@pytest.mark.req("P-1")
async def test_a_node_of_the_hubs_cluster_joins_by_the_token_of_its_pod(world: MachinesWorld):
    tokens = {node: await pod_token(world.user, node) for node in ("node-1", "node-2")}
    # Each token is for its node alone, however often.
    for name, token in (("node-2", tokens["node-1"]), ("elsewhere", tokens["node-1"]), ("node-1", "a.b.c")):
        answer = await TestMachine(world, name).enrol(token)
        assert answer.status == 401, answer.body
    foreign = await pod_token(world.user, "node-1", account="default")
    assert (await TestMachine(world, "node-1").enrol(foreign)).status == 401
    first = TestMachine(world, "node-1")
    assert (await first.enrol(tokens["node-1"])).status == 200
    assert await first.plan() is not None

    # The node was made again: its former certificate is no longer valid.
    second = TestMachine(world, "node-1")
    assert (await second.enrol(tokens["node-1"])).status == 200
    assert (await first.report()).status == 403
    assert (await second.report()).status == 204

    # A machine that joined with a token of an operator is not replaced.
    await world.join("node-2")
    assert (await TestMachine(world, "node-2").enrol(tokens["node-2"])).status == 409
