"""Exports of Services, and the objects that the member gets for an import."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.agent.sources.caches import MemberService
from fairlead.agent.sources.multicluster.plan import (
    derived_body,
    derived_difference,
    derived_service,
    export_status,
    import_of,
    member_slices,
    plan_export,
    service_import,
    unused,
)
from fairlead.agent.sources.multicluster.source import MulticlusterSource
from fairlead.agent.sources.service.plan import Settings
from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.meta import condition_of
from fairlead.api.multicluster import ExportedService, ImportedService, ServiceExport
from fairlead.testing.builders import decoded, endpoint_slice, slice_body

SETTINGS = Settings(tenant="west", namespace="tenant-west")
META = {"name": "web", "namespace": "shop", "creationTimestamp": "2030-01-01T00:00:00Z"}
HTTP = {"port": 80, "name": "http"}


def service(meta: dict[str, Any] | None = None, **spec: Any) -> MemberService:
    return decoded({"metadata": {**META, **(meta or {})}, "spec": {"ports": [HTTP], **spec}}, MemberService)


def export(**spec: Any) -> ServiceExport:
    return decoded({"metadata": META, "spec": spec}, ServiceExport)


def imported(**spec: Any) -> ImportedService:
    spec = {"namespace": "shop", "name": "web", "ports": [HTTP], "ipFamilies": ["IPv4"], **spec}
    return decoded({"metadata": {"name": "shop.web", "namespace": "tenant-west"}, "spec": spec}, ImportedService)


@pytest.mark.req("MC-4")
def test_slices_that_were_copied_from_other_clusters_are_not_exported() -> None:
    body = slice_body("web-north", ["10.3.0.1"])
    body["metadata"]["labels"]["multicluster.kubernetes.io/source-cluster"] = "north"
    copied = decoded(body, EndpointSlice)
    plan = plan_export(export(), service(), (endpoint_slice("web-1", ["10.1.0.1"]), copied), SETTINGS)
    addresses = [endpoint.addresses for part in plan.slices for endpoint in part.endpoints or ()]
    assert addresses == [["10.1.0.1"]]


@pytest.mark.req("GM-1", "MC-6")
@pytest.mark.parametrize(
    ("present", "reason"),
    [
        (None, "NoService"),
        (service({"deletionTimestamp": "2030-01-01T00:00:00Z"}), "NoService"),
        (service(type="ExternalName"), "InvalidServiceType"),
        (service({"labels": {"fairlead.dev/import": "other"}}), "InvalidServiceType"),
    ],
)
def test_without_a_service_to_export_the_export_is_invalid(present: MemberService | None, reason: str) -> None:
    plan = plan_export(export(), present, (), SETTINGS)
    assert (plan.exported, plan.slices) == (None, ())
    assert (plan.valid.status, plan.valid.reason) == ("False", reason)
    status = export_status(export(), plan, None, "", now="2030-01-01T00:00:01Z")
    ready = condition_of(status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", "Pending")
    assert all(condition.message for condition in status.conditions or ())


def test_an_export_has_the_properties_of_its_service() -> None:
    present = service(
        clusterIP="None", sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 10}}
    )
    exported = plan_export(export(exportedLabels={"a": "b"}), present, (), SETTINGS).exported
    assert exported is not None
    spec = exported.spec
    assert (exported.metadata.name, exported.metadata.namespace) == ("shop.web", "tenant-west")
    assert (spec.type, spec.session_affinity, spec.session_affinity_seconds) == ("Headless", "ClientIP", 10)
    assert (spec.exported_at, spec.labels) == ("2030-01-01T00:00:00Z", {"a": "b"})


@pytest.mark.parametrize(
    "spec", [{"exportedLabels": {"a b": ""}}, {"exportedLabels": {"a": "b c"}}, {"exportedAnnotations": {"/": "x"}}]
)
def test_invalid_metadata_is_named_and_what_was_exported_stays(spec: dict[str, Any]) -> None:
    plan = plan_export(export(**spec), service(), [endpoint_slice("web-1", ["10.1.0.1"])], SETTINGS)
    assert plan.exported is None
    assert len(plan.slices) == 1, "endpoints are followed"
    assert plan.problem
    status = export_status(export(**spec), plan, None, "", now="2030-01-01T00:00:01Z")
    ready = condition_of(status.conditions, "Ready")
    assert ready is not None
    assert ready.reason == "Failed"
    assert f"spec.{next(iter(spec))}" in ready.message


def test_the_hub_answers_or_has_not_yet() -> None:
    plan = plan_export(export(), service(), (), SETTINGS)
    for answer, refusal, expected in (
        (None, "", ("Unknown", "Pending")),
        (None, "The hub rejects it.", ("False", "Failed")),
        (decoded(_answered(), ExportedService), "", ("True", "Exported")),
    ):
        status = export_status(export(), plan, answer, refusal, now="2030-01-01T00:00:01Z")
        ready = condition_of(status.conditions, "Ready")
        assert ready is not None
        assert (ready.status, ready.reason) == expected


def _answered() -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "reason": "Exported", "message": "exported"}
    return {"metadata": {"name": "shop.web"}, "spec": {}, "status": {"conditions": [ready]}}


@pytest.mark.req("MC-3")
def test_the_service_of_an_import_has_no_selector_and_the_addresses_are_shown() -> None:
    derived = derived_service(imported(sessionAffinity="ClientIP", sessionAffinitySeconds=10))
    assert derived is not None
    body = derived_body(derived)
    assert "selector" not in body["spec"]
    assert body["spec"]["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10}}
    assert import_of(derived) == "web"
    stored = decoded({**body, "spec": {**body["spec"], "clusterIPs": ["10.96.0.9"]}}, MemberService)
    assert derived_difference(derived, stored) == ""
    shown = service_import(imported(), stored)
    assert (shown.spec.ips, shown.spec.ip_families) == (["10.96.0.9"], ["IPv4"])
    kept = unused(stored, since="2030-01-01T00:00:00Z")
    assert derived_difference(kept, stored)
    assert derived_difference(derived, kept)
    assert derived_service(imported(type="Headless")) is None


def test_a_cluster_of_one_family_gets_an_address_of_that_family() -> None:
    derived = derived_service(imported(ipFamilies=["IPv6", "IPv4"]))
    assert derived is not None
    assert (derived.spec.ip_families, derived.spec.ip_family_policy) == (["IPv6"], "PreferDualStack")
    stored = decoded({"spec": {"ports": [HTTP], "clusterIPs": ["fd00::9"], "ipFamilies": ["IPv6"]}}, MemberService)
    shown = service_import(imported(ipFamilies=["IPv6", "IPv4"]), stored)
    assert (shown.spec.ips, shown.spec.ip_families) == (["fd00::9"], ["IPv6"])


@pytest.mark.req("GM-8", "MC-4")
@pytest.mark.parametrize(("kind", "service_name"), [("ClusterSetIP", "clusterset-web"), ("Headless", "")])
def test_slices_of_an_import_are_labelled(kind: str, service_name: str) -> None:
    copies = [
        decoded(
            {
                "metadata": {
                    "name": f"copy-{cluster}",
                    "labels": {"multicluster.kubernetes.io/source-cluster": cluster},
                },
                "endpoints": [{"addresses": ["10.1.0.1"], "hostname": "web-0"}],
            },
            EndpointSlice,
        )
        for cluster in ("west", "")
    ]
    (made,) = member_slices(imported(type=kind), copies)
    assert made.label("multicluster.kubernetes.io/service-name") == "web"
    assert made.label("kubernetes.io/service-name") == service_name
    assert made.metadata.namespace == "shop"
    assert made.endpoints is not None
    assert made.endpoints[0].hostname == "web-0"


@pytest.mark.req("MC-4")
@pytest.mark.parametrize(
    ("distribution", "zones"),
    [("", [None, None, None]), ("PreferClose", [["a"], None, None]), ("PreferSameNode", [["a"], None, None])],
)
def test_endpoints_are_for_their_zone_where_the_service_prefers_near_ones(
    distribution: str, zones: list[list[str] | None]
) -> None:
    endpoints = [{"addresses": [f"10.1.0.{number}"], "zone": zone} for number, zone in enumerate(("a", None, "no\n"))]
    meta = {"name": "copy", "labels": {"multicluster.kubernetes.io/source-cluster": "west"}}
    copy = decoded({"metadata": meta, "endpoints": endpoints}, EndpointSlice)
    (made,) = member_slices(imported(trafficDistribution=distribution), [copy])
    hints = [endpoint.hints for endpoint in made.endpoints or ()]
    assert [[zone.name for zone in hint.for_zones or ()] if hint else None for hint in hints] == zones


def test_the_source_takes_exports_and_imports() -> None:
    assert MulticlusterSource.publishes == {"ServiceExport"}
    assert MulticlusterSource.reports == {"ServiceExport", "ServiceImport"}
