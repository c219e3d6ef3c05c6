"""A status is compared again when the cache shows another version of its object."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hub_parts import intent_context

from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.hub.intents.status import TAKE_OVER_S, FirstPublication, StatusWriter, TargetCounts
from fairlead.hub.intents.tcp import TCPObjects, TCPStatus
from fairlead.hub.inventory import IntentObjects, Inventory
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.events import EventRecorder
from fairlead.kube.writes import FIRST_S, PATIENCE_S
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.runtime.clock import VirtualClock
from fairlead.runtime.queue import KeyedQueue
from fairlead.sync.history import Report
from fairlead.testing.builders import lb_key, tcp, tcp_view
from fairlead.translate.member import decide_tcp
from fairlead.translate.view import Decision


class Server(Cluster):
    """A hub with one object: its answers have version 3, and its watch shows these versions while it writes."""

    def __init__(self) -> None:
        super().__init__(ClusterConfig(server="http://127.0.0.1:1"), name="hub")
        self.while_writing: list[str] = []
        self.applied = 0
        #: The status that was written last.
        self.last: dict[str, Any] = {}
        self.objects: IntentObjects[TCPLoadBalancer] = TCPObjects(self, Inventory(self))
        self.show("1")

    def show(self, version: str, obj: TCPLoadBalancer | None = None) -> None:
        """Have the cache show the object with this version."""
        obj = self._with(obj or tcp(), version)
        cache = self.objects.cache
        cache._notify(cache._store.put(obj), obj)

    async def apply(self, resource: Any, obj: Any, **_options: Any) -> Any:
        self.applied += 1
        self.last = obj["status"]
        for version in self.while_writing:
            self.show(version)
        answer = self._with(tcp(), "3")
        return msgspec.structs.replace(answer, status=msgspec.convert(obj["status"], type(answer.status)))

    @staticmethod
    def _with(obj: TCPLoadBalancer, version: str) -> TCPLoadBalancer:
        return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=version))


class World:
    """A writer of one status, and its queue."""

    def __init__(self, *, published: bool = True) -> None:
        self.clock = VirtualClock()
        self.publication = FirstPublication(self.clock)
        if published:
            self.publication.done()
        self.server = Server()
        self.queue: KeyedQueue[LoadBalancerKey] = KeyedQueue(clock=self.clock)
        self.writer: StatusWriter[TCPLoadBalancer, Decision] = StatusWriter(
            cluster=self.server,
            objects=self.server.objects,
            rules=TCPStatus(events=EventRecorder(self.server, component="test"), resource=TCP_LOAD_BALANCERS),
            providers=intent_context().providers,
            clock=self.clock,
            may_write=lambda _key: True,
            queue=self.queue,
            counts=TargetCounts(),
            publication=self.publication,
        )

    async def write(self, *while_writing: str) -> None:
        """Write the first status; the cache shows these versions before the answer."""
        self.server.while_writing = list(while_writing)
        self.writer.publish(lb_key(), decide_tcp(tcp_view()), generation=1)
        await self.compare()
        if not self.server.applied and self.publication.is_done:
            await self.clock.advance(FIRST_S)
            self.writer.refresh()
            await self.compare()

    async def compare(self) -> None:
        """Compare the next status."""
        key = await self.queue.get()
        await self.writer.write(key)
        self.queue.done(key)


@pytest.mark.parametrize(
    ("before_the_answer", "after_it"),
    [
        pytest.param((), ("3",), id="our write, after its answer"),
        pytest.param(("3",), (), id="our write, before its answer"),
        pytest.param(("2", "3"), (), id="a write of another one before ours"),
        pytest.param((), ("3", "4"), id="a write of another one after ours"),
    ],
)
async def test_each_version_that_the_cache_shows_is_compared(
    before_the_answer: tuple[str, ...], after_it: tuple[str, ...]
) -> None:
    """A cache that lists again may show our write together with a record that it has not shown before."""
    world = World()
    await world.write(*before_the_answer)
    for version in after_it:
        world.server.show(version)
    assert len(world.queue) == 1


async def test_statuses_wait_a_limited_time_for_proxies_at_start() -> None:
    """20,000 load balancers were all written twice as a new Envoy took them over, which took longer for it."""
    world = World(published=False)
    await world.write()
    assert (world.server.applied, len(world.queue._due)) == (0, 0)
    world.publication.done()
    world.writer.published()
    await world.clock.advance(TAKE_OVER_S - 1)
    world.writer.refresh()
    await world.compare()
    assert world.server.applied == 0
    await world.clock.advance(1)
    await world.compare()
    assert world.server.applied == 1


async def test_that_no_proxy_is_connected_waits_no_longer_than_at_other_times(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_proxy(*_args: object) -> tuple[Observed, None]:
        return Observed(), None

    monkeypatch.setattr(StatusWriter, "_observe", no_proxy)
    world = World(published=False)
    await world.write()
    world.publication.done()
    world.writer.published()
    assert (world.server.applied, len(world.queue._due)) == (0, 1)
    await world.clock.advance(PATIENCE_S)
    await world.compare()
    assert world.server.applied == 1


async def test_a_first_status_that_awaits_an_answer_is_written_after_a_moment() -> None:
    world = World()
    world.writer.publish(lb_key(), decide_tcp(tcp_view()), generation=1)
    await world.compare()
    assert world.server.applied == 0
    await world.clock.advance(FIRST_S)
    world.writer.refresh()
    await world.compare()
    assert world.server.applied == 1


async def test_a_status_that_the_cache_does_not_show_yet_is_not_written_again() -> None:
    world = World()
    await world.write()
    world.server.show("2")  # what another field manager wrote before our write
    await world.compare()
    assert world.server.applied == 1


@pytest.mark.req("F-24")
async def test_a_status_is_about_the_generation_that_was_decided_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache shows a newer spec before the decision about it: what serves is not that spec."""

    async def good(*_args: object) -> tuple[Observed, None]:
        return Observed(addresses=("192.0.2.7",), programmed=True, proxies=1, acknowledged=1), None

    monkeypatch.setattr(StatusWriter, "_observe", good)
    world = World()
    await world.write()
    assert (world.server.last["observedGeneration"], ready_of(world.server.last)) == (1, "True")
    world.server.show("4", tcp(generation=2, status=world.server.last))
    await world.writer.write(lb_key())
    assert world.server.applied == 1, "nothing is said of a spec that was not decided about"
    # The decision is there, and its provider is still to be given it.
    monkeypatch.setattr(StatusWriter, "_is_behind", lambda *_args: True)
    world.writer.publish(lb_key(), decide_tcp(tcp_view()), generation=2)
    await world.writer.write(lb_key())
    assert world.server.applied == 1, "held back like every answer that is awaited"
    await world.clock.advance(PATIENCE_S)
    await world.writer.write(lb_key())
    assert (world.server.last["observedGeneration"], ready_of(world.server.last)) == (2, "False")
    monkeypatch.setattr(StatusWriter, "_is_behind", lambda *_args: False)
    world.writer.report(Report(lb_key()))
    await world.writer.write(lb_key())
    assert (world.server.last["observedGeneration"], ready_of(world.server.last)) == (2, "True")


def ready_of(status: dict[str, Any]) -> str:
    return next(each["status"] for each in status["conditions"] if each["type"] == "Ready")
