"""Names and certificates in ``fairlead status``: what is not published, what has ended, and what ends soon."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fairlead.api.addresspool import AddressPool, AddressPoolStatus
from fairlead.api.hostname import DNSZone, DNSZoneSpec, DNSZoneStatus, Hostname, HostnameSpec, HostnameStatus
from fairlead.api.managedcertificate import ManagedCertificate, ManagedCertificateSpec, ManagedCertificateStatus
from fairlead.api.meta import ObjectMeta
from fairlead.status.fleet import Trouble, pool_faults, pool_rows
from tests.fleet_objects import NOW, condition, fleet_of

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


def test_a_name_without_a_zone_is_not_a_problem_of_the_hub() -> None:
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
        (timedelta(days=3), 0, "certificate for web.example.com: expires at 2030-01-04 00:00 UTC", Trouble.ATTENTION),
        (timedelta(hours=-1), 9, "certificate for web.example.com: expired at 2029-12-31", Trouble.NOT_SERVING),
        (None, 2, "certificate for web.example.com: not issued yet", Trouble.ATTENTION),
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
    ("counts", "note"),
    [
        ({"size": 10, "used": 7, "free": 3}, ""),
        ({"size": 10, "used": 8, "free": 2}, "AlmostFull"),
        ({"size": 10, "used": 7, "reserved": 1, "free": 2}, "AlmostFull"),
        ({"size": 10, "used": 9, "reserved": 1}, "Full"),
        ({"size": 100, "used": 4, "free": 96, "free_ipv4": 0, "free_ipv6": 96}, "Full"),
        ({}, ""),
    ],
)
def test_a_full_pool_is_a_problem_only_while_a_load_balancer_waits(counts: dict[str, Any], note: str) -> None:
    pool = AddressPool(metadata=ObjectMeta(name="edge"), status=AddressPoolStatus(**counts))
    fleet = fleet_of(pools=[pool])
    assert ([row.note for row in fleet.pools], fleet.healthy) == ([note], True)
    (problem, *_) = [*pool_faults([pool], fleet.pools, waiting=True), None]
    assert (problem.reason if problem is not None else "") == ("AddressPoolExhausted" if note == "Full" else "")


@pytest.mark.req("X-46")
@pytest.mark.parametrize(
    ("pool", "used", "note"),
    [
        ("192.0.2.0/28", 2, ""),
        ("192.0.2.1-192.0.2.2", 2, "Full"),
        ("192.0.2.1-192.0.2.2,2001:db8::/64", 2, "Full"),
        ("198.51.100.0/24", 0, ""),
    ],
)
def test_the_own_pool_counts_the_addresses_of_all_load_balancers(pool: str, used: int, note: str) -> None:
    (row,) = pool_rows((), pool, ["192.0.2.1", "192.0.2.1", "192.0.2.2", "lb.example.com"])
    assert (row.name, row.used, row.note) == ("--address-pool", used, note)
