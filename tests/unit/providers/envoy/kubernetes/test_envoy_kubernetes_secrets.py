"""Certificates and authorities as data of Secrets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fairlead.api.kubernetes import Secret
from fairlead.errors import BadConfiguration
from fairlead.providers.envoy.certificates import (
    Pair,
    authority_data,
    authority_of,
    data_of,
    new_authority,
    pair_data,
    pair_of,
    renewed_authority,
    secret_manifest,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
AUTHORITY = new_authority(NOW)


def after(days: float) -> datetime:
    return NOW + timedelta(days=days)


def test_authority_survives_its_secret() -> None:
    for authority in (AUTHORITY, renewed_authority(AUTHORITY, after(3286))):
        assert authority_of(authority_data(authority)) == authority


@pytest.mark.parametrize("damage", [{"tls.key": b""}, {"tls.crt": b"x"}, {"ca.crt": b"no"}, {"next.key": b"x"}])
def test_damaged_authority_is_refused_in_words(damage: dict[str, bytes]) -> None:
    data = authority_data(renewed_authority(AUTHORITY, after(3286))) | damage
    with pytest.raises(BadConfiguration, match="fairlead-xds-ca"):
        authority_of(data)


def test_invalid_base64_counts_as_empty() -> None:
    assert data_of(Secret(data={"tls.crt": "YQ==", "tls.key": "not base64"})) == {"tls.crt": b"a", "tls.key": b""}
    assert data_of(Secret()) == {}
    assert pair_of({"tls.crt": b"a"}) == Pair(b"a", b"")


def test_a_secret_is_written_and_read_back() -> None:
    data = pair_data(AUTHORITY.current, AUTHORITY.trusted)
    manifest = secret_manifest("shop", "envoy", data, {"group": "a"})
    assert manifest["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "fairlead", "group": "a"}
    assert data_of(Secret(data=manifest["data"])) == data
    assert pair_of(data) == AUTHORITY.current
