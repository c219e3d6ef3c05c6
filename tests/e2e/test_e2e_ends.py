"""Demo and bench end everything that they began: when they are asked to end, are killed, or fail at their start."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from bench.fleet import Fleet
from fairlead.providers.envoy.envoy_process import find_running
from fairlead_demo.worlds.processes import fairlead
from tests.left_running import end, left_running, marked

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.req("T-13")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_demo_that_is_ended_leaves_no_process_behind(how: signal.Signals) -> None:
    environment = marked()
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        command = fairlead("demo", "--plain", "--data-dir", name)
        demo = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        )
        try:
            assert demo.stdout is not None
            async with asyncio.timeout(400):
                while b"members run" not in (line := await demo.stdout.readline()):
                    assert line, "the demo has ended"
            assert find_running(Path(name) / "envoy") is not None
            demo.send_signal(how)
            out = (await asyncio.wait_for(demo.communicate(), 180))[0].decode()
        finally:
            left = left_running(environment)
            end(left)
    assert left == []
    assert demo.returncode == (-signal.SIGKILL if how is signal.SIGKILL else 130)
    assert "Traceback" not in out


@pytest.mark.req("T-13")
async def test_a_bench_that_fails_at_its_start_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        fleet = Fleet(directory=Path(name), target="Pod")

        async def never_ready() -> None:
            raise TimeoutError("the hub's /readyz")

        monkeypatch.setattr(fleet, "wait_ready", never_ready)
        with pytest.raises(TimeoutError):
            async with fleet:
                pass
        processes = [fleet.hub_api.process, fleet.member_api.process, fleet.hub.process]
        assert [process is not None and process.returncode is not None for process in processes] == [True] * 3
        assert find_running(Path(name) / "h") is None
