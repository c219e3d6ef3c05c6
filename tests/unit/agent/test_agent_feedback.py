"""What the Service shows: whose status is written, what is taken away, which Events there are."""

from __future__ import annotations

import msgspec
import pytest
from agent_builders import HUB_NAMESPACE, TENANT, service

from fairlead.agent.sources.service.plan import NotOurs, Ours, Scenario, ServiceView, Settings, build_export
from fairlead.agent.sources.service.status import build_feedback, wanted_ingress
from fairlead.api.kubernetes import SERVICES, Ingress
from fairlead.kube.events import EventRecorder, EventWriter
from fairlead.model.condition import ConditionReason, ObjectEvent
from fairlead.publish.objects import Publication, Refused, object_from_ingress, same_ingress
from tests.published import stored_load_balancer

THREE = Ours(Scenario.IMPLEMENTED)
OURS_BY_ANNOTATION = [Ours(Scenario.NODE_PORT), Ours(Scenario.CLOUD)]
SETTINGS = Settings(tenant=TENANT, namespace=HUB_NAMESPACE)
PORTS = [{"port": 80, "protocol": "TCP"}]


def hub_load_balancer(address="192.0.2.1", *, answered=True, conditions=None, generation=1, **status):
    export = build_export(ServiceView(service=service()), THREE, SETTINGS)
    assert isinstance(export, Publication)
    if answered:
        status["observedGeneration"] = generation
        status["conditions"] = conditions or [{"type": "Programmed", "status": "True", "reason": "Programmed"}]
    if address:
        key = "ip" if address[0].isdigit() else "hostname"
        status["address"] = address
        status["loadBalancer"] = {"ingress": [{key: address}]}
    return stored_load_balancer(export.load_balancer, **status)


def shown(address="192.0.2.1", **extra):
    return [{"ip": address, "ipMode": "Proxy", "ports": PORTS, **extra}]


STATUS = [
    # service's ingress, hub's address, written by us, expected addresses (None: left as it is)
    (None, "192.0.2.1", False, ["192.0.2.1"]),
    (shown(), "192.0.2.1", True, None),
    (shown(), "192.0.2.2", True, ["192.0.2.2"]),
    ([{"ip": "192.0.2.1", "ports": PORTS}], "192.0.2.1", True, None),  # an old API server drops ipMode
    (shown(), "", True, []),
    (shown(), "", False, None),
    (None, "", False, None),
    (None, "lb.example.com", False, ["lb.example.com"]),
    ([{"hostname": "lb.example.com", "ports": PORTS}], "lb.example.com", True, None),
]


@pytest.mark.req("K-24", "F-7")
@pytest.mark.req("K-25")
@pytest.mark.req("K-26")
@pytest.mark.req("K-11")
@pytest.mark.req("E-1")
@pytest.mark.parametrize(("ingress", "address", "by_us", "expected"), STATUS)
def test_scenario_3_shows_the_address_in_the_status(ingress, address, by_us, expected):
    feedback = build_feedback(service(ingress=ingress), THREE, hub_load_balancer(address), status_is_ours=by_us)
    assert feedback.annotation is None
    if expected is None:
        assert feedback.ingress is None
    else:
        assert [each.address for each in feedback.ingress] == expected
    assert bool(feedback.serving) == bool(address)


@pytest.mark.req("K-24", "F-7")
def test_the_status_reports_that_traffic_comes_from_a_proxy():
    (given,) = wanted_ingress(hub_load_balancer())
    assert object_from_ingress(given) == {"ip": "192.0.2.1", "ipMode": "Proxy", "ports": PORTS}
    (name,) = wanted_ingress(hub_load_balancer("lb.example.com"))
    assert "ipMode" not in object_from_ingress(name)
    (same,) = wanted_ingress(msgspec.structs.replace(hub_load_balancer(), status=hub_status_with_address_only()))
    assert same == given


def hub_status_with_address_only():
    status = hub_load_balancer().status
    return msgspec.structs.replace(status, load_balancer=msgspec.structs.replace(status.load_balancer, ingress=None))


@pytest.mark.req("K-19")
@pytest.mark.req("K-21")
@pytest.mark.req("K-22")
@pytest.mark.parametrize("ours", OURS_BY_ANNOTATION)
def test_scenarios_1_and_2_show_it_in_an_annotation_only(ours):
    foreign = [{"ip": "203.0.113.7"}]
    feedback = build_feedback(service(ingress=foreign), ours, hub_load_balancer(), status_is_ours=False)
    assert (feedback.ingress, feedback.annotation) == (None, "192.0.2.1")
    noted = service(ingress=foreign, annotations={"fairlead.dev/address": "192.0.2.1"})
    again = build_feedback(noted, ours, hub_load_balancer(), status_is_ours=False)
    assert (again.ingress, again.annotation) == (None, None)
    lost = build_feedback(noted, ours, hub_load_balancer(""), status_is_ours=False)
    assert (lost.ingress, lost.annotation, lost.serving) == (None, "", None)


