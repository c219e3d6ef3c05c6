"""When a certificate is renewed, when a failed order is repeated, and who may have one for a name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fairlead.api.hostname import Hostname, HostnameOwner, HostnameSpec
from fairlead.api.managedcertificate import (
    CertificateIssuer,
    CertificateIssuerSpec,
    ManagedCertificate,
    ManagedCertificateSpec,
    ManagedCertificateStatus,
)
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import LABEL_CHALLENGE
from fairlead.api.tcploadbalancer import Origin
from fairlead.api.tenant import Tenant, TenantSpec
from fairlead.api.times import wire_time
from fairlead.hub.certificates.control import Owners, above_limit, refusal
from fairlead.hub.certificates.order import Window, next_renewal, renewal_time, retry_delay_s, skew_text
from fairlead.hub.inventory import Inventory
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.testing.builders import tenant

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
END = BEGIN + timedelta(days=90)


def test_renewal_is_before_two_thirds_of_the_life_and_spread_by_name():
    times = [renewal_time(BEGIN, END, identity=(str(number),)) for number in range(200)]
    parts = [(each - BEGIN) / (END - BEGIN) for each in times]
    assert min(parts) > 0.61
    assert max(parts) <= 2 / 3
    assert len(set(times)) > 150
    assert renewal_time(BEGIN, END, identity=("a",)) == renewal_time(BEGIN, END, identity=("a",))


def test_the_window_of_the_authority_counts_unless_it_is_too_late():
    early = Window(BEGIN + timedelta(days=1), BEGIN + timedelta(days=2))
    assert early.start <= renewal_time(BEGIN, END, identity=("a",), window=early) <= early.end
    late = Window(END + timedelta(days=1), END + timedelta(days=2))
    assert renewal_time(BEGIN, END, identity=("a",), window=late) < END
    across = Window(END - timedelta(minutes=1), END + timedelta(days=9))
    assert renewal_time(BEGIN, END, identity=("a",), window=across) < END - timedelta(days=4)


@pytest.mark.req("CORE-11")
@pytest.mark.parametrize("ahead_days", [0, 29, 31, 61, 89, 100, 4000])
def test_the_next_order_waits_for_a_third_of_the_life_whatever_the_clock_says(ahead_days: int):
    received = BEGIN + timedelta(days=ahead_days)
    past = Window(BEGIN - timedelta(days=2), BEGIN - timedelta(days=1))
    for window in (None, past):
        due = renewal_time(BEGIN, END, identity=("a",), window=window, issued=received)
        assert due >= received + (END - BEGIN) / 3
    skewed = bool(skew_text(BEGIN, END, received))
    assert skewed == (ahead_days > 30)


@pytest.mark.req("CORE-11")
@pytest.mark.parametrize("ahead_days", [31, 61, 100, 4000])
@pytest.mark.parametrize("after_days", [0, 1, 20])
def test_a_corrected_clock_renews_by_the_times_of_the_certificate(ahead_days: int, after_days: int):
    received = BEGIN + timedelta(days=ahead_days)
    due = renewal_time(BEGIN, END, identity=("a", "b"), issued=received)
    status = ManagedCertificateStatus(
        not_before=wire_time(BEGIN), not_after=wire_time(END), renew_at=wire_time(due), issued_at=wire_time(received)
    )
    obj = ManagedCertificate(metadata=ObjectMeta(namespace="a", name="b"), status=status)
    assert next_renewal(obj, received) == due
    corrected = next_renewal(obj, BEGIN + timedelta(days=after_days))
    assert corrected is not None
    assert corrected <= BEGIN + (END - BEGIN) * 2 / 3


def test_failures_are_retried_with_growing_delays():
    delays = [retry_delay_s(failures, identity=("a",)) for failures in range(1, 20)]
    assert 60 <= delays[0] <= 72
    assert delays[:9] == sorted(delays[:9])
    assert max(delays) <= 6 * 3600 * 1.2
    assert retry_delay_s(1, identity=("a",), retry_after_s=5000) >= 5000
    assert retry_delay_s(1, identity=("a",), rate_limited=True) >= 3600
    assert retry_delay_s(1, identity=("a",), rate_limited=True, retry_after_s=0.0) >= 3600
    assert retry_delay_s(1, identity=("a",), retry_after_s=1e9) == 7 * 24 * 3600


def issuer(**spec) -> CertificateIssuer:
    return CertificateIssuer(metadata=ObjectMeta(name="le"), spec=CertificateIssuerSpec(server="https://acme", **spec))


def asked(*hosts: str) -> ManagedCertificate:
    spec = ManagedCertificateSpec(hosts=hosts, issuer="le")
    return ManagedCertificate(metadata=ObjectMeta(name="c", namespace="tenant-east"), spec=spec)


def granted(_host: str) -> bool:
    return True


@pytest.mark.req("KI-9")
def test_no_member_gets_a_certificate_for_the_name_of_another():
    condition = refusal(asked("a.example"), issuer(), "east", lambda _host: "west", granted)
    assert condition is not None
    assert condition.reason == "NotAllowed"
    assert "west" not in condition.message
    assert refusal(asked("a.example"), issuer(), "west", lambda _host: "west", granted) is None
    # HTTP01 proves by itself whose load balancer a name leads to; the hub's own zone would prove any.
    assert refusal(asked("a.example"), issuer(), "east", lambda _host: None, granted) is None
    for hosts, solvers in ((("*.a.example",), ("HTTP01", "DNS01")), (("a.example",), ("DNS01",))):
        assert refusal(asked(*hosts), issuer(solvers=solvers), "east", lambda _host: None, granted) is not None
        assert refusal(asked(*hosts), issuer(solvers=solvers), "east", lambda _host: "east", granted) is None


def test_a_wildcard_key_is_for_owners_or_named_tenants():
    def refused(host: str, given: bool, **spec) -> str:
        condition = refusal(asked(host), issuer(solvers=("DNS01",), **spec), "east", lambda _: "east", lambda _: given)
        return condition.message if condition is not None else ""

    assert "add example.com to spec.domains of the Tenant" in refused("*.example.com", given=False)
    assert "spec.domains of the Tenant" in refused("*.example.com", given=False, domains=("example.com",))
    assert not refused("*.example.com", given=True)
    assert not refused("*.example.com", given=False, tenants=("east",), domains=("example.com",))
    assert not refused("shop.example.com", given=False)


async def test_the_domains_of_a_tenant_are_its_members_for_certificates_too():
    inventory = Inventory(Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub"))
    inventory.tenants._store.put(Tenant(metadata=ObjectMeta(name="east"), spec=TenantSpec(domains=["example.com"])))
    owners, changes = Owners(inventory), []
    owners.watch(changes.append)
    assert owners.granted_to("tenant-east")("*.org")  # the only member needs no grant
    inventory.tenants._store.put(west := Tenant(metadata=ObjectMeta(name="west")))
    inventory.tenants._notify(None, west)
    assert changes == [""]
    assert owners.granted_to("tenant-east")("*.shop.example.com")
    assert not owners.granted_to("tenant-west")("*.shop.example.com")
    assert not owners.granted_to("tenant-east")("*.com")


async def test_the_owner_of_a_name_is_that_of_its_hostname_or_of_the_star_above_it():
    inventory = Inventory(Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub"))
    owners, changes = Owners(inventory), []
    owners.watch(changes.append)

    def hostname(host: str, member: str, **labels: str) -> Hostname:
        name = host.replace("*", "star")
        spec = HostnameSpec(host=host, owner=HostnameOwner(member=member))
        return Hostname(metadata=ObjectMeta(name=name, namespace="fairlead-system", labels=labels), spec=spec)

    star, exact = hostname("*.example.com", "east"), hostname("a.example.com", "west")
    challenge = hostname("_acme-challenge.b.org", "west", **{LABEL_CHALLENGE: "x"})
    for each in (star, exact, challenge):
        inventory.hostnames._notify(None, each)
    assert owners.of("A.example.com") == "west"
    assert owners.of("b.example.com") == owners.of("x.b.example.com") == owners.of("*.example.com") == "east"
    assert owners.of("example.com") is None
    assert owners.of("_acme-challenge.b.org") is None
    inventory.hostnames._notify(exact, None)
    assert owners.of("a.example.com") == "east"
    assert changes == ["*.example.com", "a.example.com", "a.example.com"]


async def test_the_owner_of_a_name_without_a_hostname_counts_for_certificates():
    inventory = Inventory(Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub"))
    owners = Owners(inventory, {"a.example.com": "west", "*.example.org": "east"}.get)
    assert owners.of("A.example.com") == "west"
    assert owners.of("b.example.org") == "east"
    assert owners.of("b.example.com") is None
    recorded = HostnameSpec(host="a.example.com", owner=HostnameOwner(member="east"))
    owners.watch(lambda _name: None)
    meta = ObjectMeta(name="a.example.com", namespace="fairlead-system")
    inventory.hostnames._notify(None, Hostname(metadata=meta, spec=recorded))
    assert owners.of("a.example.com") == "east", "a record wins"


@pytest.mark.req("F-31", "F-33")
def test_certificates_above_the_limit_wait_and_issued_ones_are_renewed():
    def certificate(name: str, created: int, *, issued: bool = False, namespace: str = "shop") -> ManagedCertificate:
        return ManagedCertificate(
            metadata=ObjectMeta(
                name=name, namespace="tenant-east", creation_timestamp=wire_time(BEGIN + timedelta(created))
            ),
            spec=ManagedCertificateSpec(
                hosts=("a.example",), issuer="le", asked_by=(Origin("Ingress", namespace, name),)
            ),
            status=ManagedCertificateStatus(digest="abc" if issued else ""),
        )

    old, new, newest = certificate("old", 0), certificate("new", 1), certificate("newest", 2)
    present, two = [newest, old, new], tenant(spec={"maxCertificates": 2})

    def waits(certificates: list[ManagedCertificate], limited: Tenant) -> list[str]:
        return [obj.metadata.name for obj in certificates if above_limit(obj, certificates, limited) is not None]

    assert waits(present, two) == ["newest"]
    assert waits([certificate("newest", 2, issued=True), old, new], two) == ["new"]
    kept = [certificate(name, 0, issued=True) for name in ("x", "y", "z")]
    assert waits(kept, two) == [], "a lower limit takes nothing away"
    refused = above_limit(newest, present, two)
    assert refused is not None
    assert refused.reason == "QuotaExceeded"
    assert "member east has 2 certificates, and spec.maxCertificates" in refused.message
    of_parts = tenant(spec={"maxCertificates": 2, "subtenants": [{"name": "shop", "maxCertificates": 1}]})
    mixed = [old, new, certificate("other", 3, namespace="search"), certificate("late", 4, namespace="search")]
    assert waits(mixed, of_parts) == ["new", "late"], "what waits for the sub-tenant takes no room of the member"
    refused = above_limit(new, mixed, of_parts)
    assert refused is not None
    assert "sub-tenant shop has 1 certificates, and spec.subtenants.maxCertificates" in refused.message
