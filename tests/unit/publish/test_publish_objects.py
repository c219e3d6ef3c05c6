"""An object that is being deleted is not written onto, and the key that needs it comes back for it."""

from __future__ import annotations

import pytest

from fairlead.api.kubernetes import ENDPOINT_SLICES, EndpointSlice
from fairlead.api.meta import ObjectMeta
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import Retry, Wait
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.publish.publisher import Published, Publisher


class RecordingHub(Cluster):
    """A cluster that answers every write, and records it."""

    def __init__(self) -> None:
        super().__init__(ClusterConfig(server="http://127.0.0.1:1"), name="hub")
        self.sent: list[tuple[str, str]] = []

    async def apply(self, resource, obj, **_options):
        self.sent.append(("apply", obj["metadata"]["name"]))
        return resource.type(ObjectMeta(name=obj["metadata"]["name"], namespace="a", resource_version="2"))

    async def delete(self, resource, namespace, name, **_options):
        self.sent.append(("delete", name))
        return True


def published(name: str, version: str = "1") -> EndpointSlice:
    return EndpointSlice(metadata=ObjectMeta(name=name, namespace="a", uid="u", resource_version=version))


@pytest.fixture
def hub() -> RecordingHub:
    return RecordingHub()


def publisher(hub: RecordingHub, *there: EndpointSlice, leads: bool = True) -> Published[EndpointSlice]:
    cache: WatchCache[EndpointSlice] = WatchCache(hub, ENDPOINT_SLICES)
    for each in there:
        cache._store.put(each)
    cache._heard()
    return Publisher(
        hub=hub,
        load_balancers=WatchCache(hub, TCP_LOAD_BALANCERS),
        slices=cache,
        manager="agent",
        may_write=lambda: leads,
    ).slices


async def test_what_needs_an_object_that_is_being_deleted_comes_back(hub: RecordingHub) -> None:
    """A route whose backends go and come again within a moment would wait for a wake-up that is another's."""
    slices = publisher(hub, published("web"))
    await slices.delete([published("web")])
    with pytest.raises(Retry, match="web is being deleted") as waits:
        await slices.apply(published("web"))
    assert waits.value.after_s
    assert hub.sent == [("delete", "web")]


async def test_only_changed_objects_are_written(hub: RecordingHub) -> None:
    slices = publisher(hub, published("web"))
    assert not await slices.apply(published("web"))
    assert await slices.apply(published("other"))
    assert hub.sent == [("apply", "other")]


async def test_nothing_is_written_while_another_replica_leads(hub: RecordingHub) -> None:
    slices = publisher(hub, published("web"), leads=False)
    with pytest.raises(Wait, match="not the leader"):
        await slices.apply(published("other"))
    with pytest.raises(Wait, match="not the leader"):
        await slices.delete([published("web")])
    assert hub.sent == []
