"""Requests that are answered in the process have the same answers and failures as those over sockets."""

from __future__ import annotations

import pytest

from fairlead.api.kubernetes import NAMESPACES, SECRETS
from fairlead.errors import Conflict, NotFound, Unauthorized, Unreachable
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from podless import ApiServer


@pytest.fixture(params=["in the process", "over sockets"])
def way(request: pytest.FixtureRequest) -> None:
    if request.param == "over sockets":
        request.getfixturevalue("sockets")


@pytest.mark.usefixtures("way")
async def test_answers_refusals_and_watches_are_those_of_the_server() -> None:
    server = ApiServer(admin_token="admin")
    config = ClusterConfig(server=await server.start(), sign_in=bearer("admin"))
    unknown = Cluster(ClusterConfig(server=server.url, sign_in=bearer("unknown")), name="unknown")
    body = {"metadata": {"name": "a", "annotations": {"at": "é"}}}
    async with Cluster(config, name="there") as cluster, unknown:
        made = await cluster.create(NAMESPACES, body)
        assert (await cluster.get(NAMESPACES, "", "a")).metadata == made.metadata
        assert abs(cluster.server_clock.ahead_s or 9.0) < 2.0
        for refused, error in (
            (cluster.get(NAMESPACES, "", "b"), NotFound),
            (cluster.replace(NAMESPACES, {"metadata": {"name": "a", "resourceVersion": "1"}}), Conflict),
            (unknown.get(NAMESPACES, "", "a"), Unauthorized),
        ):
            with pytest.raises(error):
                await refused
        params = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
        async with cluster.watch(SECRETS, "a", params=params, idle_s=5.0) as chunks:
            assert b'"k8s.io/initial-events-end":"true"' in await anext(chunks)
            await cluster.create(SECRETS, {"metadata": {"name": "s", "namespace": "a"}})
            assert b'"ADDED"' in await anext(chunks)
            await server.stop()
            assert [chunk async for chunk in chunks] == []
        with pytest.raises(Unreachable):
            await cluster.get(NAMESPACES, "", "a")
