"""A hub that was restored from an older state: proxies serve on what is younger, until agents publish it again."""

from __future__ import annotations

import pytest

from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.resources import encoded_resource
from fairlead.providers.envoy.store import (
    HOLD_UNKNOWN_S,
    NodeGroup,
    ResourceChange,
    ResourceStore,
    UnknownLoadBalancers,
)
from tests.unit.providers.envoy.fake_envoy import CLUSTER, ENDPOINTS, LISTENER, FakeEnvoy

OLD, YOUNG, DELETED = (LoadBalancerKey("TCPLoadBalancer", "east", name) for name in ("old", "young", "deleted"))


def name_of(key: LoadBalancerKey, port: int = 80) -> str:
    return f"{key}/TCP/{port}"


def resources(*names: str) -> list[ResourceChange]:
    kinds = (CLUSTER, ENDPOINTS, LISTENER)
    return [
        ResourceChange(
            kind,
            name,
            encoded_resource(kind, name, b"1", needs=(name,) if kind is LISTENER else (), warms_by_ack=False),
        )
        for name in names
        for kind in kinds
    ]


class RestoredHub:
    """A hub that knows ``OLD`` only, and the proxy that has more."""

    def __init__(self) -> None:
        before = ResourceStore()
        before.publish()
        before.group("g").apply(
            resources(name_of(OLD), name_of(OLD, 443), name_of(YOUNG), name_of(DELETED), "not-a-load-balancer")
        )
        self.envoy = FakeEnvoy(before.group("g"))
        self.envoy.settle()
        self.known = {OLD}
        self.unknown = UnknownLoadBalancers(is_known=lambda key: key in self.known)
        self.store = ResourceStore(unknown=self.unknown)
        self.group: NodeGroup = self.store.group("g")
        self.group.apply(resources(name_of(OLD)))
        self.envoy.group = self.group
        self.envoy.reconnect()

    def publish(self) -> None:
        self.unknown.publish(self.envoy.now)
        self.store.publish()
        self.envoy.settle()

    def served(self) -> set[str]:
        assert self.envoy.has[CLUSTER].keys() == self.envoy.has[LISTENER].keys() <= self.envoy.has[ENDPOINTS].keys()
        return set(self.envoy.has[LISTENER])


@pytest.fixture
def hub() -> RestoredHub:
    return RestoredHub()


def test_only_what_is_known_to_be_gone_goes_at_once(hub: RestoredHub) -> None:
    hub.unknown.delete(DELETED)
    hub.publish()
    assert hub.served() == {name_of(OLD), name_of(YOUNG)}, "a port of a known one, and what is no load balancer, go"
    assert hub.envoy.session.synced
    assert hub.envoy.session.deadline() == HOLD_UNKNOWN_S


def test_republished_objects_are_not_sent_again(hub: RestoredHub) -> None:
    hub.publish()
    before = hub.envoy.received
    hub.known.add(YOUNG)
    hub.group.apply(resources(name_of(YOUNG)))
    hub.envoy.settle()
    assert hub.envoy.received == before
    hub.envoy.now = HOLD_UNKNOWN_S
    hub.envoy.settle()
    assert hub.served() == {name_of(OLD), name_of(YOUNG)}


def test_endpoints_stay_until_the_targets_of_a_load_balancer_have_been_read(hub: RestoredHub) -> None:
    hub.unknown.register(name_of(OLD))
    hub.publish()
    hub.known.add(YOUNG)
    again = [each for each in resources(name_of(YOUNG)) if each.kind is not ENDPOINTS]
    hub.group.apply([*again, put_endpoints(b"")])
    hub.envoy.settle()
    assert hub.envoy.has[ENDPOINTS][name_of(YOUNG)][1] == b"1", "the hub has not read its targets yet"
    hub.unknown.register(name_of(YOUNG))
    hub.group.apply([put_endpoints(b"2")])
    hub.envoy.settle()
    assert hub.envoy.has[ENDPOINTS][name_of(YOUNG)][1] == b"2"
    hub.group.apply([put_endpoints(b"")])
    hub.envoy.settle()
    assert hub.envoy.has[ENDPOINTS][name_of(YOUNG)][1] == b"", "then none is meant"


def put_endpoints(content: bytes) -> ResourceChange:
    name = name_of(YOUNG)
    return ResourceChange(ENDPOINTS, name, encoded_resource(ENDPOINTS, name, content, needs=(), warms_by_ack=False))


def test_the_hold_expires_or_ends_with_a_deletion(hub: RestoredHub) -> None:
    hub.publish()
    assert {name_of(YOUNG), name_of(DELETED)} < hub.served()
    hub.unknown.delete(DELETED)
    hub.store.wake()
    hub.envoy.settle()
    assert hub.served() == {name_of(OLD), name_of(YOUNG)}
    hub.envoy.now = HOLD_UNKNOWN_S - 20
    hub.envoy.settle()
    assert name_of(YOUNG) in hub.served()
    hub.envoy.now = HOLD_UNKNOWN_S
    hub.envoy.settle()
    assert hub.served() == {name_of(OLD)}
    assert hub.envoy.session.deadline() is None


