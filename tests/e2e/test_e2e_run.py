"""One cluster that is hub and member at once, served by one command: through SIGKILL, and a clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import pytest

from fairlead.api.kubernetes import INGRESS_CLASSES, INGRESSES, LEASES, SERVICES
from fairlead.api.meta import JSONObject, ObjectKey
from fairlead.api.names import AGENT_LEADER_LEASE
from fairlead.api.tenant import TENANTS
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.envoy_process import find_running
from fairlead_demo.worlds.apis import Apis
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.processes import PATIENCE_S, run_fairlead, wait_until
from tests.e2e.conftest import working_directory
from tests.e2e.e2e_backends import ask, echoes, http
from tests.e2e.e2e_one_cluster import running

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]


async def versions(cluster: Cluster) -> dict[ObjectKey, str]:
    """Return the resource version of each Service and Ingress."""
    objects = [*await cluster.list(SERVICES), *await cluster.list(INGRESSES)]
    return {each.key: each.metadata.resource_version for each in objects}


async def test_a_service_and_an_ingress_are_served_through_sigkill_and_ended_cleanly(one_cluster: Apis) -> None:
    async with running(one_cluster) as running_cluster:
        member = running_cluster.member
        pod = member.new_address()
        async with echoes((pod, 8080, "from the pod")):
            await member.service("web", http())
            await member.endpoints("web", 8080, pod)
            address = await running_cluster.served("web", "from the pod")
            await running_cluster.ready()
            # Its class was made, and what it names is served, too.
            assert (await member.cluster.get(INGRESS_CLASSES, "", "fairlead")).is_ours
            if service_port(80) == 80:
                await write_ingress(member.cluster)
                ingress = await ingress_address(member.cluster)
                assert ingress != address
                await wait_until(lambda: answered(ingress, "from the pod"), "the Ingress answers")
            out = ""

            async def explained() -> bool:
                nonlocal out
                code, out, _ = await run_fairlead("explain", "svc/web", "--kubeconfig", str(running_cluster.kubeconfig))
                assert (code, "HUB.kubeconfig" in out, "reported nothing" in out) == (0, False, False), out
                return "EnsuredLoadBalancer" in out

            # Events are written after the status.
            await wait_until(explained, "explain has the Event of the Service")
            assert "TCPLoadBalancer/tenant-local/default.web" in out
            before, envoy = await versions(member.cluster), find_running(running_cluster.process.envoy_directory)
            assert envoy is not None

            await running_cluster.process.kill()
            assert await ask(address, 80) == "from the pod", "Envoy serves without it"
            await running_cluster.process.start(first_line_s=PATIENCE_S)
            await running_cluster.ready()
            assert await running_cluster.served("web", "from the pod") == address
            again = find_running(running_cluster.process.envoy_directory)
            assert again is not None
            assert again.pid == envoy.pid
            assert await versions(member.cluster) == before, "the second run wrote nothing that users see"

            os.kill(envoy.pid, signal.SIGKILL)
            assert await running_cluster.served("web", "from the pod") == address, "an Envoy that dies is started again"

            await running_cluster.process.terminate()
            assert await running_cluster.process.ended() == 0
            assert await ask(address, 80) == "from the pod", "Envoy goes on serving"
            code, out, _ = await run_fairlead(
                "standalone", "--stop", "--data-dir", str(running_cluster.process.envoy_directory.parent)
            )
            assert (code, out.count("Ended: Envoy")) == (0, 1), out


async def test_the_member_of_another_hub_and_a_pool_of_another_machine_are_refused(one_cluster: Apis) -> None:
    await one_cluster.start()
    try:
        kubeconfig = one_cluster.kubeconfig("hub")
        with working_directory() as directory:
            options = ("run", "--kubeconfig", str(kubeconfig), "--data-dir", str(directory / "run"))
            code, _, said = await run_fairlead(*options, "--address-pool", "192.0.2.0/24")
            assert (code, "192.0.2.0/24 is not on this machine" in said) == (2, True), said
            async with Cluster.from_kubeconfig(kubeconfig, name="one") as cluster:
                lease = {"metadata": {"namespace": "kube-system", "name": AGENT_LEADER_LEASE}, "spec": {}}
                await wait_until(lambda: created(cluster, lease), "kube-system is there")
                code, _, said = await run_fairlead(*options)
                assert (code, "an agent of another hub works there" in said) == (2, True), said
                with pytest.raises(FairleadError):
                    await cluster.list(TENANTS)
    finally:
        await one_cluster.close()


async def created(cluster: Cluster, lease: JSONObject) -> bool:
    try:
        await cluster.create(LEASES, lease)
    except FairleadError:
        return False
    return True


async def write_ingress(cluster: Cluster) -> None:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    body = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"ingressClassName": "fairlead", "defaultBackend": backend},
    }
    await cluster.apply(INGRESSES, body, manager="user")


async def ingress_address(cluster: Cluster) -> str:
    async def shown() -> str:
        ingress = await cluster.get(INGRESSES, "default", "web")
        return next((each.ip for each in ingress.status.load_balancer.ingress or ()), "")

    await wait_until(shown, "the Ingress has an address")
    return await shown()


async def answered(address: str, body: str) -> bool:
    with contextlib.suppress(OSError, AssertionError, EOFError, asyncio.TimeoutError):
        return await ask(address, 80) == body
    return False
