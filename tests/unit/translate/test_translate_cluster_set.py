"""Which exports join an import, which one wins, and what each member gets of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.meta import WireCondition
from fairlead.api.multicluster import ExportedService, ExportedServiceStatus
from fairlead.api.tenant import Tenant
from fairlead.testing.builders import decoded, tenant
from fairlead.translate.cluster_set import MemberExport, SharedDecision, admits, decide_shared, import_for, slices_for

HTTP = {"port": 80, "name": "http"}
#: Of a pod that terminates.
CONDITIONS = {"ready": False, "serving": True, "terminating": True}


def member(name: str = "west", **spec: Any) -> Tenant:
    return tenant(name, spec={"clusterSet": "prod", "reachability": "Pods", **spec})


def export(
    name: str = "west",
    *pods: str,
    at: str = "2030-01-01T00:00:00Z",
    received: str = "2030-01-01T00:00:00Z",
    of: Tenant | None = None,
    addresses: tuple[str, ...] = (),
    **spec: Any,
) -> MemberExport:
    owner = of or member(name)
    spec = {"namespace": "shop", "name": "web", "ports": [HTTP], "ipFamilies": ["IPv4"], "exportedAt": at, **spec}
    meta = {"name": "shop.web", "namespace": owner.namespace, "creationTimestamp": received}
    endpoints = [
        {"addresses": [pod], "nodeName": "n1", "targetRef": {"uid": pod}, "conditions": CONDITIONS} for pod in pods
    ]
    ports = [{"name": port["name"], "port": 8080, "protocol": port.get("protocol", "TCP")} for port in spec["ports"]]
    slices = decoded(
        {"metadata": {"name": f"shop.web.export.{name}"}, "endpoints": endpoints, "ports": ports}, EndpointSlice
    )
    exported = decoded({"metadata": meta, "spec": spec}, ExportedService)
    return MemberExport(exported, owner, (slices,), addresses)


def conditions(decision: SharedDecision, name: str = "west") -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in decision.conditions[name]}


def endpoints(decision: SharedDecision, of: Tenant, **options: Any) -> dict[str, list[str]]:
    slices = slices_for(of, decision.imports["prod"], **options)
    return {
        endpoint_slice.label("multicluster.kubernetes.io/source-cluster"): [
            endpoint.addresses[0] for endpoint in endpoint_slice.endpoints or () if endpoint.addresses
        ]
        for endpoint_slice in slices
    }


@pytest.mark.req("MC-2")
def test_a_member_in_no_set_exports_nothing_and_the_tenant_is_named() -> None:
    decision = decide_shared([export(of=tenant("west"))])
    assert decision.imports == {}
    assert conditions(decision)["Ready"] == ("False", "Failed")
    assert "Tenant west" in decision.conditions["west"][0].message


@pytest.mark.req("MC-2")
def test_sets_have_nothing_in_common() -> None:
    decision = decide_shared(
        [export(), export("east", of=member("east", clusterSet="test"), ports=[{**HTTP, "port": 81}])]
    )
    assert {name: imported.spec.clusters for name, imported in decision.imports.items()} == {
        "prod": ["west"],
        "test": ["east"],
    }
    assert conditions(decision)["Conflict"] == ("False", "NoConflicts")


@pytest.mark.req("MC-2")
@pytest.mark.parametrize(
    ("namespaces", "namespace", "shared"),
    [([], "shop", True), ([], "kube-system", False), (["kube-system"], "kube-system", True), (["a"], "shop", False)],
)
def test_an_operator_restricts_namespaces(namespaces: list[str], namespace: str, shared: bool) -> None:
    assert admits(member(clusterSetNamespaces=namespaces), namespace) is shared
    assert not admits(tenant("west", spec={"clusterSetNamespaces": [namespace]}), namespace)


@pytest.mark.req("MC-3")
def test_without_a_way_to_its_pods_the_address_of_the_hub_is_used() -> None:
    west = member("west", reachability="Hub")
    waiting = decide_shared([export(of=west)])
    assert (waiting.imports, conditions(waiting)["Ready"]) == ({}, ("False", "Pending"))
    decision = decide_shared([export("west", "10.1.0.1", of=west, addresses=("192.0.2.7",))])
    assert conditions(decision)["Ready"] == ("True", "Exported")
    assert endpoints(decision, member("east")) == {"west": ["192.0.2.7"]}
    assert endpoints(decision, west) == {"west": ["10.1.0.1"]}, "a member reaches its own pods"
    (at_hub,) = slices_for(member("east"), decision.imports["prod"])
    assert [(port.name, port.port) for port in at_hub.ports or ()] == [("http", 80)]
    headless = decide_shared([export(of=west, addresses=("192.0.2.7",), type="Headless")])
    assert (headless.imports, conditions(headless)["Ready"]) == ({}, ("False", "Failed"))


@pytest.mark.req("MC-2", "S-9")
def test_a_member_cannot_lead_others_to_addresses_that_it_may_not_have() -> None:
    bad = ("127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0")
    decision = decide_shared([export("west", "10.1.0.1", *bad)])
    assert endpoints(decision, member("east")) == {"west": ["10.1.0.1"]}
    narrow = member("west", targetRanges=["10.1.0.0/24"])
    decision = decide_shared([export("west", "10.1.0.1", "10.9.0.1", of=narrow)])
    assert endpoints(decision, member("east")) == {"west": ["10.1.0.1"]}
    unreadable = member("west", targetRanges=["nonsense"])
    assert endpoints(decide_shared([export("west", "10.1.0.1", of=unreadable)]), member("east")) == {"west": []}


@pytest.mark.req("GM-10")
def test_the_oldest_wins_and_of_equal_age_the_first_received() -> None:
    west = export("west", at="2030-01-01T05:00:00Z", sessionAffinity="ClientIP")
    east = export("east", at="2030-01-01T04:00:00Z")
    decision = decide_shared([west, east])
    assert decision.imports["prod"].spec.session_affinity == "None"
    assert {conditions(decision, name)["Conflict"] for name in ("west", "east")} == {
        ("True", "SessionAffinityConflict")
    }
    assert "of east wins over west" in decision.conditions["west"][1].message
    first = export("west", received="2030-01-01T00:00:01Z", sessionAffinity="ClientIP")
    second = export("east", received="2030-01-01T00:00:02Z")
    assert decide_shared([second, first]).imports["prod"].spec.session_affinity == "ClientIP"


@pytest.mark.req("GM-5", "MC-1")
@pytest.mark.parametrize(
    ("younger", "ports", "served"),
    [
        ({"port": 81, "name": "more"}, [80, 81], {"more"}),
        ({"port": 81, "name": "http"}, [80], set[str]()),
        ({"port": 80, "name": "other"}, [80], set[str]()),
        ({"port": 80, "name": "http", "protocol": "UDP"}, [80], set[str]()),
        ({"port": 80, "name": "udp", "protocol": "UDP"}, [80, 80], {"udp"}),
        ({"port": 81, "name": ""}, [80], set[str]()),
        ({"port": 80, "name": "http", "appProtocol": "http"}, [80], {"http"}),
    ],
)
def test_ports_are_the_union_and_of_two_the_older_is_kept(
    younger: dict[str, Any], ports: list[int], served: set[str]
) -> None:
    decision = decide_shared([export(), export("east", at="2030-01-02T00:00:00Z", ports=[younger])])
    imported = decision.imports["prod"]
    assert [port.port for port in imported.spec.ports] == ports
    assert imported.ports == {"west": {"http"}, "east": served}
    for name in ("west", "east"):
        assert conditions(decision, name)["Conflict"] == ("True", "PortConflict")
    of_east = [each for each in slices_for(member("north"), imported) if "east" in each.metadata.name]
    assert [{port.name for port in each.ports or ()} for each in of_east] == [served]


@pytest.mark.req("MC-18")
def test_a_member_that_is_gone_for_too_long_is_in_no_import_and_the_others_are() -> None:
    gone = msgspec.structs.replace(export("west", "10.1.0.1"), gone="the agent of west is lost; dropped")
    decision = decide_shared([gone, export("east", "10.2.0.1")])
    assert decision.imports["prod"].spec.clusters == ["east"]
    assert conditions(decision)["Ready"] == ("False", "Failed")
    assert endpoints(decision, member("north")) == {"east": ["10.2.0.1"]}


@pytest.mark.req("MC-3")
def test_pods_of_overlapping_networks_are_refused() -> None:
    younger = export("east", "10.1.0.1", at="2030-01-02T00:00:00Z")
    decision = decide_shared([export("west", "10.1.0.1"), younger])
    assert decision.imports["prod"].spec.clusters == ["west"]
    assert conditions(decision, "east")["Ready"] == ("False", "Failed")
    assert "10.1.0.1" in decision.conditions["east"][0].message


@pytest.mark.req("MC-3", "MC-18")
def test_an_address_that_two_members_list_ends_no_export_that_is_served() -> None:
    ready = ExportedServiceStatus(conditions=[WireCondition("Ready", "True", "Exported")])
    younger = export("east", "10.1.0.1", "10.2.0.1", at="2030-01-02T00:00:00Z")
    served = msgspec.structs.replace(younger, export=msgspec.structs.replace(younger.export, status=ready))
    decision = decide_shared([export("west", "10.1.0.1"), served])
    assert endpoints(decision, member("north")) == {"west": ["10.1.0.1"], "east": ["10.2.0.1"]}
    assert endpoints(decision, member("east"))["east"] == ["10.1.0.1", "10.2.0.1"], "a member reaches its own pods"
    for name in ("west", "east"):
        assert conditions(decision, name) == {"Ready": ("True", "Exported"), "Conflict": ("True", "EndpointConflict")}
    assert "10.1.0.1" in decision.conditions["east"][1].message


def test_a_difference_of_families_is_a_conflict() -> None:
    decision = decide_shared([export(), export("east", at="2030-01-02T00:00:00Z", ipFamilies=["IPv6"])])
    assert conditions(decision)["Conflict"] == ("True", "IPFamilyConflict")
    assert decision.imports["prod"].spec.ip_families == ["IPv4"]


@pytest.mark.req("MC-4")
def test_slices_show_their_source_and_keep_the_nodes_of_their_own_member() -> None:
    decision = decide_shared([export("west", "10.1.0.1")])
    for of, node in (("west", "n1"), ("east", None)):
        (endpoint_slice,) = slices_for(member(of), decision.imports["prod"])
        (endpoint,) = endpoint_slice.endpoints or []
        assert (endpoint.node_name, endpoint.target_ref) == (node, None)
        assert msgspec.to_builtins(endpoint.conditions) == CONDITIONS, "other members must not begin connections to it"
        assert endpoint_slice.metadata.namespace == f"tenant-{of}"
    imported = import_for(member("east"), decision.imports["prod"])
    assert (imported.key, imported.spec.clusters) == (("tenant-east", "shop.web"), ["west"])
