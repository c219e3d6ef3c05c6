"""The demo of proxy machines removes its networks and processes, however it ends.

Whether it passes depends on how busy the machine is, because its limits are times: CI runs it alone.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import tempfile

import pytest

from fairlead_demo.worlds.processes import fairlead, wait_until
from fairlead_demo.worlds.proxy_machines import why_no_namespaces
from tests.e2e.conftest import working_directory
from tests.left_running import end, left_running, marked

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


def namespaces(site: str) -> list[str]:
    """Return the network namespaces of a demo."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.startswith(site)]


@pytest.mark.req("T-13")
@pytest.mark.parametrize(
    ("how", "after"),
    [(signal.SIGINT, "a hub run, each in a network of its own"), (signal.SIGKILL, "three machines have joined")],
)
async def test_an_interrupted_demo_leaves_no_network_and_no_process(how: signal.Signals, after: str) -> None:
    if why := why_no_namespaces():
        pytest.skip(why)
    environment = marked()
    with working_directory() as directory, tempfile.TemporaryFile("w+") as output:
        command = fairlead("demo", "machines", "--plain", "--data-dir", str(directory))
        demo = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output, env=environment)

        def text() -> str:
            output.seek(0)
            return output.read()

        async def arrived() -> bool:
            assert demo.returncode is None, text()
            return after in text() and "network namespaces" in text()

        try:
            await wait_until(arrived, after, timeout_s=200)
            site = re.findall(r"fairlead-[0-9a-f]+-", text())[0]
            assert namespaces(site)
            demo.send_signal(how)
            await demo.wait()
        finally:
            left = left_running(environment)
            end(left)

    async def removed() -> bool:
        return not namespaces(site)

    assert left == []
    # After SIGKILL another process does it.
    await wait_until(removed, f"the namespaces {site}* are deleted")
