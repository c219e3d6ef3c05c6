"""One member's thousands of changes do not hold up another's one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.providers.envoy.resources import ResourceType, encoded_resource
from fairlead.providers.envoy.session import BATCH, BATCH_BYTES, FairShare
from fairlead.providers.envoy.store import ResourceChange, ResourceStore
from tests.unit.providers.envoy.fake_envoy import CLUSTER, ENDPOINTS, LISTENER, FakeEnvoy


def of(member: str, count: int) -> list[str]:
    return [f"TCPLoadBalancer/{member}/web/TCP/{port}" for port in range(10_000, 10_000 + count)]


def load_balancer(name: str) -> list[ResourceChange]:
    return [
        ResourceChange(kind, name, encoded_resource(kind, name, b"1", needs=(name,) if kind is LISTENER else ()))
        for kind in (CLUSTER, ENDPOINTS, LISTENER)
    ]


def gone(name: str) -> list[ResourceChange]:
    return [ResourceChange(kind, name, None) for kind in (CLUSTER, ENDPOINTS, LISTENER)]


def contents(envoy: FakeEnvoy, kind: ResourceType) -> dict[str, tuple[str, bytes]]:
    return dict(envoy.has[kind])


@pytest.mark.req("S-7")
def test_each_member_gets_its_share_in_bounded_time() -> None:
    share = FairShare()
    chosen = share.choose([*of("busy", 500), *of("calm", 1)], 10)
    assert len(chosen) == 10
    assert of("calm", 1)[0] in chosen
    many = [name for member in range(50) for name in of(f"m{member:02}", 9)]
    first = {name.split("/")[1] for _ in range(50) for name in share.choose(many, 1)}
    assert len(first) == 50, "each is the first in its turn"


def test_large_items_run_one_by_one_fairly_between_members() -> None:
    share, large, small = FairShare(), of("busy", 3), of("calm", 2)

    def size_of(name: str) -> int:
        return BATCH_BYTES if name in large else 1

    left, responses = [*large, *small], list[list[str]]()
    while left:
        responses.append(share.choose(left, BATCH, size_of))
        left = [name for name in left if name not in responses[-1]]
    assert [len(set(response) & set(large)) for response in responses] == [1, 1, 1, 0]
    assert small[0] in {*responses[0], *responses[1]}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 99)), unique=True), st.integers(0, 40))
@pytest.mark.req("S-7")
def test_no_name_is_lost_doubled_or_held_back_while_there_is_room(pairs: list[tuple[str, int]], room: int) -> None:
    names = [f"K/{member}/x/TCP/{port}" for member, port in pairs]
    chosen = FairShare().choose(names, room)
    assert len(chosen) == len(set(chosen)) == min(room, len(names))
    assert set(chosen) <= set(names)


@pytest.mark.req("S-7")
def test_another_members_change_is_in_the_next_response_of_a_proxy_that_is_busy() -> None:
    store = ResourceStore()
    store.publish()
    group = store.group("g")
    envoy = FakeEnvoy(group)
    envoy.settle()
    assert envoy.session.synced
    busy, calm = of("busy", 20 * BATCH), of("calm", 1)[0]
    group.apply([change for name in busy for change in load_balancer(name)])
    group.apply(load_balancer(calm))
    rounds = 0
    while calm not in contents(envoy, LISTENER):
        before = {kind: len(contents(envoy, kind)) for kind in (CLUSTER, LISTENER)}
        envoy.pump()
        assert envoy.hear() or envoy.say()
        rounds += 1
        assert rounds < 40
        for kind, count in before.items():
            assert len(contents(envoy, kind)) - count <= BATCH
    assert len(contents(envoy, LISTENER)) <= 2 * BATCH, "long before all of the other member's"
    envoy.settle()
    assert contents(envoy, LISTENER).keys() == {*busy, calm}
    group.apply([change for name in busy for change in gone(name)])
    envoy.settle()
    assert contents(envoy, LISTENER).keys() == contents(envoy, CLUSTER).keys() == {calm}


@pytest.mark.req("S-7")
def test_a_proxy_that_is_new_gets_all_at_once_and_is_ready_only_then() -> None:
    store = ResourceStore()
    store.publish()
    group = store.group("g")
    names = of("busy", 3 * BATCH)
    group.apply([change for name in names for change in load_balancer(name)])
    envoy = FakeEnvoy(group)
    counts = {0}
    while len(contents(envoy, LISTENER)) < len(names):
        envoy.pump()
        assert envoy.hear() or envoy.say()
        counts |= {len(contents(envoy, kind)) for kind in (CLUSTER, LISTENER)}
    assert counts == {0, len(names)}
