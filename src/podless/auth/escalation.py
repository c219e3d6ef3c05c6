"""Check that a role or binding grants no permission that its writer does not have.

In: a role or binding about to be stored, and its writer. Raises 403. Exempt are ``system:masters`` and users with
the verbs ``escalate`` (roles) or ``bind`` (bindings). Source: https://kubernetes.io/docs/reference/access-authn-
authz/rbac/
"""

from __future__ import annotations

from podless.auth.identity import User
from podless.auth.rbac import AccessRequest, Authorizer, rules_of
from podless.failure import forbidden, not_found
from podless.kinds.kind import Kind
from podless.kinds.names import RBAC
from podless.objects import Obj, encode, meta


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
