"""What a member gets at the hub, and what it does not get."""

from __future__ import annotations

import pytest

from fairlead.testing.builders import tenant
from fairlead.translate.tenant import agent_rules, tenant_objects


@pytest.mark.req("K-9")
def test_objects_of_a_member_are_listed_in_order_of_apply():
    objects = tenant_objects(tenant("east"))
    assert [resource.kind for resource, _ in objects] == [
        "Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
    ]  # fmt: skip
    named = {resource.kind: body["metadata"] for resource, body in objects}
    assert named["Namespace"]["name"] == "tenant-east"
    assert named["Namespace"]["ownerReferences"][0]["uid"] == "uid-east"
    assert {named[kind]["namespace"] for kind in ("ServiceAccount", "Role", "RoleBinding")} == {"tenant-east"}
    assert {meta["labels"]["app.kubernetes.io/managed-by"] for meta in named.values()} == {"fairlead"}


def test_bindings_are_for_the_agent_of_the_member_alone():
    bodies = {resource.kind: body for resource, body in tenant_objects(tenant("east"))}
    agent = [{"kind": "ServiceAccount", "name": "fairlead-agent", "namespace": "tenant-east"}]
    assert bodies["RoleBinding"]["subjects"] == bodies["ClusterRoleBinding"]["subjects"] == agent
    assert bodies["RoleBinding"]["roleRef"]["name"] == bodies["Role"]["metadata"]["name"]
    assert bodies["ClusterRoleBinding"]["roleRef"]["name"] == bodies["ClusterRole"]["metadata"]["name"]
    assert bodies["ClusterRoleBinding"]["metadata"]["name"] == "fairlead-agent-east"
    assert bodies["ClusterRole"]["rules"] == [
        {"apiGroups": ["fairlead.dev"], "resources": ["loadbalancerclasses"], "verbs": ["get", "list", "watch"]}
    ]


def test_an_agent_writes_its_objects_and_no_status():
    resources = [resource for rule in agent_rules() for resource in rule["resources"]]
    assert resources == [
        "tcploadbalancers",
        "httploadbalancers",
        "loadbalancerroutes",
        "managedcertificates",
        "exportedservices",
        "importedservices",
        "secrets",
        "configmaps",
        "endpointslices",
        "leases",
        "serviceaccounts/token",
    ]
    imports = next(rule for rule in agent_rules() if "importedservices" in rule["resources"])
    assert imports["verbs"] == ["get", "list", "watch"], "the hub writes what a member imports"
    assert not any("*" in rule["verbs"] for rule in agent_rules())
    assert [rule for rule in agent_rules() if any("/" in resource for resource in rule["resources"])] == [
        {
            "apiGroups": [""],
            "resources": ["serviceaccounts/token"],
            "resourceNames": ["fairlead-agent"],
            "verbs": ["create"],
        }
    ]
