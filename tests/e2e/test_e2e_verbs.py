"""An operator's walk: plan, explain, pause, resume, drift and gc as people type them, over a real hub and HAProxy."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fairlead.api.backendgroup import BACKEND_GROUPS, BACKEND_RECORDS
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.apis import Apis, EmbeddedApis
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.loopback import free_network
from fairlead_demo.worlds.processes import fairlead, run_fairlead, wait_until
from tests.contract.providers.provider_processes import HAProxy
from tests.e2e.e2e_backends import echoes
from tests.e2e.e2e_real_apis import RealApis, assets_directory, why_not_real

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]
HOST = f"{free_network()}.1"
PORTS = (9001, 9002, 9003)
ADDRESSES = tuple(f"{HOST}:{port}" for port in PORTS)


class Place:
    """One machine: an API, a hub that can be ended without it, and an operator's HAProxy."""

    def __init__(self, directory: Path, haproxy: HAProxy, apis: Apis) -> None:
        self.haproxy = haproxy
        self.apis = apis
        self.kubeconfig = apis.kubeconfig("hub")
        data_dir = directory / "hub"
        pool = ("--address-pool", f"{free_network()}.0/24", "--stop-proxy")
        command = fairlead("hub", "--kubeconfig", str(self.kubeconfig), "--data-dir", str(data_dir), *pool)
        self.hub = HubProcess("hub", command, envoy_directory=data_dir, log=directory / "h")

    async def type(self, *arguments: str, code: int = 0) -> str:
        """Type a command; its exit code is part of what it says."""
        ended, out, problem = await run_fairlead(*arguments, "--kubeconfig", str(self.kubeconfig))
        assert ended == code, (arguments, ended, out, problem)
        assert "Traceback" not in problem
        return out + problem

    async def json(self, *arguments: str, code: int = 0) -> Any:
        ended, out, problem = await run_fairlead(*arguments, "-o", "json", "--kubeconfig", str(self.kubeconfig))
        assert (ended, problem) == (code, ""), (arguments, out)
        return json.loads(out)

    def servers(self) -> set[str]:
        """Return the addresses of our servers, and the names of others."""
        servers = self.haproxy.servers("b0")
        return {name.partition("-")[2].partition("-")[2].replace("_", ":") or name for name in servers}

    async def has(self, *wanted: str) -> None:
        async def there() -> bool:
            return self.servers() == {*wanted, "theirs"}

        await wait_until(there, f"HAProxy has {wanted} and what is theirs, not {self.servers()}")


@pytest_asyncio.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real_api)])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        directory = Path(name)
        apis: Apis = EmbeddedApis(directory / "api", ("hub",))
        if request.param == "real":
            if why := why_not_real():
                pytest.skip(why)
            assets = assets_directory()
            assert assets is not None
            apis = RealApis(directory / "api", ("hub",), assets=assets)
        haproxy = HAProxy(directory, backends=1)
        place = Place(directory, haproxy, apis)
        try:
            await apis.start()
            # Backends that answer: status says so of those that do not.
            async with echoes(*((HOST, port, f"web-{port}") for port in PORTS)):
                yield place
        finally:
            await place.hub.close()
            await apis.close()
            haproxy.stop()


async def open_shop(cluster: Cluster, socket: Path) -> None:
    """Write what users and operators write."""
    await cluster.create(NAMESPACES, {"metadata": {"name": "shop"}})
    spec: dict[str, Any] = {"provider": "haproxy", "parameters": {"socket": str(socket)}, "drain": "0s"}
    await cluster.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "edge"}, "spec": spec})
    spec = {"className": "edge", "existing": {"backend": "b0"}, "listeners": [{"name": "http", "port": 80}]}
    await cluster.create(LOAD_BALANCERS, {"metadata": {"name": "shared", "namespace": "shop"}, "spec": spec})


async def group(cluster: Cluster, *static: str) -> None:
    spec = {"loadBalancers": ["shared"], "static": list(static)}
    body = {"metadata": {"name": "fixed", "namespace": "shop"}, "spec": spec}
    await cluster.apply(BACKEND_GROUPS, body, manager="kubectl")


