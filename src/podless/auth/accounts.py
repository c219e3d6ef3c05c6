"""Issue the tokens of service accounts, and find the account behind a token.

In: tokens and stored ServiceAccounts and Secrets. Out: users. The account's UID is checked at every use, so that a
token is invalid once its account is deleted, and that of a Secret or a Pod once this is.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from podless.auth.identity import ADMIN, ISSUER, TokenSigner, User, service_account
from podless.kinds.core import SA_NAME
from podless.objects import Obj, at, child, meta
from podless.store.store import ObjectStore

SA_UID = "kubernetes.io/service-account.uid"
MIN_TTL_S, DEFAULT_TTL_S, MAX_TTL_S = 600, 3600, 2**32

#: In the ``extra`` of users whose token is bound to a Pod.
_POD, _NODE = "authentication.kubernetes.io/pod", "authentication.kubernetes.io/node-name"


class Accounts:
    """Issues and verifies the service account tokens of one server, and knows the administrator's."""

    def __init__(
        self,
        store: ObjectStore,
        signer: TokenSigner,
        admin_token: str,
        now: Callable[[], float],
        *,
        min_ttl_s: int = MIN_TTL_S,
    ) -> None:
        self._store = store
        self._signer = signer
        self._admin_token = admin_token.encode()
        self._now = now
        self.min_ttl_s = min_ttl_s

    def user_of(self, token: str, audiences: tuple[str, ...] = (ISSUER,)) -> User | None:
        """Return the user that ``token`` authenticates, or None for an unknown or expired token."""
        if hmac.compare_digest(token.encode(errors="replace"), self._admin_token):
            return ADMIN
        claims = self._signer.verify(token)
        if claims is None or not set(audiences) & set(cast("list[str]", claims.get("aud") or [])):
            return None
        about = cast("Obj", claims.get("kubernetes.io") or {})
        namespace = str(about.get("namespace", ""))
        name, uid = str(at(about, "serviceaccount", "name")), str(at(about, "serviceaccount", "uid"))
        account = self._store.bucket("serviceaccounts").get(namespace, name)
        if account is None or account.uid != uid or account.deleting:
            return None
        for kind, bucket in (("secret", "secrets"), ("pod", "pods")):
            bound = cast("Obj", about.get(kind) or {})
            there = self._store.bucket(bucket).get(namespace, str(bound.get("name"))) if bound else None
            if bound and (there is None or there.uid != bound.get("uid")):
                return None
        user = service_account(namespace, name, uid)
        if pod := cast("Obj", about.get("pod") or {}):
            node = str(at(about, "node", "name") or "")
            extra = {f"{_POD}-name": [str(pod["name"])], f"{_POD}-uid": [str(pod["uid"])]}
            return replace(user, extra=extra | ({_NODE: [node]} if node else {}))
        return user

    def issue(
        self, namespace: str, name: str, uid: str, audiences: list[str], ttl_s: int, bound: Obj | None = None
    ) -> tuple[str, float]:
        """Return a token for a service account, and when it expires (Unix time in seconds).

        ``bound`` are its claims about the Pod that it is valid as long as, and the node of that.
        """
        now = int(self._now())
        expires = now + min(max(ttl_s, self.min_ttl_s), MAX_TTL_S)
        claims = self._claims(namespace, name, uid, audiences or [ISSUER])
        claims["kubernetes.io"] |= bound or {}
        return self._signer.sign(claims | {"iat": now, "nbf": now, "exp": expires}), float(expires)

    def fill_secret(self, secret: Obj) -> None:
        """Write the account's token into a Secret of type service-account-token, if the account exists."""
        about = meta(secret)
        namespace = str(about.get("namespace", ""))
        name = str(at(secret, "metadata", "annotations", SA_NAME) or "")
        account = self._store.bucket("serviceaccounts").get(namespace, name)
        data = child(secret, "data")
        if account is None or (data.get("token") and about["annotations"].get(SA_UID) == account.uid):
            return
        claims = self._claims(namespace, name, account.uid, [ISSUER])
        claims["kubernetes.io"]["secret"] = {"name": about["name"], "uid": about["uid"]}
        about["annotations"][SA_UID] = account.uid
        data["token"] = base64.b64encode(self._signer.sign(claims).encode()).decode()
        data["namespace"] = base64.b64encode(namespace.encode()).decode()

    @staticmethod
    def _claims(namespace: str, name: str, uid: str, audiences: list[str]) -> Obj:
        about: Obj = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}}
        subject = f"system:serviceaccount:{namespace}:{name}"
        return {"iss": ISSUER, "sub": subject, "aud": audiences, "jti": secrets.token_hex(16), "kubernetes.io": about}
