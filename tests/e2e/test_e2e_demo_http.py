"""The demo of HTTP as people run it: an Ingress and a Gateway over HTTPS, with real Envoy and real traffic."""

from __future__ import annotations

import pytest

from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.processes import fairlead
from tests.left_running import passed_demo

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


@pytest.mark.req("K-36", "K-46", "G-43", "GI-7")
async def test_the_demo_of_http_passes_and_leaves_no_process_behind() -> None:
    """A canary by weight, new certificates, rolled pods and a killed control plane: no request fails."""
    out = await passed_demo(fairlead("demo", "http", "--plain"))
    assert ("east: Ingress web" in out) == (service_port(80) == 80)
    assert "west: Gateway web" in out
