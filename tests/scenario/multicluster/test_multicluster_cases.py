"""Members that are not admitted, silent or without the API, and objects of others: each case with real processes."""

from __future__ import annotations

import pytest
from multicluster_world import Member, SetWorld, new_set, until

from fairlead.api.kubernetes import CRDS, NAMESPACES, SERVICES
from fairlead.api.multicluster import EXPORTED_SERVICES, IMPORTED_SERVICES, SERVICE_EXPORTS, SERVICE_IMPORTS
from fairlead.api.names import ANNOTATION_UNUSED_SINCE
from fairlead.cli.explain import explain_service
from fairlead.errors import NotFound
from fairlead.status.object_ref import SERVICE, ObjectRef

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.req("GM-2", "MC-2", "MC-6")
async def test_a_namespace_that_comes_later_gets_its_imports(west: Member, east: Member) -> None:
    home = f"{west.home}-late"
    await west.namespace(home)
    await west.service("hello", "10.1.0.1", namespace=home)
    await west.export(namespace=home)
    await west.imported(namespace=home)
    with pytest.raises(NotFound):
        await east.user.get(NAMESPACES, "", home)
    await east.namespace(home)
    await east.imported(namespace=home)
    await east.user.delete(NAMESPACES, "", home)

    async def gone() -> bool:
        return home not in {namespace.metadata.name for namespace in await east.user.list(NAMESPACES)}

    await until(gone, what="the namespace is gone")
    await west.unexport(namespace=home)
    await west.no_import(namespace=home)


@pytest.mark.req("MC-6")
async def test_imports_of_another_controller_are_never_touched(west: Member, east: Member) -> None:
    port = {"port": 1, "name": "theirs"}
    body = {"metadata": {"name": "hello", "namespace": east.home}, "spec": {"type": "ClusterSetIP", "ports": [port]}}
    theirs = await east.user.apply(east.imports, body, manager="another-controller")
    await west.service("hello", "10.1.0.1")
    await west.export()
    await west.condition("Ready", "True")
    await west.imported()
    now = await east.user.get(east.imports, east.home, "hello")
    assert now.metadata.resource_version == theirs.metadata.resource_version
    assert await east.slices() == []
    await west.unexport()
    await west.no_import()
    now = await east.user.get(east.imports, east.home, "hello")
    assert now.metadata.resource_version == theirs.metadata.resource_version


@pytest.mark.req("GM-1", "MC-6")
async def test_an_export_waits_for_its_service_and_ends_with_it(west: Member, east: Member) -> None:
    await west.export()
    await west.condition("Valid", "False", reason="NoService")
    await west.service("hello", "10.1.0.1")
    await west.condition("Ready", "True", reason="Exported")
    await east.until_endpoints({"west": ["10.1.0.1"]})
    await west.user.delete(SERVICES, west.home, "hello")
    await west.condition("Valid", "False", reason="NoService")
    await east.no_import()
    # The same export takes up a Service that comes again.
    await west.service("hello", "10.1.0.2")
    await west.condition("Ready", "True", reason="Exported")
    await east.until_endpoints({"west": ["10.1.0.2"]})


@pytest.mark.req("MC-3")
async def test_an_address_is_kept_for_an_export_that_returns(west: Member, east: Member) -> None:
    await west.service("hello", "10.1.0.1")
    await west.export()
    before = (await east.imported(check=lambda obj: obj.spec.ips)).spec.ips
    await west.unexport()
    await east.no_import()

    async def unused() -> bool:
        service = await east.user.get(SERVICES, east.home, "clusterset-hello")
        return bool(service.annotation(ANNOTATION_UNUSED_SINCE))

    await until(unused, what="the Service of the import is marked")
    await west.export()
    assert (await east.imported(check=lambda obj: obj.spec.ips)).spec.ips == before
    service = await east.user.get(SERVICES, east.home, "clusterset-hello")
    assert service.annotation(ANNOTATION_UNUSED_SINCE) == ""


@pytest.mark.req("MC-3", "MC-4")
async def test_endpoints_follow_the_pods(west: Member, east: Member) -> None:
    await west.service("hello", "10.1.0.1")
    await west.export()
    await east.until_endpoints({"west": ["10.1.0.1"]})
    await west.slice("10.1.0.2", "10.1.0.3")
    await east.until_endpoints({"west": ["10.1.0.2", "10.1.0.3"]})
    await west.slice()
    await east.until_endpoints({"west": []})