SILENT = [None, hub_load_balancer("", answered=False), hub_load_balancer(answered=False)]


@pytest.mark.req("I-6")
@pytest.mark.req("I-1")
@pytest.mark.req("KI-7")
@pytest.mark.parametrize("hub", SILENT)
@pytest.mark.parametrize("ours", [THREE, *OURS_BY_ANNOTATION])
def test_a_hub_that_has_not_spoken_takes_nothing_away(hub, ours):
    given = service(ingress=shown(), annotations={"fairlead.dev/address": "192.0.2.1"})
    feedback = build_feedback(given, ours, hub, status_is_ours=True)
    assert (feedback.ingress, feedback.annotation) == (None, None)


@pytest.mark.req("I-1")
def test_a_load_balancer_that_is_going_takes_nothing_away():
    hub = hub_load_balancer("")
    going = msgspec.structs.replace(hub.metadata, deletion_timestamp="2030-01-01T00:00:00Z")
    hub = msgspec.structs.replace(hub, metadata=going)
    assert build_feedback(service(ingress=shown()), THREE, hub, status_is_ours=True).ingress is None


NOT_OURS = NotOurs("x")
REFUSED = Refused(ConditionReason.UNSUPPORTED_SERVICE, "x", keep=False)
KEPT = Refused(ConditionReason.INVALID, "x", keep=True)
WITHDRAW = [
    # decision, written by us, address annotation, (ingress taken, annotation)
    (NOT_OURS, True, False, ((), None)),
    (NOT_OURS, False, False, (None, None)),
    (NOT_OURS, False, True, (None, "")),
    (REFUSED, True, True, ((), "")),
    (KEPT, True, True, (None, None)),
]


@pytest.mark.req("K-20")
@pytest.mark.req("K-22")
@pytest.mark.req("K-27")
@pytest.mark.req("KI-2")
@pytest.mark.req("I-4")
@pytest.mark.parametrize("hub", [None, hub_load_balancer()])
@pytest.mark.parametrize(("decision", "by_us", "annotated", "expected"), WITHDRAW)
def test_only_what_we_wrote_is_taken_away(decision, by_us, annotated, expected, hub):
    annotations = {"fairlead.dev/address": "192.0.2.1"} if annotated else None
    given = service(ingress=[{"ip": "203.0.113.7"}], annotations=annotations)
    feedback = build_feedback(given, decision, hub, status_is_ours=by_us)
    assert (feedback.ingress, feedback.annotation) == expected


@pytest.mark.req("B20")
@pytest.mark.req("L4-6")
def test_a_service_that_is_going_shows_its_address_until_its_load_balancer_is_gone():
    given = service(ingress=shown(), deleting=True, annotations={"fairlead.dev/address": "192.0.2.1"})
    still_there = build_feedback(given, NOT_OURS, hub_load_balancer(), status_is_ours=True)
    assert (still_there.ingress, still_there.annotation) == (None, None)
    gone = build_feedback(given, NOT_OURS, None, status_is_ours=True)
    assert (gone.ingress, gone.annotation) == ((), "")
    assert build_feedback(given, NOT_OURS, None, status_is_ours=False).ingress is None


@pytest.mark.req("L4-9")
def test_the_answer_to_an_earlier_service_of_the_name_is_not_shown():
    answered = hub_load_balancer()
    spec = msgspec.structs.replace(answered.spec, origin=msgspec.structs.replace(answered.spec.origin, uid="earlier"))
    earlier = msgspec.structs.replace(answered, spec=spec)
    assert build_feedback(service(), THREE, earlier, status_is_ours=False).ingress is None
    assert build_feedback(service(), THREE, answered, status_is_ours=False).ingress is not None


