"""A process whose API is down when it starts waits for it; one with a wrong key ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from fairlead.errors import Unauthorized, Unreachable
from fairlead.runtime.clock import VirtualClock
from fairlead.standalone.process import wait_for_api
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.processes import wait_until

_PATIENCE_S = 180.0
_KUBECONFIG = """
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u, namespace: tenant-east}}}}]
current-context: x
"""


class Api:
    """An API that is down for a number of calls."""

    def __init__(self, *, down: int) -> None:
        self.asked = 0
        self._down = down

    async def ask(self) -> None:
        self.asked += 1
        if self.asked <= self._down:
            raise Unreachable("127.0.0.1:1 refuses connections.")


@pytest.mark.req("T-15")
async def test_an_api_that_is_down_is_asked_again_with_growing_pauses() -> None:
    api, clock = Api(down=8), VirtualClock()
    began_s = clock.monotonic()
    waiting = asyncio.create_task(wait_for_api(api.ask, clock=clock))
    await clock.advance_until(waiting.done)
    assert await waiting
    assert api.asked == 9
    # Half of each pause is jittered: 1, 2, 4, 8 and four times 15 seconds at most; plus half a second for each.
    assert 37.5 <= clock.monotonic() - began_s <= 80


@pytest.mark.req("T-15")
async def test_awaited_parts_are_on_the_page_of_a_live_process() -> None:
    api, clock, port = Api(down=1), VirtualClock(), free_port()
    waiting = asyncio.create_task(wait_for_api(api.ask, pages=("127.0.0.1", port), clock=clock))
    said: dict[str, tuple[int, str]] = {}

    async def says_so() -> bool:
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with aiohttp.ClientSession() as session:
                for page in ("livez", "readyz"):
                    async with session.get(f"http://127.0.0.1:{port}/{page}") as answer:
                        said[page] = answer.status, (await answer.text()).strip()
        return clock.sleepers > 0 and said.get("readyz") == (503, "127.0.0.1:1 refuses connections.")

    await wait_until(says_so, "the page says what is waited for", timeout_s=_PATIENCE_S)
    assert said["livez"] == (200, "ok")
    await clock.advance(15.0)
    assert await waiting
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_wrong_key_is_not_tried_again() -> None:
    async def refused() -> None:
        raise Unauthorized("the token is not known")

    with pytest.raises(Unauthorized):
        await wait_for_api(refused, clock=VirtualClock())


@pytest.mark.req("T-15")
@pytest.mark.parametrize("command", ["hub", "agent", "regions"])
async def test_a_process_says_what_it_waits_for_and_stops_when_asked_to(command: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(_KUBECONFIG.format(port=taken.getsockname()[1]))
        options = ["--kubeconfig", str(kubeconfig), "--data-dir", str(tmp_path / "data")]
        if command == "agent":
            options += ["--hub-kubeconfig", str(kubeconfig), "--tenant", "east"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fairlead.cli.main", command, *options), stderr=asyncio.subprocess.PIPE
        )
        try:
            assert process.stderr is not None
            said = ""
            async with asyncio.timeout(_PATIENCE_S):
                while "waiting for the API" not in said:
                    line = (await process.stderr.readline()).decode()
                    assert line, f"it ended: {said}"
                    said += line
                assert "refuses connections" in said
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0, (await process.stderr.read()).decode()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
