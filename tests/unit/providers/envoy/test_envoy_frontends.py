"""Frontends: which resources a change concerns, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from fairlead.errors import Terminal
from fairlead.model.change import Action, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, Protocol, TargetKey
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.frontends import EnvoyFrontends
from fairlead.providers.envoy.resources import ResourceType, packaged_schema
from fairlead.providers.envoy.store import ResourceChange, ResourceStore

KEY = LoadBalancerKey("TCPLoadBalancer", "shop", "web")
SPEC = FrontendSpec(key=KEY, group="t", listeners=(Listener(80), Listener(81)), address="192.0.2.1")


@pytest.fixture
def frontends() -> EnvoyFrontends:
    return EnvoyFrontends(schema=packaged_schema(), fleet=LocalFleet(data_dir=Path("/tmp/x")))


def row(address: str, *, action: Action = Action.REGISTER, port: int = 80, key: LoadBalancerKey = KEY) -> TargetChange:
    return TargetChange(key, Listener(port).key, Target(TargetKey(address, 8080)), action, Reason.NEW)


def kinds(changes: Mapping[str, Sequence[ResourceChange]]) -> list[str]:
    return [change.kind.short for rows in changes.values() for change in rows]


def test_targets_of_a_listener_that_stays_survive_ensure(frontends: EnvoyFrontends) -> None:
    frontends.ensure(SPEC)
    frontends.apply([row("10.0.0.1"), row("10.0.0.2", port=81)])
    changes = frontends.ensure(msgspec.structs.replace(SPEC, listeners=(Listener(80), Listener(82))))
    removed = {change.name for change in changes["local"] if change.resource is None}
    assert removed == {"TCPLoadBalancer/shop/web/TCP/81"}
    frontend = frontends.get(KEY)
    assert frontend is not None
    assert [port.targets.targets() for port in frontend.ports.values()] == [[Target(TargetKey("10.0.0.1", 8080))], []]


@pytest.mark.req("F-14")
def test_the_cluster_of_a_collector_is_there_while_the_sink_names_one(frontends: EnvoyFrontends) -> None:
    name = f"{KEY}/collector/logs"

    def ensured(sink: str) -> dict[str, bool]:
        spec = msgspec.structs.replace(SPEC, parameters={"accessLog": "{}", "accessLogSink": sink})
        return {change.name: change.resource is not None for change in frontends.ensure(spec)["local"]}

    assert name not in ensured("stdout")
    # Before the listeners that name it.
    assert next(iter(ensured("http://collector:4318").items())) == (name, True)
    assert frontends.wants("local", name)
    assert ensured("stdout")[name] is False
    assert not frontends.wants("local", name)
    ensured("http://collector:4318")
    assert name in {change.name for change in frontends.delete(KEY)["local"] if change.resource is None}


def test_refused_spec_leaves_the_old_one(frontends: EnvoyFrontends) -> None:
    frontends.ensure(SPEC)
    with pytest.raises(Terminal) as caught:
        frontends.ensure(msgspec.structs.replace(SPEC, listeners=()))
    assert caught.value.reason == "Invalid"
    with pytest.raises(Terminal) as caught:
        frontends.ensure(msgspec.structs.replace(SPEC, address=""))
    assert caught.value.reason == "AddressNotAssigned"
    frontend = frontends.get(KEY)
    assert frontend is not None
    assert frontend.spec == SPEC


def test_one_address_and_port_has_one_owner_until_it_goes(frontends: EnvoyFrontends) -> None:
    other = msgspec.structs.replace(SPEC, key=LoadBalancerKey("TCPLoadBalancer", "shop", "twin"))
    frontends.ensure(SPEC)
    with pytest.raises(Terminal, match="belongs to TCPLoadBalancer/shop/web"):
        frontends.ensure(other)
    udp = tuple(Listener(port, Protocol.UDP) for port in (80, 81))
    frontends.ensure(msgspec.structs.replace(other, listeners=udp))
    frontends.delete(KEY)
    frontends.ensure(other)


def test_rows_are_answered_one_by_one(frontends: EnvoyFrontends) -> None:
    frontends.ensure(SPEC)
    unknown = LoadBalancerKey("TCPLoadBalancer", "shop", "unknown")
    changes, outcomes = frontends.apply(
        [
            row("10.0.0.1"),
            row("no such address"),
            row("10.0.0.1", key=unknown),
            row("10.0.0.1", key=unknown, action=Action.DEREGISTER),
            row("10.0.0.9", action=Action.DEREGISTER),
            row("10.0.0.2", action=Action.DELETE),
        ]
    )
    assert [outcome.status for outcome in outcomes] == [
        OutcomeStatus.DONE, OutcomeStatus.REJECTED, OutcomeStatus.RETRY,
        OutcomeStatus.DONE, OutcomeStatus.DONE, OutcomeStatus.REJECTED,
    ]  # fmt: skip
    assert kinds(changes) == ["endpoints"]  # type: ignore[arg-type]


def test_repeated_rows_change_nothing(frontends: EnvoyFrontends) -> None:
    frontends.ensure(SPEC)
    frontends.apply([row("10.0.0.1")])
    assert frontends.apply([row("10.0.0.1")])[0] == {}
    assert kinds(frontends.apply([row("10.0.0.1", action=Action.DRAIN)])[0]) == ["endpoints"]  # type: ignore[arg-type]
    assert frontends.apply([row("10.0.0.1", action=Action.DRAIN)])[0] == {}


@pytest.mark.req("E-12")
def test_host_name_moves_the_endpoints_into_the_cluster_and_back(frontends: EnvoyFrontends) -> None:
    frontends.ensure(SPEC)
    store = ResourceStore()
    group = store.group("local")
    name = "TCPLoadBalancer/shop/web/TCP/80"
    for rows, inside in (
        ([row("10.0.0.1"), row("lb.example.com")], True),
        ([row("10.0.0.2")], True),
        ([row("lb.example.com", action=Action.DEREGISTER)], False),
    ):
        changes, _ = frontends.apply(rows)
        group.apply(changes["local"])
        cluster = group.wanted(ResourceType.CLUSTER, name)
        assert cluster is not None
        assert (b"10.0.0.1" in cluster.field) is inside
        assert (group.wanted(ResourceType.ENDPOINTS, name) is None) is inside


def listeners(changes: Mapping[str, Sequence[ResourceChange]]) -> dict[str, bool]:
    """Return the names of the listeners among changes, and whether each is there after them."""
    rows = [change for rows in changes.values() for change in rows]
    return {change.name: change.resource is not None for change in rows if change.kind is ResourceType.LISTENER}


@pytest.mark.req("K-58")
def test_a_second_address_has_listeners_of_its_own_and_those_of_the_first_stay(frontends: EnvoyFrontends) -> None:
    single = msgspec.structs.replace(SPEC, listeners=(Listener(80),))
    both = msgspec.structs.replace(single, second_address="2001:db8::1")
    name = "TCPLoadBalancer/shop/web/TCP/80"
    store = ResourceStore().group("local")
    store.apply(frontends.ensure(single)["local"])
    first = store.wanted(ResourceType.LISTENER, name)
    changes = frontends.ensure(both)
    assert listeners(changes) == {name: True, f"{name}/IPv6": True}
    assert store.apply(changes["local"]) == 1
    assert store.wanted(ResourceType.LISTENER, name) is first
    frontend = frontends.get(KEY)
    assert frontend is not None
    assert frontend.serving.labels == {name: "port TCP/80", f"{name}/IPv6": "port TCP/80"}
    # The order of the families changes nothing: each keeps its listener.
    turned = msgspec.structs.replace(both, address="2001:db8::1", second_address="192.0.2.1")
    assert store.apply(frontends.ensure(turned)["local"]) == 0
    assert listeners(frontends.ensure(single)) == {name: True, f"{name}/IPv6": False}
    frontends.ensure(both)
    assert listeners(frontends.delete(KEY)) == {name: False, f"{name}/IPv6": False}


@pytest.mark.req("K-58")
def test_the_second_address_is_one_s_own_too(frontends: EnvoyFrontends) -> None:
    frontends.ensure(msgspec.structs.replace(SPEC, second_address="2001:db8::1"))
    other = LoadBalancerKey("TCPLoadBalancer", "shop", "other")
    with pytest.raises(Terminal) as caught:
        frontends.ensure(msgspec.structs.replace(SPEC, key=other, address="2001:db8::1"))
    assert caught.value.reason == "PortConflict"
