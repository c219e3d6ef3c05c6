"""Of two Tenants with one domain the older has it, and the other is informed."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.api.tenant import Tenant
from fairlead.testing.builders import tenant
from fairlead.translate.tenant import build_domains_taken, domain_holders, domains_of


def made(name: str, created: str, *, domain: str = "", **more: Any) -> Tenant:
    obj = tenant(name, spec=more)
    metadata = msgspec.structs.replace(obj.metadata, creation_timestamp=created)
    return msgspec.structs.replace(obj, metadata=metadata, status=msgspec.structs.replace(obj.status, domain=domain))


EAST = made("east", "2030-01-01T00:00:00Z", domain="east.lb.example.com", domains=["shop.example.com"])
WEST = made("west", "2030-01-02T00:00:00Z", domain="west.lb.example.com", domains=["shop.example.com", "b.example.com"])


def test_the_older_tenant_has_a_domain_that_two_name():
    holders = {domain: holder.metadata.name for domain, holder in domain_holders([WEST, EAST]).items()}
    assert holders["shop.example.com"] == "east"
    assert (holders["b.example.com"], holders["west.lb.example.com"]) == ("west", "west")


def test_the_younger_reads_whose_it_is_and_what_to_do():
    condition = build_domains_taken(WEST, [WEST, EAST])
    assert condition is not None
    assert (condition.type, condition.status, condition.reason) == ("HostnamesAccepted", False, "DomainReserved")
    assert "spec.domains: shop.example.com belongs to Tenant east" in condition.message
    assert "remove it from one of the two" in condition.message


def test_the_domain_of_generated_names_counts_too():
    taken = made("west", "2030-01-02T00:00:00Z", domain="east.lb.example.com")
    condition = build_domains_taken(taken, [EAST, taken])
    assert condition is not None
    assert condition.message.startswith("spec.domain: east.lb.example.com belongs to Tenant east")


def test_without_a_conflict_there_is_no_condition():
    assert build_domains_taken(EAST, [EAST, WEST]) is None
    assert build_domains_taken(WEST, [WEST]) is None


def test_a_tenant_that_is_being_deleted_holds_nothing_back():
    leaving = msgspec.structs.replace(
        EAST, metadata=msgspec.structs.replace(EAST.metadata, deletion_timestamp="2030-01-03T00:00:00Z")
    )
    assert build_domains_taken(WEST, [leaving, WEST]) is None


def test_domains_of_no_tenant_are_none():
    assert domains_of(None) == frozenset()
    assert domains_of(EAST) == {"east.lb.example.com", "shop.example.com"}
    assert domains_of(made("south", "2030-01-01T00:00:00Z")) == frozenset()
