"""What the proxies of another replica see, as it arrives here: never health that was not seen."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.keys import TargetKey
from fairlead.model.observed import Seen
from fairlead.providers.envoy.kubernetes.health_exchange import (
    MOST_BYTES,
    GroupReport,
    ProxyReport,
    ReportedProxy,
    cluster_report,
    decode_report,
    digest_of,
    encode_report,
)

pytestmark = pytest.mark.req("X-1")
ONE, TWO, THREE = (TargetKey(f"10.0.0.{number}", 8080) for number in (1, 2, 3))
BOTH = frozenset({ONE, TWO})
WEB = "TCPLoadBalancer/shop/web/TCP/80"


def proxy(*, unhealthy=(), waiting=(), targets=BOTH, before=None) -> ReportedProxy:
    """Return a proxy as it arrives: encoded by one replica, decoded by another."""
    report = GroupReport("b", "shop", (ProxyReport("p1", {WEB: cluster_report(targets, unhealthy, waiting)}),))
    received = decode_report(encode_report(report))
    assert received is not None
    assert received.group == "shop"
    return ReportedProxy(received.proxies[0], before)


def test_conditions_without_a_problem_are_healthy():
    assert {proxy().seen(WEB, target, BOTH) for target in BOTH} == {Seen.HEALTHY}


@pytest.mark.parametrize(
    ("unhealthy", "waiting", "first", "second"),
    [
        ([ONE], [], Seen.UNHEALTHY, Seen.HEALTHY),
        ([ONE, TWO], [], Seen.UNHEALTHY, Seen.UNHEALTHY),
        ([], [TWO], Seen.HEALTHY, Seen.WAITING),
        ([ONE], [TWO], Seen.UNHEALTHY, Seen.WAITING),
        ([], [ONE, TWO], Seen.WAITING, Seen.WAITING),
    ],
)
def test_exceptions_are_what_they_are(unhealthy, waiting, first, second):
    seen = proxy(unhealthy=unhealthy, waiting=waiting)
    assert (seen.seen(WEB, ONE, BOTH), seen.seen(WEB, TWO, BOTH)) == (first, second)


def test_of_a_proxy_that_reports_no_more_to_another_replica_nothing_is_known():
    clusters = {WEB: cluster_report(BOTH, [], BOTH)}
    received = decode_report(encode_report(GroupReport("b", "shop", (ProxyReport("p1", clusters, silent=True),))))
    assert received is not None
    silent = ReportedProxy(received.proxies[0], proxy())
    assert {silent.seen(WEB, target, BOTH) for target in BOTH} == {Seen.SILENT}
    assert silent.changed(proxy()) == {WEB}
    assert proxy().changed(silent) == {WEB}
    assert "silent" not in encode_report(GroupReport("b", "shop", (ProxyReport("p1", clusters),)))


def test_a_target_that_the_proxy_was_not_asked_about_is_waited_for():
    three = frozenset({ONE, TWO, THREE})
    seen = proxy()
    assert seen.seen(WEB, ONE, BOTH) is Seen.HEALTHY
    # A pod has come: known here, and not yet to the replica that reports.
    assert [seen.seen(WEB, target, three) for target in (ONE, TWO, THREE)] == [Seen.HEALTHY, Seen.HEALTHY, Seen.WAITING]
    later = proxy(targets=three, unhealthy=[THREE], before=seen)
    assert later.seen(WEB, THREE, three) is Seen.UNHEALTHY


def test_without_ever_having_known_the_same_targets_nothing_is_healthy():
    assert proxy().seen(WEB, ONE, frozenset({ONE})) is Seen.WAITING


def test_an_unknown_cluster_is_waited_for():
    assert proxy().seen("TCPLoadBalancer/shop/other/TCP/80", ONE, BOTH) is Seen.WAITING


def test_known_states_survive_reports_on_other_targets():
    before = proxy()
    assert before.seen(WEB, ONE, BOTH) is Seen.HEALTHY
    # The replica that reports knows the new target first.
    after = proxy(targets=frozenset({ONE, TWO, THREE}), unhealthy=[TWO], before=before)
    assert (after.seen(WEB, ONE, BOTH), after.seen(WEB, TWO, BOTH)) == (Seen.HEALTHY, Seen.UNHEALTHY)


def test_only_clusters_that_are_reported_differently_have_changed():
    before = proxy()
    assert proxy().changed(before) == set()
    assert proxy(unhealthy=[ONE]).changed(before) == {WEB}
    assert before.changed(None) == {WEB}
    gone = ReportedProxy(ProxyReport("p1", {}), before)
    assert gone.changed(before) == {WEB}


def test_a_report_that_is_too_long_calls_nothing_healthy():
    targets = [frozenset({TargetKey(f"10.0.{number // 250}.{number % 250}", 80)}) for number in range(20_000)]
    clusters = {f"{WEB}/{number}": cluster_report(those, (), ()) for number, those in enumerate(targets)}
    text = encode_report(GroupReport("b", "shop", (ProxyReport("p1", clusters),)))
    assert len(text) < MOST_BYTES
    report = decode_report(text)
    assert report is not None
    assert [proxy.node for proxy in report.proxies] == ["p1"]
    assert ReportedProxy(report.proxies[0]).seen(f"{WEB}/7", next(iter(targets[7])), targets[7]) is Seen.WAITING


def test_five_thousand_dead_load_balancers_fit_into_one_report():
    targets = [frozenset({TargetKey(f"10.{n // 250}.{n % 250}.{t}", 80) for t in range(4)}) for n in range(5_000)]
    clusters = {f"{WEB}/{number}": cluster_report(those, those, ()) for number, those in enumerate(targets)}
    report = decode_report(encode_report(GroupReport("b", "shop", (ProxyReport("p1", clusters),))))
    assert report is not None
    assert ReportedProxy(report.proxies[0]).seen(f"{WEB}/7", next(iter(targets[7])), targets[7]) is Seen.UNHEALTHY


@pytest.mark.parametrize("text", ["", "{", "[]", '{"replica": 1}', '{"group": "shop"}'])
def test_unreadable_data_is_not_a_report(text):
    assert decode_report(text) is None


KEYS = st.builds(TargetKey, st.sampled_from(["10.0.0.1", "10.0.0.2", "2001:db8::1"]), st.sampled_from([80, 8080]))


@given(st.frozensets(KEYS, min_size=1), st.data())
def test_a_target_is_healthy_exactly_when_it_was_seen_so(targets, data):
    unhealthy = data.draw(st.frozensets(st.sampled_from(sorted(targets))))
    waiting = data.draw(st.frozensets(st.sampled_from(sorted(targets)))) - unhealthy
    seen = proxy(targets=targets, unhealthy=unhealthy, waiting=waiting)
    for target in targets:
        expected = Seen.WAITING if target in waiting else Seen.UNHEALTHY if target in unhealthy else Seen.HEALTHY
        assert seen.seen(WEB, target, targets) is expected


def test_the_digest_is_of_the_set_not_of_its_order():
    assert digest_of(frozenset([ONE, TWO])) == digest_of(frozenset([TWO, ONE])) != digest_of(frozenset([ONE]))
    assert len(msgspec.json.encode(cluster_report(BOTH, (), ()))) < 30
