"""Who is asking, and does this request get in? Authentication, impersonation and authorisation of one request.

In: headers and ``RequestInfo``. Out: the user, or 401/403 with the words of a real server. Tokens are never logged.
"""

from __future__ import annotations

from aiohttp import web

from fairlead.apiserver.auth.accounts import Accounts
from fairlead.apiserver.auth.identity import AUTHENTICATED, User
from fairlead.apiserver.auth.rbac import AccessRequest, Authorizer
from fairlead.apiserver.failure import ApiFailure, bad_request, forbidden, unauthorized
from fairlead.apiserver.http.info import RequestInfo

OPEN_PATHS = frozenset({"/readyz", "/livez", "/healthz", "/version"})
_ACCOUNT = "system:serviceaccount:"


class Gate:
    """The door of one server."""

    def __init__(self, accounts: Accounts, authorizer: Authorizer) -> None:
        self._accounts = accounts
        self._authorizer = authorizer

    def identify(self, request: web.BaseRequest) -> User | None:
        """Return who makes this request, or None when it does not say; raises 401 for an unknown token."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None
        user = self._accounts.user_of(token.strip())
        if user is None:
            raise unauthorized()
        return user

    def enter(self, request: web.BaseRequest, info: RequestInfo) -> User:
        """Return who may make this request; raises 401 or 403."""
        user = self.identify(request)
        if user is None:
            raise unauthorized()
        if "Impersonate-User" in request.headers:
            user = self._impersonated(request, user)
        elif any(name.startswith("Impersonate-") for name in request.headers):
            raise bad_request("requested impersonation without naming a user")
        ask = _ask(info)
        if not self._authorizer.allows(user, ask):
            raise refused(user, ask)
        return user

    def _impersonated(self, request: web.BaseRequest, user: User) -> User:
        name = request.headers["Impersonate-User"]
        groups = tuple(request.headers.getall("Impersonate-Group", []))
        if name.startswith(_ACCOUNT) and name.count(":") == 3:
            namespace, account = name.split(":")[2:]
            asks = [AccessRequest("impersonate", "", "serviceaccounts", namespace=namespace, name=account)]
            if not groups:
                groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        else:
            asks = [AccessRequest("impersonate", "", "users", name=name)]
        given = request.headers.getall("Impersonate-Group", [])
        asks += [AccessRequest("impersonate", "", "groups", name=group) for group in given]
        for ask in asks:
            if not self._authorizer.allows(user, ask):
                raise refused(user, ask)
        return User(name, request.headers.get("Impersonate-Uid", ""), tuple(dict.fromkeys((*groups, AUTHENTICATED))))


def _ask(info: RequestInfo) -> AccessRequest:
    if not info.resource:
        return AccessRequest(info.verb, path=info.path)
    # A namespace itself is asked for within itself, so that its tenants may read it.
    namespace = info.name if info.resource == "namespaces" and not info.group else info.namespace
    return AccessRequest(info.verb, info.group, info.resource, info.subresource, namespace, info.name)


def refused(user: User, ask: AccessRequest) -> ApiFailure:
    """Return the 403 that a real server would send."""
    if ask.path:
        return ApiFailure(403, "Forbidden", f'forbidden: User "{user.name}" cannot {ask.verb} path "{ask.path}"')
    cluster_wide = not ask.namespace or (ask.resource == "namespaces" and not ask.group)
    where = "at the cluster scope" if cluster_wide else f'in the namespace "{ask.namespace}"'
    what = f'resource "{ask.full_resource}" in API group "{ask.group}" {where}'
    return forbidden(ask.resource, ask.group, ask.name, f'User "{user.name}" cannot {ask.verb} {what}')
