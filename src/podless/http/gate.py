"""Authentication, impersonation and authorization of one request.

In: headers and ``RequestInfo``. Out: the user, or 401/403 with the messages of a real server. Tokens are never logged.
"""

from __future__ import annotations

from urllib.parse import unquote

from aiohttp import web

from podless.auth.accounts import Accounts
from podless.auth.identity import AUTHENTICATED, User
from podless.auth.rbac import AccessRequest, Authorizer
from podless.failure import ApiFailure, bad_request, forbidden, unauthorized
from podless.http.info import RequestInfo

OPEN_PATHS = frozenset({"/readyz", "/livez", "/healthz", "/version"})
_ACCOUNT = "system:serviceaccount:"
_AUTHENTICATION, _EXTRA = "authentication.k8s.io", "impersonate-extra-"


class AccessGate:
    """Authenticates and authorizes the requests to one server."""

    def __init__(self, accounts: Accounts, authorizer: Authorizer) -> None:
        self._accounts = accounts
        self._authorizer = authorizer

    def identify(self, request: web.BaseRequest) -> User | None:
        """Return the user whose bearer token a request has, or None without one; raises 401 for an unknown token."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None
        user = self._accounts.user_of(token.strip())
        if user is None:
            raise unauthorized()
        return user

    def enter(self, request: web.BaseRequest, info: RequestInfo) -> User:
        """Return the user of a request, after impersonation; raises 401 or 403."""
        user = self.identify(request)
        if user is None:
            raise unauthorized()
        if "Impersonate-User" in request.headers:
            user = self._impersonated(request, user)
        elif any(name.startswith("Impersonate-") for name in request.headers):
            raise bad_request("requested impersonation without naming a user")
        access = _access_request(info)
        if not self._authorizer.allows(user, access):
            raise refused(user, access)
        return user

    def _impersonated(self, request: web.BaseRequest, user: User) -> User:
        name = request.headers["Impersonate-User"]
        groups = tuple(request.headers.getall("Impersonate-Group", []))
        if name.startswith(_ACCOUNT) and name.count(":") == 3:
            namespace, account = name.split(":")[2:]
            needed = [AccessRequest("impersonate", "", "serviceaccounts", namespace=namespace, name=account)]
            if not groups:
                groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        else:
            needed = [AccessRequest("impersonate", "", "users", name=name)]
        requested_groups = request.headers.getall("Impersonate-Group", [])
        needed += [AccessRequest("impersonate", "", "groups", name=group) for group in requested_groups]
        uid = request.headers.get("Impersonate-Uid", "")
        if uid:
            needed.append(AccessRequest("impersonate", _AUTHENTICATION, "uids", name=uid))
        for header, value in request.headers.items():
            if header.lower().startswith(_EXTRA):
                key = unquote(header[len(_EXTRA) :].lower())
                needed.append(AccessRequest("impersonate", _AUTHENTICATION, "userextras", key, name=value))
        for access in needed:
            if not self._authorizer.allows(user, access):
                raise refused(user, access)
        return User(name, uid, tuple(dict.fromkeys((*groups, AUTHENTICATED))))


def _access_request(info: RequestInfo) -> AccessRequest:
    if not info.resource:
        return AccessRequest(info.verb, path=info.path)
    # As kube-apiserver does: a Namespace object counts as in itself, so that a Role in it can grant reading it.
    namespace = info.name if info.resource == "namespaces" and not info.group else info.namespace
    return AccessRequest(info.verb, info.group, info.resource, info.subresource, namespace, info.name)


def refused(user: User, access: AccessRequest) -> ApiFailure:
    """Return the 403 with the message of kube-apiserver."""
    if access.path:
        return ApiFailure(403, "Forbidden", f'forbidden: User "{user.name}" cannot {access.verb} path "{access.path}"')
    cluster_wide = not access.namespace or (access.resource == "namespaces" and not access.group)
    where = "at the cluster scope" if cluster_wide else f'in the namespace "{access.namespace}"'
    scope = f'resource "{access.full_resource}" in API group "{access.group}" {where}'
    return forbidden(access.resource, access.group, access.name, f'User "{user.name}" cannot {access.verb} {scope}')