@pytest.mark.req("MC-2", "MC-3", "MC-4", "MC-6")
async def test_sets_their_operators_and_silent_members() -> None:
    """One hub: a set of two, a member outside, one without the API, and the operator's changes."""
    async with new_set("west", "east", "north", clusterSet="") as world:
        west, east, north = (world.members[name] for name in ("west", "east", "north"))
        for member in (west, east, north):
            await member.service("hello", f"10.{'wen'.index(member.name[0])}.0.1")
        await west.export()
        refused = await west.condition("Ready", "False", reason="Failed")
        assert "Tenant west" in refused.message
        await _set(world, west, clusterSet="prod")
        await _set(world, east, clusterSet="prod")
        await _set(world, north, clusterSet="test")
        await west.condition("Ready", "True")
        await east.until_endpoints({"west": ["10.0.0.1"]})
        assert await north.find_import() is None
        assert await world.hub_user.list(IMPORTED_SERVICES, "tenant-north") == []

        # Neither a silent agent nor a hub that starts again removes anything.
        await world.stop_agent(west)
        await world.stop_hub()
        await world.start_hub()
        await east.service("other", "10.1.0.9")
        await east.export("other")
        await east.condition("Ready", "True", name="other")
        assert await east.endpoints() == {"west": ["10.0.0.1"]}

        # An agent that starts finds what was deleted meanwhile.
        await west.unexport()
        await world.start_agent(west)
        await east.no_import()
        assert [obj.metadata.name for obj in await world.hub_user.list(EXPORTED_SERVICES)] == ["shop.other"]

        # The operator restricts namespaces, and takes a member out of the set.
        await west.imported("other")
        await _set(world, west, clusterSet="prod", clusterSetNamespaces=["elsewhere"])
        await west.no_import("other")
        await _set(world, west, clusterSet="prod")
        await west.imported("other")
        await _set(world, east, clusterSet="")
        await west.no_import("other")
        refused = await east.condition("Ready", "False", name="other", reason="Failed")
        assert "Tenant east" in refused.message

        # Pods that others do not reach: the address of the hub is used.
        await _set(world, east, clusterSet="prod", reachability="Hub")
        await east.condition("Ready", "False", name="other", reason="Pending")
        await east.service("other", type="LoadBalancer")
        await east.condition("Ready", "True", name="other")
        status = (await east.user.get(SERVICES, "shop", "other")).status
        address = (status.load_balancer.ingress or [])[0].ip
        await west.until_endpoints({"east": [address]}, "other")
        await east.until_endpoints({"east": ["10.1.0.9"]}, "other")


@pytest.mark.req("MC-6")
async def test_without_the_api_nothing_else_stops_and_v1alpha1_is_enough() -> None:
    async with new_set("west", "east", agents=False) as world:
        west, east = world.members["west"], world.members["east"]
        for kind in (SERVICE_EXPORTS, SERVICE_IMPORTS):
            await east.user.delete(CRDS, "", kind.full_name)
        for member in (west, east):
            await world.start_agent(member)
        await west.service("hello", "10.1.0.1")
        await west.export()
        await west.condition("Ready", "True")
        await east.service("plain", type="LoadBalancer")

        async def served() -> bool:
            return bool((await east.user.get(SERVICES, "shop", "plain")).status.load_balancer.ingress)

        await until(served, what="an address without the API")
        await east.install("v1alpha1")
        assert (await east.imported(check=lambda obj: obj.spec.ips)).spec.type == "ClusterSetIP"


async def _set(world: SetWorld, member: Member, **spec: object) -> None:
    await world.tenant(member.name, **{"reachability": "Pods", **spec})


@pytest.mark.req("MC-1", "GM-1")
async def test_explain_shows_what_a_member_exports_and_imports(west: Member, east: Member) -> None:
    await west.service("hello", "10.1.0.1")
    await west.export()
    await west.condition("Ready")
    await east.imported(check=lambda obj: obj.spec.ips and obj.status.conditions)
    at_west = await explain_service(west.user, ObjectRef(SERVICE, west.home, "hello"))
    at_east = await explain_service(east.user, ObjectRef(SERVICE, east.home, "hello"))
    assert at_west is not None
    assert at_east is not None
    exported, imported = at_west.notes[0], at_east.notes[0]
    assert exported.startswith("exported to the cluster set; ")
    assert "Ready=True (Exported)" in exported
    assert imported.startswith("imported from west at ")
    assert "Ready=True (Ready)" in imported
    assert await explain_service(east.user, ObjectRef(SERVICE, east.home, "nothing")) is None
