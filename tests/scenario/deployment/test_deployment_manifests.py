"""deploy/kubernetes: complete, locked down, and with exactly the rights that are used.

Hub and agent run here as processes with the arguments of their manifests, as the service accounts that these make.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from deployment_needs import group_needs, tenant_needs
from deployment_run import work
from deployment_world import World

from fairlead.agent.checks import gateway_needs, ingress_needs, member_needs, multicluster_needs, readiness_needs
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.names import GROUP, PROXIES_NAMESPACE, SYSTEM_NAMESPACE
from fairlead.hub.machines.tokens import NODE_ACCOUNT, NODE_AUDIENCE
from fairlead.kube.discovery import AccessNeed
from fairlead.providers.controller.gateway import GatewayForm
from fairlead.providers.controller.ingress import IngressForm
from fairlead.providers.zones.external_dns.annotations_provider import ServiceForm
from fairlead.providers.zones.external_dns.provider import EndpointForm, Form
from fairlead.standalone.hub_settings import hub_needs
from fairlead.translate.tenant import HUB_TENANT_ROLE, agent_rules

MANIFESTS = Path(__file__).parents[3] / "deploy" / "kubernetes"

#: (namespace or "", API group, resource, verb)
Right = tuple[str, str, str, str]


def objects(name: str) -> list[JSONObject]:
    return [document for document in yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text()) if document]


def rights(manifests: list[JSONObject]) -> set[Right]:
    rights: set[Right] = set()
    for role in manifests:
        if role["kind"] in {"Role", "ClusterRole"}:
            rights |= expand(role["rules"], role["metadata"].get("namespace", ""))
    return rights


def expand(rules: list[JSONObject], namespace: str = "") -> set[Right]:
    return {
        (namespace, group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed(needs: list[AccessNeed]) -> set[Right]:
    return {
        (
            need.namespace,
            need.resource.group,
            "/".join(filter(None, (need.resource.plural, need.subresource))),
            need.verb,
        )
        for need in needs
    }


def everywhere(these: set[Right]) -> set[Right]:
    return {("", *right[1:]) for right in these}


READS = {"get", "list", "watch"}
#: What the hub holds only to give it to agents.
PASSED_ON = expand(agent_rules()) | {
    ("", GROUP, LOAD_BALANCER_CLASSES.plural, verb) for verb in ("get", "list", "watch")
}


@pytest.mark.req("KI-8")
def test_hub_has_the_rights_that_it_checks_for_and_gives_away_and_no_more() -> None:
    manifests = [obj for obj in objects("hub") if obj["metadata"]["name"] != HUB_TENANT_ROLE]
    granted, needs = rights(manifests), needed([*hub_needs(deployment=True), *group_needs()])
    for_one = {("", "rbac.authorization.k8s.io", "clusterroles", "bind")}
    assert [rule for role in manifests for rule in role.get("rules", ()) if "bind" in rule["verbs"]] == [
        {
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["clusterroles"],
            "resourceNames": [HUB_TENANT_ROLE],
            "verbs": ["bind"],
        }
    ]
    granted -= for_one
    assert {right for right in needs if right not in granted and ("", *right[1:]) not in granted} == set(), "sufficient"
    assert {
        right for right in granted if right not in needs | PASSED_ON and (right[0] or right not in everywhere(needs))
    } == set()
    wide = {right for right in granted if not right[0]}
    assert not wide - PASSED_ON - needs, "what one namespace is enough for is not asked for in all"
    assert not {right for right in granted if right[3] in {"*", "bind", "escalate", "impersonate", "deletecollection"}}
    assert not {right for right in granted if right[2] == "secrets" and (not right[0] or right[3] in {"list", "watch"})}
    written = {right for right in wide if right[1] in {"apps", "policy", "networking.k8s.io"} and right[3] not in READS}
    assert not written, "written in tenants' namespaces only"


@pytest.mark.req("S-10")
def test_the_hub_binds_only_the_rights_it_uses_for_tenants() -> None:
    of_tenants = [obj for obj in objects("hub") if obj["metadata"]["name"] == HUB_TENANT_ROLE]
    assert [role["kind"] for role in of_tenants] == ["ClusterRole"], "bound by the hub, in no binding of ours"
    # Agents list and watch the copies of certificates in their own namespace, and renew their own token.
    passed_on = {("", "", "secrets", verb) for verb in ("list", "watch")} | {
        ("", "", "serviceaccounts/token", "create")
    }
    assert rights(of_tenants) == needed(tenant_needs()) | passed_on


@pytest.mark.req("KI-8", "K-45")
def test_rights_for_another_controller_are_minimal() -> None:
    used = {
        ("", kind.group, kind.plural, verb)
        for form in (IngressForm(), GatewayForm())
        for kind in (form.answering, *form.others)
        for verb in ("list", "create", "patch", "delete", *(("watch",) if kind is form.answering else ()))
    }
    assert rights(objects("another-controller")) == used


@pytest.mark.req("KI-8", "C-53")
@pytest.mark.parametrize(
    ("manifest", "form"), [("external-dns", EndpointForm()), ("external-dns-annotations", ServiceForm())]
)
def test_rights_for_external_dns_are_minimal(manifest: str, form: Form) -> None:
    kind = form.kind
    assert form.manifest == f"deploy/kubernetes/{manifest}.yaml"
    used = {(SYSTEM_NAMESPACE, kind.group, kind.plural, verb) for verb in ("get", "list", "create", "patch", "delete")}
    assert rights(objects(manifest)) == used


@pytest.mark.req("KI-8")
def test_rights_for_proxy_machines_are_minimal() -> None:
    plain, more = (needed(hub_needs(deployment=True, machines=machines)) for machines in (False, True))
    secrets = {(SYSTEM_NAMESPACE, "", "secrets", verb) for verb in ("get", "create", "patch", "delete")}
    assert rights(objects("proxy-machines")) == (more - plain) | secrets


@pytest.mark.req("KI-8", "C-65")
def test_rights_for_proxies_of_clusters_are_minimal() -> None:
    """In the namespaces of the Clusters, where their kubeconfigs are, it gets none."""
    assert rights(objects("cluster-proxies")) == needed(tenant_needs(PROXIES_NAMESPACE))


@pytest.mark.req("KI-8")
def test_agent_has_the_rights_that_it_checks_for_and_no_more() -> None:
    needs = [*member_needs(system_namespace=SYSTEM_NAMESPACE), *ingress_needs(), *gateway_needs()]
    assert rights(objects("agent")) == needed(needs)


@pytest.mark.req("KI-8", "F-1")
def test_rights_for_readiness_gates_are_minimal() -> None:
    assert rights(objects("readiness-gates")) == needed(readiness_needs())


@pytest.mark.req("F-2")
def test_policies_of_readiness_gates_cannot_block_a_cluster() -> None:
    policies = [obj for obj in objects("readiness-gates") if obj["kind"] == "MutatingAdmissionPolicy"]
    assert {policy["spec"]["failurePolicy"] for policy in policies} == {"Ignore"}
    for policy in policies:
        (spared,) = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
        assert (spared["operator"], spared["values"]) == ("NotIn", [SYSTEM_NAMESPACE, "kube-system"])


@pytest.mark.req("KI-8", "MC-2")
def test_rights_for_a_cluster_set_are_minimal_and_only_granted_where_wanted() -> None:
    granted = rights(objects("multi-cluster-services"))
    assert granted == needed(multicluster_needs())
    assert not granted & rights(objects("agent"))


@pytest.mark.req("KI-8", "P-1")
def test_proxies_of_nodes_have_no_rights_and_are_not_privileged() -> None:
    manifests = objects("proxy-nodes")
    assert rights(manifests) == {("", "authentication.k8s.io", "tokenreviews", "create")}
    made = {obj["kind"]: obj for obj in manifests}
    assert made["ClusterRoleBinding"]["subjects"] != [], "the hub's right, not one of the Pods"
    assert all(subject["name"] != "fairlead-proxy" for subject in made["ClusterRoleBinding"]["subjects"])
    pod = made["DaemonSet"]["spec"]["template"]["spec"]
    account = f"system:serviceaccount:{made['DaemonSet']['metadata']['namespace']}:{pod['serviceAccountName']}"
    assert account == NODE_ACCOUNT
    assert made["ServiceAccount"]["automountServiceAccountToken"] is pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE"]}
    assert (security.get("privileged", False), security["allowPrivilegeEscalation"]) == (False, False)
    assert security["readOnlyRootFilesystem"]
    assert not any(pod.get(shared) for shared in ("hostPID", "hostIPC"))
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}
    assert {f"--node={mounts['node']}", f"--state-dir={mounts['state']}"} <= set(container["args"])
    sources = next(volume["projected"]["sources"] for volume in pod["volumes"] if "projected" in volume)
    assert [source["serviceAccountToken"]["audience"] for source in sources if "serviceAccountToken" in source] == [
        NODE_AUDIENCE
    ]


@pytest.mark.req("KI-8")
@pytest.mark.parametrize("name", ["hub", "agent"])
def test_pods_are_locked_down(name: str) -> None:
    made = {obj["kind"]: obj for obj in objects(name)}
    deployment = made["Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    (container,) = pod["containers"]
    assert deployment["spec"]["replicas"] == 2
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert {entry["name"] for entry in container["volumeMounts"]} == {entry["name"] for entry in pod["volumes"]}
    assert made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= labels
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels
    if name == "hub":
        service = made["Service"]
        assert service["spec"]["selector"].items() <= labels
        assert service["spec"]["ports"][0]["targetPort"] in {port["name"] for port in container["ports"]}
        host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
        assert f"--xds-address={host}:{service['spec']['ports'][0]['port']}" in container["args"]


@pytest.mark.req("KI-8", "S-10")
@pytest.mark.req("K-28")
async def test_hub_and_agent_work_with_exactly_these_rights(world: World, authority: bytes) -> None:
    await work(world, authority, of_hub=objects("hub"), of_agent=objects("agent"))
