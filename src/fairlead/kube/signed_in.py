"""The user that a server takes a connection for."""

from __future__ import annotations

import msgspec

from fairlead.kube.cluster import Cluster

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
