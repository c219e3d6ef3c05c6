"""``fairlead top`` is live for people, and ends for programs."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.page.traffic import Figure, TrafficAnswer


@pytest.mark.req("OP-11")
@pytest.mark.parametrize("output", ["name", "json", "yaml"])
def test_what_programs_read_is_printed_once(output, monkeypatch):
    asked: list[str] = []

    async def read_traffic(hub_url, _token_file):
        asked.append(hub_url)
        assert len(asked) == 1, "it goes on"
        return TrafficAnswer("2030-01-01T00:00:00Z", [Figure("TCPLoadBalancer/tenant-east/web", 3.0)])

    monkeypatch.setattr("fairlead.cli.top.read_traffic", read_traffic)
    monkeypatch.setattr("fairlead.cli.top._EVERY_S", 0.0)
    result = CliRunner().invoke(app, ["top", "-o", output], catch_exceptions=False)
    assert result.exit_code == 0
    assert "TCPLoadBalancer/tenant-east/web" in result.stdout