CONDITIONS = [
    ([{"type": "Accepted", "status": "False", "reason": "Invalid", "message": "m"}], [("Invalid", "m")]),
    ([{"type": "Programmed", "status": "False", "reason": "PortConflict", "message": "m"}], [("PortConflict", "m")]),
    ([{"type": "Programmed", "status": "False", "reason": "Pending", "message": "m"}], []),
    ([{"type": "Programmed", "status": "True", "reason": "Programmed"}], []),
    ([{"type": "ResolvedRefs", "status": "False", "reason": "BackendNotFound", "message": "m"}], []),
    (
        [{"type": "ResolvedRefs", "status": "False", "reason": "UnsupportedAddressFamily", "message": "m"}],
        [("UnsupportedAddressFamily", "m")],
    ),
    ([{"type": "ResolvedRefs", "status": "False", "reason": "Invalid", "message": "m"}], [("Invalid", "m")]),
    ([{"type": "Guarded", "status": "True", "reason": "RemovalsHeld", "message": "m"}], [("RemovalsHeld", "m")]),
    ([{"type": "Guarded", "status": "False", "reason": "RemovalsHeld", "message": "m"}], []),
    (
        [
            {"type": "Accepted", "status": "False", "reason": "QuotaExceeded", "message": "m"},
            {"type": "Programmed", "status": "False", "reason": "QuotaExceeded", "message": "m"},
        ],
        [("QuotaExceeded", "m")],
    ),
]


@pytest.mark.req("KI-10")
@pytest.mark.parametrize(("conditions", "expected"), CONDITIONS)
def test_what_the_hub_refuses_is_an_event(conditions, expected):
    feedback = build_feedback(service(), THREE, hub_load_balancer("", conditions=conditions), status_is_ours=False)
    assert [(note.reason, note.message) for note in feedback.problems] == expected
    assert all(note.warning for note in feedback.problems)


@pytest.mark.req("KI-10")
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("fairlead.dev/glod", "m. Did you mean 'gold'? The field cannot be changed: to name another class, create"),
        ("fairlead.dev/tin", "m. The field cannot be changed: to name another class, create the Service again"),
        (None, "m"),
    ],
)
def test_a_class_that_is_not_there_names_the_one_that_is_near_and_the_way_to_it(asked, expected):
    refused = [condition(kind, "False", "NoSuchClass") for kind in ("Accepted", "Programmed")]
    hub = hub_load_balancer("", conditions=refused)
    asking = service(loadBalancerClass=asked)
    (event,) = build_feedback(asking, THREE, hub, status_is_ours=False, classes=["envoy", "gold"]).problems  # said once
    assert event.message.startswith(expected)
    assert asked is not None or event.message == expected


@pytest.mark.req("F-7")
def test_ingress_is_compared_by_what_it_means():
    mine = (Ingress(ip="192.0.2.1", ip_mode="Proxy"),)
    assert same_ingress(mine, [Ingress(ip="192.0.2.1")])
    assert same_ingress((), [])
    assert not same_ingress(mine, [Ingress(ip="192.0.2.1", ip_mode="VIP")])
    assert not same_ingress(mine, [Ingress(ip="192.0.2.2")])
    assert not same_ingress(mine, [])


@pytest.mark.req("S-11")
@pytest.mark.parametrize(
    "entry",
    [{"ip": "not-an-ip; rm"}, {"ip": "0.0.0.0"}, {"ip": "192.0.2.1\n"}, {"ip": "224.0.0.1"}, {"ip": "fe80::1%eth0"},
     {"hostname": "a b"}, {"hostname": "127.1"}, {"hostname": "x\u001b[2J"}, {"hostname": "-a"}, {},
     {"ip": "192.0.2.1", "hostname": "a"}],
)  # fmt: skip
@pytest.mark.parametrize("by_us", [True, False])
def test_an_invalid_address_from_the_hub_changes_nothing_and_is_reported(entry, by_us):
    lying = msgspec.structs.replace(hub_load_balancer(), status=hub_status_with(entry))
    feedback = build_feedback(service(ingress=shown()), THREE, lying, status_is_ours=by_us)
    assert (feedback.ingress, feedback.annotation, feedback.serving) == (None, None, None)
    (event,) = feedback.problems
    assert event.warning
    assert event.reason == "AddressNotUsable"
    assert "it is ignored" in event.message
    assert event.message.isprintable()


def hub_status_with(entry):
    body = {"observedGeneration": 1, "loadBalancer": {"ingress": [entry]}}
    return msgspec.convert(body, type(hub_load_balancer().status))


def condition(kind, status, reason):
    return {"type": kind, "status": status, "reason": reason, "message": "m"}


PROGRAMMED = condition("Programmed", "True", "Programmed")


