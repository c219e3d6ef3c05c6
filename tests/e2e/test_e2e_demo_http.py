"""The demo of HTTP as people run it: an Ingress and a Gateway over HTTPS, with real Envoy and real traffic."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from fairlead.testing.worlds.loopback import service_port
from fairlead.testing.worlds.processes import fairlead
from tests.left_running import end, left_running, marked

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.req("K-36", "K-46", "G-43", "GI-7")
async def test_the_demo_of_http_passes_and_leaves_no_process_behind() -> None:
    """A canary by weight, new certificates, rolled pods and a killed control plane: no request fails."""
    environment = marked()
    process = await asyncio.create_subprocess_exec(
        *fairlead("demo", "http", "--plain"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    try:
        out = (await asyncio.wait_for(process.communicate(), 400))[0].decode()
    finally:
        left = left_running(environment)
        end(left)
    assert process.returncode == 0, out
    assert "PASSED" in out
    assert " 0 failed" in out
    assert ("east: Ingress web" in out) == (service_port(80) == 80)
    assert "west: Gateway web" in out
    assert left == []
