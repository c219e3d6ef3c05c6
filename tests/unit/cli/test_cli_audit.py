"""``fairlead audit``: a line for each field, the user only where it is known, and CSV that runs no formula."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fairlead.cli.audit import csv_rows, lines_of, rows_of
from fairlead.cli.output import csv_text
from fairlead.model.change import HistoryEntry, HistoryKind, Revision
from fairlead.page.web import AuditedLoadBalancer

AT = datetime(2030, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.req("F-30")


def audited(*revisions: Revision) -> AuditedLoadBalancer:
    entries = [
        HistoryEntry(number, AT, HistoryKind.CHANGED, revision.sentence, revision=revision)
        for number, revision in enumerate(revisions)
    ]
    other = HistoryEntry(99, AT, HistoryKind.FAILED, "the provider refuses port 80")
    return AuditedLoadBalancer("TCPLoadBalancer/tenant-east/web", [*entries, other])


def test_each_field_is_a_line_and_an_unknown_user_is_not_named():
    fields = (("drain", "", "5s"), ("ports[0].port", "80", "81"))
    rows = list(
        rows_of(audited(Revision("Changed", "", False, "helm", "", fields, 2), Revision("Created", "eve", True)))
    )
    lines = [" ".join(line.split()) for line in lines_of(rows, AT)]
    assert lines[1:] == [
        "2030-01-01 00:00:00 - helm TCPLoadBalancer/tenant-east/web Changed drain: - -> 5s",
        "ports[0].port: 80 -> 81",
        "and 2 more fields",
        "2030-01-01 00:00:00 eve (claimed) - TCPLoadBalancer/tenant-east/web Created",
    ]
    assert lines_of([], AT) == ["No change since 2030-01-01T00:00:00Z is recorded."]


def test_csv_escapes_formulas_of_spreadsheets():
    rows = rows_of(audited(Revision("Changed", "=cmd()", fields=(("drain", "-1", "@a"),))))
    (line,) = csv_text(csv_rows(rows))
    assert line.split(",")[5:] == ["'=cmd()", "False", "", "drain", "'-1", "'@a"]
