"""Faults of what is installed, planted one by one: kinds, rights, versions, second installations."""

from __future__ import annotations

from typing import Any

import pytest
from doctor_facts import healthy, lease, obj, only, part, with_fields, with_more, with_object

from fairlead.api.kubernetes import CRDS, DEPLOYMENTS, LEASES
from fairlead.doctor.facts import Denied
from fairlead.doctor.table import examine

pytestmark = pytest.mark.req("OP-5")


def test_no_kind_at_all() -> None:
    findings = examine(with_fields("hub", served=frozenset()))
    assert [finding.check for finding in findings] == ["kinds"]
    assert "no hub has run at https://hub" in findings[0].fault


def test_a_kind_is_missing() -> None:
    hub = healthy().hub
    assert hub is not None
    finding = only(with_fields("hub", served=hub.served - {"loadbalancerroutes"}), "kinds")
    assert finding.object == "CustomResourceDefinition/loadbalancerroutes.fairlead.dev"
    assert finding.mend.startswith("fairlead crds | kubectl apply --server-side")


def test_a_kind_of_an_older_version_lacks_a_field() -> None:
    def change(crd: dict[str, Any]) -> None:
        del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["maxPorts"]

    finding = only(with_object("hub", CRDS, change), "kinds-version")
    assert "spec.maxPorts is missing there" in finding.fault


def test_a_kind_of_a_newer_version_has_a_field_more() -> None:
    def change(crd: dict[str, Any]) -> None:
        fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        fields["quota"] = {"type": "string"}

    assert "spec.quota is not known here" in only(with_object("hub", CRDS, change), "kinds-version").fault


ACCOUNT = "service account fairlead-system/fairlead-agent"


def test_list_is_allowed_and_watch_denied() -> None:
    finding = only(with_fields("member", denied=(Denied(ACCOUNT, "watch", "services"),)), "watch-denied")
    assert finding.object == "member: services"
    assert "never hear of a change" in finding.fault
    assert "deploy/kubernetes/agent.yaml" in finding.mend


def test_rights_are_missing_one_finding_for_each_resource() -> None:
    denied = (Denied(ACCOUNT, "list", "nodes"), Denied(ACCOUNT, "watch", "nodes"))
    assert f"{ACCOUNT} may not list, watch nodes" in only(with_fields("member", denied=denied), "rights").fault
    hubs = (Denied("a", "patch", "leases.coordination.k8s.io", "fairlead-system"),)
    finding = only(with_fields("hub", denied=hubs), "rights")
    assert "in namespace fairlead-system" in finding.fault
    assert "hub.yaml" in finding.mend


def test_a_second_hub_in_another_namespace() -> None:
    other = part("fairlead-hub")
    other["metadata"]["namespace"] = "default"
    finding = only(with_more("hub", DEPLOYMENTS, other), "two-hubs")
    assert finding.object == "Deployment/default/fairlead-hub"
    assert finding.mend == "kubectl --namespace default delete deployment fairlead-hub"


def test_a_lease_of_a_hub_in_another_namespace() -> None:
    finding = only(with_more("hub", LEASES, lease("kubelb", "fairlead-hub")), "two-hubs")
    assert finding.object == "Lease/kubelb/fairlead-hub"


def test_one_cluster_is_the_member_of_two_tenants() -> None:
    annotations = {"fairlead.dev/member-uid": "uid-east", "fairlead.dev/version": "0.2.0"}
    finding = only(with_more("hub", LEASES, lease("tenant-west", "fairlead-agent", **annotations)), "two-agents")
    assert "tenant-east and tenant-west" in finding.fault
    assert finding.mend == "fairlead tenant remove west"


def test_agents_of_one_member_that_meet_in_two_namespaces() -> None:
    finding = only(with_more("member", LEASES, lease("kube-system", "fairlead-agent-leader")), "two-agents")
    assert "two namespaces" in finding.fault


def test_an_agent_of_another_version() -> None:
    facts = healthy()
    assert facts.hub is not None
    facts.hub.list(LEASES)[1]["metadata"]["annotations"]["fairlead.dev/version"] = "0.1.0"
    assert "version 0.1.0" in only(facts, "versions").fault


def test_an_image_of_another_version() -> None:
    def change(each: dict[str, Any]) -> None:
        each["spec"]["template"]["spec"]["containers"][0]["image"] = "host:5000/fairlead:0.1.0"

    finding = only(with_object("member", DEPLOYMENTS, change), "versions")
    assert "host:5000/fairlead:0.1.0" in finding.fault
    assert finding.mend == "kubectl -n fairlead-system set image deployment/fairlead-agent '*=IMAGE:0.2.0'"


@pytest.mark.parametrize(("there", "severity"), [(1, "warning"), (0, "error"), (None, "error")])
def test_replicas_are_missing(there: int | None, severity: str) -> None:
    finding = only(
        with_object("member", DEPLOYMENTS, lambda each: each.update(status={"availableReplicas": there})), "replicas"
    )
    assert (finding.severity.value, finding.fault) == (severity, f"{there or 0} of 2 replicas are available")


def test_a_deployment_of_somewhere_else_is_no_business_of_ours() -> None:
    foreign = obj("nginx", "web", metadata={"labels": {"app": "nginx"}}, spec={"replicas": 3}, status={})
    assert examine(with_more("member", DEPLOYMENTS, foreign)) == []
