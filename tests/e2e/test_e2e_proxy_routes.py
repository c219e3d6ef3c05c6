"""Proxy machines with real BGP sessions to a router: an Envoy dies, its route goes, and clients keep their backend."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator

import pytest

from fairlead_demo.worlds.bgp import RouteLog, bird_missing
from fairlead_demo.worlds.networks import connect_inside, ip
from fairlead_demo.worlds.processes import ExpectationFailed, wait_until
from fairlead_demo.worlds.proxy_machines import NAMESPACE, ProxySite, why_no_namespaces
from tests.docs.docs_console import BIN, ROOT, blocks_of
from tests.e2e.conftest import working_directory

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

ADDRESS = "203.0.113.10"
CLIENTS, CONNECTIONS = 6, 12


@pytest.fixture
async def site() -> AsyncIterator[ProxySite]:
    if why := why_no_namespaces() or bird_missing():
        pytest.skip(why)
    with working_directory() as directory:
        site = ProxySite(directory, routed=True)
        try:
            await site.start()
            await site.start_bgp()
            yield site
        finally:
            await site.close()


async def pod_of(site: ProxySite, source: str) -> str:
    """Return the name of the pod that answers a client which connects from an address."""
    reader, writer = await connect_inside(site.client.name, ADDRESS, 80, source=source)
    writer.write(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(180):
        answer = await reader.read()
    writer.close()
    return answer.decode().splitlines()[-1]


@pytest.mark.req("P-20")
@pytest.mark.req("P-23")
async def test_a_route_goes_with_its_envoy_and_clients_keep_their_pod(site: ProxySite) -> None:
    first, second = await asyncio.gather(site.join("m1"), site.join("m2"))
    pods = [await site.pod(f"web-{number}") for number in range(4)]
    await site.load_balancer("web", *pods, spec={"address": ADDRESS, "sessionAffinity": "ClientIP"})
    assert await site.address("web") == ADDRESS

    async def both_announce() -> bool:
        return await site.next_hops(ADDRESS) == ["m1", "m2"]

    await wait_until(both_announce, "the router has both machines as next hops")

    # All machines choose the same pod for a client: Maglev, with the same hash and the same targets.
    chosen: dict[str, str] = {}
    for number in range(CLIENTS):
        source = f"{site.client.address.rpartition('.')[0]}.{40 + number}"
        ip("-n", site.client.name, "address", "add", f"{source}/24", "dev", "eth0")
        answers = {await pod_of(site, source) for _ in range(CONNECTIONS)}
        assert len(answers) == 1, "each connection of a client is answered by the same pod"
        chosen[source] = answers.pop()
    assert len(set(chosen.values())) > 1, "clients are spread over pods"

    with_log = RouteLog(site.router_namespace.name)
    try:
        killed = int((first.state_dir / "envoy" / "envoy.pid").read_text())
        at = time.time()
        os.kill(killed, signal.SIGKILL)
        # Gone, and back when the next Envoy serves: in this order, however busy this machine is.
        await with_log.changed(at, ADDRESS, number=2)
        gone, back = (await with_log.since(at, ADDRESS))[:2]
    finally:
        with_log.close()
    assert second.namespace.address in gone.text
    assert first.namespace.address not in gone.text
    assert first.namespace.address in back.text
    assert int((first.state_dir / "envoy" / "envoy.pid").read_text()) != killed
    events = [json.loads(line)["event"] for line in first.process.log.read_text().splitlines() if line.startswith("{")]
    ended = events.index("envoy has ended; starting it again")
    assert "envoy started" in events[ended:]
    await wait_until(both_announce, "both machines are next hops again")
    assert {source: await pod_of(site, source) for source in chosen} == chosen, "also after the return"


#: What this test types of the pages. The rest is about systemd and nodes of a cluster, has placeholders, starts another
#: hub, or removes what is outside of this test.
_TYPED = (
    *(f"fairlead proxy {verb}" for verb in ("token", "list", "drain", "undrain", "remove")),
    *("fairlead status", "kubectl annotate tcplb", "kubectl apply -f bgp.yaml", "kubectl get bgppeers"),
)
_PAGES = ("bgp", "proxy-groups", "proxy-machines")


@pytest.mark.req("P-1", "P-6", "P-18")
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the pages use kubectl")
async def test_commands_of_the_pages_on_proxy_machines(site: ProxySite) -> None:
    await asyncio.gather(site.join("edge-1"), site.join("edge-2"))
    await site.load_balancer("shop.web", await site.pod("web-1"), spec={"address": ADDRESS})
    assert await site.address("shop.web") == ADDRESS
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(site.kubeconfig)}

    async def type_command(command: str, text: str = "") -> str:
        """Return what a command prints, once it succeeds: what it needs may be on its way."""
        said = ""

        async def succeeds() -> bool:
            nonlocal said
            process = await asyncio.create_subprocess_exec(
                "bash", "-c", command, stdin=PIPE, stdout=PIPE, stderr=STDOUT, env=environment, cwd=site.directory
            )
            said = (await process.communicate(text.encode()))[0].decode()
            return process.returncode == 0

        try:
            await wait_until(succeeds, command)
        except ExpectationFailed as error:
            raise AssertionError(f"{command}: {said}") from error
        return said

    typed: list[str] = []
    for name in _PAGES:
        for block in blocks_of((ROOT / "docs" / "how-to" / f"{name}.md").read_text()):
            if block.language == "yaml":
                (site.directory / (block.file or "page.yaml")).write_text(block.text)
                await type_command("kubectl apply -f -", block.text)
            for line in block.text.splitlines() if block.language == "sh" else ():
                if line.startswith(_TYPED):
                    command = line.replace("-n tenant-east", f"-n {NAMESPACE}")
                    typed.append(command)
                    said = await type_command(command)
                    if line == "fairlead proxy list":
                        assert "edge-1" in said
                        assert "edge-2" in said
        if name == "bgp":
            # Its router is not here, which is a problem that status would report.
            await type_command("kubectl delete -f bgp.yaml")
    assert {"fairlead proxy token", "fairlead proxy list", "kubectl apply -f bgp.yaml"} <= set(typed)
    assert "fairlead proxy remove edge-1" in typed
    assert "edge-1" not in await type_command("fairlead proxy list")
