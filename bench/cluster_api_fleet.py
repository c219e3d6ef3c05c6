"""Measures a cold start with 500 Clusters of Cluster API, and the cost while nothing changes.

In: Clusters with control planes and workers as objects; no machine of them runs. Out: figures. The hub and the
controller start when all objects are there.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from bench.figures import Figure
from bench.fleet import Process, free_port, until, until_true
from bench.regions import end_envoys, run_all
from fairlead.api.clusterapi import CLUSTERS, LABEL_CLUSTER_NAME, MACHINES, MARKER_NAME
from fairlead.api.kinds import all_crds
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject, ObjectKey
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds
from fairlead_demo.worlds.clusterapi_kinds import cluster_api_crds

CONTROL_PLANE, WORKERS = 3, 10
PORT = 6443
#: Until connections to what does not run have been refused as often as checks want it.
SETTLE_S, IDLE_S = 20.0, 60.0
_CLASS = "edge"


async def cold_start(clusters: int = int(os.environ.get("CLUSTERS", "500"))) -> AsyncIterator[Figure]:
    """Measure until every load balancer has its endpoint, and every control-plane machine is registered."""
    with tempfile.TemporaryDirectory(prefix="flk-", dir="/tmp") as name:
        directory = Path(name)
        config, ports = directory / "api" / "kubeconfig", (free_port(), free_port())
        options = ("--kubeconfig", str(config), "--log-level", "warning")
        api = Process("api", "apiserver", "--memory", "--data-dir", str(directory / "api"), directory=directory)
        hub = Process(
            "hub", "hub", *options, "--address-pool", "127.80.0.0/16", "--data-dir", str(directory / "h"),
            "--metrics", f"127.0.0.1:{ports[0]}", "--stop-proxy", "--envoy-threads", "1", "--tenant-ports", "0",
            directory=directory,
        )  # fmt: skip
        capi = Process("capi", "capi", *options, "--metrics", f"127.0.0.1:{ports[1]}", directory=directory)
        try:
            await api.start()
            await until(config.exists, what="the API server")
            async with Cluster.from_kubeconfig(config, name="bench", qps=20_000) as cluster:
                await until_true(lambda: _served(cluster), what="the kinds are served")
                await _create(cluster, clusters)
                # Followed, since asking for all of them again and again would be most of what the API server does.
                cache: WatchCache[LoadBalancer] = WatchCache(cluster, LOAD_BALANCERS)
                done: set[ObjectKey] = set()
                cache.on_change(lambda _old, new: done.add(new.key) if new is not None and _is_complete(new) else None)
                watching = asyncio.create_task(cache.run())
                await cache.wait_synced()
                started, used = time.perf_counter(), api.cpu_s
                await hub.start()
                await capi.start()
                await until(lambda: len(done) == clusters, what="every member is registered", timeout_s=600)
                machines = clusters * (CONTROL_PLANE + WORKERS)
                where = f"{clusters} Clusters, {machines:,} Machines"
                seconds = time.perf_counter() - started
                yield Figure(name=f"{where}: from a cold start to complete", value=seconds, unit="s", limit=30)
                watching.cancel()
                for process, cpu_s in ((api, api.cpu_s - used), (hub, hub.cpu_s), (capi, capi.cpu_s)):
                    yield Figure(name=f"{where}: processor time of {process.name} for it", value=cpu_s, unit="s")
                await asyncio.sleep(SETTLE_S)
                before = await _writes(ports)
                await asyncio.sleep(IDLE_S)
                after = await _writes(ports)
                new = "; ".join(sorted(after.keys() - before.keys()))
                wrote = sum(after.values()) - sum(before.values())
                yield Figure(
                    name=f"{where}: writes in {IDLE_S:g} s of standing still (leases apart)",
                    value=wrote, unit="", limit=0, compares_with=new,
                )  # fmt: skip
                for process in (hub, capi):
                    yield Figure(name=f"{where}: memory of {process.name}", value=process.rss_mb, unit="MB")
                both = hub.rss_mb + capi.rss_mb
                yield Figure(name=f"{where}: memory of hub and capi", value=both, unit="MB", limit=400)
        finally:
            for process in (capi, hub, api):
                await process.stop()
            end_envoys(directory)


async def _served(cluster: Cluster) -> bool:
    return not await install_crds(cluster, [*all_crds(), *cluster_api_crds()], "bench")


async def _create(cluster: Cluster, clusters: int) -> None:
    spec: JSONObject = {"provider": "envoy", "drain": "1s"}
    await cluster.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": _CLASS}, "spec": spec})
    names = [f"c-{number}" for number in range(clusters)]
    await run_all([cluster.create(CLUSTERS, {"metadata": _about(name), "spec": _with_plane(name)}) for name in names])
    balancer: JSONObject = {"className": _CLASS, "listeners": [{"port": PORT, "protocol": "TCP"}]}
    # The idle state is of interest: members that do not run are not asked whether they do.
    off = {"healthCheck": {"disabled": True}}
    await run_all(
        [
            cluster.create(LOAD_BALANCERS, {"metadata": _about(name), "spec": {**balancer, **off, "clusterName": name}})
            for name in names
        ]
    )
    await run_all(
        [
            _machine(cluster, name, owner, index)
            for owner, name in enumerate(names)
            for index in range(CONTROL_PLANE + WORKERS)
        ]
    )


async def _machine(cluster: Cluster, owner: str, number: int, index: int) -> None:
    name = f"{owner}-{index}"
    plane = {MARKER_NAME: owner} if index < CONTROL_PLANE else {}
    meta = {**_about(name), "labels": {LABEL_CLUSTER_NAME: owner, **plane}}
    await cluster.create(MACHINES, {"metadata": meta, "spec": {"clusterName": owner}})
    address = f"127.{100 + index}.{number // 250}.{1 + number % 250}"
    status = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
    await cluster.merge_patch(MACHINES, "default", name, status, subresource="status")


def _with_plane(name: str) -> JSONObject:
    group = "controlplane.cluster.x-k8s.io"
    return {"controlPlaneRef": {"apiGroup": group, "kind": "AnyControlPlane", "name": name}}


def _about(name: str) -> JSONObject:
    return {"name": name, "namespace": "default"}


def _is_complete(obj: LoadBalancer) -> bool:
    states = [each.state for each in obj.status.members or ()]
    return states == ["active"] * CONTROL_PLANE and obj.status.endpoint is not None


async def _writes(ports: tuple[int, ...]) -> dict[str, int]:
    """Return the accepted writes of both so far by metric; leases and Events never count."""
    quiet = ('verb="get"', 'verb="list"', 'verb="watch"', "leases", 'resource="events"')
    counted: dict[str, int] = {}
    async with aiohttp.ClientSession() as session:
        for port in ports:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                lines = (await answer.text()).splitlines()
            for line in lines:
                if line.startswith("fairlead_kube_requests_total{") and not any(word in line for word in quiet):
                    sample, value = line.rsplit(" ", 1)
                    counted[f"{port} {sample}"] = int(float(value))
    return counted
