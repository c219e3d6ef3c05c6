"""What a group selects from, and what has to be read for it; caches are filled by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.kubernetes import Node, Pod
from fairlead.api.meta import ObjectKey
from fairlead.hub.intents.backend_groups import BackendSources
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.testing.builders import decoded


def pod(name: str, namespace: str = "shop", **labels: str) -> Pod:
    return decoded({"metadata": {"name": name, "namespace": namespace, "labels": labels}}, Pod)


def node(name: str, **labels: str) -> Node:
    return decoded({"metadata": {"name": name, "labels": labels}}, Node)


def group(**spec: Any) -> BackendGroup:
    body = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"loadBalancers": ["lb"], **spec}}
    return decoded(body, BackendGroup)


def by_label(**selector: str) -> BackendGroup:
    return group(pods={"ports": [{"port": 80}], "byLabel": {"selector": selector, "except": ["web-9"]}})


SERVICE = {"name": "web", "port": {"port": 80}}


@pytest.fixture
async def sources() -> BackendSources:
    cluster = Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub")
    sources = BackendSources(cluster, changed=lambda _namespace: None)
    for each in (
        pod("web-1", app="web"),
        pod("web-9", app="web"),
        pod("db-1", app="db"),
        pod("web-1", "other", app="web"),
    ):
        sources.pods._store.put(each)
    for each in (node("b", disk="ssd"), node("a", disk="ssd"), node("c")):
        sources.nodes._store.put(each)
    return sources


async def test_pods_are_those_of_the_namespace_with_all_labels_but_the_excepted_ones(sources: BackendSources) -> None:
    assert [each.key for each in sources.pods_of(by_label(app="web"))] == [("shop", "web-1")]
    assert sources.pods_of(by_label(app="web", tier="x")) == ()


async def test_pods_by_name_are_taken_whatever_their_labels(sources: BackendSources) -> None:
    named = group(pods={"ports": [{"port": 80}], "byName": ["db-1", "gone"]})
    assert [each.metadata.name for each in sources.pods_of(named)] == ["db-1"]


async def test_nodes_are_ordered_by_name_and_chosen_by_the_selector(sources: BackendSources) -> None:
    some = group(service={**SERVICE, "nodeSelector": {"disk": "ssd"}})
    assert [each.metadata.name for each in sources.nodes_of(some)] == ["a", "b"]
    assert [each.metadata.name for each in sources.nodes_of(group(service=SERVICE))] == ["a", "b", "c"]


async def test_a_group_of_another_sort_selects_nothing(sources: BackendSources) -> None:
    static = group(static=["10.0.0.1:80"])
    assert (sources.pods_of(static), sources.nodes_of(static), sources.need(static)) == ((), (), "")


async def test_only_needed_missing_reads_are_reported(sources: BackendSources) -> None:
    assert sources.need(by_label(app="web")) == "pods: not read yet"
    assert sources.need(group(service=SERVICE)) == "services: not read yet; nodes: not read yet"


async def test_an_object_that_cannot_be_read_counts_in_its_own_namespace(sources: BackendSources) -> None:
    for namespace in ("other", "shop"):
        sources.pods.broken[ObjectKey(namespace, "bad")] = f"wrong in {namespace}"
    assert sources.unreadable(by_label(app="web")).endswith("cannot be read: wrong in shop")
    assert sources.unreadable(group(service=SERVICE)) == ""
