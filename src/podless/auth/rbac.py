"""RBAC over the stored roles and bindings.

In: a user and an access request. Out: whether it is allowed, and the rules of a user. ``system:masters`` may do
everything. Rules are cached per user and namespace until any role or binding changes. A role or binding that grants
more than its writer has is refused with 403, except by writers with verb ``escalate`` (roles) or ``bind`` (bindings).
A new server has the ClusterRoles and ClusterRoleBindings of a new Kubernetes cluster that clients rely on.
Source: https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from podless.auth.identity import AUTHENTICATED, MASTERS, User
from podless.failure import forbidden, not_found
from podless.kinds.kind import Kind
from podless.kinds.names import RBAC
from podless.objects import Obj, encode, items, meta
from podless.store.entry import BucketEntry
from podless.store.store import ObjectStore

BUCKETS = tuple(f"{plural}.{RBAC}" for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings"))
#: Entries of the cache of rules, by user and namespace; a client may name any number of namespaces.
MAX_HELD = 10_000
ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS = BUCKETS


class AccessRequest(NamedTuple):
    """The access that a request needs: to a resource, or with ``path`` to a non-resource URL."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        """Return ``services/status`` or ``services``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule of a Role or ClusterRole."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    def allows(self, request: AccessRequest) -> bool:
        """Return whether this rule grants ``request``."""
        if "*" not in self.verbs and request.verb not in self.verbs:
            return False
        if request.path:
            return any(
                url == request.path or (url.endswith("*") and request.path.startswith(url[:-1])) for url in self.urls
            )
        if "*" not in self.groups and request.group not in self.groups:
            return False
        wanted = {"*", request.full_resource} | ({f"*/{request.subresource}"} if request.subresource else set())
        return bool(wanted.intersection(self.resources)) and (not self.names or request.name in self.names)

    def to_obj(self) -> Obj:
        """Return the rule as a SelfSubjectRulesReview lists it."""
        if self.urls:
            return {"verbs": list(self.verbs), "nonResourceURLs": list(self.urls)}
        obj: Obj = {"verbs": list(self.verbs), "apiGroups": list(self.groups), "resources": list(self.resources)}
        return obj | ({"resourceNames": list(self.names)} if self.names else {})


EVERYTHING = (PolicyRule(("*",), ("*",), ("*",)), PolicyRule(("*",), urls=("*",)))


def rules_of(role: Obj) -> list[PolicyRule]:
    """Return the rules of a Role or ClusterRole."""

    def texts(rule: Obj, field: str) -> tuple[str, ...]:
        return tuple(cast("list[str]", rule.get(field) or ()))

    return [
        PolicyRule(
            texts(rule, "verbs"),
            texts(rule, "apiGroups"),
            texts(rule, "resources"),
            texts(rule, "resourceNames"),
            texts(rule, "nonResourceURLs"),
        )
        for rule in items(role, "rules")
    ]