def test_what_cannot_be_read_stays_until_it_can_or_is_gone(hub: RestoredHub) -> None:
    for key in (YOUNG, DELETED):
        assert not hub.unknown.keep(key, unread=True)
    hub.publish()
    hub.envoy.now = HOLD_UNKNOWN_S + 1
    hub.envoy.settle()
    assert hub.served() == {name_of(OLD), name_of(YOUNG), name_of(DELETED)}
    assert hub.envoy.session.synced
    assert hub.envoy.session.deadline() is None, "nothing ends by itself"
    hub.envoy.reconnect()
    hub.envoy.settle()
    assert name_of(YOUNG) in hub.served(), "also for a proxy that comes back"
    hub.unknown.delete(DELETED)
    hub.store.wake()
    hub.envoy.settle()
    assert hub.served() == {name_of(OLD), name_of(YOUNG)}
    assert hub.unknown.keep(YOUNG, unread=False)
    assert not hub.unknown.keep(YOUNG, unread=False)
    hub.store.wake()
    hub.envoy.settle()
    assert hub.served() == {name_of(OLD)}


@pytest.mark.parametrize("read", [b"2", b""], ids=["some", "none"])
def test_of_one_whose_targets_cannot_be_read_the_endpoints_stay_until_they_can(hub: RestoredHub, read: bytes) -> None:
    hub.unknown.register(name_of(OLD))
    hub.unknown.keep(YOUNG, unread=True)
    hub.publish()
    hub.known.add(YOUNG)
    changed = encoded_resource(CLUSTER, name_of(YOUNG), b"2", needs=(), warms_by_ack=False)
    hub.group.apply([*resources(name_of(YOUNG)), ResourceChange(CLUSTER, name_of(YOUNG), changed), put_endpoints(b"")])
    hub.envoy.now = HOLD_UNKNOWN_S + 1
    hub.envoy.settle()

    def there(kind) -> bytes:
        return hub.envoy.has[kind][name_of(YOUNG)][1]

    assert (there(CLUSTER), there(ENDPOINTS)) == (b"1", b"1"), "a changed cluster would come without its endpoints"
    assert hub.envoy.session.has_all(YOUNG, [name_of(YOUNG)])
    if read:
        hub.unknown.register(name_of(YOUNG))
        hub.group.apply([put_endpoints(read)])
    hub.unknown.keep(YOUNG, unread=False)
    hub.store.wake()
    hub.envoy.settle()
    assert (there(CLUSTER), there(ENDPOINTS)) == (b"2", read)


@pytest.mark.req("MC-19")
def test_of_one_with_an_unread_part_proxies_keep_the_whole(hub: RestoredHub) -> None:
    hub.unknown.keep(YOUNG, unread=True)
    hub.publish()
    hub.known.add(YOUNG)
    hub.unknown.register(name_of(YOUNG))
    cluster = encoded_resource(CLUSTER, name_of(YOUNG), b"part", needs=(), warms_by_ack=False)
    hub.group.apply(
        [*resources(name_of(YOUNG)), ResourceChange(CLUSTER, name_of(YOUNG), cluster), put_endpoints(b"part")]
    )
    hub.envoy.now = HOLD_UNKNOWN_S + 1
    fresh = FakeEnvoy(hub.group)
    fresh.settle()
    hub.envoy.settle()

    def there(envoy: FakeEnvoy) -> tuple[bytes, bytes]:
        return envoy.has[CLUSTER][name_of(YOUNG)][1], envoy.has[ENDPOINTS][name_of(YOUNG)][1]

    assert there(hub.envoy) == (b"1", b"1")
    assert there(fresh) == (b"part", b"part"), "a proxy that has nothing takes the readable part"
    hub.group.apply([put_endpoints(b"more")])
    for envoy in (hub.envoy, fresh):
        envoy.settle()
    assert (there(hub.envoy)[1], there(fresh)[1]) == (b"1", b"more")
    assert hub.unknown.keep(YOUNG, unread=False)
    hub.store.wake()
    hub.envoy.settle()
    assert there(hub.envoy) == (b"part", b"more")
    hub.unknown.keep(YOUNG, unread=True)
    assert not hub.unknown.is_unread(YOUNG), "it was read before"


def test_a_proxy_that_comes_back_later_gets_it_at_once(hub: RestoredHub) -> None:
    hub.publish()
    hub.envoy.now = HOLD_UNKNOWN_S + 1
    hub.envoy.reconnect()
    hub.envoy.settle()
    assert hub.served() == {name_of(OLD)}


def test_nothing_waits_where_nothing_was_published() -> None:
    assert not UnknownLoadBalancers(is_known=lambda _key: False).waits(name_of(YOUNG), 0.0)