@pytest.mark.req("X-1", "X-2")
@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([PROGRAMMED, condition("Serving", "True", "Serving")], (False, "EnsuredLoadBalancer", "answers at 192.0.2.1")),
        ([PROGRAMMED, condition("Serving", "Unknown", "NotChecked")], (False, "EnsuredLoadBalancer", "is not checked")),
        ([PROGRAMMED], (False, "EnsuredLoadBalancer", "has the address 192.0.2.1")),
        (
            [PROGRAMMED, condition("Serving", "False", "NoTargets")],
            (True, "NoTargets", "and no target: connections fail until a pod or node takes traffic; no node of the"),
        ),
        ([PROGRAMMED, condition("Serving", "False", "NoHealthyTargets")], (True, "ServingStopped", "connections fail")),
        (
            [PROGRAMMED, condition("Serving", "False", "UnreachableFromSomeProxies")],
            (True, "ServingStopped", "Some connections"),
        ),
        ([PROGRAMMED, condition("Serving", "False", "Flapping")], (True, "ServingStopped", "again and again")),
        (
            [condition("Programmed", "False", "RoutesRefused"), condition("Serving", "True", "Serving")],
            (False, "EnsuredLoadBalancer", "answers at 192.0.2.1"),
        ),
        (
            [condition("Programmed", "False", "RoutesRefused"), condition("Serving", "False", "RoutesRefused")],
            (True, "ServingStopped", "none of its routes"),
        ),
        ([PROGRAMMED, condition("Serving", "Unknown", "WaitingForFirstCheck")], None),
        ([condition("Programmed", "False", "Pending"), condition("Serving", "Unknown", "NotChecked")], None),
    ],
)
def test_only_what_was_seen_to_serve_answers(conditions, expected):
    hub = hub_load_balancer(conditions=conditions)
    said = build_feedback(service(ingress=shown()), THREE, hub, status_is_ours=True).serving
    if expected is None:
        assert said is None
    else:
        warning, reason, text = expected
        assert (said.warning, said.reason) == (warning, reason)
        assert text in said.message
        assert ("answers" in said.message) == (reason == "EnsuredLoadBalancer" and "answers" in text)


class _Recorder(EventRecorder):
    def __init__(self):
        self.emitted = []
        self._earlier = {}

    def emit_about(self, resource, obj, *, warning, reason, message, source=""):
        self.emitted.append((warning, reason, message))


@pytest.mark.req("X-2")
def test_an_agent_that_starts_again_repeats_bad_news_and_no_good_news():
    given = service(ingress=shown())
    good, bad = ObjectEvent(False, "EnsuredLoadBalancer", "answers"), ObjectEvent(True, "ServingStopped", "fail")

    def emitted(*steps, expected=False):
        recorder = _Recorder()
        events = EventWriter(recorder=recorder, resource=SERVICES)
        if expected:
            events.expect("serving", given)
        for step in steps:
            events.emit_change("serving", given, step)
        return [reason for _, reason, _ in recorder.emitted]

    assert emitted(good) == []
    assert emitted(good, good, expected=True) == ["EnsuredLoadBalancer"]
    assert emitted(good, bad, bad, good) == ["ServingStopped", "EnsuredLoadBalancer"]
    assert emitted(bad) == ["ServingStopped"]


@pytest.mark.req("K-49")
def test_the_name_that_the_hub_made_is_an_annotation_and_goes_with_it():
    hub = hub_load_balancer(names={"hostname": "web-shop-svc.east.lb.example.com"})
    assert build_feedback(service(), THREE, hub, status_is_ours=False).names == "web-shop-svc.east.lb.example.com"
    named = service(annotations={"fairlead.dev/generated-hostname": "web-shop-svc.east.lb.example.com"})
    assert build_feedback(named, THREE, hub, status_is_ours=False).names is None
    assert build_feedback(named, THREE, hub_load_balancer(), status_is_ours=False).names == ""
    assert build_feedback(named, NotOurs("none of ours"), None, status_is_ours=False).names == ""


@pytest.mark.req("KI-9", "KI-10")
def test_a_host_name_that_is_taken_is_an_event_and_the_address_stays():
    refused = {"type": "HostnamesAccepted", "status": "False", "reason": "HostnameTaken", "message": "it is taken"}
    feedback = build_feedback(
        service(), THREE, hub_load_balancer(names={"conditions": [refused]}), status_is_ours=False
    )
    assert feedback.problems == (ObjectEvent(True, "HostnameTaken", "it is taken"),)
    away = {"type": "HostnamesPublished", "status": "False", "reason": "HostnameNotPublished", "message": "no answer"}
    both = hub_load_balancer(names={"conditions": [refused, away]})
    reasons = [each.reason for each in build_feedback(service(), THREE, both, status_is_ours=False).problems]
    assert reasons == ["HostnameNotPublished", "HostnameTaken"]
    assert [each.address for each in feedback.ingress or ()] == ["192.0.2.1"]
