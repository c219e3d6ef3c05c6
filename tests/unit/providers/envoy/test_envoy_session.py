"""The protocol of one stream: scripted cases, and every interleaving that hypothesis can think of."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.providers.envoy.resources import DeltaRequest, ResourceType, encoded_resource
from fairlead.providers.envoy.session import Session
from fairlead.providers.envoy.store import (
    GATE_S,
    REFUSED_KEPT,
    NodeGroup,
    ResourceChange,
    ResourceStore,
    TypeSubscription,
)
from tests.unit.providers.envoy.fake_envoy import CLUSTER, ENDPOINTS, LISTENER, ROUTES, FakeEnvoy


def put(kind: ResourceType, name: str, content: bytes, *, warms_by_ack: bool = False) -> ResourceChange:
    needs = (name,) if kind in {LISTENER, ROUTES} else ()
    return ResourceChange(kind, name, encoded_resource(kind, name, content, needs=needs, warms_by_ack=warms_by_ack))


def load_balancer(name: str, content: bytes = b"1", **kinds: bytes) -> list[ResourceChange]:
    return [put(kind, name, kinds.get(kind.short, content)) for kind in ResourceType]


def gone(name: str) -> list[ResourceChange]:
    return [ResourceChange(kind, name, None) for kind in ResourceType]


@pytest.fixture
def group() -> NodeGroup:
    store = ResourceStore()
    store.publish()
    return store.group("g")


def contents(envoy: FakeEnvoy, kind: ResourceType) -> dict[str, bytes]:
    return {name: content for name, (_, content) in envoy.has[kind].items()}


def test_new_proxy_gets_everything_in_order(group: NodeGroup) -> None:
    group.apply([*load_balancer("a"), *load_balancer("b", b"2")])
    envoy = FakeEnvoy(group)
    envoy.settle()
    for kind in ResourceType:
        assert contents(envoy, kind) == {"a": b"1", "b": b"2"}
    assert envoy.session.synced
    assert envoy.session.acked_revision == group.revision


def test_an_acknowledgement_that_leaves_nothing_to_send_wakes_no_stream(group: NodeGroup) -> None:
    """A change to a thousand proxies is answered a thousand times."""
    group.apply(load_balancer("a"))
    envoy = FakeEnvoy(group)
    envoy.settle()
    group.apply([put(ENDPOINTS, "a", b"2")])
    envoy.pump()
    before = envoy.wakes
    assert envoy.hear()
    assert envoy.say()
    assert envoy.wakes == before
    assert envoy.session.acked_revision == group.revision
    assert envoy.session.has_all(None, ["a"])


def test_nothing_is_reported_before_publish() -> None:
    store = ResourceStore()
    group = store.group("g")
    envoy = FakeEnvoy(group)
    envoy.settle()
    assert envoy.received == 0
    assert envoy.session.deadline() is None
    store.publish()
    envoy.settle()
    assert envoy.received == 2, "an empty answer for clusters and one for listeners: else it would not start"


def test_reconnect_with_nothing_changed_gets_nothing(group: NodeGroup) -> None:
    group.apply(load_balancer("a"))
    envoy = FakeEnvoy(group)
    envoy.settle()
    before = envoy.received
    envoy.reconnect()
    envoy.settle()
    assert envoy.received == before


def test_restarted_hub_says_only_what_has_changed(group: NodeGroup) -> None:
    group.apply([*load_balancer("a"), *load_balancer("b"), *load_balancer("c")])
    envoy = FakeEnvoy(group)
    envoy.settle()
    store = ResourceStore()
    envoy.group = store.group("g")
    envoy.reconnect()
    before = envoy.received
    envoy.settle()
    envoy.group.apply([*load_balancer("a"), *load_balancer("b", endpoints=b"2")])
    envoy.settle()
    assert envoy.received == before, "the gate is closed, c is not gone"
    store.publish()
    envoy.settle()
    assert set(envoy.has[LISTENER]) == {"a", "b"}
    assert contents(envoy, ENDPOINTS) == {"a": b"1", "b": b"2"}
    assert envoy.received == before + 3, "endpoints of b, listener c away, cluster c away"


def test_endpoints_are_sent_again_with_their_cluster(group: NodeGroup) -> None:
    group.apply(load_balancer("a"))
    envoy = FakeEnvoy(group)
    envoy.settle()
    before = envoy.received
    group.apply([put(CLUSTER, "a", b"2")])
    envoy.settle()
    assert envoy.received == before + 2
    assert "a" in envoy.warm


def test_unknown_endpoints_are_answered_at_once(group: NodeGroup) -> None:
    session = Session(group=group, node_id="n")
    session.on_request(DeltaRequest(type_url=ENDPOINTS.value, subscribe=("missing",)), now=0.0)
    (message,) = session.pump(now=0.0)
    assert b"missing" in message
    assert not session.pump(now=0.0)


def test_clusters_never_wait_for_an_acknowledgement(group: NodeGroup) -> None:
    envoy = FakeEnvoy(group)
    envoy.settle()
    for number in range(3):
        group.apply([put(CLUSTER, f"c{number}", b"1")])
        envoy.pump()
    assert len(envoy.inbox) == 3


def test_endpoints_coalesce_while_one_response_is_in_flight(group: NodeGroup) -> None:
    group.apply(load_balancer("a"))
    envoy = FakeEnvoy(group)
    envoy.settle()
    before = envoy.received
    for number in range(10):
        group.apply([put(ENDPOINTS, "a", b"v%d" % number)])
        envoy.pump()
    envoy.settle()
    assert envoy.received == before + 2
    assert contents(envoy, ENDPOINTS) == {"a": b"v9"}


@pytest.mark.parametrize("warms_by_ack", [False, True])
def test_gate_opens_by_itself_when_a_proxy_keeps_silent(group: NodeGroup, *, warms_by_ack: bool) -> None:
    session = Session(group=group, node_id="n")
    for kind in (CLUSTER, LISTENER):
        session.on_request(DeltaRequest(type_url=kind.value), now=0.0)
        for _ in session.pump(now=0.0):
            session.on_request(DeltaRequest(type_url=kind.value, nonce=str(1 + (kind is LISTENER))), now=0.0)
    group.apply(
        [put(CLUSTER, "a", b"1", warms_by_ack=warms_by_ack), put(ENDPOINTS, "a", b"1"), put(LISTENER, "a", b"1")]
    )
    (message,) = session.pump(now=1.0)
    assert CLUSTER.value.encode() in message
    session.on_request(DeltaRequest(type_url=ENDPOINTS.value, subscribe=("a",)), now=1.0)
    (message,) = session.pump(now=1.0)
    assert session.deadline() == 1.0 + GATE_S
    assert not session.pump(now=GATE_S)
    session.on_request(DeltaRequest(type_url=ENDPOINTS.value, nonce="4"), now=1.0)
    opened = session.pump(now=GATE_S)
    assert len(opened) == (0 if warms_by_ack else 1), "a health checked cluster is proven by its own acknowledgement"
    if warms_by_ack:
        (message,) = session.pump(now=1.0 + GATE_S)
        assert LISTENER.value.encode() in message


def test_one_bad_among_many_is_set_aside(group: NodeGroup) -> None:
    for number in range(50):
        group.apply(load_balancer(f"lb{number}", b"bad" if number == 17 else b"1"))
    envoy = FakeEnvoy(group)
    envoy.settle()
    good = {f"lb{number}" for number in range(50)} - {"lb17"}
    assert set(envoy.has[CLUSTER]) == set(envoy.has[LISTENER]) == good
    assert group.refusal(CLUSTER, "lb17") == "lb17: no good"


def test_last_good_version_stays_and_serves_new_proxies(group: NodeGroup) -> None:
    group.apply(load_balancer("a"))
    first = FakeEnvoy(group)
    first.settle()
    group.apply([put(LISTENER, "a", b"bad")])
    first.settle()
    assert contents(first, LISTENER) == {"a": b"1"}
    second = FakeEnvoy(group)
    second.settle()
    assert contents(second, LISTENER) == {"a": b"1"}
    assert group.refusal(LISTENER, "a")
    group.apply([put(LISTENER, "a", b"2")])
    first.settle()
    second.settle()
    assert contents(first, LISTENER) == contents(second, LISTENER) == {"a": b"2"}
    assert not group.refusal(LISTENER, "a")


def test_last_good_version_is_known_after_a_restart_too(group: NodeGroup) -> None:
    group.apply(load_balancer("a"))
    envoy = FakeEnvoy(group)
    envoy.settle()
    store = ResourceStore()
    store.publish()
    envoy.group = store.group("g")
    envoy.group.apply(load_balancer("a", listener=b"bad"))
    envoy.reconnect()
    envoy.settle()
    assert contents(envoy, LISTENER) == {"a": b"1"}, "refused, with no good one known here: the proxy keeps its own"


@pytest.mark.parametrize("first", [0, 1])
def test_a_version_that_one_proxy_accepts_and_another_refuses_settles(group: NodeGroup, first: int) -> None:
    group.apply(load_balancer("a"))
    envoys = [FakeEnvoy(group), FakeEnvoy(group)]
    for envoy in envoys:
        envoy.settle()
    envoys[1].refused = b"2"
    group.apply([put(LISTENER, "a", b"2")])
    for attempt in range(3):
        rounds, active = 0, True
        while active:
            rounds += 1
            assert rounds < 20, "the proxies wake each other"
            active = False
            for envoy in (envoys[first], envoys[1 - first]):
                envoy.pump()
                heard, said = envoy.hear(), envoy.say()
                active = active or heard or said or envoy._woken
        assert group.refusal(LISTENER, "a") == "a: no good"
        assert group._refused[LISTENER]["a"].attempts == attempt + 1, "each attempt comes later"
        assert envoys[1].session.refused_now == 1
        assert contents(envoys[1], LISTENER) == {"a": b"1"}
        for envoy in envoys:
            envoy.now += 60
    envoys[1].refused = b"bad"
    for _ in range(20):
        for envoy in envoys:
            envoy.pump()
            envoy.hear()
            envoy.say()
    assert [contents(envoy, LISTENER) for envoy in envoys] == [{"a": b"2"}] * 2
    assert not group.refusal(LISTENER, "a")


def test_refused_version_is_tried_again_later(group: NodeGroup) -> None:
    group.apply(load_balancer("a", listener=b"bad"))
    envoy = FakeEnvoy(group)
    envoy.settle()
    retry = group.next_retry()
    assert retry is not None
    before = envoy.session.nacks
    envoy.now = retry
    envoy.settle()
    assert envoy.session.nacks == before + 1
    later = group.next_retry()
    assert later is not None
    assert later - envoy.now > retry


def test_corrected_objects_are_no_longer_rejected(group: NodeGroup) -> None:
    group.apply(load_balancer("a", listener=b"bad"))
    envoy = FakeEnvoy(group)
    envoy.settle()
    assert envoy.session.refused_now == 1
    group.apply(load_balancer("a"))
    envoy.settle()
    assert (envoy.session.refused_now, envoy.session.nacks) == (0, 1)
    group.apply(load_balancer("b", listener=b"bad"))
    envoy.settle()
    group.apply(gone("b"))
    envoy.settle()
    assert envoy.session.refused_now == 0, "it is not wanted any more"


NAMES = st.sampled_from(["a", "b", "c", "d"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.sampled_from([b"1", b"2"])),
        st.tuples(st.just("targets"), NAMES, st.sampled_from([b"3", b"4"])),
        st.tuples(st.just("cluster"), NAMES, st.sampled_from([b"5", b"6"])),
        st.tuples(st.just("remove"), NAMES, st.just(b"")),
        st.tuples(st.sampled_from(["hear", "hear", "say", "say", "reconnect"]), st.just(""), st.just(b"")),
    ),
    max_size=60,
)


def apply_step(group: NodeGroup, envoy: FakeEnvoy, step: tuple[str, str, bytes]) -> None:
    what, name, content = step
    if what == "put":
        group.apply(load_balancer(name, content))
    elif what in {"targets", "cluster"}:
        kind = ENDPOINTS if what == "targets" else CLUSTER
        if group.wanted(kind, name) is not None:
            group.apply([put(kind, name, content)])
    elif what == "remove":
        group.apply(gone(name))
    elif what == "hear":
        envoy.hear()
    elif what == "say":
        envoy.say()
    else:
        envoy.reconnect()
    envoy.pump()


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_any_interleaving_keeps_the_order_and_ends_in_what_is_wanted(steps: list[tuple[str, str, bytes]]) -> None:
    store = ResourceStore()
    store.publish()
    group = store.group("g")
    envoy = FakeEnvoy(group)
    for step in steps:
        apply_step(group, envoy, step)
    envoy.settle()
    for kind in ResourceType:
        wanted = {name: group.wanted(kind, name) for name in group.names(kind)}
        assert {name: version for name, (version, _) in envoy.has[kind].items()} == {
            name: resource.version for name, resource in wanted.items() if resource
        }
    assert envoy.session.synced
    before = envoy.changes_received
    envoy.reconnect()
    envoy.settle()
    assert envoy.changes_received == before


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_what_a_proxy_has_of_a_load_balancer_is_what_it_has_acknowledged(steps: list[tuple[str, str, bytes]]) -> None:
    store = ResourceStore()
    store.publish()
    group = store.group("g")
    envoy = FakeEnvoy(group)
    for number, step in enumerate(steps):
        apply_step(group, envoy, step)
        names = {name for kind in ResourceType for name in group.names(kind)}
        # What is only looked at now and then must not be forgotten in between.
        for asked in (names, *({name} for name in names)) if number % 3 else ():
            wanted = ((kind, name, group.wanted(kind, name)) for kind in ResourceType for name in asked)
            every = all(each is None or envoy.session.holds(kind, name, each.version) for kind, name, each in wanted)
            assert envoy.session.has_all(None, asked) == every


@given(STEPS, st.sets(NAMES, max_size=2), st.sampled_from(["cluster", "listener", "routes"]))
@settings(max_examples=200, deadline=None)
def test_bad_ones_never_hold_up_good_ones(steps: list[tuple[str, str, bytes]], bad: set[str], kind: str) -> None:
    store = ResourceStore()
    store.publish()
    group = store.group("g")
    envoy = FakeEnvoy(group, strict=False)
    for step in steps:
        apply_step(group, envoy, step)
        if step[0] == "put" and step[1] in bad:
            group.apply([put(ResourceType[kind.upper()], step[1], b"bad")])
    for name in bad:
        group.apply(load_balancer(name, **{kind: b"bad"}))
    envoy.settle()
    for each in ResourceType:
        for name in set(group.names(each)) - bad:
            wanted = group.wanted(each, name)
            assert wanted is not None
            assert envoy.session.holds(each, name, wanted.version)
            assert envoy.has[each][name][0] == wanted.version
    for name in bad:
        assert group.refusal(ResourceType[kind.upper()], name)


@pytest.mark.req("T-5")
@pytest.mark.parametrize("kind", [CLUSTER, LISTENER])
def test_a_name_that_is_unsubscribed_while_it_waits_leaves_no_deadline_behind(
    group: NodeGroup, kind: ResourceType
) -> None:
    session = Session(group=group, node_id="n")
    group.apply(load_balancer("a"))
    for each in (CLUSTER, LISTENER):
        session.on_request(DeltaRequest(type_url=each.value, subscribe=("a",)), now=0.0)
    session.pump(now=0.0)
    if kind is CLUSTER:
        # Its removal waits until the listener is known to be gone.
        group.apply([ResourceChange(CLUSTER, "a", None)])
        session.pump(now=0.0)
    assert session.deadline() == GATE_S
    session.on_request(DeltaRequest(type_url=CLUSTER.value, unsubscribe=("a",)), now=1.0)
    session.on_request(DeltaRequest(type_url=LISTENER.value, unsubscribe=("a",)), now=1.0)
    session.pump(now=1.0)
    assert session.deadline() is None
    assert session.pump(now=GATE_S + 1.0) == []
    assert session.deadline() is None


@pytest.mark.req("T-5")
def test_what_waits_and_is_covered_by_a_wildcard_goes_on_waiting(group: NodeGroup) -> None:
    session = Session(group=group, node_id="n")
    group.apply(load_balancer("a"))
    for kind in (CLUSTER, LISTENER):
        session.on_request(DeltaRequest(type_url=kind.value), now=0.0)
    session.pump(now=0.0)
    session.on_request(DeltaRequest(type_url=LISTENER.value, unsubscribe=("a",)), now=1.0)
    session.pump(now=1.0)
    assert session.deadline() == GATE_S


@pytest.mark.req("T-6")
def test_refusals_of_names_that_are_gone_do_not_pile_up(group: NodeGroup) -> None:
    envoy = FakeEnvoy(group)
    group.apply(load_balancer("stays", listener=b"bad"))
    envoy.settle()
    for number in range(3 * REFUSED_KEPT):
        name = f"lb{number}"
        group.apply(load_balancer(name, listener=b"bad"))
        envoy.settle()
        assert group.refusal(LISTENER, name)
        group.apply(gone(name))
        envoy.settle()
    refused = envoy.session._subscriptions[LISTENER].refused
    assert len(refused) <= REFUSED_KEPT
    name = f"lb{3 * REFUSED_KEPT - 1}"
    assert "stays" in refused, "what is wanted is not forgotten, however old it is"
    nacks = envoy.session.nacks
    group.apply(load_balancer(name, listener=b"bad"))
    envoy.settle()
    assert group.refusal(LISTENER, name), "removed and wanted again: this proxy has not changed its mind"
    assert envoy.session.nacks == nacks, "so it is not asked"


@pytest.mark.req("T-6")
def test_a_name_that_is_unsubscribed_is_not_remembered_as_refused() -> None:
    subscription = TypeSubscription()
    subscription.subscribe(DeltaRequest(subscribe=("a",)))
    subscription.refuse({"a": "1"}, "no good")
    subscription.subscribe(DeltaRequest(unsubscribe=("a",)))
    assert subscription.refused == {}
