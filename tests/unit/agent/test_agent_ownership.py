"""Whose a Service is: the decision table, row by row."""

from __future__ import annotations

import pytest
from agent_builders import service
from hypothesis import given
from hypothesis import strategies as st

from fairlead.agent.sources.service.plan import Decision, NotOurs, Ours, Scenario, decide
from fairlead.agent.sources.service.source import find_warnings
from fairlead.publish.objects import Refused

KUBELB = {"kubernetes.io/service.class": "kubelb"}
FAIRLEAD = {"kubernetes.io/service.class": "fairlead"}
OTHER = {"kubernetes.io/service.class": "metal"}
OURS = {"loadBalancerClass": "fairlead.dev/edge"}
ANOTHER = {"loadBalancerClass": "metallb.io/metallb"}
MANAGED = {"app.kubernetes.io/managed-by": "fairlead"}


def short(decision: Decision) -> str:
    match decision:
        case Ours(scenario, class_name):
            return f"{int(scenario)}" + (f":{class_name}" if class_name else "")
        case Refused(reason, _, keep):
            return f"refused {reason}" + (" keep" if keep else "")
        case NotOurs():
            return "not ours"


NODE_PORT = [
    # annotations, extra, cloud, decision
    ({}, {}, "absent", "not ours"),
    ({}, {}, "present", "not ours"),
    (OTHER, {}, "absent", "not ours"),
    (KUBELB, {}, "absent", "1"),
    (KUBELB, {}, "present", "1"),
    (FAIRLEAD, {}, "absent", "1"),
]


@pytest.mark.req("K-13")
@pytest.mark.req("K-19")
@pytest.mark.req("K-20")
@pytest.mark.parametrize(("annotations", "extra", "cloud", "expected"), NODE_PORT)
def test_a_node_port_service(annotations, extra, cloud, expected):
    assert short(decide(service(kind="NodePort", annotations=annotations, **extra), cloud=cloud)) == expected


LOAD_BALANCER = [
    ({}, {}, "absent", "3"),
    (KUBELB, {}, "absent", "3"),
    (OTHER, {}, "absent", "3"),
    ({}, {}, "present", "not ours"),
    (OTHER, {}, "present", "not ours"),
    (KUBELB, {}, "present", "2"),
    (FAIRLEAD, {}, "present", "2"),
    ({}, OURS, "absent", "3:edge"),
    ({}, OURS, "present", "3:edge"),
    (KUBELB, OURS, "present", "3:edge"),
    ({}, ANOTHER, "absent", "not ours"),
    ({}, ANOTHER, "present", "not ours"),
    (KUBELB, ANOTHER, "absent", "not ours"),
    (KUBELB, ANOTHER, "present", "not ours"),
    ({}, {"loadBalancerClass": "fairlead.dev/"}, "absent", "refused Invalid keep"),
    ({}, {"loadBalancerClass": "fairlead.devil/x"}, "absent", "not ours"),
    ({}, {"clusterIP": "None"}, "absent", "not ours"),
    (KUBELB, {"clusterIP": "None"}, "absent", "refused UnsupportedService"),
    ({}, {"ipFamilies": ["IPv6"]}, "absent", "3"),
    ({}, {"ipFamilies": ["IPv6", "IPv4"]}, "absent", "3"),
    ({}, {"ipFamilies": ["IPv6"]}, "present", "not ours"),
]


@pytest.mark.req("K-13")
@pytest.mark.req("K-21")
@pytest.mark.req("K-22")
@pytest.mark.req("K-23")
@pytest.mark.req("K-27")
@pytest.mark.req("K-59")
@pytest.mark.req("B30")
@pytest.mark.parametrize(("annotations", "extra", "cloud", "expected"), LOAD_BALANCER)
def test_a_load_balancer_service(annotations, extra, cloud, expected):
    assert short(decide(service(annotations=annotations, **extra), cloud=cloud)) == expected


