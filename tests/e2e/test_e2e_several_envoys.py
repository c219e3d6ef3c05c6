"""A hub whose load balancers are shared by several Envoys: what a user and an operator see of that."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.providers.envoy.envoy_process import admin_get
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.processes import run_fairlead, wait_until
from fairlead_demo.worlds.traffic import Traffic
from tests.e2e.conftest import working_directory
from tests.e2e.e2e_backends import answers, ask, echoes, http, ready
from tests.e2e.e2e_own import changes_of_envoy

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
async def several() -> AsyncIterator[Fleet]:
    with working_directory() as directory:
        apis = EmbeddedApis(directory / "api", ("hub", "east"))
        options = ("--envoys", "2", "--envoy-threads", "1")
        fleet = Fleet(apis=apis, directory=directory, members={"east": "Pod"}, drain="1s", hub_options=options)
        try:
            await fleet.start()
            yield fleet
        finally:
            await fleet.close()


def envoys(fleet: Fleet) -> list[Path]:
    """Return the directories of the Envoys."""
    return sorted(path.parent for path in fleet.hub.envoy_directory.rglob("envoy.pid"))


async def listeners(envoy: Path) -> int:
    name = "listener_manager.total_listeners_active"
    status, text = await admin_get(envoy / "admin.sock", f"/stats?filter={name}")
    return int(text.rpartition(":")[2]) if status == 200 else 0


@pytest.mark.req("I-8")
async def test_two_envoys_share_the_services_and_fail_apart_and_outlive_the_hub(several: Fleet) -> None:
    east = several.members["east"]
    pod = east.new_address()
    async with echoes((pod, 8080, "here")):
        addresses: list[str] = []
        while not addresses or not all([await listeners(envoy) for envoy in envoys(several)]):
            name = f"web-{len(addresses)}"
            await east.endpoints(name, 8080, pod)
            await east.service(name, http())
            addresses.append(await ready(east, name, 80))
        assert sum([await listeners(envoy) for envoy in envoys(several)]) == len(addresses)

        async def reported() -> bool:
            _, out, _ = await run_fairlead("status", "-o", "json", "--kubeconfig", str(several.kubeconfig))
            return {proxy["group"] for proxy in json.loads(out)["proxies"]} == {"local-1", "local-2"}

        await wait_until(reported, "status lists both Envoys")

        # The hub dies: neither Envoy changes, and the next hub adopts both.
        traffic = [Traffic(host=address, kept=0, new_per_s=20) for address in addresses]
        for each in traffic:
            each.start()
        await several.hub.kill()
        await several.hub.start_ready()

        async def streams() -> bool:
            return await several.hub.metric("fairlead_xds_streams") == 2

        await wait_until(streams, "both Envoys are back at the hub")
        assert await changes_of_envoy(several) == 0
        for each in traffic:
            await each.stop()
        assert [each.count.failed for each in traffic] == [0] * len(traffic)

        # One dies: those of the other are served on, and its own are again when it is back.
        first, second = envoys(several)
        before = await listeners(second)
        old = (first / "envoy.pid").read_text()
        os.kill(int(old), signal.SIGKILL)
        results = await asyncio.gather(*(ask(address, 80) for address in addresses), return_exceptions=True)
        assert sum(result == "here" for result in results) >= before
        for address in addresses:
            await answers(address, 80, "here")
        assert (first / "envoy.pid").read_text() != old
        assert await listeners(second) == before

    # Their number is that of the Envoys that run.
    await several.hub.terminate()
    arguments = ("--kubeconfig", str(several.kubeconfig), "--address-pool", several.pool)
    data = ("--data-dir", str(several.hub.envoy_directory))
    code, _, problem = await run_fairlead("hub", *arguments, *data)
    assert code != 0
    assert f"fairlead standalone --stop --data-dir {several.hub.envoy_directory}" in problem
    code, out, _ = await run_fairlead("standalone", "--stop", *data)
    assert code == 0
    assert out.count("Envoy ") == 2
