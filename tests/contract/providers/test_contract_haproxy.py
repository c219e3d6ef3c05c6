"""The HAProxy provider keeps the contract, on a real HAProxy with servers that are not ours in every backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.haproxy.provider import HAProxyProvider
from fairlead.providers.haproxy.snapshot import prefix, target_of
from fairlead.testing.contract import Place, ProviderContract, Subject
from tests.contract.providers.provider_processes import HAProxy


class HAProxySubject(Subject):
    def __init__(self, haproxy: HAProxy) -> None:
        self.haproxy = haproxy
        #: One for each load balancer: HAProxy would mix the traffic of two that share one.
        self.backends: dict[str, str] = {}
        self.provider = self.tested = HAProxyProvider(installation="tests")

    def spec(self, name: str) -> FrontendSpec:
        key = LoadBalancerKey("LoadBalancer", "shop", name)
        if name not in self.backends:
            self.backends[name] = next(self.haproxy.backends)
        parameters = {"socket": str(self.haproxy.socket), "backend": self.backends[name]}
        return FrontendSpec(key, "group", (Listener(80),), parameters=parameters)

    def targets(self, count: int) -> Sequence[TargetKey]:
        return [TargetKey("127.0.0.1", 1), TargetKey("2001:db8::7", 8080), *self._more()][:count]

    @staticmethod
    def _more() -> list[TargetKey]:
        return [TargetKey(f"127.0.0.{number}", 8080) for number in range(2, 9)]

    async def present(self, spec: FrontendSpec) -> dict[Place, bool]:
        listener = spec.listeners[0].key
        begins = prefix("tests", spec.key, listener)
        present: dict[Place, bool] = {}
        for name, fields in self.haproxy.servers(spec.parameters["backend"]).items():
            if (target := target_of(name, begins)) is not None:
                assert fields[0] == target.address
                present[listener, target] = fields[2] == "0"
        return present

    def refused(self) -> TargetKey | None:
        return TargetKey("not-an-address.example", 80)

    async def add_foreign(self, spec: FrontendSpec) -> None:
        at = self.targets(1)[0]
        self.haproxy.ask(f"add server {spec.parameters['backend']}/byhand {at.address}:{at.port} weight 3")

    async def foreign(self, spec: FrontendSpec) -> object:
        servers = self.haproxy.servers(spec.parameters["backend"])
        return {name: fields for name, fields in servers.items() if not name.startswith("fl-")}

    async def make_unreachable(self) -> None:
        self.haproxy.hide()

    async def make_reachable(self) -> None:
        self.haproxy.show()

    async def restart(self) -> None:
        await self.tested.close()
        self.provider = self.tested = HAProxyProvider(installation="tests")


@pytest.mark.req("L-2", "L-10", "L-16")
class TestHAProxy(ProviderContract):
    @pytest.fixture
    async def subject(self, haproxy: HAProxy) -> AsyncIterator[HAProxySubject]:
        subject = HAProxySubject(haproxy)
        yield subject
        await subject.tested.close()
