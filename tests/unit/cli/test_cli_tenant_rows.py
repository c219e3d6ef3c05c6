"""The rows of ``tenant list``: what is not known of a member is not called good."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from fairlead.api.tenant import StampedLease
from fairlead.cli.tenant import HEADER, cells, tenant_rows
from fairlead.testing.builders import decoded, tenant

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def lease(*, ahead_s: float) -> StampedLease:
    stored = NOW - timedelta(seconds=2)
    return decoded(
        {
            "metadata": {
                "name": "fairlead-agent",
                "namespace": "tenant-east",
                "managedFields": [{"time": stored.isoformat()}],
            },
            "spec": {"holderIdentity": "a", "renewTime": (stored + timedelta(seconds=ahead_s)).isoformat()},
        },
        StampedLease,
    )


def clock_of(leases: dict[str, StampedLease]) -> str:
    (row,) = tenant_rows([tenant()], leases, [], now=NOW)
    return dict(zip(HEADER, cells(row), strict=True))["CLOCK"]


@pytest.mark.parametrize(("ahead_s", "said"), [(0.0, "ok"), (90.0, "90s ahead"), (-90.0, "90s behind")])
def test_the_clock_of_an_agent_that_is_heard(ahead_s: float, said: str) -> None:
    assert clock_of({"tenant-east": lease(ahead_s=ahead_s)}) == said


def test_of_many_addresses_a_table_has_the_first() -> None:
    (row,) = tenant_rows([tenant()], {}, [], now=NOW)
    row = msgspec.structs.replace(row, addresses=[f"192.0.2.{n}" for n in range(5)])
    assert dict(zip(HEADER, cells(row), strict=True))["ADDRESSES"] == "192.0.2.0, 192.0.2.1, 192.0.2.2 and 2 more"
    assert "192.0.2.4" in dict(zip(HEADER, cells(row, wide=True), strict=True))["ADDRESSES"]


def test_the_clock_of_an_agent_that_was_never_heard_is_not_known() -> None:
    assert clock_of({}) == "-"
    assert tenant_rows([tenant()], {}, [], now=NOW)[0].clock_ahead_s is None
    unstamped = decoded({"metadata": {"name": "fairlead-agent", "namespace": "tenant-east"}}, StampedLease)
    assert clock_of({"tenant-east": unstamped}) == "-"
