"""The node of a run: pods are bound to it, wait for what they mount, and show their logs."""

from __future__ import annotations

import base64
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request

from conformance.podlet.kubelet import _logs
from conformance.podlet.node import PodNode
from conformance.podlet.objects import RunnablePod
from conformance.podlet.volumes import WaitingError, write_volumes
from fairlead.api.kubernetes import Secret
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig

SPEC: dict[str, Any] = {
    "volumes": [{"name": "tls", "secret": {"secretName": "cert", "items": [{"key": "tls.crt", "path": "crt"}]}}]
}


def pod(name: str = "web-1", **spec: Any) -> RunnablePod:
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec}, RunnablePod)


class Secrets:
    """An API that has the Secret once it was created."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = None

    async def get(self, _resource: object, _namespace: str, name: str) -> Secret:
        if self.data is None:
            raise NotFound(f"no Secret {name}")
        return Secret(data=self.data)


@pytest.mark.req("G-3")
async def test_a_pod_waits_for_a_secret_that_is_created_after_it(tmp_path: Path) -> None:
    secrets = Secrets()
    mounting = pod(**SPEC)
    with pytest.raises(WaitingError, match="Secret cert is not there"):
        await write_volumes(cast("Any", secrets), mounting, tmp_path)
    secrets.data = {"other": ""}
    with pytest.raises(WaitingError, match=r"no tls\.crt"):
        await write_volumes(cast("Any", secrets), mounting, tmp_path)
    secrets.data = {"tls.crt": base64.b64encode(b"chain").decode()}
    await write_volumes(cast("Any", secrets), mounting, tmp_path)
    assert (tmp_path / "tls" / "crt").read_bytes() == b"chain"


@pytest.mark.req("G-10")
async def test_a_pod_without_a_node_is_bound_to_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="the cluster")
    node = PodNode(cluster, name="podlet", network="10.9.0.0/24", kubelet_port=10250, directory=tmp_path)
    bound: list[tuple[str, Any]] = []

    async def raw(method: str, path: str, *, body: bytes) -> bytes:
        bound.append((f"{method} {path}", msgspec.json.decode(body)))
        return b""

    monkeypatch.setattr(cluster, "raw", raw)
    for each in (pod(), pod("gated", schedulingGates=[{"name": "later"}]), pod("elsewhere", nodeName="other")):
        node._changed(None, each)
    for task in list(node._tasks):
        await task
    ((path, body),) = bound
    assert path == "POST /api/v1/namespaces/ns/pods/web-1/binding"
    assert body["target"]["name"] == "podlet"


@pytest.mark.req("G-9")
async def test_the_log_of_a_container_is_shown_since_a_time() -> None:
    run = SimpleNamespace(pod=pod(), logs={"echo": deque([(1000.0, "early"), (2000.0, "late")])})
    node = SimpleNamespace(ip="10.9.0.254", pods={"web-1": run})

    def read(name: str, query: str = "") -> tuple[int, str | None]:
        place = {"namespace": "ns", "pod": name, "container": "echo"}
        answer = _logs(cast("Any", node), make_mocked_request("GET", f"/{query}", match_info=place))
        return answer.status, answer.text

    assert read("web-1") == (200, "early\nlate\n")
    assert read("web-1", "?sinceTime=1970-01-01T00:20:00Z") == (200, "late\n")
    assert read("web-2")[0] == 404
