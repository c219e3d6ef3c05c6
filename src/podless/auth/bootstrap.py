"""The ClusterRoles and ClusterRoleBindings of a new server: those of a new Kubernetes cluster that clients rely on."""

from __future__ import annotations

from podless.auth.identity import AUTHENTICATED, MASTERS
from podless.kinds.names import RBAC
from podless.objects import Obj

_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_WORKLOADS = [
    "configmaps",
    "endpoints",
    "events",
    "pods",
    "pods/status",
    "serviceaccounts",
    "services",
    "services/status",
]
_PATHS = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/openapi",
    "/openapi/*",
    "/version",
    "/version/",
    "/healthz",
    "/livez",
    "/readyz",
]


def _role(name: str, *rules: Obj) -> Obj:
    return _object("ClusterRole", name) | {"rules": list(rules)}


def _binding(name: str, role: str, group: str) -> Obj:
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": RBAC, "kind": "Group", "name": group}
    return _object("ClusterRoleBinding", name) | {"roleRef": ref, "subjects": [subject]}


def _object(kind: str, name: str) -> Obj:
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name, "labels": labels}}


def _common(verbs: list[str], *, secrets: bool) -> list[Obj]:
    core = _WORKLOADS + (["secrets"] if secrets else [])
    return [
        {"apiGroups": [""], "resources": core, "verbs": verbs},
        {"apiGroups": ["apps", "networking.k8s.io", "policy", "discovery.k8s.io"], "resources": ["*"], "verbs": verbs},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs},
    ]


def default_roles() -> list[Obj]:
    """Return the ClusterRoles and ClusterRoleBindings of a new server, as JSON objects."""
    see_namespaces: Obj = {"apiGroups": [""], "resources": ["namespaces"], "verbs": _READ}
    everything: Obj = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    everywhere: Obj = {"nonResourceURLs": ["*"], "verbs": ["*"]}
    roles_too: Obj = {"apiGroups": [RBAC], "resources": ["roles", "rolebindings"], "verbs": _READ + _WRITE}
    access = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
    reviews: list[Obj] = [
        {"apiGroups": ["authorization.k8s.io"], "resources": access, "verbs": ["create"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ]
    return [
        _role("cluster-admin", everything, everywhere),
        _role("admin", *_common(_READ + _WRITE, secrets=True), roles_too, see_namespaces),
        _role("edit", *_common(_READ + _WRITE, secrets=True), see_namespaces),
        _role("view", *_common(_READ, secrets=False), see_namespaces),
        _role("system:discovery", {"nonResourceURLs": _PATHS, "verbs": ["get"]}),
        _role("system:basic-user", *reviews),
        _binding("cluster-admin", "cluster-admin", MASTERS),
        _binding("system:discovery", "system:discovery", AUTHENTICATED),
        _binding("system:basic-user", "system:basic-user", AUTHENTICATED),
    ]