UNSUPPORTED = [
    ("ClusterIP", {}, {}, "not ours"),
    ("ClusterIP", KUBELB, {}, "refused UnsupportedService"),
    ("ClusterIP", {}, OURS, "refused UnsupportedService"),
    ("ClusterIP", {}, {"clusterIP": "None"}, "not ours"),
    ("ClusterIP", KUBELB, {"clusterIP": "None"}, "refused UnsupportedService"),
    ("ExternalName", {}, {"externalName": "example.com"}, "not ours"),
    ("ExternalName", FAIRLEAD, {"externalName": "example.com"}, "refused UnsupportedService"),
    ("Later", KUBELB, {}, "not ours"),
]


@pytest.mark.req("E-7")
@pytest.mark.req("KI-10")
@pytest.mark.req("KI-11")
@pytest.mark.parametrize("cloud", ["absent", "present"])
@pytest.mark.parametrize(("kind", "annotations", "extra", "expected"), UNSUPPORTED)
def test_a_service_that_cannot_have_one(kind, annotations, extra, expected, cloud):
    assert short(decide(service(kind=kind, annotations=annotations, **extra), cloud=cloud)) == expected


@pytest.mark.req("KI-12")
@pytest.mark.req("K-20")
@pytest.mark.parametrize("cloud", ["absent", "present"])
@pytest.mark.parametrize("kind", ["LoadBalancer", "NodePort", "ClusterIP", "ExternalName"])
@pytest.mark.parametrize("what", [{"labels": MANAGED}, {"deleting": True}])
def test_our_own_and_deleting_ones_are_never_exported(kind, cloud, what):
    assert short(decide(service(kind=kind, annotations=KUBELB, **what), cloud=cloud)) == "not ours"


WARNINGS = [
    # annotations, spec, expected part of a sentence ("" for none)
    ({}, {}, ""),
    (KUBELB, {}, ""),
    (OTHER, {}, ""),
    ({"kubernetes.io/service.class": "KubeLB"}, {}, "Did you mean 'kubelb'"),
    ({"kubernetes.io/service.class": "failread"}, {}, "Did you mean 'fairlead'"),
    ({"fairlead.dev/proxy-protocl": "v2"}, {}, "Did you mean 'fairlead.dev/proxy-protocol'"),
    ({"fairlead.dev/adress-request": "10.0.0.1"}, {}, "Did you mean 'fairlead.dev/address-request'"),
    ({"fairlead.dev/expose": "true"}, {}, "'fairlead.dev/expose' has no meaning on a Service."),
    ({"kubernetes.io/service-class": "kubelb"}, {}, "Did you mean 'kubernetes.io/service.class'"),
    ({"kubernetes.io/service-account.name": "x"}, {}, ""),
    ({"fairlead.dev/address": "10.0.0.1"}, {}, ""),
    ({}, {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}}, ""),
    ({}, {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}, "60 cannot"),
    ({}, {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}, ""),
    ({}, {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]}, ""),
    ({}, {"sessionAffinity": "None", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}, ""),
]


@pytest.mark.req("KI-10", "X-21")
@pytest.mark.parametrize(("annotations", "spec", "expected"), WARNINGS)
def test_warnings(annotations, spec, expected):
    web = service(annotations=annotations, **spec)
    warnings = find_warnings(web, decide(web, cloud="absent"))
    assert bool(warnings) == bool(expected)
    assert all(expected in warning.message for warning in warnings)
    assert all(("Did you mean" in warning.message) == ("Did you mean" in expected) for warning in warnings)


@given(
    kind=st.sampled_from(["LoadBalancer", "NodePort", "ClusterIP", "ExternalName"]),
    annotation=st.sampled_from([{}, KUBELB, FAIRLEAD, OTHER]),
    extra=st.sampled_from([{}, OURS, ANOTHER, {"clusterIP": "None"}, {"ipFamilies": ["IPv6"]}]),
    cloud=st.sampled_from(["present", "absent"]),
)
@pytest.mark.req("K-22")
@pytest.mark.req("K-27")
def test_a_cloud_s_status_is_never_ours_to_write(kind, annotation, extra, cloud):
    """Where the cloud has its own implementation, only our class makes a status ours."""
    decision = decide(service(kind=kind, annotations=annotation, **extra), cloud=cloud)
    if cloud == "present" and extra is not OURS:
        assert not (isinstance(decision, Ours) and decision.scenario is Scenario.IMPLEMENTED)
    if extra is ANOTHER:
        assert isinstance(decision, NotOurs)
