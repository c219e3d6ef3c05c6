"""What the hub keeps in its own cluster: present, right, untouched when nothing changes, and gone when it should be."""

from __future__ import annotations

import pytest
from deployment_world import World, until

from fairlead.api.kubernetes import CONFIG_MAPS, DEPLOYMENTS, SECRETS, SERVICES
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import NotFound
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.certificates import AUTHORITY_SECRET, SERVER_SECRET
from fairlead.providers.envoy.kubernetes.manifests import group_name, service_name

#: What runs the proxies of one tenant, Services apart.
GROUP = ["ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Secret", "ServiceAccount"]


async def kinds_are(world: World, namespace: str, *services: str) -> None:
    wanted = sorted([*GROUP, *services]) if services else []

    async def check() -> bool:
        return await world.kinds(namespace) == wanted

    try:
        await until(check)
    except AssertionError:
        assert await world.kinds(namespace) == wanted


async def delete(world: World, key: LoadBalancerKey) -> None:
    await world.admin.delete(TCP_LOAD_BALANCERS, key.namespace, key.name)

    async def gone() -> bool:
        try:
            await world.lb(key)
        except NotFound:
            return True
        return False

    await until(gone, what=f"{key} gone")


@pytest.mark.req("K-9")
@pytest.mark.req("K-28")
@pytest.mark.req("K-29")
@pytest.mark.req("K-11")
@pytest.mark.req("E-32")
async def test_objects_come_and_go_with_the_load_balancers(world: World) -> None:
    hub = await world.hub()
    namespace = await world.tenant()
    web = await world.load_balancer(namespace, "web", ports=(80, 443))
    dns = await world.load_balancer(namespace, "other")
    await kinds_are(world, namespace, "Service", "Service")

    service = await world.service(web)
    assert service.spec.type == "LoadBalancer"
    recorded = {port.port: port.proxy_port for port in (await world.lb(web)).status.allocation.ports}
    assert {port.port: port.target_port for port in service.spec.ports or ()} == recorded
    assert set(recorded) == {80, 443}
    deployment = await world.deployment(namespace)
    assert service.spec.selector == deployment["spec"]["selector"]["matchLabels"]
    assert deployment["spec"]["template"]["spec"]["volumes"][1]["secret"]["secretName"] == group_name(namespace)

    await world.assign(web, ip="203.0.113.7")
    await world.assign(dns, hostname="lb-1.example.com")
    await until(lambda: hub.provider.fleet.addresses(web).addresses == ("203.0.113.7",))
    await until(lambda: hub.provider.fleet.addresses(dns).addresses == ("lb-1.example.com",))

    await delete(world, dns)
    await kinds_are(world, namespace, "Service")
    await delete(world, web)
    await kinds_are(world, namespace)
    await world.load_balancer(namespace, "web")
    await kinds_are(world, namespace, "Service")


@pytest.mark.req("KI-6")
async def test_nothing_is_written_when_nothing_changes(world: World) -> None:
    hub = await world.hub()
    namespace = await world.tenant()
    key = await world.load_balancer(namespace)
    await kinds_are(world, namespace, "Service")
    await world.assign(key, ip="203.0.113.7")
    await world.quiet(hub)
    before = await world.versions()
    hub.provider.lead(True)  # everything is looked at again
    await world.quiet(hub)
    assert await world.versions() == before, "steady state"
    served = hub.resources(namespace)
    await hub.stop()
    heir = await world.hub("heir")
    await world.quiet(heir)
    assert await world.versions() == before, "restart"
    assert heir.resources(namespace) == served


