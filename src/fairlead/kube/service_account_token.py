"""Tokens of service accounts and the user behind a connection.

In: a token, the name of a service account, or a cluster. Out: account and times; a new token; the user's name.
Never: checks a signature (the server does), or puts a token into an error or a log.
Source: https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from fairlead.api.json_text import decode
from fairlead.api.names import AGENT_SERVICE_ACCOUNT, TENANT_NAMESPACE_PREFIX
from fairlead.errors import Terminal

if TYPE_CHECKING:
    from fairlead.kube.cluster import Cluster

_SUBJECT = "system:serviceaccount:"


class TokenTimes(msgspec.Struct, frozen=True):
    """Whose a token is (``namespace``, ``account``), when it was issued, and when it expires."""

    namespace: str
    account: str
    issued: datetime
    expires: datetime

    @property
    def life_s(self) -> float:
        """Return for how many seconds it was issued."""
        return (self.expires - self.issued).total_seconds()


class IssuedToken(msgspec.Struct, frozen=True, rename="camel"):
    """A new token, and when it expires (RFC 3339)."""

    token: str = ""
    expiration_timestamp: str = ""


class _Answer(msgspec.Struct):
    status: IssuedToken = IssuedToken()


class _Claims(msgspec.Struct):
    sub: str = ""
    iat: float = 0.0
    exp: float = 0.0


def token_times(token: str) -> TokenTimes | None:
    """Return the times in a token; None if it is not a service account's, or never expires."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), _Claims)
        issued, expires = (datetime.fromtimestamp(at, UTC) for at in (claims.iat, claims.exp))
    except (ValueError, OverflowError, OSError):
        return None
    namespace, _, account = claims.sub.removeprefix(_SUBJECT).partition(":")
    if not claims.sub.startswith(_SUBJECT) or not account or not claims.iat or expires <= issued:
        return None
    return TokenTimes(namespace, account, issued, expires)


def expiry_of(token: str, now: datetime) -> str:
    """Return since when a token has expired, with the command that renews an agent's; empty while it has not."""
    times = token_times(token)
    if times is None or times.expires > now:
        return ""
    since = f"the token expired at {times.expires:%Y-%m-%dT%H:%M:%SZ}"
    tenant = times.namespace.removeprefix(TENANT_NAMESPACE_PREFIX)
    if times.account != AGENT_SERVICE_ACCOUNT or tenant == times.namespace:
        return f"{since}."
    return f'{since}. At the hub, "fairlead tenant rotate {tenant}" writes a new key.'


async def request_token(cluster: Cluster, namespace: str, account: str, *, valid_s: int) -> IssuedToken:
    """Return a new token of a service account; the server may give it a shorter life than ``valid_s``.

    Raises:
        FairleadError: it does not issue one.
    """
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": valid_s, "audiences": []},
    }
    issued = (await cluster.raw_as("POST", path, _Answer, body=msgspec.json.encode(body))).status
    if not issued.token:
        raise Terminal(f"{cluster.name} issued no token for service account {namespace}/{account}")
    return issued


_PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_BODY = msgspec.json.encode({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _User = _User()


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


async def user_name(cluster: Cluster) -> str:
    """Return the name of the user, empty when the server does not say.

    Raises:
        Unauthorized: the server does not know who asks.
        NotServed: it is one before Kubernetes 1.28.
    """
    return (await cluster.raw_as("POST", _PATH, _Review, body=_BODY)).status.user_info.username
