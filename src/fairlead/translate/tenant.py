"""The objects that a member needs at the hub: a namespace, a service account, and the RBAC of its agent.

The agent may write load balancers and their endpoints in its namespace, renew its own lease, and read the classes.
It may not write any status, read secrets, or see another member.
"""

from __future__ import annotations

from fairlead.api.kubernetes import NAMESPACES, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, Resource
from fairlead.api.names import (
    AGENT_SERVICE_ACCOUNT,
    GROUP,
    LABEL_MANAGED_BY,
    LABEL_TENANT,
    MANAGED_BY,
)
from fairlead.api.tenant import TENANTS, Tenant

CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False, KubeObject)
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", False, KubeObject
)
#: The ClusterRole with which agents read classes; one for the whole hub.
READER_ROLE = "fairlead-agent-reader"
_RBAC = "rbac.authorization.k8s.io"


def tenant_objects(tenant: Tenant) -> list[tuple[AnyResource, JSONObject]]:
    """Return everything that must exist for ``tenant``, in the order in which it is applied.

    The namespace belongs to the Tenant object: deleting the Tenant deletes it, and with it its load balancers.
    """
    name, namespace = tenant.metadata.name, tenant.namespace
    labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_TENANT: name}
    owner = {
        "apiVersion": TENANTS.api_version,
        "kind": TENANTS.kind,
        "name": name,
        "uid": tenant.metadata.uid,
    }
    subject = {"kind": "ServiceAccount", "name": AGENT_SERVICE_ACCOUNT, "namespace": namespace}
    inside = {"name": AGENT_SERVICE_ACCOUNT, "namespace": namespace, "labels": labels}
    return [
        (NAMESPACES, {"metadata": {"name": namespace, "labels": labels, "ownerReferences": [owner]}}),
        (SERVICE_ACCOUNTS, {"metadata": inside, "automountServiceAccountToken": False}),
        (ROLES, {"metadata": inside, "rules": agent_rules()}),
        (
            ROLE_BINDINGS,
            {
                "metadata": inside,
                "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": AGENT_SERVICE_ACCOUNT},
                "subjects": [subject],
            },
        ),
        (
            CLUSTER_ROLES,
            {
                "metadata": {"name": READER_ROLE, "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
                "rules": [
                    {
                        "apiGroups": [GROUP],
                        "resources": ["loadbalancerclasses"],
                        "verbs": ["get", "list", "watch"],
                    }
                ],
            },
        ),
        (
            CLUSTER_ROLE_BINDINGS,
            {
                "metadata": {"name": f"fairlead-agent-{name}", "labels": labels, "ownerReferences": [owner]},
                "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": READER_ROLE},
                "subjects": [subject],
            },
        ),
    ]


def agent_rules() -> list[JSONObject]:
    """Return the RBAC rules of an agent in its namespace at the hub."""
    objects = ["get", "list", "watch", "create", "patch", "delete"]
    return [
        {"apiGroups": [GROUP], "resources": ["tcploadbalancers"], "verbs": objects},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": objects},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]},
    ]
