"""A hub's control of certificates, with an API and an authority over HTTP, which a test takes step by step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hub_parts import intent_context

from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS, MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.api.meta import KubeObject, Resource
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.tenant import TENANTS
from fairlead.hub.certificates.control import CertificateControl
from fairlead.hub.intents.http import HTTPObjects
from fairlead.hub.inventory import Inventory
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.runtime.clock import VirtualClock
from fairlead_demo.worlds.acme_server import AcmeServer
from tests.scenario.installed_kinds import server_with_kinds

T = TypeVar("T", bound=KubeObject)

NAMESPACE, NAME, HOST = "tenant-east", "acme.shop", "shop.example.com"


class World:
    """A hub's control of certificates, whose caches a test fills from the API before each step."""

    def __init__(self, cluster: Cluster, authority: AcmeServer) -> None:
        self.cluster = cluster
        self.authority = authority
        self.clock = VirtualClock(start=datetime.now(UTC))
        self.leads = True
        self.restart()

    def restart(self) -> None:
        """Begin a new process on the same API."""
        inventory = Inventory(self.cluster)
        HTTPObjects(self.cluster, inventory)
        context = msgspec.structs.replace(
            intent_context(pool=None, capabilities={}),
            cluster=self.cluster,
            inventory=inventory,
            clock=self.clock,
            leading=lambda: self.leads,
            events=EventRecorder(self.cluster, component="fairlead-hub"),
        )
        self.inventory = inventory
        self.control = CertificateControl(context)

    async def issuer(self, *, name: str = "test", **spec: Any) -> None:
        body = {"metadata": {"name": name}, "spec": {"server": self.authority.directory, **spec}}
        await self.cluster.apply(CERTIFICATE_ISSUERS, body, manager="operator")

    async def ask(self, *hosts: str, name: str = NAME, **spec: Any) -> None:
        body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"hosts": list(hosts), "issuer": "test"}}
        body["spec"].update(spec)
        await self.cluster.apply(MANAGED_CERTIFICATES, body, manager="agent")

    async def refresh(self) -> None:
        await self._refresh(self.inventory.tenants, TENANTS)
        await self._refresh(self.inventory.issuers, CERTIFICATE_ISSUERS)
        await self._refresh(self.inventory.managed, MANAGED_CERTIFICATES)

    async def _refresh(self, cache: WatchCache[T], resource: Resource[T]) -> None:
        there = {obj.key: obj for obj in await self.cluster.list(resource)}
        for known in list(cache.values()):
            if known.key not in there:
                cache._store.remove(known.key)
        for obj in there.values():
            cache._store.put(obj)

    async def step(self) -> float | None:
        await self.refresh()
        return await self.control.reconcile((NAMESPACE, NAME))

    async def settle(self, state: str, *, steps: int = 200) -> ManagedCertificate:
        """Take steps until the state is ``state``; an authority needs moments in between."""
        for _ in range(steps):
            await self.step()
            obj = await self.read()
            if obj.status.state == state:
                return obj
            await asyncio.sleep(0.02)
        raise AssertionError(f"it is {(await self.read()).status}")

    async def read(self) -> ManagedCertificate:
        return await self.cluster.get(MANAGED_CERTIFICATES, NAMESPACE, NAME)

    async def condition(self, kind: str) -> tuple[str, str, str]:
        obj = await self.read()
        each = next(each for each in obj.status.conditions or () if each.type == kind)
        return each.status, each.reason, each.message


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = await server_with_kinds()
    await server.start()
    server.write_kubeconfig(tmp_path / "kubeconfig")
    try:
        async with (
            Cluster.from_kubeconfig(tmp_path / "kubeconfig", name="hub") as cluster,
            AcmeServer(where=lambda _host: ("127.0.0.1", 1)) as authority,
        ):
            for name in (SYSTEM_NAMESPACE, NAMESPACE):
                await cluster.create(NAMESPACES, {"metadata": {"name": name}})
            await cluster.create(TENANTS, {"metadata": {"name": "east"}, "spec": {}})
            authority.trusting = True
            yield World(cluster, authority)
    finally:
        await server.stop()