@pytest.mark.req("I-5")
@pytest.mark.req("K-28")
@pytest.mark.req("K-31")
async def test_two_replicas_serve_the_same_and_one_of_them_writes(world: World) -> None:
    first = await world.hub("first", lease_s=10.0)
    second = await world.hub("second", leading=False, lease_s=10.0)
    at_start = second.cluster.writes  # the kinds are applied by every replica that starts, which changes nothing
    east, west = await world.tenant("east"), await world.tenant("west")
    keys = [await world.load_balancer(where, name) for where in (east, west) for name in ("a", "b", "c")]
    ports = {key: await world.proxy_port(key) for key in keys}
    for key in keys:
        assert (await world.service(key)).spec.ports[0].target_port == ports[key]  # type: ignore[index]
    await until(lambda: first.resources(east) and first.resources(east) == second.resources(east))
    await until(lambda: first.resources(west) and first.resources(west) == second.resources(west))
    await world.quiet(first, second)
    assert second.cluster.writes == at_start, "only the leader writes"
    assert not second.hub.leading

    before = await world.versions()
    served = {where: second.resources(where) for where in (east, west)}
    revisions = {where: second.provider.store.group(where).revision for where in (east, west)}
    await first.kill()
    await until(lambda: second.hub.leading, what="takeover")
    await world.quiet(second)
    assert {where: second.resources(where) for where in (east, west)} == served
    assert {where: second.provider.store.group(where).revision for where in (east, west)} == revisions
    assert await world.versions() == before
    assert {key: await world.proxy_port(key) for key in keys} == ports

    late = await world.load_balancer(east, "late")
    assert (await world.service(late)).spec.ports[0].target_port == await world.proxy_port(late)  # type: ignore[index]
    await delete(world, keys[0])
    with pytest.raises(NotFound):
        await world.admin.get(SERVICES, east, service_name(keys[0]))


@pytest.mark.req("KI-6")
async def test_only_objects_deleted_without_a_hub_are_swept(world: World) -> None:
    hub = await world.hub()
    gone, kept = await world.tenant("gone"), await world.tenant("kept")
    dead = await world.load_balancer(gone, "dead")
    forced = await world.load_balancer(kept, "forced")
    alive = await world.load_balancer(kept, "alive")
    await kinds_are(world, gone, "Service")
    await kinds_are(world, kept, "Service", "Service")
    # Ours by its name only: without our labels it is not ours.
    foreign = {"metadata": {"name": group_name(gone) + "-x", "namespace": gone}, "data": {"a": "b"}}
    await world.admin.create(CONFIG_MAPS, foreign)
    await world.quiet(hub)
    await hub.stop()
    await world.admin.delete(TCP_LOAD_BALANCERS, gone, "dead")  # its finalizer waits for a hub
    await world.admin.merge_patch(TCP_LOAD_BALANCERS, kept, "forced", {"metadata": {"finalizers": None}})
    await world.admin.delete(TCP_LOAD_BALANCERS, kept, "forced")  # gone without a trace

    await world.hub("heir")
    await kinds_are(world, gone)
    await kinds_are(world, kept, "Service")
    with pytest.raises(NotFound):
        await world.lb(dead)
    with pytest.raises(NotFound):
        await world.lb(forced)
    assert (await world.service(alive)).metadata.name == service_name(alive)
    assert await world.admin.get(CONFIG_MAPS, gone, group_name(gone) + "-x")


async def test_deleted_entries_return_and_manual_changes_are_kept(world: World) -> None:
    hub = await world.hub()
    namespace = await world.tenant()
    key = await world.load_balancer(namespace)
    await kinds_are(world, namespace, "Service")
    await world.quiet(hub)
    await world.admin.merge_patch(DEPLOYMENTS, namespace, group_name(namespace), {"spec": {"replicas": 5}})
    await world.admin.delete(SERVICES, namespace, service_name(key))
    await kinds_are(world, namespace, "Service")
    await world.admin.delete(SECRETS, namespace, group_name(namespace))
    hub.provider.certificates.reconcile_all()
    await kinds_are(world, namespace, "Service")
    assert (await world.deployment(namespace))["spec"]["replicas"] == 5


@pytest.mark.req("KI-8")
async def test_replicas_share_their_certificates_and_never_show_a_key(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    first = await world.hub("first")
    second = await world.hub("second", leading=False)
    namespace = await world.tenant()
    await world.load_balancer(namespace)
    await kinds_are(world, namespace, "Service")
    assert first.provider.shared.authority == second.provider.shared.authority
    for name in ("certificate", "key", "client_ca"):
        files = [getattr(replica.provider.shared.files, name) for replica in (first, second)]
        assert files[0].read_bytes() == files[1].read_bytes()
        assert files[0].stat().st_mode & 0o077 == 0
    secrets = [
        await world.secret(SYSTEM_NAMESPACE, AUTHORITY_SECRET),
        await world.secret(SYSTEM_NAMESPACE, SERVER_SECRET),
        await world.secret(namespace, group_name(namespace)),
    ]
    assert len({secret["tls.key"] for secret in secrets}) == 3
    shown = "".join(capfd.readouterr()) + repr(first.provider.shared.authority)
    for secret in secrets:
        assert secret["tls.key"].splitlines()[1].decode() not in shown
    assert "tls.key" not in str(await world.raw(f"/api/v1/namespaces/{namespace}/events"))
