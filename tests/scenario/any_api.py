"""What scenarios share that play at an API server: the server, embedded or real, its Events, and patience.

Every scenario runs against the embedded API server, and where KUBEBUILDER_ASSETS names its binaries against a real
kube-apiserver as well.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

import fairlead.kube.cache
import fairlead.kube.cluster
from fairlead.api.meta import KubeObject, Resource
from fairlead.errors import NamespaceNotFound, NotFound, NotServed
from fairlead.kube.cluster import Cluster, Undecodable, decode_object
from fairlead.kube.config import ClusterConfig, bearer, tls_context
from podless import ApiServer
from tests.contract.podless.real_api import Real, real
from tests.scenario.installed_kinds import server_with_kinds

__all__ = [
    "EVENT",
    "Event",
    "Real",
    "api",
    "api_with_kinds",
    "as_service_account",
    "authority",
    "embedded_api",
    "hide",
    "real",
    "until",
]

_SERVERS = ["embedded"]
if os.environ.get("KUBEBUILDER_ASSETS"):
    _SERVERS.append("real")


@asynccontextmanager
async def embedded_api(server: ApiServer | None = None) -> AsyncGenerator[ClusterConfig]:
    """Run an embedded API server, a new one unless one is given; yields how its administrator connects."""
    server = server or ApiServer()
    url = await server.start()
    try:
        yield ClusterConfig(server=url, sign_in=bearer(server.admin_token), user="admin")
    finally:
        await server.stop()


_BOTH = [pytest.param(each, marks=[pytest.mark.real_api] if each == "real" else []) for each in _SERVERS]


@pytest.fixture(params=_BOTH)
async def api(request: pytest.FixtureRequest) -> AsyncIterator[ClusterConfig]:
    if request.param == "embedded":
        async with embedded_api() as config:
            yield config
    else:
        yield _administrator(request.getfixturevalue("real"))


@pytest.fixture(params=_BOTH)
async def api_with_kinds(request: pytest.FixtureRequest) -> AsyncIterator[ClusterConfig]:
    """An API server as above; at the embedded one the kinds of Fairlead are installed already."""
    if request.param == "embedded":
        async with embedded_api(await server_with_kinds()) as config:
            yield config
    else:
        yield _administrator(request.getfixturevalue("real"))


def _administrator(there: Real) -> ClusterConfig:
    tls = tls_context(authority=there.authority)
    return ClusterConfig(server=there.url, sign_in=bearer(there.token, tls=tls), user="admin")


@pytest.fixture
def authority(request: pytest.FixtureRequest, api: ClusterConfig) -> bytes:
    """What a kubeconfig for ``api`` has to trust; nothing where it speaks plain HTTP on this machine."""
    return request.getfixturevalue("real").authority if api.server.startswith("https") else b""


async def as_service_account(user: Cluster, api: ClusterConfig, name: str) -> ClusterConfig:
    """Return ``api`` as a service account of fairlead-system sees it; ``user`` may ask for its token."""
    path = f"/api/v1/namespaces/fairlead-system/serviceaccounts/{name}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = msgspec.json.decode(await user.raw("POST", path, body=msgspec.json.encode(body)))
    admin = await api.sign_in(None)
    return ClusterConfig(server=api.server, sign_in=bearer(answer["status"]["token"], tls=admin.ssl), user=name)


class Event(KubeObject, frozen=True, gc=False):
    """A core/v1 Event."""

    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    involved_object: dict[str, str] = msgspec.field(default_factory=dict)


EVENT = Resource("", "v1", "Event", "events", True, Event)


async def until(check: Callable[[], Any], *, what: str = "", timeout_s: float = 180.0) -> Any:
    """Poll until ``check`` (plain or async) returns something true, and return that; NotFound is not true."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + timeout_s
    last: Any = None
    while loop.time() < end_s:
        try:
            last = check()
            if asyncio.iscoroutine(last):
                last = await last
        except (NotFound, NotServed, NamespaceNotFound) as error:
            last = error
        else:
            if last:
                return last
        await asyncio.sleep(0.01)
    raise AssertionError(f"not within {timeout_s} s: {what or check}; last: {last!r}")


def hide(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Make objects unreadable for all caches and lists; ``names`` are type and name, such as "Node n1"."""

    def decode_if_visible(raw: msgspec.Raw, of: type[Any]) -> Any:
        obj = decode_object(raw, of)
        hidden = not isinstance(obj, str) and f"{of.__name__} {obj.metadata.name}" in names
        return Undecodable("hidden by the test", raw) if hidden else obj

    patch.setattr(fairlead.kube.cluster, "decode_object", decode_if_visible)
    patch.setattr(fairlead.kube.cache, "decode_object", decode_if_visible)
