"""What users read: conditions from three sources, an address that stays, and no bad news that may pass."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.meta import Transition, condition_of, wire_conditions
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.hub.intents.status import build_conditions, repeats_references
from fairlead.hub.intents.tcp import TCPStatus
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.events import EventRecorder
from fairlead.kube.writes import is_passing
from fairlead.model.change import Action, Held, Reason, TargetChange
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.model.observed import Health, Observed
from fairlead.sync.history import Report
from fairlead.testing.builders import HTTP, endpoint_slice, lb_key, target, tcp, tcp_view
from fairlead.translate.member import decide_tcp
from fairlead.translate.view import no_ready
from tests.fleet_objects import condition

CLUSTER = Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub")
RULES = TCPStatus(events=EventRecorder(CLUSTER, component="test"), resource=TCP_LOAD_BALANCERS)
NOW = "2030-01-01T00:00:10Z"
GOOD = Observed(addresses=("192.0.2.7",), programmed=True, proxies=2, acknowledged=2)
R = ConditionReason


def removal():
    return TargetChange(lb_key(), HTTP, target("1"), Action.DEREGISTER, Reason.ABSENT)


def held(*messages):
    return Report(lb_key(), held=tuple(Held(removal(), "LastTargets", message) for message in messages))


def conditions_of(view, report=None, observed=GOOD):
    return {each.type: each for each in build_conditions(decide_tcp(view), report, observed)}


def status_of(load_balancer, *, report=None, observed: Observed | None = GOOD, now=NOW, **view):
    built = decide_tcp(tcp_view(load_balancer, **view))
    conditions = wire_conditions(
        build_conditions(built, report, observed),
        load_balancer.status.conditions,
        generation=load_balancer.metadata.generation,
        now=now,
    )
    return RULES.compose(load_balancer, built, conditions, observed)


def wire(status, kind):
    return condition_of(status.conditions, kind)


@pytest.mark.parametrize(
    ("report", "observed", "programmed"),
    [
        pytest.param(None, GOOD, (True, R.PROGRAMMED, ""), id="good"),
        pytest.param(None, None, (False, R.PENDING, "waiting for the provider"), id="unknown"),
        pytest.param(None, Observed(), (False, R.NO_PROXY_CONNECTED, "no proxy is connected"), id="no-proxy"),
        pytest.param(
            None,
            msgspec.structs.replace(GOOD, programmed=False, acknowledged=1),
            (False, R.PENDING, "1 of 2 proxies have it"),
            id="half",
        ),
        pytest.param(
            None,
            msgspec.structs.replace(GOOD, addresses=()),
            (False, R.ADDRESS_NOT_ASSIGNED, "no address"),
            id="no-address",
        ),
        pytest.param(
            None,
            msgspec.structs.replace(GOOD, rejected="listener 80: bad socket option"),
            (False, R.REJECTED_BY_PROXY, "bad socket option"),
            id="rejected",
        ),
        pytest.param(
            Report(lb_key(), failure="quota is used up"),
            GOOD,
            (False, R.PROVIDER_FAILED, "quota is used up"),
            id="failed",
        ),
    ],
)
def test_programmed(report, observed, programmed):
    status, reason, text = programmed
    condition = conditions_of(tcp_view(), report, observed)[ConditionType.PROGRAMMED]
    assert (condition.status, condition.reason) == (status, reason)
    assert text in condition.message


@pytest.mark.req("I-10", "X-17")
def test_held_removals_are_reported_with_the_guards_reason():
    condition = conditions_of(tcp_view(), held("no other is ready", "no other is ready"))[ConditionType.GUARDED]
    assert condition.status
    assert condition.message == (
        "2 removals held (Deregister 10.0.0.1:8080, Deregister 10.0.0.1:8080): no other is ready"
    )
    single = conditions_of(tcp_view(), held("x"))[ConditionType.GUARDED]
    assert single.message == "1 removal held (Deregister 10.0.0.1:8080): x"
    assert ConditionType.GUARDED not in conditions_of(tcp_view(), Report(lb_key()))


def test_paused_objects_are_not_reported_as_guarded():
    view = tcp_view(tcp(annotations={"fairlead.dev/paused": "true"}))
    result = conditions_of(view, held("x"))
    assert ConditionType.PAUSED in result
    assert ConditionType.GUARDED not in result


def test_conditions_come_in_one_order():
    order = [each.type for each in build_conditions(decide_tcp(tcp_view(nodes_stale="x")), held("y"), GOOD)]
    assert order == [
        ConditionType.ACCEPTED,
        ConditionType.RESOLVED_REFS,
        ConditionType.PROGRAMMED,
        ConditionType.SERVING,
        ConditionType.STALE,
        ConditionType.GUARDED,
    ]


@pytest.mark.req("K-24")
def test_the_status_of_a_good_one():
    status = status_of(tcp(generation=3))
    assert status.address == "192.0.2.7"
    (ingress,) = status.load_balancer.ingress or []
    assert (ingress.ip, ingress.ip_mode, [(port.port, port.protocol) for port in ingress.ports]) == (
        "192.0.2.7",
        "Proxy",
        [(80, "TCP")],
    )
    assert {condition.observed_generation for condition in status.conditions} == {3}
    assert {condition.last_transition_time for condition in status.conditions} == {NOW}


@pytest.mark.req("K-11")
def test_a_host_name_is_an_address_too():
    status = status_of(tcp(), observed=msgspec.structs.replace(GOOD, addresses=("lb.example.com",)))
    assert (status.load_balancer.ingress[0].hostname, status.address) == ("lb.example.com", "lb.example.com")


@pytest.mark.req("I-6")
def test_an_address_stays_until_another_takes_its_place():
    given = tcp(status=msgspec.to_builtins(status_of(tcp())))
    assert status_of(given, observed=None).address == "192.0.2.7"
    assert status_of(given, observed=Observed()).load_balancer == given.status.load_balancer
    moved = msgspec.structs.replace(GOOD, addresses=("192.0.2.8",))
    assert status_of(given, observed=moved).address == "192.0.2.8"


def test_a_transition_time_changes_with_the_status_only():
    given = tcp(status=msgspec.to_builtins(status_of(tcp())))
    later = "2030-01-01T01:00:00Z"
    assert status_of(given, now=later) == given.status
    broken = status_of(given, observed=None, now=later)
    assert wire(broken, "Programmed").last_transition_time == later
    assert wire(broken, "Accepted").last_transition_time == NOW


def test_recorded_entries_are_kept():
    given = tcp(status={"accepted": {"ports": [{"port": 80, "nodePort": 1}]}, "allocation": {"address": "192.0.2.7"}})
    status = status_of(given)
    assert (status.accepted, status.allocation) == (given.status.accepted, given.status.allocation)


@pytest.mark.parametrize(
    ("observed", "report", "passing"),
    [
        pytest.param(None, None, True, id="provider-asked"),
        pytest.param(Observed(), None, True, id="proxy-reconnects"),
        pytest.param(msgspec.structs.replace(GOOD, programmed=False), None, True, id="not-acknowledged-yet"),
        pytest.param(msgspec.structs.replace(GOOD, rejected="no"), None, False, id="rejected"),
        pytest.param(GOOD, Report(lb_key(), failure="x"), False, id="failed"),
        pytest.param(GOOD, None, False, id="good"),
    ],
)
def test_bad_news_that_may_pass(observed, report, passing):
    was = status_of(tcp())
    given = tcp(status=msgspec.to_builtins(was))
    assert is_passing(was.conditions, status_of(given, observed=observed, report=report).conditions) is passing


@pytest.mark.req("T-11")
def test_states_not_read_back_are_not_reported():
    was = status_of(tcp(), observed=msgspec.structs.replace(GOOD, addresses=()))
    assert wire(was, "Programmed").reason == R.ADDRESS_NOT_ASSIGNED
    again = tcp(status=msgspec.to_builtins(was))
    pending = status_of(again, observed=None)
    assert is_passing(was.conditions, pending.conditions)
    assert not is_passing(pending.conditions, status_of(again, observed=None, now="2030-01-01T00:01:00Z").conditions)


def test_a_first_status_is_never_waited_for():
    assert not is_passing(tcp().status.conditions, status_of(tcp(), observed=None).conditions)


@pytest.mark.req("L4-2")
@pytest.mark.parametrize(("listed", "serving"), [(["10.0.0.1"], True), ([], None)])
def test_held_targets_alone_do_not_serve(listed, serving):
    healthy = msgspec.structs.replace(GOOD, health=Health(True, R.SERVING, "", total=1, healthy=1))
    view = tcp_view(tcp(spec={"targets": "Pod"}), slices=[endpoint_slice("s", listed)])
    condition = conditions_of(view, held("the last one"), healthy)[ConditionType.SERVING]
    assert condition.status is serving
    assert (condition.reason is R.REMOVALS_HELD) == (serving is None)


NO_READY = no_ready("endpoint", "TCP/80")


@pytest.mark.parametrize(
    ("message", "reason", "said"),
    [
        (NO_READY, "NoTargets", True),
        (NO_READY, "NoHealthyTargets", False),
        (f"a backend of Ingress shop/web cannot be resolved; {NO_READY}", "NoTargets", False),
        ("a backend of Ingress shop/web cannot be resolved", "NoTargets", False),
    ],
)
def test_missing_ready_endpoints_are_reported_once(message: str, reason: str, said: bool) -> None:
    references = condition("ResolvedRefs", "False", "BackendNotFound", message)
    change = Transition(condition("Serving", "False", reason), condition("Serving", "True", "Serving"))
    assert repeats_references(change, [references, change.condition]) is said
    assert not repeats_references(change, [condition("ResolvedRefs", "True"), change.condition])
