"""What the cache shows of a status makes it compared again, unless it is what was written here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.hub.intents.status import StatusWriter
from fairlead.hub.intents.target_counts import TargetCounts
from fairlead.hub.intents.tcp.intent import TCPStatus
from fairlead.hub.inventory import IntentObjects
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.publication import TAKE_OVER_S, Publication
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.events import EventRecorder
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.runtime.clock import VirtualClock
from fairlead.runtime.queue import KeyedQueue
from fairlead.testing.builders import lb_key, tcp, tcp_view
from fairlead.translate.tcp import translate_tcp
from fairlead.translate.view import Translation


class Server:
    """One object of the hub, its cache, and the versions that the cache shows while a status is written."""

    def __init__(self) -> None:
        self.obj = tcp()
        self.cache = SimpleNamespace(on_change=self.follow)
        self.while_writing: list[str] = []
        self.writes = 0

    def follow(self, callback: Any) -> None:
        self.changed = callback

    def get(self, _key: LoadBalancerKey) -> TCPLoadBalancer:
        return self.obj

    def key(self, _obj: TCPLoadBalancer) -> LoadBalancerKey:
        return lb_key()

    def show(self, version: str) -> None:
        old, meta = self.obj, msgspec.structs.replace(self.obj.metadata, resource_version=version)
        self.obj = msgspec.structs.replace(self.obj, metadata=meta)
        self.changed(old, self.obj)


class Rules(TCPStatus):
    """Writes to the server, which answers with version 2."""

    server: Server

    async def write(self, obj: TCPLoadBalancer, status: Any) -> TCPLoadBalancer:
        self.server.writes += 1
        for version in self.server.while_writing:
            self.server.show(version)
        return msgspec.structs.replace(
            obj, status=status, metadata=msgspec.structs.replace(obj.metadata, resource_version="2")
        )


class World:
    """A writer of one status, and its queue."""

    def __init__(self, *, published: bool = True) -> None:
        self.clock = VirtualClock()
        self.publication = Publication(self.clock)
        if published:
            self.publication.done()
        cluster = Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub")
        self.server = Server()
        rules = Rules(cluster=cluster, events=EventRecorder(cluster, component="test"), resource=TCP_LOAD_BALANCERS)
        rules.server = self.server
        self.queue: KeyedQueue[LoadBalancerKey] = KeyedQueue(clock=self.clock)
        self.writer: StatusWriter[TCPLoadBalancer, Translation] = StatusWriter(
            objects=cast("IntentObjects[Any]", self.server),
            rules=rules,
            providers=cast("ProviderRegistry", {}),
            clock=self.clock,
            leading=lambda: True,
            decides=lambda _key: True,
            queue=self.queue,
            counts=TargetCounts(),
            publication=self.publication,
        )

    async def write(self, *while_writing: str) -> None:
        """Write the first status; the cache shows these versions before the answer."""
        self.server.while_writing = list(while_writing)
        self.writer.publish(lb_key(), translate_tcp(tcp_view(self.server.obj)))
        await self.compare()

    async def compare(self) -> None:
        """Compare the next status."""
        key = await self.queue.get()
        await self.writer.write(key)
        self.queue.done(key)


@pytest.mark.parametrize(
    ("before_the_answer", "after_it", "compared_again"),
    [
        pytest.param((), ("2",), False, id="our write, after its answer"),
        pytest.param(("2",), (), False, id="our write, before its answer"),
        pytest.param(("1b", "2"), (), True, id="a write of another one before ours"),
        pytest.param((), ("2", "3"), True, id="a write of another one after ours"),
        pytest.param(("2", "3"), (), True, id="a write of another one, both before the answer"),
    ],
)
async def test_what_was_written_here_is_not_compared_again(
    before_the_answer: tuple[str, ...], after_it: tuple[str, ...], compared_again: bool
) -> None:
    world = World()
    await world.write(*before_the_answer)
    for version in after_it:
        world.server.show(version)
    assert bool(len(world.queue)) is compared_again


async def test_what_awaits_proxies_of_a_hub_that_starts_is_written_when_they_have_had_their_time() -> None:
    """20,000 load balancers were all written twice as a new Envoy took them over, which took longer for it."""
    world = World(published=False)
    await world.write()
    assert (world.server.writes, len(world.queue._due)) == (0, 0)
    world.publication.done()
    world.writer.published()
    await world.clock.advance(TAKE_OVER_S - 1)
    world.writer.refresh()
    await world.compare()
    assert world.server.writes == 0
    await world.clock.advance(1)
    await world.compare()
    assert world.server.writes == 1


async def test_that_no_proxy_is_connected_waits_no_longer_than_at_other_times(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_proxy(*_args: object) -> tuple[Observed, None]:
        return Observed(), None

    monkeypatch.setattr(StatusWriter, "_observe", no_proxy)
    world = World(published=False)
    await world.write()
    world.publication.done()
    world.writer.published()
    assert (world.server.writes, len(world.queue._due)) == (0, 1)
    await world.clock.advance(Rules.patience_s)
    await world.compare()
    assert world.server.writes == 1


async def test_what_is_new_after_the_start_is_written_at_once() -> None:
    world = World()
    await world.write()
    assert world.server.writes == 1
