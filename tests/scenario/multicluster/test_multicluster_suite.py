"""The required cases of the conformance suite of the Multi-Cluster Services API, with two clusters."""

from __future__ import annotations

import ipaddress

import pytest
from multicluster_world import TCP_AND_UDP, Member, until

from fairlead.api.kubernetes import SERVICES
from fairlead.api.meta import ObjectKey
from fairlead.api.multicluster import LABEL_SOURCE_CLUSTER

pytestmark = [pytest.mark.req("MC-8"), pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.req("MC-1", "GM-2")
async def test_an_import_lives_as_long_as_one_export(west: Member, east: Member) -> None:
    await west.service("hello", "10.1.0.1")
    await west.export()
    await west.imported()
    await east.service("hello", "10.2.0.1")
    await east.export()
    await west.imported(check=lambda obj: len(obj.status.clusters or ()) == 2)
    await west.unexport()
    still = await west.imported(check=lambda obj: len(obj.status.clusters or ()) == 1)
    assert [cluster.cluster for cluster in still.status.clusters or ()] == ["east"]
    await east.unexport()
    await west.no_import()
    await east.no_import()


@pytest.mark.req("GM-3", "GM-4")
async def test_a_cluster_ip_service_becomes_a_cluster_set_ip(west: Member, east: Member) -> None:
    affinity = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10}}}
    policies = {"internalTrafficPolicy": "Cluster", "trafficDistribution": "PreferClose"}
    await west.service("hello", "10.1.0.1", **affinity, **policies)
    await west.export()
    await west.condition("Valid", "True", reason="Valid")
    await west.condition("Ready", "True", reason="Exported")
    await west.condition("Conflict", "False", reason="NoConflicts")
    for member in (west, east):
        spec = (await member.imported(check=lambda obj: obj.spec.ips and obj.status.conditions)).spec
        assert spec.type == "ClusterSetIP"
        assert spec.session_affinity == "ClientIP"
        assert spec.session_affinity_config is not None
        assert spec.session_affinity_config.client_ip is not None
        assert spec.session_affinity_config.client_ip.timeout_seconds == 10
        assert (spec.internal_traffic_policy, spec.traffic_distribution) == ("Cluster", "PreferClose")
        assert spec.ip_families == ["IPv4"]
        assert [ipaddress.ip_address(ip).version for ip in spec.ips or ()] == [4]
        ports = [(port.name, port.port, port.protocol, port.app_protocol) for port in spec.ports or ()]
        assert ports == [("tcp", 42, "TCP", None), ("udp", 42, "UDP", None)]
    await west.unexport()
    await west.no_import()
    await east.no_import()


@pytest.mark.req("GM-5", "MC-1")
async def test_ports_of_two_exports_are_joined_and_a_conflict(west: Member, east: Member) -> None:
    extra = {"name": "stcp", "port": 142, "protocol": "SCTP"}
    await west.service("hello", "10.1.0.1")
    await west.export()
    await west.condition("Ready", "True")
    await east.service("hello", "10.2.0.1", ports=[TCP_AND_UDP[0], extra])
    await east.export_later()
    for member in (west, east):
        await member.condition("Conflict", "True", reason="PortConflict")
    shown = await west.imported(check=lambda obj: len(obj.spec.ports or ()) == 3)
    assert [(port.name, port.port) for port in shown.spec.ports or ()] == [("tcp", 42), ("udp", 42), ("stcp", 142)]


@pytest.mark.req("GM-5", "GM-7", "GM-10")
async def test_the_oldest_export_wins_a_port_and_gets_its_traffic(west: Member, east: Member) -> None:
    await west.service("hello", "10.1.0.1", ports=[TCP_AND_UDP[0]])
    await west.export()
    await west.condition("Ready", "True")
    await east.service("hello", "10.2.0.1", ports=[{**TCP_AND_UDP[0], "port": 43}])
    await east.export_later()
    for member in (west, east):
        await member.condition("Conflict", "True", reason="PortConflict")
        shown = await member.imported(check=lambda obj: len(obj.status.clusters or ()) == 2)
        assert [port.port for port in shown.spec.ports or ()] == [42]

    async def only_west() -> bool:
        by_cluster = {each.label(LABEL_SOURCE_CLUSTER): len(each.ports or ()) for each in await east.slices()}
        return by_cluster == {"west": 1, "east": 0}

    await until(only_west, what="the port leads to west alone")


