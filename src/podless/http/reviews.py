"""Answer SubjectAccessReviews, rules reviews, TokenReviews and TokenRequests, which are never stored.

In: a review as a client sent it. Out: the same with its status. Never: a token in an error or a log.
"""

from __future__ import annotations

from typing import cast

from podless.auth.accounts import DEFAULT_TTL_S, MAX_TTL_S, Accounts
from podless.auth.identity import ISSUER, User
from podless.auth.rbac import AccessRequest, Authorizer
from podless.failure import bad_request, invalid, invalid_value
from podless.objects import Obj, at, child, items, rfc3339
from podless.registry.registry import Registry

AUTHN, AUTHZ = "authentication.k8s.io", "authorization.k8s.io"


def user_info(user: User) -> Obj:
    """Return a user in the form of ``UserInfo`` in reviews."""
    info: Obj = {"username": user.name, "groups": list(user.groups)}
    return info | ({"uid": user.uid} if user.uid else {}) | ({"extra": user.extra} if user.extra else {})


class Reviews:
    """The reviews of one server."""

    def __init__(self, registry: Registry, authorizer: Authorizer, accounts: Accounts) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._accounts = accounts

    def answer(self, group: str, resource: str, namespace: str, body: Obj, user: User) -> Obj | None:
        """Return the completed review, or None when there is no such kind of review."""
        match group, resource:
            case "authorization.k8s.io", "selfsubjectaccessreviews":
                return self._access("SelfSubjectAccessReview", body, user)
            case "authorization.k8s.io", "subjectaccessreviews":
                return self._access("SubjectAccessReview", body, _subject(body))
            case "authorization.k8s.io", "localsubjectaccessreviews":
                if (at(body, "spec", "resourceAttributes", "namespace") or namespace) != namespace:
                    raise bad_request("spec.resourceAttributes.namespace must match metadata.namespace")
                return self._access("LocalSubjectAccessReview", body, _subject(body))
            case "authorization.k8s.io", "selfsubjectrulesreviews":
                return self._rules(body, user)
            case "authentication.k8s.io", "tokenreviews":
                return self._token_review(body)
            case "authentication.k8s.io", "selfsubjectreviews":
                done: Obj = {"kind": "SelfSubjectReview", "apiVersion": f"{AUTHN}/v1"}
                return done | {"metadata": {"creationTimestamp": None}, "status": {"userInfo": user_info(user)}}
            case _:
                return None

    def _access(self, kind: str, body: Obj, user: User) -> Obj:
        spec = child(body, "spec")
        resource, path = _mapping(spec, "resourceAttributes"), _mapping(spec, "nonResourceAttributes")
        if (resource is None) == (path is None):
            why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise invalid(kind, AUTHZ, "", [invalid_value("spec.resourceAttributes", resource, why)])
        if resource is not None:
            access = AccessRequest(
                str(resource.get("verb") or ""),
                str(resource.get("group") or ""),
                str(resource.get("resource") or ""),
                str(resource.get("subresource") or ""),
                str(resource.get("namespace") or ""),
                str(resource.get("name") or ""),
            )
        else:
            access = AccessRequest(str(at(path, "verb") or ""), path=str(at(path, "path") or ""))
        allowed = self._authorizer.allows(user, access)
        done: Obj = {"kind": kind, "apiVersion": f"{AUTHZ}/v1", "metadata": body.get("metadata") or {}, "spec": spec}
        return done | {"status": {"allowed": allowed} | ({} if allowed else {"reason": "no RBAC policy matched"})}

    def _rules(self, body: Obj, user: User) -> Obj:
        namespace = str(at(body, "spec", "namespace") or "")
        if not namespace:
            raise bad_request("no namespace on request")
        held = self._authorizer.rules(user, "") + self._authorizer.rules(user, namespace)
        status: Obj = {"incomplete": False}
        status["resourceRules"] = [rule.to_obj() for rule in held if not rule.urls]
        status["nonResourceRules"] = [rule.to_obj() for rule in held if rule.urls]
        done: Obj = {"kind": "SelfSubjectRulesReview", "apiVersion": f"{AUTHZ}/v1"}
        return done | {"metadata": body.get("metadata") or {}, "spec": body.get("spec") or {}, "status": status}

    def _token_review(self, body: Obj) -> Obj:
        audiences = tuple(str(audience) for audience in items(body, "spec", "audiences")) or (ISSUER,)
        user = self._accounts.user_of(str(at(body, "spec", "token") or ""), audiences)
        status: Obj = {"user": {}, "error": "invalid bearer token"}
        if user is not None:
            status = {"authenticated": True, "user": user_info(user), "audiences": list(audiences)}
        done: Obj = {"kind": "TokenReview", "apiVersion": f"{AUTHN}/v1", "metadata": body.get("metadata") or {}}
        return done | {"spec": body.get("spec") or {}, "status": status}

    def _bound(self, namespace: str, ref: Obj) -> Obj:
        """Return the claims of a token that is bound to a Pod; without a reference there are none."""
        if not ref:
            return {}
        kind = self._registry.catalog.find("", "v1", "pods")
        if ref.get("kind") != "Pod" or kind is None:
            raise bad_request("spec.boundObjectRef: only a Pod can be referenced")
        pod = self._registry.entry(kind, namespace, str(ref.get("name") or ""))
        if ref.get("uid") not in (None, "", pod.uid):
            raise bad_request("spec.boundObjectRef: the Pod has another uid")
        node = str(at(pod.obj(), "spec", "nodeName") or "")
        return {"pod": {"name": ref["name"], "uid": pod.uid}} | ({"node": {"name": node}} if node else {})

    def token_request(self, namespace: str, name: str, body: Obj) -> Obj:
        """Issue a token for a service account; raises 404 and 422."""
        kind = self._registry.catalog.find("", "v1", "serviceaccounts")
        if kind is None:  # pragma: no cover - a built-in kind
            raise bad_request("service accounts are not served")
        account = self._registry.entry(kind, namespace, name)
        spec = child(body, "spec")
        ttl_s = spec.get("expirationSeconds")
        ttl_s = DEFAULT_TTL_S if ttl_s is None else ttl_s
        if not isinstance(ttl_s, int) or not self._accounts.min_ttl_s <= ttl_s <= MAX_TTL_S:
            long = isinstance(ttl_s, int) and ttl_s > MAX_TTL_S
            bound = "larger than 2^32 seconds" if long else "less than 10 minutes"
            cause = invalid_value("spec.expirationSeconds", ttl_s, f"may not specify a duration {bound}")
            raise invalid("TokenRequest", AUTHN, name, [cause])
        audiences = [str(audience) for audience in items(spec, "audiences")] or [ISSUER]
        bound = self._bound(namespace, _mapping(spec, "boundObjectRef") or {})
        token, expires = self._accounts.issue(namespace, name, account.uid, audiences, ttl_s, bound)
        spec |= {"audiences": audiences, "expirationSeconds": ttl_s}
        done: Obj = {"kind": "TokenRequest", "apiVersion": f"{AUTHN}/v1"}
        done["metadata"] = {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": account.obj()["metadata"]["creationTimestamp"],
        }
        return done | {"spec": spec, "status": {"token": token, "expirationTimestamp": rfc3339(expires)}}


def _mapping(spec: Obj, field: str) -> Obj | None:
    value = spec.get(field)
    if not isinstance(value, dict | None):
        raise bad_request(f"spec.{field} must be an object")
    return cast("Obj | None", value)


def _subject(body: Obj) -> User:
    spec = child(body, "spec")
    return User(
        str(spec.get("user") or ""), str(spec.get("uid") or ""), tuple(str(group) for group in items(spec, "groups"))
    )
