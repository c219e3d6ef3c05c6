"""The demo of names as people run it: a real DNS server, certificates by ACME, real Envoy and real traffic."""

from __future__ import annotations

import pytest

from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.name_servers import binary
from fairlead_demo.worlds.processes import fairlead
from tests.left_running import passed_demo

pytestmark = [
    pytest.mark.envoy,
    pytest.mark.slow,
    pytest.mark.skipif(binary("named") is None, reason="BIND 9 is not installed: apt-get install bind9, as root"),
]


@pytest.mark.req("KI-9", "K-47", "K-49", "K-53", "C-53")
async def test_the_demo_of_names_passes_and_leaves_no_process_behind() -> None:
    """Names, certificates, a refused claim, rolled pods, renewals, a move: no request fails, records of others stay."""
    out = await passed_demo(fairlead("demo", "names", "--plain"))
    assert " 0 failed, 0 connections cut, every record of others still there" in out
    assert "a name moved to another address under load, and no request failed" in out
    for made in ("web-default-gw.west.lb.example.test:", "east.lb.example.test:"):
        assert any("https://" in line and made in line and line.endswith(" too") for line in out.splitlines())
    assert ("east: Ingress web" in out) == (service_port(80) == 80)
    assert "west: Gateway web" in out
