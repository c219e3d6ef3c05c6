"""The provider that has another controller serve keeps the contract, on an embedded API server and on a real one."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from fairlead.api.kubernetes import ENDPOINT_SLICES, NAMESPACES, EndpointSlice
from fairlead.api.names import LABEL_SERVICE_NAME
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.http import Attachment, Backend, BackendRef, L7Config, L7Listener, Route, Rule
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.controller.ingress import create
from fairlead.providers.controller.objects import made_for, observed_targets, service_name
from fairlead.testing.contract import Place, ProviderContract, Subject
from tests.scenario.any_api import api, real

__all__ = ["api", "real"]

NAMESPACE = "shop"


class ControllerSubject(Subject):
    def __init__(self, config: ClusterConfig, cluster: Cluster) -> None:
        self.config = config
        self.cluster = cluster
        self.opened: list[Cluster] = []
        self.provider = self.reachable = create(cluster)

    def spec(self, name: str) -> FrontendSpec:
        route = Route(
            f"{name}.shop",
            "HTTP",
            (Attachment("http", ("shop.example.com",), one_label=True),),
            (Rule(backends=(BackendRef("shop/web:80"),)),),
        )
        return FrontendSpec(
            LoadBalancerKey("HTTPLoadBalancer", NAMESPACE, name),
            NAMESPACE,
            (Listener(80),),
            parameters={"controllerClass": "nginx"},
            l7=L7Config((L7Listener("http", 80),), (route,), (Backend("shop/web:80", "shop/web"),)),
        )

    def targets(self, count: int) -> Sequence[TargetKey]:
        return [TargetKey(f"10.0.0.{number}", 8080 + number % 2) for number in range(1, count + 1)]

    async def slices(self) -> list[EndpointSlice]:
        return await self.cluster.list(ENDPOINT_SLICES, NAMESPACE)

    async def present(self, spec: FrontendSpec) -> dict[Place, bool]:
        there = observed_targets([each for each in await self.slices() if made_for(each) == spec.key])
        return {(target.listener, target.key): not target.draining for target in there}

    async def add_foreign(self, spec: FrontendSpec) -> None:
        target = self.targets(1)[0]
        body = {
            "metadata": {
                "name": "by-hand",
                "namespace": NAMESPACE,
                "labels": {LABEL_SERVICE_NAME: service_name(spec.key, "shop/web:80")},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [target.address]}],
            "ports": [{"name": "backend", "port": target.port, "protocol": "TCP"}],
        }
        await self.cluster.apply(ENDPOINT_SLICES, body, manager="user")

    async def foreign(self, spec: FrontendSpec) -> object:
        return [msgspec.to_builtins(each) for each in await self.slices() if made_for(each) is None]

    async def make_unreachable(self) -> None:
        dark = Cluster(dataclasses.replace(self.config, server="http://127.0.0.1:9"), name="hub")
        self.opened.append(dark)
        self.reachable, self.provider = self.provider, create(dark)
        self.provider.restore(self.spec("one"), {})

    async def make_reachable(self) -> None:
        self.provider = self.reachable

    async def restart(self) -> None:
        self.provider = create(self.cluster)


@pytest.mark.req("K-43", "K-44", "K-62", "L-10")
class TestController(ProviderContract):
    @pytest.fixture
    async def subject(self, api: ClusterConfig, tmp_path: Path) -> AsyncIterator[ControllerSubject]:
        async with Cluster(api, name="hub") as cluster:
            await cluster.apply(NAMESPACES, {"metadata": {"name": NAMESPACE}}, manager="user")
            subject = ControllerSubject(api, cluster)
            yield subject
            for opened in subject.opened:
                await opened.aclose()
            for each in await subject.slices():
                await cluster.delete(ENDPOINT_SLICES, *each.key)
            for name in ("one", "two"):
                key = subject.spec(name).key
                await create(cluster).delete(key)