class Authorizer:
    """Authorizes requests by the roles and bindings in the store, which calls ``observe`` for each change."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._held: dict[tuple[str, tuple[str, ...], str], list[PolicyRule]] = {}

    def observe(self, bucket: str, _before: BucketEntry | None, _after: BucketEntry | None) -> None:
        """Update the index after a change in the store."""
        if bucket in BUCKETS:
            self._held.clear()

    def allows(self, user: User, request: AccessRequest) -> bool:
        """Return whether ``user`` may do ``request``."""
        if user.is_master:
            return True
        if any(rule.allows(request) for rule in self.rules(user, "")):
            return True
        return bool(request.namespace) and any(rule.allows(request) for rule in self.rules(user, request.namespace))

    def rules(self, user: User, namespace: str) -> list[PolicyRule]:
        """Return the rules that ClusterRoleBindings, or with a namespace its RoleBindings, grant to ``user``."""
        if user.is_master:
            return list(EVERYTHING)
        key = (user.name, user.groups, namespace)
        rules = self._held.get(key)
        if rules is None:
            bucket = self._store.bucket(ROLE_BINDINGS if namespace else CLUSTER_ROLE_BINDINGS)
            rules = []
            for entry in bucket.sorted_entries(namespace):
                binding = entry.obj()
                if any(_is_subject(user, subject) for subject in items(binding, "subjects")):
                    rules += self.role_rules(binding["roleRef"], namespace) or []
            if len(self._held) >= MAX_HELD:
                self._held.clear()
            self._held[key] = rules
        return rules

    def role_rules(self, ref: Obj, namespace: str) -> list[PolicyRule] | None:
        """Return the rules of the role that a binding names, or None when there is no such role."""
        if ref.get("kind") == "ClusterRole":
            entry = self._store.bucket(CLUSTER_ROLES).get("", str(ref.get("name")))
        else:
            entry = self._store.bucket(ROLES).get(namespace, str(ref.get("name")))
        return None if entry is None else rules_of(entry.obj())

    def missing_rules(self, user: User, rules: list[PolicyRule], namespace: str) -> list[PolicyRule]:
        """Return those of ``rules`` that ``user`` does not have in ``namespace``."""
        held = self.rules(user, "") + (self.rules(user, namespace) if namespace else [])
        return [
            rule
            for rule in rules
            # A rule without names is for all objects; one with names, even an empty one, covers only its names.
            if not all(
                any(own.allows(request) and (rule.names or not own.names) for own in held)
                for request in _requests(rule)
            )
        ]


def _is_subject(user: User, subject: Any) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "User":
        return name == user.name
    if kind == "Group":
        return name in user.groups
    return user.name == f"system:serviceaccount:{subject.get('namespace')}:{name}"


def _requests(rule: PolicyRule) -> list[AccessRequest]:
    """Break a rule down into single requests; ``*`` is covered only by ``*``."""
    requests = [AccessRequest(verb, path=url) for verb in rule.verbs for url in rule.urls]
    for verb in rule.verbs:
        for group in rule.groups:
            for resource in rule.resources:
                name, _, sub = resource.partition("/")
                requests += [
                    AccessRequest(verb, group, name, sub, name=object_name) for object_name in rule.names or ("",)
                ]
    return requests


def check_escalation(authorizer: Authorizer, user: User, kind: Kind, obj: Obj, old: Obj | None) -> None:
    """Raise 403 when ``obj`` would grant permissions that ``user`` does not have."""
    if kind.group != RBAC or user.is_master:
        return
    namespace, name = str(meta(obj).get("namespace") or ""), str(meta(obj).get("name") or "")
    if kind.plural in {"roles", "clusterroles"}:
        if old is not None and old.get("rules") == obj.get("rules"):
            return
        rules = rules_of(obj)
        exempt = AccessRequest("escalate", RBAC, kind.plural, namespace=namespace, name=name)
    else:
        if old is not None and (old.get("subjects"), old.get("roleRef")) == (obj.get("subjects"), obj.get("roleRef")):
            return
        ref = obj["roleRef"]
        plural = "clusterroles" if ref.get("kind") == "ClusterRole" else "roles"
        exempt = AccessRequest("bind", RBAC, plural, namespace=namespace, name=str(ref.get("name")))
        rules = authorizer.role_rules(ref, namespace)
        if rules is None:
            if authorizer.allows(user, exempt):
                return
            raise not_found(plural, RBAC, str(ref.get("name")))
    if authorizer.allows(user, exempt):
        return
    if lacking := authorizer.missing_rules(user, rules, namespace):
        missing_rules = "\n".join(encode(rule.to_obj()).decode() for rule in lacking)
        why = f'user "{user.name}" (groups={encode(user.groups).decode()}) is attempting to grant RBAC permissions '
        why += "not currently held:\n"
        raise forbidden(kind.plural, kind.group, name, why + missing_rules)


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
