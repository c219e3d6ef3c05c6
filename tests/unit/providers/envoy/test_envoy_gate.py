"""What waits at the gate: listeners for their clusters, removed clusters for their listeners, and never for long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.providers.envoy.resources import EncodedResource, ResourceType, encoded_resource
from fairlead.providers.envoy.store import GATE_S, Gate, NodeGroup, ResourceChange, ResourceStore, TypeSubscription

CLUSTER, ENDPOINTS, LISTENER = ResourceType.CLUSTER, ResourceType.ENDPOINTS, ResourceType.LISTENER
ROUTES = ResourceType.ROUTES


class Stream:
    """A gate with its group and subscriptions; ``a`` is a listener and its cluster."""

    def __init__(self, *, warms_by_ack: bool = False) -> None:
        self.group: NodeGroup = ResourceStore().group("g")
        self.subscriptions = {kind: TypeSubscription() for kind in ResourceType}
        self.gate = Gate(group=self.group, subscriptions=self.subscriptions)
        self.cluster = encoded_resource(CLUSTER, "a", b"1", warms_by_ack=warms_by_ack)
        self.put(CLUSTER, self.cluster)
        self.put(LISTENER, encoded_resource(LISTENER, "a", b"1", needs=("a",)))
        self.subscriptions[LISTENER].dirty.add("a")

    def put(self, kind: ResourceType, resource: EncodedResource | None) -> None:
        self.group.apply([ResourceChange(kind, "a", resource)])

    def cluster_sent(self) -> None:
        self.subscriptions[CLUSTER].sent["a"] = self.cluster.version
        self.gate.warming.add("a")

    def acknowledge(self, kind: ResourceType, version: str) -> None:
        self.subscriptions[kind].sent["a"] = self.subscriptions[kind].acked["a"] = version
        self.gate.acknowledged(kind, "a", version)

    def opens(self, now: float) -> bool:
        return self.gate.open(LISTENER, now=now) == ["a"]


@pytest.mark.parametrize("warms_by_ack", [False, True])
def test_a_listener_waits_for_the_proof_that_its_cluster_is_ready(*, warms_by_ack: bool) -> None:
    stream = Stream(warms_by_ack=warms_by_ack)
    assert not stream.opens(0.0)
    stream.cluster_sent()
    assert not stream.opens(0.0)
    first, proof = (ENDPOINTS, CLUSTER) if warms_by_ack else (CLUSTER, ENDPOINTS)
    stream.acknowledge(first, stream.cluster.version if first is CLUSTER else "e1")
    assert not stream.opens(1.0)
    assert stream.gate.deadline() == GATE_S
    stream.acknowledge(proof, stream.cluster.version if proof is CLUSTER else "e1")
    assert stream.opens(1.0)
    assert stream.gate.deadline() is None


def test_no_listener_waits_longer_than_the_limit() -> None:
    stream = Stream()
    stream.cluster_sent()
    assert not stream.opens(1.0)
    assert not stream.opens(GATE_S)
    assert stream.opens(1.0 + GATE_S)


def test_a_listener_whose_cluster_was_refused_is_not_sent_at_all() -> None:
    stream = Stream()
    stream.group.refuse(CLUSTER, "a", stream.cluster.version, "no", now=0.0)
    assert not stream.opens(0.0)
    assert not stream.opens(2 * GATE_S)
    assert stream.gate.deadline() is None, "time alone changes nothing"


def test_an_acknowledgement_of_endpoints_that_are_to_be_sent_again_proves_nothing() -> None:
    stream = Stream()
    stream.cluster_sent()
    stream.subscriptions[ENDPOINTS].forced.add("a")
    stream.acknowledge(ENDPOINTS, "e1")
    assert stream.gate.warming == {"a"}


@pytest.mark.req("T-survivors")
def test_a_removed_cluster_waits_until_its_listener_is_acknowledged_as_gone() -> None:
    stream = Stream()
    listeners = stream.subscriptions[LISTENER]
    listeners.subscribed = True
    stream.put(CLUSTER, None)
    stream.put(LISTENER, None)
    stream.subscriptions[CLUSTER].dirty.add("a")
    assert stream.gate.removable_clusters(now=0.0) == []
    assert stream.gate.is_waiting(CLUSTER, "a")
    listeners.take(["a"])
    listeners.in_flight["1"] = {"a": ""}
    assert stream.gate.removable_clusters(now=0.0) == []
    listeners.in_flight.clear()
    assert stream.gate.removable_clusters(now=0.0) == ["a"]
    assert not stream.gate.is_waiting(CLUSTER, "a")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["new", "gone", "sent", "acked", "endpoints", "needs"]),
            st.sampled_from("abc"),
            st.frozensets(st.sampled_from("abcd"), max_size=3),
        ),
        max_size=15,
    )
)
def test_routes_pass_once_each_cluster_that_they_need_is_ready(steps: list[tuple[str, str, frozenset[str]]]) -> None:
    group = ResourceStore().group("g")
    subscriptions = {kind: TypeSubscription() for kind in ResourceType}
    gate = Gate(group=group, subscriptions=subscriptions)
    clusters, endpoints, routes = (subscriptions[kind] for kind in (CLUSTER, ENDPOINTS, ROUTES))
    clusters.refused["other"] = ("1", "no")  # each need is looked at
    needs = frozenset("ab")
    for number, (what, name, others) in enumerate(steps):
        version = f"v{number}"
        match what:
            case "new":
                cluster = encoded_resource(CLUSTER, name, version.encode(), warms_by_ack=name == "c")
                group.apply([ResourceChange(CLUSTER, name, cluster)])
            case "gone":
                group.apply([ResourceChange(CLUSTER, name, None)])
            case "sent" if (cluster := group.wanted(CLUSTER, name)) is not None:
                clusters.sent[name] = cluster.version
                gate.warming.add(name)
            case "acked":
                gate.acknowledged(CLUSTER, name, clusters.sent.get(name, ""))
            case "endpoints":
                endpoints.sent[name] = endpoints.acked[name] = version
                gate.acknowledged(ENDPOINTS, name, version)
            case _:
                needs = others
        resource = encoded_resource(ROUTES, "r", version.encode(), needs=tuple(sorted(needs)))
        group.apply([ResourceChange(ROUTES, "r", resource)])
        routes.dirty.add("r")
        ready = {
            name
            for name in needs
            if (cluster := group.wanted(CLUSTER, name)) is None
            or (
                clusters.sent.get(name) == cluster.version
                and name not in gate.warming
                and (cluster.warms_by_ack or name in endpoints.acked)
            )
        }
        assert (gate.open(ROUTES, now=0.0) == ["r"]) == (ready == needs)
