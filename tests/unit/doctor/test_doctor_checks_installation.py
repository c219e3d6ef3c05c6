"""Faults of what is installed, planted one by one: kinds, rights, versions, second installations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from doctor_facts import good, healthy, lease, obj, only, part, with_fields, with_more, with_object

from fairlead.api.kubernetes import CRDS, DEPLOYMENTS, LEASES, NAMESPACES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.doctor.checks import examine
from fairlead.doctor.facts import Denied, Facts

pytestmark = pytest.mark.req("OP-5")


def test_no_kind_at_all() -> None:
    findings = examine(with_fields("hub", served=frozenset()))
    assert [finding.check for finding in findings] == ["kinds"]
    assert "https://hub serves no kind of fairlead.dev" in findings[0].fault


def test_a_member_in_place_of_the_hub() -> None:
    leases = [lease("kube-system", "fairlead-agent-leader")]
    finding, *others = examine(with_fields("hub", served=frozenset(), objects={LEASES.full_name: leases}))
    assert (finding.check, others) == ("kinds", [])
    assert "is a member, not a hub" in finding.fault
    assert finding.fix == "fairlead doctor --kubeconfig FILE   # with the kubeconfig of the hub"


def test_a_kind_is_missing() -> None:
    hub = healthy().hub
    assert hub is not None
    finding = only(with_fields("hub", served=hub.served - {"loadbalancerroutes"}), "kinds")
    assert finding.object == "CustomResourceDefinition/loadbalancerroutes.fairlead.dev"
    assert finding.fix.startswith("fairlead crds | kubectl apply --server-side")


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
    assert "would not see changes" in finding.fault
    assert "deploy/kubernetes/agent.yaml" in finding.fix


def test_rights_are_missing_one_finding_for_each_resource() -> None:
    denied = (Denied(ACCOUNT, "list", "nodes"), Denied(ACCOUNT, "watch", "nodes"))
    assert f"{ACCOUNT} may not list, watch nodes" in only(with_fields("member", denied=denied), "rights").fault
    hubs = (Denied("a", "patch", "leases.coordination.k8s.io", "fairlead-system"),)
    finding = only(with_fields("hub", denied=hubs), "rights")
    assert "in namespace fairlead-system" in finding.fault
    assert "hub.yaml" in finding.fix
    denied = (Denied(ACCOUNT, "create", "serviceimports.multicluster.x-k8s.io"),)
    assert "multi-cluster-services.yaml" in only(with_fields("member", denied=denied), "rights").fix


def test_a_second_hub_in_another_namespace() -> None:
    other = part("fairlead-hub")
    other["metadata"]["namespace"] = "default"
    finding = only(with_more("hub", DEPLOYMENTS, other), "two-hubs")
    assert finding.object == "Deployment/default/fairlead-hub"
    assert finding.fix == "kubectl --namespace default delete deployment fairlead-hub"


def test_a_lease_of_a_hub_in_another_namespace() -> None:
    finding = only(with_more("hub", LEASES, lease("kubelb", "fairlead-hub")), "two-hubs")
    assert finding.object == "Lease/kubelb/fairlead-hub"


def test_one_cluster_is_the_member_of_two_tenants() -> None:
    annotations = {"fairlead.dev/member-uid": "uid-east", "fairlead.dev/version": "0.2.0"}
    finding = only(with_more("hub", LEASES, lease("tenant-west", "fairlead-agent", **annotations)), "two-agents")
    assert "tenant-east and tenant-west" in finding.fault
    assert finding.fix == "fairlead tenant remove west"


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
    assert finding.fix == "kubectl -n fairlead-system set image deployment/fairlead-agent '*=IMAGE:0.2.0'"


@pytest.mark.parametrize(("there", "severity"), [(1, "warning"), (0, "error"), (None, "error")])
def test_replicas_are_missing(there: int | None, severity: str) -> None:
    finding = only(
        with_object("member", DEPLOYMENTS, lambda each: each.update(status={"availableReplicas": there})), "replicas"
    )
    assert (finding.severity.value, finding.fault) == (severity, f"{there or 0} of 2 replicas are available")


def test_a_deployment_of_another_namespace_is_ignored() -> None:
    foreign = obj("nginx", "web", metadata={"labels": {"app": "nginx"}}, spec={"replicas": 3}, status={})
    assert examine(with_more("member", DEPLOYMENTS, foreign)) == []


def with_a_cluster(*arguments: str, class_name: str = "") -> Facts:
    """Return a hub with these arguments, and a load balancer of a Cluster."""
    serving = good("Accepted", "ResolvedRefs", "Programmed", "Serving")
    wanted = obj("prod", "clusters", spec={"className": class_name}, status=serving)
    facts = with_more("hub", LOAD_BALANCERS, wanted)
    assert facts.hub is not None
    (hub,) = [each for each in facts.hub.list(DEPLOYMENTS) if each["metadata"]["name"] == "fairlead-hub"]
    hub["spec"]["template"]["spec"]["containers"][0]["args"] = ["hub", *arguments]
    return facts


@pytest.mark.parametrize("arguments", [("--envoy=deployment",), ("--envoy", "deployment")])
@pytest.mark.parametrize("class_name", ["", "envoy"])
def test_the_proxies_of_clusters_have_no_namespace(arguments: tuple[str, ...], class_name: str) -> None:
    finding = only(with_a_cluster(*arguments, class_name=class_name), "proxies-namespace")
    assert (finding.severity.value, finding.object) == ("error", "Namespace/fairlead-proxies")
    assert "1 load balancers of Clusters would run in it (LoadBalancer/clusters/prod)" in finding.fault
    file = finding.fix.partition("   # or ")[0].removeprefix("kubectl apply -f ")
    namespace = next(yaml.safe_load_all((Path(__file__).parents[3] / file).read_text()))
    assert (namespace["kind"], namespace["metadata"]["name"]) == ("Namespace", "fairlead-proxies")
    assert "clusterProxies.enabled=true" in finding.fix


def test_names_need_external_dns_only_for_its_provider() -> None:
    assert examine(with_a_cluster("--envoy=local")) == []
    there = with_a_cluster("--envoy=deployment")
    assert there.hub is not None
    there.hub.objects[NAMESPACES.full_name].append(obj("fairlead-proxies"))
    assert examine(there) == []
    findings = examine(with_a_cluster("--envoy=deployment", class_name="of-haproxy"))
    assert "proxies-namespace" not in [finding.check for finding in findings]
