"""Whether a load balancer serves: the table of what proxies see, and the numbers that users read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.condition import ConditionReason as R
from fairlead.model.keys import ListenerKey, Protocol, TargetKey, backend_key
from fairlead.model.observed import (
    NAMED,
    Health,
    HealthTally,
    MemberSeen,
    Observed,
    ObservedTarget,
    Seen,
    health_of,
    health_of_targets,
    with_health,
)

pytestmark = pytest.mark.req("X-1")
HTTP, HTTPS, DNS = (
    ListenerKey(protocol, port) for protocol, port in ((Protocol.TCP, 80), (Protocol.TCP, 443), (Protocol.UDP, 53))
)
H, U, W, N, S = Seen.HEALTHY, Seen.UNHEALTHY, Seen.WAITING, Seen.UNCHECKED, Seen.SILENT


def at(number: int, port: int = 8080) -> TargetKey:
    return TargetKey(f"10.0.0.{number}", port)


def views(*rows: tuple[Seen, ...], port: int = 8080):
    return {at(number, port): row for number, row in enumerate(rows, 1)}


def test_what_waits_or_is_not_checked_is_counted_as_unknown() -> None:
    assert health_of({HTTP: views((H,), (U,), (W,), (N,))}).unknown == 2
    assert health_of({HTTP: views((H,)), DNS: views((N,), port=53)}).unknown == 1
    assert health_of({HTTP: views((H,)), HTTPS: views((N,))}).unknown == 0, "the target is known behind one listener"


@pytest.mark.parametrize(
    ("seen", "serving", "reason", "subject", "counts"),
    [
        ({}, False, R.NO_TARGETS, "", (0, 0)),
        ({HTTP: {}}, False, R.NO_TARGETS, "", (0, 0)),
        ({HTTP: views((H,)), HTTPS: {}}, False, R.NO_TARGETS, "TCP/443", (1, 1)),
        ({HTTP: views((H,), (H,))}, True, R.SERVING, "", (2, 2)),
        ({HTTP: views((H,), (U,), (U,))}, True, R.SERVING, "1 of 3", (1, 3)),
        ({HTTP: views((U,))}, False, R.NO_HEALTHY_TARGETS, "", (0, 1)),
        ({HTTP: views((U,), (U,))}, False, R.NO_HEALTHY_TARGETS, "2", (0, 2)),
        ({HTTP: views((S,), (S,))}, None, R.PROXIES_SILENT, "", (0, 0)),
        ({HTTP: views((H, S), (H, S))}, None, R.PROXIES_SILENT, "1 of 2", (0, 0)),
        ({HTTP: views((U, S))}, False, R.UNREACHABLE_FROM_SOME_PROXIES, "1 of 2", (0, 1)),
        ({HTTP: views((H, U), (U, H))}, True, R.SERVING, "0 of 2", (0, 2)),
        ({HTTP: views((H, U), (H, U))}, False, R.UNREACHABLE_FROM_SOME_PROXIES, "1 of 2", (0, 2)),
        ({HTTP: views((H,)), HTTPS: views((U,), port=8443)}, False, R.NO_HEALTHY_TARGETS, "TCP/443", (1, 2)),
        ({HTTP: views((W,), (W,))}, None, R.WAITING_FOR_FIRST_CHECK, "", (0, 0)),
        ({HTTP: views((W,), (U,))}, None, R.WAITING_FOR_FIRST_CHECK, "", (0, 1)),
        ({HTTP: views((W,), (H,))}, True, R.SERVING, "", (1, 1)),
        ({HTTP: views((N,), (N,))}, None, R.NOT_CHECKED, "", (0, 0)),
        ({HTTP: views((N,), (U,))}, None, R.NOT_CHECKED, "", (0, 1)),
        ({HTTP: views((H,)), DNS: views((N,), port=53)}, True, R.SERVING, "", (1, 1)),
        ({HTTP: views((U,)), DNS: views((N,), port=53)}, False, R.NO_HEALTHY_TARGETS, "TCP/80", (0, 1)),
    ],
)
def test_observed_states_become_one_verdict(seen, serving, reason, subject, counts):
    health = health_of(seen)
    assert (health.serving, health.reason) == (serving, reason)
    assert subject in health.message
    assert (health.healthy, health.total) == counts


@pytest.mark.req("X-32")
def test_health_is_of_address_port_and_listener():
    health = health_of({HTTP: views((H,), (H,)), HTTPS: views((H,), (U,), port=8443)})
    assert (health.healthy, health.total, health.unhealthy) == (3, 4, ("10.0.0.2:8443 (TCP/443)",))
    same_address = health_of({HTTP: {at(1, 1): (H,), at(1, 2): (U,)}})
    assert (same_address.healthy, same_address.total, same_address.unhealthy) == (1, 2, ("10.0.0.1:2 (TCP/80)",))
    same_target = health_of({HTTP: views((H,)), HTTPS: views((U,))})
    assert (same_target.healthy, same_target.total, same_target.unhealthy) == (0, 1, ("10.0.0.1:8080 (TCP/443)",))
    nodes = health_of({SHOP: views((U,), (U,), port=30001), BLOG: views((H,), (H,), port=30002)})
    assert (nodes.healthy, nodes.total, nodes.failing) == (2, 4, frozenset({"shop"}))
    assert nodes.unhealthy == ("10.0.0.1:30001 (shop)", "10.0.0.2:30001 (shop)")


def test_so_many_unhealthy_targets_are_named_and_all_are_counted():
    health = health_of({HTTP: {TargetKey("10.0.0.1", port): (U,) for port in range(1, 2 * NAMED)}})
    assert (len(health.unhealthy), health.total) == (NAMED, 2 * NAMED - 1)


def test_missing_checks_have_the_given_reason():
    assert health_of({HTTP: views((N,))}, not_checked="UDP").message == "UDP"


def test_of_targets_that_were_read_back_those_that_drain_do_not_count():
    targets = [
        ObservedTarget(HTTP, at(1), healthy=False),
        ObservedTarget(HTTP, at(2), draining=True, healthy=True),
        ObservedTarget(HTTP, at(3), weight=0, healthy=True),
    ]
    assert health_of_targets(targets).reason is R.NO_HEALTHY_TARGETS
    assert health_of_targets([], [HTTP]).reason is R.NO_TARGETS
    assert "TCP/443" in health_of_targets(targets, [HTTPS]).message


def test_health_is_made_from_targets_unless_the_provider_says_it():
    said = Observed(health=Health(serving=True), targets=())
    assert with_health(said) is said
    assert with_health(Observed()) == Observed()
    assert with_health(Observed(targets=(ObservedTarget(HTTP, at(1), healthy=True),))).health == Health(
        True, R.SERVING, "all targets are healthy", 1, 1
    )


SHOP, BLOG = (ListenerKey(Protocol.TCP, 0, name) for name in ("shop", "blog"))


@pytest.mark.parametrize(
    ("shop", "blog", "serving", "reason", "subject"),
    [
        (views((H,)), views((H,), port=81), True, R.SERVING, ""),
        (views((H,)), {at(2): (U,)}, True, R.SOME_BACKENDS_UNHEALTHY, "blog"),
        (views((U,)), {at(2): (H,)}, True, R.SOME_BACKENDS_UNHEALTHY, "shop"),
        (views((H,)), {}, True, R.SOME_BACKENDS_UNHEALTHY, "blog"),
        (views((U,)), {at(2): (U,)}, False, R.NO_HEALTHY_TARGETS, "2"),
        (views((U,)), {}, False, R.NO_HEALTHY_TARGETS, ""),
        ({}, {}, False, R.NO_TARGETS, ""),
        (views((H,)), {at(2): (W,)}, True, R.SERVING, ""),
        (views((U,)), {at(2): (W,)}, None, R.WAITING_FOR_FIRST_CHECK, ""),
        (views((W,)), {}, None, R.WAITING_FOR_FIRST_CHECK, ""),
        (views((U,)), {at(2): (N,)}, None, R.SOME_BACKENDS_UNHEALTHY, "shop"),
        (views((H, H)), {at(2): (U, H)}, True, R.SOME_BACKENDS_UNHEALTHY, "blog"),
        (views((U, H)), {at(2): (U, H)}, False, R.UNREACHABLE_FROM_SOME_PROXIES, "1 of 2"),
        (views((U, H)), {at(2): (H, U)}, True, R.SOME_BACKENDS_UNHEALTHY, "blog, shop"),
    ],
)
def test_http_load_balancer_serves_while_one_backend_serves(shop, blog, serving, reason, subject):
    health = health_of({SHOP: shop, BLOG: blog})
    assert (health.serving, health.reason) == (serving, reason)
    assert subject in health.message


@pytest.mark.req("MC-18")
@pytest.mark.parametrize(
    ("west", "east", "seen"),
    [
        (((H, H), (H, H)), ((H, H),), (MemberSeen("east", 1, 1, 0, 2), MemberSeen("west", 2, 2, 0, 2))),
        (((H, U), (H, U)), ((H, H),), (MemberSeen("east", 1, 1, 0, 2), MemberSeen("west", 2, 2, 1, 2))),
        (((H, U), (U, H)), ((H, H),), (MemberSeen("east", 1, 1, 0, 2), MemberSeen("west", 1, 2, 0, 2))),
        (((U, U), (U, U)), ((H, H),), (MemberSeen("east", 1, 1, 0, 2), MemberSeen("west", 0, 2, 2, 2))),
        (((U, S), (U, S)), ((H, S),), (MemberSeen("west", 0, 2, 1, 1),)),
        (((N, N),), ((W, W),), ()),
    ],
)
def test_a_member_is_as_healthy_as_the_proxy_sees_that_reaches_most_of_it(west, east, seen) -> None:
    rows = views(*west, *east)
    members = dict(zip(rows, ["west"] * len(west) + ["east"] * len(east), strict=True))
    assert HealthTally({HTTP: rows}).members(members) == seen


@pytest.mark.req("MC-18")
def test_a_target_of_a_member_is_healthy_behind_all_ports_of_one_proxy() -> None:
    tally = HealthTally({HTTP: views((H, H)), HTTPS: views((U, H))})
    assert tally.members({at(1): "west"}) == (MemberSeen("west", 1, 1, 1, 2),)


LISTENERS = st.sampled_from([HTTP, HTTPS, *map(backend_key, "abc")])
TARGETS = st.dictionaries(st.builds(at, st.integers(1, 4)), st.tuples(*[st.sampled_from(Seen)] * 2), max_size=3)


@given(st.lists(st.tuples(LISTENERS, st.none() | TARGETS), max_size=30))
@settings(max_examples=300, deadline=None)
def test_a_tally_says_after_any_changes_what_follows_from_the_last_views(steps) -> None:
    tally, last = HealthTally(), {}
    for listener, targets in steps:
        if targets is None:
            tally.drop(listener)
            last.pop(listener, None)
        else:
            tally.put(listener, targets)
            last[listener] = targets
        assert tally.health(not_checked="off") == health_of(last, not_checked="off")
        assert len(tally) == len(last)
