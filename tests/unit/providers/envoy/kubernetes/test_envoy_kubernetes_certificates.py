"""Certificates: who they are for, when they are replaced, and that every peer can check them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from fairlead.providers.envoy import certificates
from fairlead.providers.envoy.certificates import (
    Authority,
    Pair,
    client_certificate,
    client_is_good,
    new_authority,
    renew_in_s,
    renewed_authority,
    server_certificate,
    server_is_good,
    spiffe_uri,
)
from fairlead.providers.envoy.fleet import group_from_spiffe

NOW = datetime(2030, 1, 1, tzinfo=UTC)
AUTHORITY = new_authority(NOW)


def after(days: float) -> datetime:
    return NOW + timedelta(days=days)


@given(st.text(min_size=1, max_size=60))
def test_server_reads_the_group_that_was_written(group: str) -> None:
    assert group_from_spiffe(spiffe_uri(group)) == group


@pytest.mark.req("KI-8")
def test_client_certificate_is_for_one_group_of_one_authority() -> None:
    pair = client_certificate(AUTHORITY, "tenant-a", NOW)
    assert client_is_good(pair, AUTHORITY, "tenant-a", NOW)
    assert not client_is_good(pair, AUTHORITY, "tenant-b", NOW)
    assert not client_is_good(pair, new_authority(NOW), "tenant-a", NOW)
    assert not client_is_good(Pair(pair.certificate, AUTHORITY.current.key), AUTHORITY, "tenant-a", NOW)
    assert not client_is_good(Pair(b"", b""), AUTHORITY, "tenant-a", NOW)
    assert not client_is_good(server_certificate(AUTHORITY, ["hub"], NOW), AUTHORITY, "tenant-a", NOW)


@pytest.mark.parametrize("name", ["fairlead-hub.fairlead-system.svc", "192.0.2.1"])
def test_server_certificate_is_for_one_name(name: str) -> None:
    pair = server_certificate(AUTHORITY, [name], NOW)
    assert server_is_good(pair, AUTHORITY, [name], NOW)
    assert not server_is_good(pair, AUTHORITY, ["other"], NOW)


@pytest.mark.parametrize(("days", "good"), [(0, True), (59.9, True), (60.1, False), (91, False)])
def test_leaf_is_replaced_a_month_before_its_end(days: float, good: bool) -> None:
    pair = client_certificate(AUTHORITY, "a", NOW)
    assert client_is_good(pair, AUTHORITY, "a", after(days)) is good
    assert (renew_in_s(pair.certificate, after(days)) > 0) is good


def test_authority_is_replaced_in_two_steps() -> None:
    assert renewed_authority(AUTHORITY, after(3284)) is AUTHORITY
    trusted = renewed_authority(AUTHORITY, after(3286))
    assert trusted.current == AUTHORITY.current, "the old one still signs"
    assert len(x509.load_pem_x509_certificates(trusted.trusted)) == 2, "both are trusted"
    assert renewed_authority(trusted, after(3286.5)) is trusted
    assert renewed_authority(trusted, after(3287.1), trusted_by_all=False) is trusted, "a client lacks the new one"
    assert renewed_authority(trusted, after(3621), trusted_by_all=False).current == trusted.next, "before it expires"
    promoted = renewed_authority(trusted, after(3287.1))
    assert promoted.current == trusted.next
    assert promoted.next is None
    assert len(x509.load_pem_x509_certificates(promoted.trusted)) == 2, "the old one until it expires"
    # What the old one has signed is replaced; what trusts it has got the new one before.
    old = client_certificate(trusted, "a", after(3287))
    assert not client_is_good(old, promoted, "a", after(3287.1))
    assert renewed_authority(promoted, after(3288)) is promoted


def test_expired_entries_are_no_longer_trusted() -> None:
    late = renewed_authority(AUTHORITY, after(3700))
    assert late.next is not None
    assert x509.load_pem_x509_certificates(late.trusted) == x509.load_pem_x509_certificates(late.next.certificate)


@pytest.mark.req("KI-8")
def test_keys_do_not_show() -> None:
    secret = AUTHORITY.current.key.splitlines()[1].decode()
    assert secret not in repr(AUTHORITY) + str(AUTHORITY) + repr(AUTHORITY.current) + f"{Authority}"


def test_a_certificate_of_an_older_hub_is_for_one_direction_and_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr(certificates, "_PURPOSES", (ExtendedKeyUsageOID.SERVER_AUTH,))
        server = server_certificate(AUTHORITY, ["hub"], NOW)
        older.setattr(certificates, "_PURPOSES", (ExtendedKeyUsageOID.CLIENT_AUTH,))
        client = client_certificate(AUTHORITY, "a", NOW)
    assert not server_is_good(server, AUTHORITY, ["hub"], NOW)
    assert not client_is_good(client, AUTHORITY, "a", NOW)
