"""Objects in the cluster: written when they differ, by the leader only, and deleted when no load balancer needs
them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kubernetes import CONFIG_MAPS, SERVICES, Service
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import Resource
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.certificates import ClientCertificates, SharedAuthority
from fairlead.providers.envoy.kubernetes.fleet import ServiceAddresses
from fairlead.providers.envoy.kubernetes.manifests import (
    GROUP_LABEL,
    HASH_ANNOTATION,
    LOAD_BALANCER_ANNOTATION,
    Manifest,
    group_labels,
    group_name,
    group_of,
    hash_of,
    hashed,
    ref_of,
)
from fairlead.providers.envoy.kubernetes.objects import ClusterObjects, udp_ports
from fairlead.runtime.clock import SystemClock
from tests.scenario.any_api import embedded_api, until
from tests.scenario.installed_kinds import server_with_kinds

LABELS = {LABEL_MANAGED_BY: MANAGED_BY, GROUP_LABEL: group_name("default")}


def config_map(value: str = "1") -> Manifest:
    metadata = {"name": "proxies", "namespace": "default", "labels": LABELS}
    return hashed({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": value}})


def service(name: str = "web") -> Manifest:
    annotations = {LOAD_BALANCER_ANNOTATION: f"TCPLoadBalancer/default/{name}"}
    metadata = {"name": name, "namespace": "default", "labels": LABELS, "annotations": annotations}
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    return hashed({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})


class Replica:
    """``ClusterObjects`` of one replica; tests change ``leads``."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.leads = True
        self.cluster = cluster
        shared = SharedAuthority(
            cluster=cluster, data_dir=directory, server_names=["hub"], clock=SystemClock(), leading=self.leading
        )
        certificates = ClientCertificates(cluster=cluster, shared=shared, clock=SystemClock(), leading=self.leading)
        self.objects = ClusterObjects(
            cluster=cluster, certificates=certificates, clock=SystemClock(), leading=self.leading
        )
        self.addresses: list[ServiceAddresses] = []
        self.objects.on_service_addresses(self.addresses.append)

    def leading(self) -> bool:
        return self.leads

    async def written(self, manifest: Manifest) -> None:
        """Return once the cluster has this version of the manifest."""

        async def check() -> bool:
            existing = await self.cluster.get(CONFIG_MAPS, "default", "proxies")
            return existing.annotation(HASH_ANNOTATION) == hash_of(manifest)

        await until(check)
        await until(lambda: not self.objects.busy)

    async def settled(self) -> None:
        await until(lambda: not self.objects.busy)


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    async with embedded_api(await server_with_kinds()) as config, Cluster(config, name="hub") as cluster:
        replica = Replica(cluster, tmp_path)
        running = asyncio.create_task(replica.objects.run())
        await replica.objects.wait_synced()
        yield replica
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_an_object_is_written_once_and_again_when_it_differs_or_is_deleted(replica: Replica) -> None:
    await replica.objects.apply(config_map())
    await replica.written(config_map())
    writes = replica.cluster.writes
    await replica.objects.apply(config_map())
    replica.objects.reconcile_all()
    await replica.settled()
    assert replica.cluster.writes == writes
    await replica.objects.apply(config_map("2"))
    await replica.written(config_map("2"))
    await replica.cluster.delete(CONFIG_MAPS, "default", "proxies")
    await replica.written(config_map("2"))


async def test_a_follower_writes_and_deletes_only_when_it_leads(replica: Replica) -> None:
    await replica.objects.apply(config_map())
    await replica.written(config_map())
    replica.leads = False
    writes = replica.cluster.writes
    await replica.objects.apply(service())
    await replica.objects.delete(ref_of(config_map()))
    await replica.settled()
    assert replica.cluster.writes == writes
    replica.leads = True
    replica.objects.reconcile_all()

    async def done() -> bool:
        existing = [*await replica.cluster.list(CONFIG_MAPS), *await replica.cluster.list(SERVICES)]
        names = {obj.metadata.name for obj in existing}
        return "proxies" not in names and "web" in names

    await until(done)


async def test_addresses_of_services_are_reported(replica: Replica) -> None:
    await replica.objects.apply(service())
    ingress = {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}, {"hostname": "lb.example.com"}]}}

    async def assign() -> bool:
        await replica.cluster.merge_patch(SERVICES, "default", "web", {"status": ingress}, subresource="status")
        return True

    await until(assign)
    wanted = ServiceAddresses("default", "web", ("203.0.113.7", "lb.example.com"))
    await until(lambda: replica.addresses and replica.addresses[-1] == wanted)


