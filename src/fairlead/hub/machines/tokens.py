"""One-time tokens with which machines join.

    fairlead proxy token   ──creates──► Secret fairlead-proxy-token-<id>: SHA-256 of the token, expiry, group
    POST /v1/enrol         ──deletes──► the same, on condition of its uid: one of several requests gets through

A token is ``<id>.<secret>``. In: the hub's API. Out: a token for one machine, or a refusal. Never: keeps a token, logs
it, or says whether the id or the secret is wrong.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from fairlead.api.kubernetes import SECRETS
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY, SYSTEM_NAMESPACE
from fairlead.api.proxymachine import DEFAULT_GROUP
from fairlead.api.times import parsed_time, wire_time
from fairlead.errors import Conflict, Forbidden, NotFound, Unauthorized
from fairlead.kube.cluster import Cluster
from fairlead.model.in_words import listed
from fairlead.providers.envoy.certificates import data_of

TOKEN_LIFE = timedelta(hours=1)
#: Of the token of a Pod that is the proxy of a node, and the service account of these Pods.
NODE_AUDIENCE = "fairlead-proxy-machines"
NODE_ACCOUNT = "system:serviceaccount:fairlead-proxy-nodes:fairlead-proxy"
_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_PREFIX = "fairlead-proxy-token-"
_FORM = re.compile(r"([a-z0-9]{8})\.([A-Za-z0-9_-]{43})")
_NEXT = "create a new one at the hub with: fairlead proxy token"


class NewToken(msgspec.Struct, frozen=True):
    """A token, and the Secret that is created for it."""

    text: str
    secret: JSONObject
    expires: datetime

    def __repr__(self) -> str:
        """Keep the token out of logs and tracebacks."""
        return "NewToken(...)"


class Ticket(msgspec.Struct, frozen=True):
    """A valid token's Secret: its name and uid, and the group of the machine that joins with it.

    ``of_node``: Kubernetes itself identifies the node; there is no Secret.
    """

    name: str
    uid: str
    group: str
    of_node: bool = False


def new_token(now: datetime, *, group: str = "", life: timedelta = TOKEN_LIFE) -> NewToken:
    """Make a token for one machine of ``group``."""
    number, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    text, expires = f"{number}.{secret}", now + life
    data = {"sha256": _digest(text), "expires": wire_time(expires), "group": group or DEFAULT_GROUP}
    meta = {"namespace": SYSTEM_NAMESPACE, "name": f"{_PREFIX}{number}", "labels": {LABEL_MANAGED_BY: MANAGED_BY}}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return NewToken(text, {"metadata": meta, "type": "fairlead.dev/proxy-token", "data": encoded}, expires)


async def check_token(cluster: Cluster, text: str, now: datetime) -> Ticket:
    """Return the ticket of a token, without consuming the token.

    Raises:
        Unauthorized: the token is malformed, wrong, used or expired.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise Unauthorized(f"The token is not complete, or not a token of proxy machines; {_NEXT}")
    try:
        secret = await cluster.get(SECRETS, SYSTEM_NAMESPACE, f"{_PREFIX}{form[1]}")
    except NotFound as error:
        raise Unauthorized(f"The token is wrong, or was used before; {_NEXT}") from error
    data = {key: value.decode(errors="replace") for key, value in data_of(secret).items()}
    if not hmac.compare_digest(data.get("sha256", ""), _digest(text)):
        raise Unauthorized(f"The token is wrong, or was used before; {_NEXT}")
    expires = parsed_time(data.get("expires"))
    if expires is None or expires <= now:
        raise Unauthorized(f"The token expired at {data.get('expires') or 'an unknown time'}; {_NEXT}")
    return Ticket(secret.metadata.name, secret.metadata.uid, data.get("group") or DEFAULT_GROUP)


class _TokenUser(msgspec.Struct, frozen=True):
    username: str = ""
    extra: Mapping[str, Sequence[str]] | None = None


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _TokenUser = _TokenUser()
    audiences: Sequence[str] = ()
    error: str = ""


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus


async def check_node_token(cluster: Cluster, text: str, machine: str) -> Ticket:
    """Return the ticket of a node of the hub's cluster, identified by the token of its proxy Pod.

    Raises:
        Unauthorized: the token does not belong to a proxy on the node of this name.
        FairleadError: the hub's API does not review the token.
    """
    spec: JSONObject = {"token": text, "audiences": [NODE_AUDIENCE]}
    body: JSONObject = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    try:
        status = (await cluster.raw_as("POST", _REVIEWS, _TokenReview, body=msgspec.json.encode(body))).status
    except Forbidden as error:
        raise Unauthorized(
            "The hub may not review the tokens of nodes; apply deploy/kubernetes/proxy-nodes.yaml for its identity"
        ) from error
    if not status.authenticated or NODE_AUDIENCE not in status.audiences:
        why = status.error or "wrong audience"
        raise Unauthorized(f"The token of this Pod is not valid at the hub's cluster: {why}")
    if status.user.username != NODE_ACCOUNT:
        raise Unauthorized(f"The token is of {status.user.username}; proxies of nodes are {NODE_ACCOUNT}")
    nodes = (status.user.extra or {}).get(_NODE_NAME, ())
    if machine not in nodes:
        raise Unauthorized(
            f"The token is of a Pod on node {listed(nodes, 1) or 'unknown'}, not on {machine}. The API server has to "
            "name the node of a token: Kubernetes 1.30 or later"
        )
    return Ticket("", "", DEFAULT_GROUP, of_node=True)


async def consume(cluster: Cluster, ticket: Ticket) -> None:
    """Consume a token.

    Raises:
        Unauthorized: another request has consumed it meanwhile.
    """
    try:
        existed = await cluster.delete(SECRETS, SYSTEM_NAMESPACE, ticket.name, uid=ticket.uid)
    except Conflict:
        existed = False
    if not existed:
        raise Unauthorized(f"The token was used before; {_NEXT}")


async def drop_expired(cluster: Cluster, now: datetime) -> None:
    """Delete the Secrets of tokens that expired unused; a hub itself never lists Secrets."""
    listed = await cluster.list(SECRETS, SYSTEM_NAMESPACE, label_selector=f"{LABEL_MANAGED_BY}={MANAGED_BY}")
    for secret in listed:
        if not secret.metadata.name.startswith(_PREFIX):
            continue
        expires = parsed_time(data_of(secret).get("expires", b"").decode(errors="replace"))
        if expires is None or expires <= now:
            await cluster.delete(SECRETS, SYSTEM_NAMESPACE, secret.metadata.name, uid=secret.metadata.uid)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