async def registered(cluster: Cluster, count: int) -> None:
    async def there() -> bool:
        records = await cluster.list(BACKEND_RECORDS, "shop")
        return [record.status.state for record in records] == ["Registered"] * count

    await wait_until(there, f"{count} records are Registered")


@pytest.mark.req("I-2", "I-4", "I-10", "X-3")
async def test_an_operator_sees_holds_and_cleans_up(place: Place) -> None:
    """Each verb once, in the order of a bad day; every exit code is checked on the way."""
    assert "No hub has run at" in await place.type("plan", code=1)
    await place.hub.start()
    await place.type("status", "--wait", "--timeout", "2m")
    assert "No load balancers found" in await place.type("plan")
    assert "No orphans." in await place.type("gc")
    assert "Nothing to read back" in await place.type("drift")
    assert "LoadBalancer shop/shared does not exist" in await place.type("explain", "lb/shared", "-n", "shop", code=1)
    assert "LoadBalancerClass edge does not exist" in await place.type("pause", "class/edge", code=1)

    async with Cluster.from_kubeconfig(place.kubeconfig, name="the hub") as cluster:
        await open_shop(cluster, place.haproxy.socket)
        await group(cluster, *ADDRESSES)
        await place.has(*ADDRESSES)
        await registered(cluster, 3)
        assert "Nothing would change; 1 load balancer compared." in await place.type("plan")
        said = await place.type("explain", "lb/shared", "-n", "shop")
        assert f"TCP/80  {HOST}:9001  Registered" in said
        assert "for BackendGroup/shop/fixed" in said
        await _hold(place, cluster)
        await _drift(place)
        await _entry_without_record(place, cluster)
        await _while_no_hub_leads(place, cluster)


async def _hold(place: Place, cluster: Cluster) -> None:
    assert "nothing held so far" in await place.type("pause", "lb/shared", "-n", "shop")
    await group(cluster, *ADDRESSES[:2])

    async def shown() -> bool:
        lb = await cluster.get(LOAD_BALANCERS, "shop", "shared")
        return any(f"1 held: Deregister {HOST}:9003" in condition.message for condition in lb.status.conditions or ())

    await wait_until(shown, "the condition Paused says what is held")
    plan = await place.json("plan", "lb/shared", "-n", "shop")
    (row,) = plan["loadBalancers"][0]["rows"]
    assert (plan["wouldChange"], plan["hubLeads"]) == (False, True)
    assert (row["action"], row["heldBy"], row["target"]) == ("Deregister", "Paused", f"{HOST}:9003")
    assert "is held, Paused" in await place.type("explain", "LoadBalancer/shop/shared")
    assert place.servers() == {*ADDRESSES, "theirs"}
    assert "it held 1 change." in await place.type("resume", "lb/shared", "-n", "shop")
    await place.has(*ADDRESSES[:2])
    await registered(cluster, 2)
    assert "was not paused" in await place.type("resume", "lb/shared", "-n", "shop")


async def _drift(place: Place) -> None:
    (name,) = [server for server in place.haproxy.servers("b0") if server.endswith("9001")]
    place.haproxy.ask(f"set server b0/{name} weight 9")
    drift = await place.json("drift", code=4)
    (load_balancer,) = drift["loadBalancers"]
    changed = {"listener": "TCP/80", "target": f"{HOST}:9001", "field": "weight", "ledger": "1", "there": "9"}
    assert (drift["drifted"], load_balancer["changed"], load_balancer["foreign"]) == (True, [changed], ["b0/theirs"])
    said = await place.type("drift", code=4)
    assert f"ours     TCP/80 {HOST}:9001: weight 1 recorded, 9 at the provider" in said
    assert "foreign  b0/theirs" in said

    async def scraped() -> bool:
        return await place.hub.metric("fairlead_sync_drift", 'provider="haproxy"') == 1

    await wait_until(scraped, "the drift is in the metrics")
    plan = await place.type("plan")
    assert f"! TCP/80 {HOST}:9001: weight 1 recorded, 9 at the provider" in plan
    assert "revert with: fairlead repair lb/shared -n shop" in plan
    assert "1 changed by others" in plan
    status = await place.json("status", code=4)
    assert (status["state"], [each["reason"] for each in status["troubles"]]) == ("NeedsAttention", ["Drifted"])
    assert "everything is healthy" not in await place.type("status", code=4)
    await _repair(place, name)


