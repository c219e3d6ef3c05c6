"""A leader is frozen in the middle of a call, loses its lease without noticing, and wakes up later: it is fenced."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.api.backendgroup import BACKEND_GROUPS, BACKEND_RECORDS
from fairlead.api.kubernetes import LEASES, NAMESPACES, PODS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import HUB_LEASE, SYSTEM_NAMESPACE
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.loopback import free_network
from fairlead_demo.worlds.processes import fairlead, wait_until
from podless import ApiServer
from tests.scenario.lbcf.lbcf_driver import Driver
from tests.scenario.lbcf.lbcf_wire import Wire

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]

TOKEN = "for-these-tests-only"


class Replica:
    """One ``fairlead hub``, whose way to the API is its own, which counts what it asks."""

    def __init__(self, name: str, wire: Wire, directory: Path) -> None:
        self.wire = wire
        self.home = directory / name
        self.home.mkdir()
        kubeconfig = self.home / "kubeconfig"
        kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "hub", "cluster": {"server": wire.url}}],
                    "users": [{"name": "hub", "user": {"token": TOKEN}}],
                    "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "hub"}}],
                    "current-context": "hub",
                }
            )
        )
        data_dir = self.home / "data"
        options = ("--address-pool", f"{free_network()}.0/24", "--log-format", "json")
        command = fairlead("hub", "--kubeconfig", str(kubeconfig), "--data-dir", str(data_dir), *options)
        self.hub = HubProcess(name, command, envoy_directory=data_dir, log=self.home / "log")

    async def calls(self) -> float:
        """Return how many calls it has made to drivers, by its own count."""
        return await self.hub.metric("fairlead_webhook_calls_total")

    def changing(self) -> dict[tuple[str, str], int]:
        """Return the requests that it has made and that would change something: not what is about itself alone."""
        asked = self.wire.asked.items()
        return {what: n for what, n in asked if what[0] != "GET" and what[1] not in ("leases", "events", "configmaps")}

    def freeze(self) -> None:
        os.kill(self.hub.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self.hub.pid, signal.SIGCONT)

    async def close(self) -> None:
        if self.hub.running:
            self.wake()
        await self.hub.close()


class Town:
    """One API, one driver, two hubs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.server = ApiServer(admin_token=TOKEN)
        self.driver = Driver()
        self.replicas: list[Replica] = []

    async def open(self) -> None:
        await self.server.start()
        await self.driver.start()
        self.user = Cluster(ClusterConfig(server=self.server.url, sign_in=bearer(TOKEN)), name="user")

    async def replica(self, name: str) -> Replica:
        wire = Wire(self.server.url)
        await wire.start()
        replica = Replica(name, wire, self.directory)
        self.replicas.append(replica)
        await replica.hub.start()
        return replica

    async def close(self) -> None:
        self.driver.gate.set()
        for replica in self.replicas:
            await replica.close()
            await replica.wire.stop()
        await self.user.aclose()
        await self.driver.stop()
        await self.server.stop()

    async def shop(self) -> None:
        await self.user.apply(NAMESPACES, {"metadata": {"name": "shop"}}, manager="kubectl")
        parameters = {"url": self.driver.url}
        guard = {"maxRemovalPercent": 100, "minBackends": 0}
        spec = {"provider": "webhook", "drain": "0s", "guard": guard, "parameters": parameters}
        await self.user.apply(LOAD_BALANCER_CLASSES, {"metadata": {"name": "edge"}, "spec": spec}, manager="kubectl")
        listeners = [{"name": "http", "port": 80, "protocol": "TCP"}]
        meta = {"name": "shared", "namespace": "shop"}
        spec = {"className": "edge", "listeners": listeners, "parameters": {"name": "shared"}}
        await self.user.apply(LOAD_BALANCERS, {"metadata": meta, "spec": spec}, manager="kubectl")
        pods = {"byLabel": {"selector": {"app": "web"}}, "ports": [{"port": 80}]}
        spec = {"loadBalancers": ["shared"], "pods": pods}
        await self.user.apply(BACKEND_GROUPS, {"metadata": meta, "spec": spec}, manager="kubectl")

    async def pod(self, number: int) -> None:
        meta = {"name": f"web-{number}", "namespace": "shop", "labels": {"app": "web"}}
        spec = {"containers": [{"name": "web", "image": "web"}]}
        await self.user.apply(PODS, {"metadata": meta, "spec": spec}, manager="kubectl")
        conditions = [{"type": "Ready", "status": "True"}]
        status = {"phase": "Running", "podIP": f"10.1.0.{number + 1}", "conditions": conditions}
        await self.user.merge_patch(PODS, "shop", f"web-{number}", {"status": status}, subresource="status")

    async def holds_lease(self) -> str:
        leases = {lease.metadata.name: lease for lease in await self.user.list(LEASES, SYSTEM_NAMESPACE)}
        return str(leases[HUB_LEASE].spec.holder_identity) if HUB_LEASE in leases else ""

    async def epoch(self) -> int:
        return int((await self.user.get(LEASES, SYSTEM_NAMESPACE, HUB_LEASE)).spec.lease_transitions or 0)

    async def record_versions(self) -> dict[object, str]:
        records = await self.user.list(BACKEND_RECORDS, "shop")
        return {record.key: record.metadata.resource_version for record in records}

    async def registered(self, *numbers: int, timeout_s: float = 90.0) -> None:
        async def check() -> bool:
            records = await self.user.list(BACKEND_RECORDS, "shop")
            states = {record.spec.target.address: record.status.state for record in records}
            return states == {f"10.1.0.{number + 1}": "Registered" for number in numbers}

        await wait_until(check, f"exactly {numbers} are on record as registered", timeout_s=timeout_s)
        assert self.driver.at() == {f"web-{number}:80" for number in numbers}


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        town = Town(Path(name))
        await town.open()
        try:
            yield town
        finally:
            await town.close()


