"""The conditions of an intent: what each says of the report, the data plane and the ledger, and in what order."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.hub.intents.status import build_conditions, decision_text, ingress_of
from fairlead.model.change import Action, Held, Reason, TargetChange
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.observed import Health, Observed, RefusedPart
from fairlead.sync.history import Report
from fairlead.sync.plan import WARMING
from fairlead.sync.readback import Drift
from fairlead.testing.builders import HTTP, desired, lb_key, target
from fairlead.translate.view import Decision

R, T = ConditionReason, ConditionType
GOOD = Observed(addresses=("192.0.2.7",), programmed=True, proxies=2, acknowledged=2)
ACCEPTED = Condition(T.ACCEPTED, True, R.ACCEPTED, "")
PAUSED = Condition(T.PAUSED, True, R.PAUSED_BY_USER, "spec.paused")


def translation(*conditions: Condition) -> Decision:
    return Decision(desired([]), (ACCEPTED, *conditions), targets="2", provider="envoy")


def held(number: int = 1, reason: str = "LastTargets") -> Held:
    return Held(TargetChange(lb_key(), HTTP, target(str(number)), Action.DEREGISTER, Reason.ABSENT), reason, "kept")


def conditions(*given: Condition, report: Report | None = None, observed: Observed | None = GOOD, **others):
    built = build_conditions(translation(*given), report, observed, **others)
    assert [condition.type for condition in built] == sorted((condition.type for condition in built), key=list(T).index)
    return {condition.type: condition for condition in built}


@pytest.mark.parametrize(
    ("report", "observed", "reason", "message"),
    [
        (Report(lb_key(), failure="no"), Observed(rejected="bad port"), R.REJECTED_BY_PROXY, "bad port"),
        (Report(lb_key(), failure="no quota"), GOOD, R.PROVIDER_FAILED, "no quota"),
        (None, None, R.PENDING, "waiting for the provider"),
        (None, Observed(), R.NO_PROXY_CONNECTED, "no proxy is connected to the hub yet"),
        (None, Observed(message="pool is empty"), R.NO_PROXY_CONNECTED, "pool is empty"),
        (None, Observed(proxies=2, acknowledged=1), R.PENDING, "1 of 2 proxies have it"),
        (None, Observed(proxies=2, programmed=True), R.ADDRESS_NOT_ASSIGNED, "no address has been assigned yet"),
        (None, GOOD, R.PROGRAMMED, ""),
    ],
)
def test_programmed_names_the_first_thing_that_is_missing(report, observed, reason, message):
    programmed = conditions(report=report, observed=observed)[T.PROGRAMMED]
    assert (programmed.reason, programmed.message) == (reason, message)
    assert programmed.status is (reason is R.PROGRAMMED)


REFUSED = tuple(RefusedPart("route", name, f"it is {name}") for name in ("a", "b", "c", "d"))


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (REFUSED[:1], "1 route is not served: a: it is a"),
        (REFUSED, "4 routes are not served: a: it is a; b: it is b; c: it is c; and 1 more"),
        ((RefusedPart("rule", "a", "rule 2: bad"),), "1 rule is not served: a: rule 2: bad"),
        (
            (*REFUSED[:1], RefusedPart("rule", "b", "rule 2: bad")),
            "2 routes and rules are not served: a: it is a; b: rule 2: bad",
        ),
    ],
)
def test_refused_routes_are_named_and_the_rest_is_still_said_to_serve(refused, message):
    health = Health(True, R.SERVING, "2 of 2 targets are healthy")
    shown = conditions(observed=msgspec.structs.replace(GOOD, refused=refused, health=health))
    programmed, serving = shown[T.PROGRAMMED], shown[T.SERVING]
    assert (programmed.status, programmed.reason, programmed.message) == (False, R.ROUTES_REFUSED, message)
    assert (serving.status, serving.reason) == (True, R.SERVING)


def test_routes_that_wait_are_named_while_the_proxies_are_asked():
    observed = msgspec.structs.replace(GOOD, programmed=False, refused=REFUSED[:1])
    programmed = conditions(observed=observed)[T.PROGRAMMED]
    assert (programmed.status, programmed.reason) == (False, R.PENDING)
    assert programmed.message == "2 of 2 proxies have it; 1 route is not served: a: it is a"


def test_rejected_parts_report_their_own_reasons():
    parts = (RefusedPart("certificate", "c", "it has expired"),)
    assert conditions(observed=msgspec.structs.replace(GOOD, refused=parts))[T.PROGRAMMED].status


def test_without_need_of_an_address_none_is_waited_for():
    observed = Observed(programmed=True, proxies=1)
    assert conditions(observed=observed, needs_address=False)[T.PROGRAMMED].status


DEAD = Health(False, R.NO_HEALTHY_TARGETS, "none of 2 targets is healthy", 2, 0, ("10.0.0.1:80", "10.0.0.2:80"))
ALIVE = Health(True, R.SERVING, "all targets are healthy", 2, 2)
EMPTY = Health(False, R.NO_TARGETS, "no target")
UNCHECKED = Health(None, R.NOT_CHECKED, "UDP")
NO_ENDPOINTS = Condition(T.RESOLVED_REFS, False, R.BACKEND_NOT_FOUND, "no ready endpoint for TCP/80")


@pytest.mark.req("X-1", "X-2")
@pytest.mark.parametrize(
    ("health", "serving", "reason", "others"),
    [
        pytest.param(ALIVE, True, R.SERVING, {}, id="healthy"),
        pytest.param(DEAD, False, R.NO_HEALTHY_TARGETS, {}, id="all-dead"),
        pytest.param(EMPTY, False, R.NO_TARGETS, {}, id="empty"),
        pytest.param(EMPTY, None, R.PENDING, {"has_targets": True}, id="on-their-way"),
        pytest.param(EMPTY, None, R.NOT_CHECKED, {"has_targets": None}, id="no-backend"),
        pytest.param(
            EMPTY,
            False,
            R.NO_TARGETS,
            {"has_targets": True, "report": Report(lb_key(), quarantined=(held(),))},
            id="all-refused",
        ),
        pytest.param(UNCHECKED, None, R.NOT_CHECKED, {}, id="not-checked"),
        pytest.param(None, None, R.NOT_CHECKED, {}, id="provider-says-nothing"),
        pytest.param(None, False, R.NO_TARGETS, {"given": NO_ENDPOINTS}, id="provider-says-nothing-of-no-endpoints"),
        pytest.param(
            ALIVE, None, R.NOT_PROGRAMMED, {"report": Report(lb_key(), failure="no quota")}, id="not-programmed"
        ),
        pytest.param(DEAD, False, R.NO_HEALTHY_TARGETS, {"report": Report(lb_key(), failure="x")}, id="dead-failed"),
    ],
)
def test_serving_is_what_the_data_plane_sees(health, serving, reason, others):
    given = [others.pop("given")] if "given" in others else []
    condition = conditions(*given, observed=msgspec.structs.replace(GOOD, health=health), **others)[T.SERVING]
    assert (condition.status, condition.reason) == (serving, reason)
    assert condition.message


@pytest.mark.req("X-1")
def test_of_what_its_provider_has_said_nothing_nothing_is_claimed():
    assert conditions(observed=None)[T.SERVING].status is None


@pytest.mark.req("X-3")
def test_what_others_removed_is_not_programmed():
    gone = Drift(missing=((HTTP, target("1").key),))
    observed = Observed(proxies=1, addresses=("192.0.2.7",), message="1 of our servers are missing")
    programmed = conditions(observed=observed, drift=gone)[T.PROGRAMMED]
    assert (programmed.status, programmed.reason) == (False, R.DRIFTED)
    assert programmed.message == "1 backend removed outside Fairlead"


def test_the_translations_programmed_condition_is_kept():
    refused = Condition(T.PROGRAMMED, False, R.PENDING, "port 80 is taken")
    assert conditions(refused)[T.PROGRAMMED] == refused


def test_held_removals_guard_or_extend_the_pause_and_a_warming_backend_is_neither():
    assert T.GUARDED not in conditions(report=Report(lb_key(), held=(held(reason=WARMING),)))
    built = conditions(report=Report(lb_key(), held=(held(),)))
    assert built[T.GUARDED].message == "1 removal held (Deregister 10.0.0.1:8080): kept"
    report = Report(lb_key(), held=tuple(held(number) for number in range(1, 5)))
    assert conditions(report=report)[T.GUARDED].message.endswith("Deregister 10.0.0.3:8080, ...): kept")
    paused = conditions(PAUSED, report=report)
    assert T.GUARDED not in paused
    assert paused[T.PAUSED].message.startswith("spec.paused; 4 held: Deregister 10.0.0.1:8080, ")
    assert paused[T.PAUSED].message.endswith("Deregister 10.0.0.3:8080, ...")


@pytest.mark.parametrize(("count", "start"), [(1, "1 backend is refused"), (2, "2 backends are refused")])
def test_a_refused_backend_is_an_unresolved_reference(count, start):
    report = Report(lb_key(), quarantined=tuple(held(number) for number in range(1, count + 1)))
    unresolved = conditions(report=report)[T.RESOLVED_REFS]
    assert (unresolved.status, unresolved.reason) == (False, R.QUARANTINED)
    assert unresolved.message == f"{start} by the provider, 10.0.0.1:8080: kept"


def test_only_drift_of_our_own_is_shown():
    assert T.DRIFTED not in conditions(drift=Drift(foreign=("by-hand",)))
    assert conditions(drift=Drift(missing=((HTTP, target("1").key),)))[T.DRIFTED].status


def test_a_load_balancer_that_moves_is_pending_unless_it_has_a_failure_of_its_own():
    waits = conditions(waiting_for="waits for haproxy")[T.PROGRAMMED]
    assert (waits.status, waits.reason, waits.message) == (False, R.PENDING, "waits for haproxy")
    failed = conditions(report=Report(lb_key(), failure="no"), waiting_for="waits for haproxy")[T.PROGRAMMED]
    assert (failed.reason, failed.message) == (R.PROVIDER_FAILED, "no; waits for haproxy")


def test_a_decision_is_one_line():
    text = decision_text(translation(PAUSED), "waits")
    assert text.startswith("provider envoy, backends 2, Accepted=True (Accepted), ")
    assert text.endswith(", waits")
    assert decision_text(Decision(None, ()), "") == "provider none, backends 0"


def test_an_ingress_is_an_address_that_is_proxied_or_a_host_name():
    assert (ingress_of("192.0.2.7").ip, ingress_of("192.0.2.7").ip_mode) == ("192.0.2.7", "Proxy")
    assert (ingress_of("lb.example").hostname, ingress_of("lb.example").ip) == ("lb.example", "")
