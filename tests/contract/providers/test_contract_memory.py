"""The reference provider keeps the contract."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.memory import Faults, MemoryCloud, MemoryProvider
from fairlead.testing.contract import Place, ProviderContract, Subject

REFUSED = TargetKey("10.0.0.66", 80)


class MemorySubject(Subject):
    def __init__(self) -> None:
        self.cloud = MemoryCloud()
        self.faults = Faults(rejected=frozenset({REFUSED}))
        self.provider = MemoryProvider(cloud=self.cloud, faults=self.faults)

    def spec(self, name: str) -> FrontendSpec:
        return FrontendSpec(LoadBalancerKey("LoadBalancer", "shop", name), "group", (Listener(80),))

    def targets(self, count: int) -> Sequence[TargetKey]:
        return [TargetKey(f"10.0.0.{number}", 8080) for number in range(1, count + 1)]

    async def present(self, spec: FrontendSpec) -> dict[Place, bool]:
        return {place: not target.draining for place, target in self.cloud.members(spec.key).items()}

    def refused(self) -> TargetKey | None:
        return REFUSED

    async def add_foreign(self, spec: FrontendSpec) -> None:
        self.cloud.add_foreign(spec.key, "theirs", Target(self.targets(1)[0], weight=7))

    async def foreign(self, spec: FrontendSpec) -> object:
        return self.cloud.foreign(spec.key)

    async def make_unreachable(self) -> None:
        self.faults.down = "the memory cloud is switched off"

    async def make_reachable(self) -> None:
        self.faults.down = ""

    async def restart(self) -> None:
        self.provider = MemoryProvider(cloud=self.cloud, faults=self.faults)


@pytest.mark.req("L-10", "L-16")
class TestMemory(ProviderContract):
    @pytest.fixture
    async def subject(self) -> MemorySubject:
        return MemorySubject()
