"""The Envoy provider keeps the contract; what is there is read from the real Envoy's own admin interface."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio

from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.envoy.envoy_process import admin_get
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.provider import EnvoyProvider, create
from fairlead.providers.envoy.resources import resource_name
from fairlead.testing.contract import Place, ProviderContract, Subject

_NUMBERS = itertools.count(1)


class EnvoySubject(Subject):
    foreign_possible = False
    breakable = False
    restartable = False

    def __init__(self, provider: EnvoyProvider, network: int) -> None:
        self.provider = self.envoy = provider
        self.number = next(_NUMBERS)
        self.network = network

    def spec(self, name: str) -> FrontendSpec:
        key = LoadBalancerKey("LoadBalancer", f"shop-{self.number}", name)
        address = f"127.{self.network}.{self.number}.{1 + ('one', 'two', 'never').index(name)}"
        return FrontendSpec(key, "group", (Listener(18080),), address=address)

    def targets(self, count: int) -> Sequence[TargetKey]:
        return [TargetKey(f"10.0.0.{number}", 8080) for number in range(1, count + 1)]

    async def present(self, spec: FrontendSpec) -> dict[Place, bool]:
        listener = spec.listeners[0].key
        (envoy,) = cast("LocalFleet", self.envoy.fleet).envoys.values()
        status, text = await envoy.admin("/clusters")
        assert status == 200, text
        present: dict[Place, bool] = {}
        for line in text.splitlines():
            # <cluster>::<address>:<port>::health_flags::<flags>
            cluster, at, field, flags = (line.split("::") + [""] * 4)[:4]
            if cluster == resource_name(spec.key, listener) and field == "health_flags":
                address, _, port = at.rpartition(":")
                present[listener, TargetKey(address, int(port))] = "draining" not in flags
        return present


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def envoy() -> AsyncIterator[EnvoyProvider]:
    path = Path(tempfile.mkdtemp(prefix="fl-", dir="/tmp"))
    provider = create(data_dir=path, concurrency=1)
    await provider.start()
    provider.publish()
    async with asyncio.timeout(180):
        while (await admin_get(path / "admin.sock", "/ready"))[0] != 200:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
    yield provider
    await provider.stop()
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.req("L-16")
@pytest.mark.envoy
@pytest.mark.asyncio(loop_scope="session")
class TestEnvoy(ProviderContract):
    @pytest_asyncio.fixture(loop_scope="session")
    async def subject(self, envoy: EnvoyProvider, worker_id: str) -> EnvoySubject:
        return EnvoySubject(envoy, 220 + int(worker_id.removeprefix("gw") if worker_id != "master" else 9))
