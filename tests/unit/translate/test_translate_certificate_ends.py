"""Which certificates end soon, and which come first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fairlead.api.managedcertificate import ManagedCertificate, ManagedCertificateSpec, ManagedCertificateStatus
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.times import wire_time
from fairlead.translate.certificates import ending, first_ends

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def certificate(name: str, days: float | None, *, failures: int = 0, namespace: str = "tenant-east", why: str = ""):
    end = "" if days is None else wire_time(NOW + timedelta(days=days))
    conditions = [WireCondition(type="Stale", status="True", message=why)] if why else None
    return ManagedCertificate(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=ManagedCertificateSpec(hosts=(f"{name}.example.com",), issuer="le"),
        status=ManagedCertificateStatus(
            digest="d" if end else "", not_after=end, failures=failures, conditions=conditions
        ),
    )


def test_what_ends_soon_or_could_not_be_had_is_listed_the_worst_first():
    there = [
        certificate("late", 60),
        certificate("soon", 10, why="the authority is down"),
        certificate("ended", -1),
        certificate("never", None, failures=3),
        certificate("young", None),
    ]
    rows = ending(there, NOW)
    assert [row.name for row in rows] == ["never", "ended", "soon"]
    assert rows[2].why == "the authority is down"
    assert rows[0].ends is None


def test_the_first_end_of_each_member_counts():
    there = [
        certificate("b", 60),
        certificate("a", 30),
        certificate("c", 10, namespace="tenant-west"),
        certificate("none", None),
    ]
    assert first_ends(there) == {"tenant-east": NOW + timedelta(days=30), "tenant-west": NOW + timedelta(days=10)}
    broken = ManagedCertificate(status=ManagedCertificateStatus(digest="d", not_after="soon"))
    assert first_ends([broken]) == {}