@pytest.mark.req("GM-3", "GM-8", "MC-4")
async def test_a_headless_service_is_imported_without_an_address(west: Member, east: Member) -> None:
    await west.service("hello", "10.1.0.1", "10.1.0.2", clusterIP="None")
    await west.export()
    for member in (west, east):
        shown = await member.imported(check=lambda obj: obj.status.conditions)
        assert (shown.spec.type, shown.spec.ips or []) == ("Headless", [])
        await member.until_endpoints({"west": ["10.1.0.1", "10.1.0.2"]})
    (endpoint_slice,) = await east.slices()
    assert [endpoint.hostname for endpoint in endpoint_slice.endpoints or ()] == ["hello-0", "hello-1"]
    assert "kubernetes.io/service-name" not in (endpoint_slice.metadata.labels or {})
    await west.unexport()
    await west.no_import()
    await east.no_import()


@pytest.mark.req("GM-1", "MC-6")
async def test_an_external_name_is_not_exported(west: Member, east: Member) -> None:
    await west.service("other", "10.1.0.1")
    await west.service("hello", type="ExternalName", externalName="example.com", selector=None)
    await west.export()
    await west.condition("Valid", "False", reason="InvalidServiceType")
    await west.export("other")
    await east.imported("other")
    assert await east.find_import() is None


@pytest.mark.req("GM-5", "GM-10")
async def test_of_headless_and_not_the_oldest_wins(west: Member, east: Member) -> None:
    await west.service("hello", "10.1.0.1")
    await west.export()
    await west.condition("Ready", "True")
    await east.service("hello", "10.2.0.1", clusterIP="None")
    await east.export_later()
    for member in (west, east):
        await member.condition("Conflict", "True", reason="TypeConflict")
        assert (await member.imported()).spec.type == "ClusterSetIP"


@pytest.mark.req("GM-7")
async def test_a_service_that_is_not_exported_is_nowhere(west: Member, east: Member) -> None:
    for member, pod in ((west, "10.1.0.1"), (east, "10.2.0.1")):
        await member.service("hello", pod)
        await member.service("shown", pod)
    await west.export("shown")
    await east.until_endpoints({"west": ["10.1.0.1"]}, "shown")
    await west.until_endpoints({"west": ["10.1.0.1"]}, "shown")
    for member in (west, east):
        assert await member.find_import() is None
        assert await member.slices() == []


@pytest.mark.req("GM-6")
async def test_labels_are_exported_only_as_listed_and_the_oldest_wins(west: Member, east: Member) -> None:
    await west.service("hello", "10.1.0.1")
    await west.export(exportedLabels={"dummy": "a"}, exportedAnnotations={"note": "a b"})
    shown = await east.imported()
    assert {"dummy": "a"}.items() <= (shown.metadata.labels or {}).items()
    assert {"note": "a b"}.items() <= (shown.metadata.annotations or {}).items()
    assert "dummy-svc" not in (shown.metadata.labels or {})
    await east.service("hello", "10.2.0.1")
    await east.export_later(exportedLabels={"other": "b"})
    for member in (west, east):
        await member.condition("Conflict", "True", reason="LabelsConflict,AnnotationsConflict")
        assert "other" not in ((await member.imported()).metadata.labels or {})
    await west.export()
    gone = await east.imported(check=lambda obj: "dummy" not in (obj.metadata.labels or {}))
    assert "note" not in (gone.metadata.annotations or {})


async def test_endpoints_are_followed_while_their_export_is_invalid(west: Member, east: Member) -> None:
    await west.service("hello", "10.1.0.1")
    await west.export(exportedLabels={"dummy": "a"})
    await east.until_endpoints({"west": ["10.1.0.1"]})
    await west.export(exportedLabels={"dummy": "a b"})
    await west.condition("Ready", "False", reason="Failed")
    await west.slice("10.1.0.2")
    await east.until_endpoints({"west": ["10.1.0.2"]})
    assert west.agent is not None
    unreadable, key = west.agent.sets.exports.broken, ObjectKey(west.home, "hello")
    unreadable[key] = "hidden by the test"
    try:
        await west.slice("10.1.0.3")
        await east.until_endpoints({"west": ["10.1.0.3"]})
    finally:
        del unreadable[key]
    assert {"dummy": "a"}.items() <= ((await east.imported()).metadata.labels or {}).items()


@pytest.mark.req("GM-8", "MC-4")
async def test_slices_have_the_labels_of_the_standard(west: Member, east: Member) -> None:
    await west.service("hello", "10.1.0.1")
    await west.export()
    for member in (west, east):
        await member.until_endpoints({"west": ["10.1.0.1"]})
        (endpoint_slice,) = await member.slices()
        assert endpoint_slice.label("endpointslice.kubernetes.io/managed-by") == "imports.fairlead.dev"
        derived = endpoint_slice.label("kubernetes.io/service-name")
        service = await member.user.get(SERVICES, member.home, derived)
        assert service.spec.selector is None
        assert [service.spec.cluster_ip] == (await member.imported(check=lambda obj: obj.spec.ips)).spec.ips
        (endpoint,) = endpoint_slice.endpoints or []
        assert endpoint.node_name == ("n1" if member is west else None)