@pytest.mark.req("I-5", "L-14", "L-15")
async def test_a_leader_that_wakes_up_after_its_lease_was_taken_calls_and_writes_nothing(town: Town) -> None:
    first = await town.replica("first")
    await wait_until(town.holds_lease, "the first hub leads")
    leader = await town.holds_lease()
    second = await town.replica("second")
    await town.shop()
    for number in (0, 1):
        await town.pod(number)
    await town.registered(0, 1)
    records = {record.spec.target.address: record for record in await town.user.list(BACKEND_RECORDS, "shop")}
    before = await town.epoch()
    assert {record.spec.epoch for record in records.values()} == {before}

    # In the middle of a call: web-2 is on record, and its registration has been asked for.
    held = asyncio.Event()

    async def slowly(body: dict[str, Any]) -> Mapping[str, Any]:
        await held.wait()
        return town.driver._register(body)

    town.driver.first("ensureBackend", slowly)
    calls = town.driver.hooks["ensureBackend"]
    await town.pod(2)

    async def asked() -> bool:
        return town.driver.hooks["ensureBackend"] == calls + 1

    await wait_until(asked, "the driver is asked to register web-2")
    calls_of_first = await first.calls()
    first.freeze()
    held.set()
    await town.user.delete(PODS, "shop", "web-1")
    await town.pod(3)

    async def taken_over() -> bool:
        return await town.holds_lease() not in ("", leader)

    await wait_until(taken_over, "the second hub takes over")
    await town.registered(0, 2, 3)
    assert await town.epoch() == before + 1
    versions = await town.record_versions()
    asked_of_driver = len(town.driver.calls)
    wrote = first.changing()
    looks = first.wire.asked["GET", "leases"]

    first.wake()

    async def knows() -> bool:
        # A candidate again: it has read another name in the lease, more than once.
        return first.wire.asked["GET", "leases"] >= looks + 2 and "leadership lost" in first.hub.log.read_text()

    await wait_until(knows, "the first hub knows that it leads no more")
    assert first.hub.running
    assert first.changing() == wrote
    assert await first.calls() == calls_of_first
    assert len(town.driver.calls) == asked_of_driver
    assert await town.record_versions() == versions
    assert await town.holds_lease() not in ("", leader)
    # And the one that leads goes on.
    await town.user.delete(PODS, "shop", "web-0")
    await town.registered(2, 3)
    assert await first.calls() == calls_of_first
    assert second.hub.running