async def _repair(place: Place, name: str) -> None:
    """The hub restores manual changes and removals once, and leaves foreign entries alone."""
    place.haproxy.ask(f"set server b0/{name} state maint")
    place.haproxy.ask(f"del server b0/{name}")
    said = await place.type("repair", "lb/shared", "-n", "shop", "--dry-run")
    assert f"ours     TCP/80 {HOST}:9001: no longer at the provider" in said
    assert "theirs" in place.servers()
    assert f"{HOST}:9001" not in place.servers(), "a preview changes nothing"
    assert "The hub has reverted it." in await place.type("repair", "lb/shared", "-n", "shop")
    await place.has(*ADDRESSES[:2])
    assert "Nothing of ours drifted." in await place.type("drift")
    await place.type("status", "--wait", "--timeout", "2m")
    assert "needs to be reverted" in await place.type("repair", "lb/shared", "-n", "shop")


async def _entry_without_record(place: Place, cluster: Cluster) -> None:
    """A record is deleted by hand, and its backend leaves the group: it serves on, and no record owns it."""
    await place.type("pause", "class/edge")
    await group(cluster, ADDRESSES[0])
    records = await cluster.list(BACKEND_RECORDS, "shop")
    (forgotten,) = [record.metadata.name for record in records if record.spec.target.port == 9002]
    await cluster.merge_patch(BACKEND_RECORDS, "shop", forgotten, {"metadata": {"finalizers": None}})
    await cluster.delete(BACKEND_RECORDS, "shop", forgotten)
    await registered(cluster, 1)
    await place.type("resume", "class/edge")
    await place.has(*ADDRESSES[:2])
    report = await place.json("gc", code=4)
    (orphan,) = report["orphans"]
    assert (orphan["kind"], orphan["target"], orphan["done"]) == ("Entry", f"{HOST}:9002", "")
    assert "1 orphan left" in await place.type("gc", code=4)
    assert place.servers() == {*ADDRESSES[:2], "theirs"}, "a report is no more than that"
    assert f"{HOST}:9002  deleted: the hub deregisters it now" in await place.type("gc", "--delete")
    await place.has(ADDRESSES[0])
    assert "No orphans." in await place.type("gc")


async def _while_no_hub_leads(place: Place, cluster: Cluster) -> None:
    """What would change, and what is left over, can be seen without a hub; it is done when one is back."""
    await place.hub.terminate()
    assert await place.hub.ended() == 0, "told to stop is no failure"
    await group(cluster, ADDRESSES[1])
    said = await place.type("plan", code=4)
    assert f"+ Register         TCP/80 {HOST}:9002  New: desired, but not recorded" in said
    assert f"= hold Deregister  TCP/80 {HOST}:9001  Absent: " in said
    assert "held: Warming, listener TCP/80 gets all new targets" in said
    assert "1 to add, 1 held; 1 load balancer compared." in said
    assert "No hub leads now" in said
    await cluster.merge_patch(LOAD_BALANCERS, "shop", "shared", {"metadata": {"finalizers": None}})
    await cluster.delete(LOAD_BALANCERS, "shop", "shared")
    assert "Records whose load balancer is gone:" in await place.type("gc", code=4)
    assert "deleted: the hub deregisters it now" in await place.type("gc", "--delete")
    assert "already being removed" in await place.type("gc")
    await place.hub.start()
    await place.has()
    await registered(cluster, 0)
    assert "No orphans." in await place.type("gc")
    await place.apis.kill("hub")
    for verb in ("plan", "drift", "gc", "status", "names"):
        assert "refuses connections" in await place.type(verb, code=3), verb
