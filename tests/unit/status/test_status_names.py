"""Names and certificates in ``fairlead status``: what is not published, what has ended, and what ends soon."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fairlead.api.addresspool import AddressPool, AddressPoolStatus
from fairlead.api.dnszone import DNSZone, DNSZoneSpec, DNSZoneStatus
from fairlead.api.hostname import Hostname, HostnameSpec, HostnameStatus
from fairlead.api.managedcertificate import ManagedCertificate, ManagedCertificateSpec, ManagedCertificateStatus
from fairlead.api.meta import ObjectMeta
from fairlead.status.names import of_pools
from fairlead.status.rows import Trouble
from fairlead.testing.fleet_objects import NOW, condition, fleet_of

REFUSED = condition("Programmed", "False", "ProviderFailed", "the server 192.0.2.53 refuses the key 'hub'")


def hostname(host: str, zone: str, *conditions) -> Hostname:
    return Hostname(
        metadata=ObjectMeta(namespace="fairlead-system", name=host),
        spec=HostnameSpec(host=host),
        status=HostnameStatus(zone=zone, conditions=list(conditions)),
    )


def certificate(name: str, ends_in: timedelta | None, *, failures: int = 0) -> ManagedCertificate:
    ready = condition("Ready", "False", "RateLimited", "the authority takes no new order before noon")
    return ManagedCertificate(
        metadata=ObjectMeta(namespace="tenant-east", name=name),
        spec=ManagedCertificateSpec(hosts=(f"{name}.example.com",)),
        status=ManagedCertificateStatus(
            digest="" if ends_in is None else "d1",
            not_after="" if ends_in is None else (NOW + ends_in).isoformat(),
            failures=failures,
            conditions=[ready],
        ),
    )


def test_a_name_that_its_zone_does_not_publish_needs_attention() -> None:
    good = condition("Programmed", "True", "Programmed")
    fleet = fleet_of(hostnames=[hostname("web.example.com", "edge", REFUSED), hostname("ok.example.com", "edge", good)])
    assert fleet.problems == ["name web.example.com in zone edge: the server 192.0.2.53 refuses the key 'hub'"]
    assert fleet.state is Trouble.ATTENTION


def test_a_name_without_a_zone_is_no_problem_of_the_hub() -> None:
    unheld = condition("Accepted", "False", "NoSuchZone", "no DNSZone holds it")
    fleet = fleet_of(hostnames=[hostname("web.example.com", "", unheld)])
    assert (fleet.healthy, fleet.problems) == (True, [])


def test_a_zone_that_is_refused_is_named() -> None:
    refused = condition("Accepted", "False", "Invalid", "parameters.server is missing")
    zone = DNSZone(
        metadata=ObjectMeta(name="edge"),
        spec=DNSZoneSpec(zone="example.com", provider="rfc2136"),
        status=DNSZoneStatus(conditions=[refused]),
    )
    assert fleet_of(zones=[zone]).problems == ["zone edge: parameters.server is missing"]


@pytest.mark.parametrize(
    ("ends_in", "failures", "problem", "state"),
    [
        (timedelta(days=60), 3, "", Trouble.NONE),
        (timedelta(days=3), 0, "the certificate for web.example.com ends at 2030-01-04 00:00 UTC", Trouble.ATTENTION),
        (timedelta(hours=-1), 9, "the certificate for web.example.com has ended at 2029-12-31", Trouble.NOT_SERVING),
        (None, 2, "there is no certificate for web.example.com yet", Trouble.ATTENTION),
        (None, 0, "", Trouble.NONE),
    ],
    ids=["long", "soon", "ended", "never", "ordered just now"],
)
def test_certificates(ends_in: timedelta | None, failures: int, problem: str, state: Trouble) -> None:
    fleet = fleet_of(certificates=[certificate("web", ends_in, failures=failures)])
    assert fleet.state is state
    assert len(fleet.problems) == bool(problem)
    for sentence in fleet.problems:
        assert sentence.startswith(problem)
        assert sentence.endswith("the authority takes no new order before noon")


@pytest.mark.req("X-46")
@pytest.mark.parametrize(
    ("used", "reserved", "reason"),
    [(7, 0, ""), (8, 0, "AddressPoolAlmostFull"), (7, 1, "AddressPoolAlmostFull"), (9, 1, "AddressPoolExhausted")],
)
def test_a_pool_that_is_almost_used_up_needs_attention(used: int, reserved: int, reason: str) -> None:
    pool = AddressPool(
        metadata=ObjectMeta(name="edge"),
        status=AddressPoolStatus(size=10, used=used, reserved=reserved, free=10 - used - reserved),
    )
    problems = list(of_pools([pool]))
    assert [each.reason for each in problems] == ([reason] if reason else [])
    assert all(f"{used + reserved} of 10" in each.sentence for each in problems)
    one_family = AddressPoolStatus(size=100, used=4, free=96, free_ipv4=0, free_ipv6=96)
    (full,) = of_pools([AddressPool(metadata=ObjectMeta(name="edge"), status=one_family)])
    assert full.reason == "AddressPoolExhausted"
