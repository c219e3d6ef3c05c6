"""Which former domains keep their names, and until when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fairlead.api.hostname import Hostname, HostnameOwner, HostnameSpec, HostnameStatus
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.tenant import FormerDomain, Tenant, TenantSpec, TenantStatus
from fairlead.api.times import wire_time
from fairlead.hub.tenants.tenants import former_domains
from fairlead.translate.tenant import domain_holders

NOW = datetime(2030, 1, 1, tzinfo=UTC)
OLD, NEW = "old.example.com", "new.example.com"


def tenant(*former: FormerDomain, domain: str = OLD, keep: str = "", name: str = "east", created: str = "") -> Tenant:
    return Tenant(
        metadata=ObjectMeta(name=name, creation_timestamp=created or None),
        spec=TenantSpec(keep_former_domain=keep),
        status=TenantStatus(domain=domain, former_domains=list(former) or None),
    )


def name(
    host: str, *, programmed: str = "True", member: str = "east", reason: str = "Programmed", records: str = "1/1"
) -> Hostname:
    owner = HostnameOwner(member=member, kind="Ingress", load_balancer="HTTPLoadBalancer/tenant-east/web")
    condition = WireCondition(type="Programmed", status=programmed, reason=reason)
    status = HostnameStatus(conditions=[condition] if programmed else None, records=records)
    return Hostname(spec=HostnameSpec(host=host, owner=owner, generated=True), status=status)


def later(seconds: float) -> str:
    return wire_time(NOW + timedelta(seconds=seconds))


def test_nothing_is_former_while_the_domain_stays():
    assert former_domains(tenant(), OLD, [name(f"web.{OLD}")], NOW) == ()
    assert former_domains(tenant(domain=""), NEW, [], NOW) == ()


@pytest.mark.parametrize(
    ("names", "until"),
    [
        pytest.param([], None, id="not-made"),
        pytest.param([name(f"web.{NEW}", programmed="")], None, id="not-looked-at"),
        pytest.param([name(f"web.{NEW}", programmed="False")], None, id="not-published"),
        pytest.param([name(f"web.{NEW}", member="west")], None, id="of-another-member"),
        pytest.param([name(f"web.{NEW}", records="")], None, id="published-without-an-address"),
        pytest.param([name(f"web.{NEW}")], later(3600), id="published"),
        pytest.param(
            [name(f"web.{NEW}", programmed="False", reason="NoSuchZone", records="")], later(3600), id="not-ours"
        ),
    ],
)
def test_a_former_domain_is_kept_an_hour_after_names_resolve(names, until):
    assert former_domains(tenant(), NEW, [name(f"web.{OLD}"), *names], NOW) == (FormerDomain(OLD, until),)


def test_a_name_that_never_had_a_record_is_not_waited_for():
    names = [name(f"web.{OLD}", records=""), name(f"web.{NEW}", records="")]
    assert former_domains(tenant(), NEW, names, NOW) == (FormerDomain(OLD, later(3600)),)


def test_the_end_does_not_move_and_is_an_end():
    kept = FormerDomain(OLD, later(60))
    names = [name(f"web.{OLD}"), name(f"web.{NEW}", programmed="False")]
    assert former_domains(tenant(kept, domain=NEW), NEW, names, NOW) == (kept,)
    assert former_domains(tenant(kept, domain=NEW), NEW, names, NOW + timedelta(seconds=60)) == ()


def test_without_a_new_domain_it_is_kept_from_the_change_on():
    assert former_domains(tenant(keep="10m"), "", [name(f"web.{OLD}")], NOW) == (FormerDomain(OLD, later(600)),)


def test_operators_drop_it_at_once():
    assert former_domains(tenant(FormerDomain(OLD), domain=NEW, keep="0s"), NEW, [name(f"web.{OLD}")], NOW) == ()


def test_a_returning_domain_is_not_a_former_domain():
    names = [name(f"web.{OLD}"), name(f"web.{NEW}", programmed="False")]
    back = former_domains(tenant(FormerDomain(OLD, later(60)), domain=NEW), OLD, names, NOW)
    assert [each.domain for each in back] == [NEW]


def test_of_many_changes_the_last_ones_are_kept():
    many = [FormerDomain(f"{number}.example.com", later(60)) for number in range(4)]
    kept = former_domains(tenant(*many), NEW, [], NOW)
    assert [each.domain for each in kept] == [*(each.domain for each in many[1:]), OLD]


def test_who_names_a_domain_now_has_it_before_who_had_it():
    east = tenant(FormerDomain(OLD), domain=NEW, created="2029-01-01T00:00:00Z")
    west = tenant(domain=OLD, name="west", created="2029-06-01T00:00:00Z")
    holders = domain_holders([east, west])
    assert {domain: each.metadata.name for domain, each in holders.items()} == {NEW: "east", OLD: "west"}
    assert domain_holders([east])[OLD] is east


@pytest.mark.req("CORE-19")
@pytest.mark.parametrize("keep", ["8760h", "99999999h", "999999999999999h"])
def test_a_duration_that_leads_out_of_the_calendar_is_a_hundred_years(keep: str):
    (kept,) = former_domains(tenant(keep=keep), NEW, [], NOW)
    assert kept.until is not None
    assert kept.until <= "2130-01-01"


@pytest.mark.req("CORE-19")
@pytest.mark.parametrize("until", ["soon", "2030-01-02T00:00:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_cannot_be_read_is_computed_again(until: str):
    (kept,) = former_domains(tenant(FormerDomain(OLD, until)), NEW, [], NOW)
    assert kept.until == wire_time(NOW + timedelta(hours=1))