async def test_rejections_are_reported_in_a_sentence(replica: Replica) -> None:
    broken = {**service(), "spec": {"type": "LoadBalancer", "ports": [{"port": "none"}]}}
    await replica.objects.apply(broken)
    await until(lambda: replica.addresses and replica.addresses[-1].problem)
    assert replica.addresses[-1].addresses == ()
    await replica.objects.delete(ref_of(broken))
    with pytest.raises(NotFound):
        await replica.cluster.get(SERVICES, "default", "web")


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (HTTP_LOAD_BALANCERS, {"listeners": [{"name": "http", "port": 80}]}),
        (LOAD_BALANCERS, {"className": "envoy", "clusterName": "blue", "listeners": [{"port": 6443}]}),
    ],
    ids=["HTTPLoadBalancer", "LoadBalancer"],
)
async def test_proxies_of_existing_load_balancers_are_not_orphans(
    replica: Replica, kind: Resource[Any], spec: dict[str, Any]
) -> None:
    key = LoadBalancerKey(kind.kind, "default", "web")
    labels = group_labels(group_of(key))
    metadata = {"name": "proxies", "namespace": "default", "labels": labels}
    proxies = hashed({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}})
    metadata = {"name": "web", "namespace": "default", "labels": labels}
    front: dict[str, Any] = {**metadata, "annotations": {LOAD_BALANCER_ANNOTATION: str(key)}}
    ports = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    services = hashed({"apiVersion": "v1", "kind": "Service", "metadata": front, "spec": ports})
    await replica.cluster.create(kind, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
    for manifest in (services, proxies):
        await replica.objects.apply(manifest)
    await replica.written(proxies)
    replica.leads = False
    for manifest in (services, proxies):
        await replica.objects.delete(ref_of(manifest))
    assert await replica.objects.owned() == []


async def test_only_objects_of_load_balancers_that_do_not_exist_are_orphans(replica: Replica) -> None:
    for manifest in (service("alive"), service("dead"), config_map()):
        await replica.objects.apply(manifest)
    await replica.written(config_map())
    assert await replica.objects.owned() == [], "all of it is wanted"
    spec = {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}
    await replica.cluster.create(
        TCP_LOAD_BALANCERS, {"metadata": {"name": "alive", "namespace": "default"}, "spec": spec}
    )
    replica.leads = False
    for manifest in (service("alive"), service("dead"), config_map()):
        await replica.objects.delete(ref_of(manifest))
    assert await replica.objects.owned() == [ref_of(service("dead"))], (
        "a namespace with load balancers keeps its proxies"
    )
    await replica.cluster.delete(TCP_LOAD_BALANCERS, "default", "alive")
    assert set(await replica.objects.owned()) == {
        ref_of(each) for each in (service("alive"), service("dead"), config_map())
    }


MIXED = [{"port": 443}, {"port": 443, "protocol": "UDP"}]
TCP_SERVED, UDP_SERVED = {"port": 443, "protocol": "TCP"}, {"port": 443, "protocol": "UDP"}


@pytest.mark.req("F-9")
@pytest.mark.parametrize(
    ("ports", "conditions", "problem"),
    [
        ((), {}, ""),
        ((TCP_SERVED, UDP_SERVED), {}, ""),
        ((TCP_SERVED, UDP_SERVED | {"error": "MixedProtocolNotSupported"}), {}, "rejects UDP/443: Mixed"),
        ((TCP_SERVED | {"error": "cloud.example/Quota"}, UDP_SERVED), {"LoadBalancerPortsError": "True"}, ""),
        ((TCP_SERVED,), {}, "does not serve UDP/443 at 203.0.113.7"),
        ((), {"LoadBalancerPortsError": "True"}, "reports LoadBalancerMixedProtocolNotSupported"),
        ((), {"LoadBalancerPortsError": "False", "Other": "True"}, ""),
    ],
)
def test_udp_ports_that_the_load_balancer_of_a_service_rejects(
    ports: tuple[dict[str, object], ...], conditions: dict[str, str], problem: str
) -> None:
    entries = [
        {"type": name, "status": status, "reason": "LoadBalancerMixedProtocolNotSupported", "message": "UDP"}
        for name, status in conditions.items()
    ]
    ingress = [{"ip": "203.0.113.7", "ports": list(ports)} if ports else {"ip": "203.0.113.7"}]
    body = {
        "metadata": {"name": "web", "namespace": "a"},
        "spec": {"ports": MIXED},
        "status": {"loadBalancer": {"ingress": ingress}, "conditions": entries},
    }
    udp = udp_ports(msgspec.convert(body, Service))
    assert udp.keys() == {443}
    assert problem in udp[443]
    assert bool(udp[443]) == bool(problem)
