"""A hub that publishes names at a real BIND, over an API server; real time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.api.backendgroup import BACKEND_RECORDS
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES, DNSZone, Hostname
from fairlead.api.kubernetes import NAMESPACES, SECRETS
from fairlead.api.meta import AnyResource, KubeObject, WireCondition, condition_of
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.errors import AlreadyExists, NotFound, NotServed
from fairlead.hub.app import Hub, HubConfig
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.providers.zones.external_dns import annotations_provider
from fairlead.providers.zones.external_dns import provider as external_dns
from fairlead.providers.zones.powerdns import provider as powerdns
from fairlead.providers.zones.provider import DNSProvider
from fairlead.providers.zones.rfc2136.provider import create
from fairlead.runtime.clock import SystemClock
from fairlead.testing.faults import FaultyProvider
from fairlead_demo.worlds.name_servers import Bind, binary
from tests.scenario.any_api import until

needs_bind = pytest.mark.skipif(
    binary("named") is None, reason="BIND 9 is not installed: apt-get install bind9, as root"
)
ZONE = "example.test"


class ZonesWorld:
    """An API server, a BIND, and a hub that may be stopped and started again."""

    def __init__(self, config: ClusterConfig, bind: Bind) -> None:
        self.config = config
        self.bind = bind
        self.user = Cluster(config, name="user", qps=0)
        self.provider: DNSProvider | None = None
        self._hub: tuple[Hub, Cluster, asyncio.Task[None]] | None = None

    async def start(self) -> None:
        """Start a hub."""
        cluster, clock = Cluster(self.config, name="hub", qps=0), SystemClock()

        def make() -> DNSProvider:
            self.provider = create(cluster=cluster, clock=clock)
            return self.provider

        hub = Hub(
            cluster=cluster,
            providers={"envoy": FaultyProvider(MemoryProvider(cloud=MemoryCloud(clock=clock)), clock=clock)},
            config=HubConfig(identity="hub-0", reclaim_lease=True),
            factories={
                "rfc2136": make,
                "external-dns": lambda: external_dns.create(cluster=cluster),
                "external-dns-annotations": lambda: annotations_provider.create(cluster=cluster),
                "powerdns": lambda: powerdns.create(cluster=cluster, clock=clock),
            },
        )
        self._hub = (hub, cluster, asyncio.create_task(hub.run(), name="hub"))
        await until(lambda: hub.leading or self._ended(), what="the hub leads")

    async def stop(self) -> None:
        """Stop the hub; what it has done stays."""
        if self._hub is None:
            return
        _, cluster, task = self._hub
        self._hub = None
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await cluster.aclose()

    def _ended(self) -> bool:
        if self._hub is not None and self._hub[2].done():
            self._hub[2].result()
        return False

    # --- what operators and controllers do ---

    async def secret(self, name: str, value: str, *, entry: str = "tsig-secret") -> None:
        with contextlib.suppress(AlreadyExists):
            await self.user.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
        body = {"metadata": {"name": name, "namespace": SYSTEM_NAMESPACE}, "stringData": {entry: value}}
        await self.user.apply(SECRETS, body, manager="kubectl")

    async def zone(self, name: str = "test", parameters: Mapping[str, str] | None = None, **spec: Any) -> None:
        await self.secret("fairlead", self.bind.secrets["fairlead"])
        given = {"server": self.bind.server, "keyName": "fairlead", "credentials": "fairlead", **(parameters or {})}
        spec = {"zone": self.bind.zone, "provider": "rfc2136", "parameters": given, **spec}
        await self.user.apply(DNS_ZONES, {"metadata": {"name": name}, "spec": spec}, manager="kubectl")

    async def name(self, name: str, **spec: Any) -> None:
        spec = {"host": f"{name}.{self.bind.zone}", **spec}
        body = {"metadata": {"name": name, "namespace": SYSTEM_NAMESPACE}, "spec": spec}
        await self.user.apply(HOSTNAMES, body, manager="kubectl")

    async def delete(self, name: str) -> None:
        await self.user.delete(HOSTNAMES, SYSTEM_NAMESPACE, name)

    # --- what they see ---

    async def hostname(self, name: str) -> Hostname:
        return await self.user.get(HOSTNAMES, SYSTEM_NAMESPACE, name)

    async def get_zone(self, name: str = "test") -> DNSZone:
        return await self.user.get(DNS_ZONES, "", name)

    async def condition(self, name: str, type_: str) -> WireCondition | None:
        return condition_of((await self.hostname(name)).status.conditions, type_)

    async def published(self, name: str) -> Hostname:
        async def so() -> Hostname | None:
            obj = await self.hostname(name)
            programmed = condition_of(obj.status.conditions, "Programmed")
            fresh = programmed is not None and programmed.observed_generation == obj.metadata.generation
            return obj if fresh and programmed.status == "True" else None

        return await until(so, what=f"{name} is published")

    async def says(self, name: str, type_: str, status: str, *texts: str) -> WireCondition:
        """Wait for a condition with all of ``texts`` in its message."""

        async def so() -> WireCondition | None:
            there = await self.condition(name, type_)
            good = there is not None and there.status == status and all(text in there.message for text in texts)
            return there if good else None

        return await until(so, what=f"{name}: {type_}={status} {texts}")

    async def answers(self, name: str, type_: str, *values: str) -> None:
        async def so() -> bool:
            return await self.bind.ask(f"{name}.{self.bind.zone}", type_) == set(values)

        await until(so, what=f"{name} {type_} {values}", timeout_s=240.0)

    async def gone(self, name: str) -> None:
        async def so() -> bool:
            try:
                await self.hostname(name)
            except NotFound:
                return True
            return False

        await until(so, what=f"{name} is gone")

    async def records(self) -> list[str]:
        records = await self.user.list(BACKEND_RECORDS)
        return sorted(record.spec.target.address for record in records)

    async def leave_nothing(self) -> None:
        """Remove what is left, so that a test after this one finds an API server without names."""
        records = await self.user.list(BACKEND_RECORDS)
        left: list[tuple[AnyResource, KubeObject]] = [
            *((HOSTNAMES, each) for each in await self.user.list(HOSTNAMES)),
            *((BACKEND_RECORDS, each) for each in records if each.spec.load_balancer.kind == HOSTNAMES.kind),
            *((DNS_ZONES, each) for each in await self.user.list(DNS_ZONES)),
        ]
        for resource, obj in left:
            with contextlib.suppress(NotFound):
                await self.user.merge_patch(resource, *obj.key, {"metadata": {"finalizers": None}})
                await self.user.delete(resource, *obj.key)

    async def aclose(self) -> None:
        await self.stop()
        with contextlib.suppress(NotServed):  # no hub has run, and so no kind is there
            await self.leave_nothing()
        await self.user.aclose()
        await self.bind.kill()


@asynccontextmanager
async def zones_world(config: ClusterConfig, directory: Path, *records: str) -> AsyncGenerator[ZonesWorld]:
    bind = Bind(directory / "bind", ZONE, records=records)
    await bind.start()
    world = ZonesWorld(config, bind)
    try:
        yield world
    finally:
        await world.aclose()
