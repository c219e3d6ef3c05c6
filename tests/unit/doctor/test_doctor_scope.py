"""Which object a finding is about: what -n, -l and -o name make of findings."""

from __future__ import annotations

import pytest
from doctor_facts import healthy

from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.doctor.checks import scoped, verb_names
from fairlead.doctor.facts import error
from fairlead.status.object_ref import parse_object_ref

LB, LEASE, SERVICE = (
    "TCPLoadBalancer/tenant-east/default.web",
    "Lease/fairlead-system/fairlead-hub",
    "Service/default/web",
)


@pytest.mark.parametrize(
    ("namespace", "label", "kept"),
    [
        ("tenant-east", "", [LB]),
        ("default", "", [LB, SERVICE]),
        ("fairlead-system", "", [LEASE]),
        ("none", "", []),
        ("", "app", [LB]),
        ("fairlead-system", "app", []),
    ],
)
def test_findings_of_a_namespace_or_with_labels(namespace: str, label: str, kept: list[str]) -> None:
    facts = healthy()
    for side in facts.sides:
        for kind, objects in side.objects.items():
            for each in objects:
                each["kind"] = {"leases.coordination.k8s.io": "Lease", "services": "Service"}.get(kind, "Other")
    assert facts.hub is not None
    (lb,) = facts.hub.objects[TCP_LOAD_BALANCERS.full_name]
    lb |= {"kind": "TCPLoadBalancer"}
    lb["spec"]["origin"] = {"namespace": "default", "name": "web"}
    lb["metadata"]["labels"] = {"app": "web"}
    findings = [error(path, "it is bad", "make it good") for path in (LB, LEASE, SERVICE, "member https://x")]
    matches = (lambda labels: label in (labels or {})) if label else None
    assert [each.object for each in scoped(facts, findings, namespace=namespace, matches=matches)] == kept


def test_names_are_those_that_verbs_take() -> None:
    paths = (
        LB,
        LB,
        LEASE,
        SERVICE,
        "LoadBalancerClass/edge",
        "Tenant/east",
        "Hostname/s/shop",
        "member https://x",
        "Ingress/d/i",
    )
    names = verb_names(error(path, "it is bad", "make it good") for path in paths)
    assert names == [
        "tcplb/tenant-east/default.web", "svc/default/web", "class/edge", "tenant/east", "hostname/s/shop",
        "ingress/d/i",
    ]  # fmt: skip
    for name in names:
        if not name.startswith("tenant/"):  # tenant remove and rotate take that
            assert parse_object_ref(name, sharing=True).path == name
