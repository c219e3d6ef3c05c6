"""Faults of kubeconfigs, clocks and versions, planted one by one."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from doctor_facts import NOW, obj, only, with_fields

from fairlead.api.kubernetes import LEASES
from fairlead.api.names import AGENT_LEASE, ANNOTATION_REFUSED
from fairlead.doctor.checks import examine
from fairlead.doctor.facts import ApiFacts, Expiry

pytestmark = pytest.mark.req("OP-5")


def test_an_api_that_does_not_answer() -> None:
    facts = with_fields("machine")
    down = ApiFacts(
        name="hub", server="https://hub", flags="--kubeconfig /k/hub --context c", error="refused the connection"
    )
    finding = only(msgspec.structs.replace(facts, hub=down), "unreachable")
    assert (finding.object, finding.fault) == ("hub https://hub", "refused the connection")
    assert finding.fix == "kubectl --kubeconfig /k/hub --context c get --raw /readyz"


def test_the_key_of_a_tenant_in_place_of_an_administrators() -> None:
    finding = only(with_fields("member", key_of="east"), "swapped")
    assert "tenant east" in finding.fault
    assert "--member-kubeconfig" in finding.fix


def test_one_cluster_under_two_addresses() -> None:
    assert "one cluster" in only(with_fields("member", uid="uid-hub"), "swapped").fault


def test_an_old_kubernetes() -> None:
    assert "v1.24.3" in only(with_fields("member", version="v1.24.3"), "kubernetes-version").fault


@pytest.mark.parametrize(("ahead_s", "way"), [(120.0, "120 s ahead of"), (-45.0, "45 s behind")])
def test_a_clock_that_is_wrong(ahead_s: float, way: str) -> None:
    finding = only(with_fields("hub", ahead_s=ahead_s), "clocks")
    assert way in finding.fault
    assert "timedatectl" in finding.fix


@pytest.mark.parametrize(("days", "severity", "word"), [(-1, "error", "expired at"), (3, "warning", "expires at")])
@pytest.mark.parametrize("what", ["token", "certificate"])
def test_a_token_or_certificate_that_ends(what: str, days: int, severity: str, word: str) -> None:
    ending = Expiry(what, "Secret/fairlead-system/x", NOW + timedelta(days=days), "make another")
    finding = only(with_fields("hub", endings=(ending,)), "endings")
    assert (finding.severity.value, finding.object, finding.fix) == (severity, ending.where, "make another")
    assert f"{what} {word}" in finding.fault


@pytest.mark.req("X-41")
@pytest.mark.parametrize("namespace", ["tenant-east", "tenant-west"])
def test_a_certificate_that_an_agent_reported_as_expired_is_named_once(namespace: str) -> None:
    ended = NOW - timedelta(days=1)
    text = f"Secret cert: the certificate expired at {ended:%Y-%m-%d %H:%M} UTC, so clients refuse it; renew it"
    refused = msgspec.json.encode({"Ingress/shop/web": text}).decode()
    lease = obj(AGENT_LEASE, "tenant-east", metadata={"annotations": {ANNOTATION_REFUSED: refused}})
    facts = with_fields("hub", endings=(Expiry("certificate", f"Secret/{namespace}/x", ended, "renew it there"),))
    assert facts.hub is not None
    facts.hub.objects[LEASES.full_name] = [lease]
    assert [each.object for each in examine(facts) if each.check == "endings"] == (
        [] if namespace == "tenant-east" else ["Secret/tenant-west/x"]
    )


def test_a_key_that_others_may_read() -> None:
    finding = only(with_fields("machine", open_kubeconfigs=("/home/me/kubeconfig",)), "kubeconfig-mode")
    assert finding.fix == "chmod 600 /home/me/kubeconfig"


def test_unreadable_kinds_are_reported() -> None:
    finding = only(with_fields("hub", unread={"secrets": "you may not list secrets"}), "unread")
    assert (finding.severity.value, finding.object) == ("unknown", "hub: secrets")
