"""Faults of certificates that the hub gets itself, and of their issuers, planted one by one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from doctor_facts import NOW, obj, only, with_more

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS, MANAGED_CERTIFICATES
from fairlead.api.times import wire_time
from fairlead.doctor.checks import examine
from fairlead.doctor.facts import Expiry, Facts

SERVES = {
    "conditions": [{"type": kind, "status": "True", "reason": kind} for kind in ("Accepted", "Programmed", "Serving")]
}
pytestmark = pytest.mark.req("OP-5", "K-53")


def certificate(**status: Any) -> Facts:
    spec = {"hosts": ["a.example.com"], "issuer": "le"}
    return with_more("hub", MANAGED_CERTIFICATES, obj("acme.a", "tenant-east", spec=spec, status=status))


def ends(days: float, **status: Any) -> Facts:
    return certificate(digest="d", notAfter=wire_time(NOW + timedelta(days=days)), **status)


def conditions(kind: str, message: str) -> list[dict[str, str]]:
    status = "False" if kind in {"Ready", "Accepted"} else "True"
    return [{"type": kind, "status": status, "reason": "AuthorityRefused", "message": message}]


def test_a_certificate_that_ends_soon_says_why_there_is_no_newer_one() -> None:
    finding = only(ends(5, conditions=conditions("Stale", "a CAA record forbids it")), "certificates")
    assert (finding.severity.value, finding.object) == ("warning", "ManagedCertificate/tenant-east/acme.a")
    assert "expires at 2030-01-06 00:00 UTC: a CAA record forbids it" in finding.fault
    assert finding.fix == "kubectl describe mcert -n tenant-east acme.a"


def test_a_certificate_that_has_ended_is_an_error() -> None:
    finding = only(ends(-1), "certificates")
    assert finding.severity.value == "error"
    assert "expired at" in finding.fault


def test_a_certificate_that_could_not_be_had_is_an_error() -> None:
    finding = only(certificate(failures=3, conditions=conditions("Ready", "its limit is reached")), "certificates")
    assert (finding.severity.value, "its limit is reached" in finding.fault) == ("error", True)


@pytest.mark.parametrize("facts", [ends(60), certificate()], ids=["lasts", "ordered"])
def test_a_valid_or_ordered_certificate_is_not_a_fault(facts: Facts) -> None:
    assert examine(facts) == []


def test_an_object_of_another_version_is_reported_as_unchecked() -> None:
    finding = only(certificate(digest=7), "unread")
    assert (finding.severity.value, finding.object) == ("unknown", "ManagedCertificate/tenant-east/acme.a")


@pytest.mark.req("L7-13")
@pytest.mark.parametrize(
    ("host", "names", "secrets", "refused"),
    [
        ("a.test", ["b.test"], ["one"], True),
        ("a.test", [], ["one"], True),
        ("a.test", ["*.a.test"], ["one"], True),
        ("x.y.test", ["*.test"], ["one"], True),
        ("a.test", ["a.test", "b.test"], ["one"], False),
        ("x.a.test", ["*.a.test"], ["one"], False),
        ("*.a.test", ["x.a.test"], ["one"], False),
        ("*.a.test", ["a.test"], ["one"], True),
        ("", ["b.test"], ["one"], False),
        ("a.test", ["b.test"], ["one", "not-read"], False),
    ],
)
def test_a_listener_whose_certificate_is_for_other_names(
    host: str, names: list[str], secrets: list[str], refused: bool
) -> None:
    listener = {"name": "https", "port": 443, "protocol": "HTTPS", "hostname": host, "certificates": secrets}
    lb = obj("web", "tenant-east", spec={"listeners": [listener]}, status=SERVES)
    facts = with_more("hub", HTTP_LOAD_BALANCERS, lb)
    assert facts.hub is not None
    ending = Expiry("certificate", "Secret/tenant-east/one", NOW + timedelta(days=60), "", tuple(names))
    facts = msgspec.structs.replace(facts, hub=msgspec.structs.replace(facts.hub, endings=(ending,)))
    if not refused:
        assert examine(facts) == []
        return
    finding = only(facts, "certificate-names")
    assert (finding.severity.value, finding.object) == ("error", "HTTPLoadBalancer/tenant-east/web")
    assert f"is valid for {host}," in finding.fault


def test_an_issuer_without_an_account_is_an_error() -> None:
    spec = {"server": "https://acme.example.com/directory"}
    issuer = obj("le", spec=spec, status={"conditions": conditions("Accepted", "the account is deactivated")})
    finding = only(with_more("hub", CERTIFICATE_ISSUERS, issuer), "issuers")
    assert (finding.severity.value, finding.object) == ("error", "CertificateIssuer/le")
    assert (finding.fault, finding.fix) == ("the account is deactivated", "kubectl edit certissuer le")
