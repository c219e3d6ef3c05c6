"""The webhook provider keeps the contract, with the example driver of the docs as a process of its own."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Sequence

import pytest

from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.webhook.provider import WebhookProvider
from fairlead.testing.contract import Place, ProviderContract, Subject
from tests.contract.providers.provider_processes import ExampleDriver

_NUMBERS = itertools.count()


class WebhookSubject(Subject):
    deletes_everything = True

    def __init__(self, driver: ExampleDriver) -> None:
        self.driver = driver
        self.number = next(_NUMBERS)
        self.provider = self.tested = WebhookProvider()

    def spec(self, name: str) -> FrontendSpec:
        key = LoadBalancerKey("LoadBalancer", f"shop-{self.number}", name)
        parameters = {"url": self.driver.url, "name": self._name(key), "verify": "true"}
        return FrontendSpec(key, "group", (Listener(80),), parameters=parameters)

    @staticmethod
    def _name(key: LoadBalancerKey) -> str:
        return f"{key.namespace}.{key.name}"

    def targets(self, count: int) -> Sequence[TargetKey]:
        return [TargetKey("2001:db8::7", 8080), *(TargetKey(f"10.0.0.{n}", 8080) for n in range(1, 9))][:count]

    def _backends(self, spec: FrontendSpec) -> dict[str, object]:
        load_balancer = json.loads(self.driver.file.read_text()).get(self._name(spec.key), {})
        return load_balancer.get("backends", {})

    async def present(self, spec: FrontendSpec) -> dict[Place, bool]:
        listener = spec.listeners[0].key
        there = self._backends(spec)
        return {(listener, at): True for at in self.targets(9) if str(at) in there}

    async def add_foreign(self, spec: FrontendSpec) -> None:
        everything = json.loads(self.driver.file.read_text())
        everything[self._name(spec.key)]["backends"]["somebody-elses:80"] = {"weight": "7"}
        self.driver.stop()
        self.driver.file.write_text(json.dumps(everything))
        self.driver.start()

    async def foreign(self, spec: FrontendSpec) -> object:
        ours = {str(at) for at in self.targets(9)}
        return {address: facts for address, facts in self._backends(spec).items() if address not in ours}

    async def make_unreachable(self) -> None:
        self.driver.stop()

    async def make_reachable(self) -> None:
        self.driver.start()

    async def restart(self) -> None:
        await self.tested.close()
        self.provider = self.tested = WebhookProvider()


@pytest.mark.req("L-2", "L-10", "L-16")
class TestWebhook(ProviderContract):
    @pytest.fixture
    async def subject(self, driver: ExampleDriver) -> AsyncIterator[WebhookSubject]:
        subject = WebhookSubject(driver)
        yield subject
        await subject.tested.close()
