"""The providers of external-dns keep the contract: objects at an API server, written into a real BIND's zone."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from fairlead.api.hostname import DNS_ENDPOINTS
from fairlead.api.kubernetes import NAMESPACES, SERVICES
from fairlead.api.meta import JSONObject
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.discovery import install_crds
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import RECORD_PORT, LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.zones.external_dns import annotations_provider
from fairlead.providers.zones.external_dns import provider as endpoints_provider
from fairlead.providers.zones.external_dns.annotations_provider import ServiceForm
from fairlead.providers.zones.external_dns.provider import EndpointForm, Form, held, is_ours, object_name
from fairlead.providers.zones.provider import DNSProvider
from fairlead.testing.contract import Place, ProviderContract, Subject
from fairlead_demo.worlds.name_servers import Bind, binary
from tests.scenario.any_api import api, real
from tests.worlds.external_dns import ExternalDNS, external_dns_crd

__all__ = ["api", "real"]

needs_bind = pytest.mark.skipif(
    binary("named") is None, reason="BIND 9 is not installed: apt-get install bind9, as root"
)


class ObjectSubject(Subject):
    form: Form
    create: Callable[..., DNSProvider]
    #: An object of another writer for the name by-hand.
    theirs: ClassVar[JSONObject]

    def __init__(self, config: ClusterConfig, cluster: Cluster, bind: Bind) -> None:
        self.config = config
        self.cluster = cluster
        self.bind = bind
        self.opened: list[Cluster] = []
        self.provider = self.tested = self.create(cluster=cluster)

    def spec(self, name: str) -> FrontendSpec:
        key = LoadBalancerKey("Hostname", SYSTEM_NAMESPACE, name)
        parameters = {
            "zone": self.bind.zone,
            "host": f"{name}.{self.bind.zone}",
            "ownerId": "tests",
            "server": self.bind.server,
        }
        return FrontendSpec(key, "", (), health_check=None, parameters=parameters)

    def targets(self, count: int) -> Sequence[TargetKey]:
        return [TargetKey(f"192.0.2.{number}", RECORD_PORT) for number in range(1, count + 1)]

    async def present(self, spec: FrontendSpec) -> dict[Place, bool]:
        objects = await self.cluster.list(self.form.kind, SYSTEM_NAMESPACE)
        return {
            (backend_key(key.type), TargetKey(value, RECORD_PORT)): True
            for obj in objects
            if obj.metadata.name == object_name(self.form, spec.parameters["host"]) and is_ours(obj)
            for key, rrset in self.form.records(obj).items()
            for value in rrset.values
        }

    async def add_foreign(self, spec: FrontendSpec) -> None:
        """Add an object of another writer in the same namespace, for another name."""
        await self.cluster.apply(self.form.kind, self.theirs, manager="user")
        (there,) = [each for each in await self.cluster.list(self.form.kind, SYSTEM_NAMESPACE) if not is_ours(each)]
        assert held(self.form, there).rrsets, "it is read as records"

    async def foreign(self, spec: FrontendSpec) -> object:
        objects = await self.cluster.list(self.form.kind, SYSTEM_NAMESPACE)
        return [msgspec.to_builtins(each) for each in objects if not is_ours(each)]

    async def make_unreachable(self) -> None:
        dark = Cluster(dataclasses.replace(self.config, server="http://127.0.0.1:9"), name="hub")
        self.opened.append(dark)
        self.provider = self.create(cluster=dark)
        self.provider.restore(self.spec("one"), {})

    async def make_reachable(self) -> None:
        self.provider = self.tested

    async def restart(self) -> None:
        await self.tested.close()
        self.provider = self.tested = self.create(cluster=self.cluster)


class EndpointSubject(ObjectSubject):
    form = EndpointForm()
    create = staticmethod(endpoints_provider.create)
    theirs: ClassVar[JSONObject] = {
        "metadata": {"name": "by-hand", "namespace": SYSTEM_NAMESPACE},
        "spec": {"endpoints": [{"dnsName": "by-hand.example.test", "recordType": "A", "targets": ["192.0.2.1"]}]},
    }


class ServiceSubject(ObjectSubject):
    form = ServiceForm()
    create = staticmethod(annotations_provider.create)
    theirs: ClassVar[JSONObject] = {
        "metadata": {
            "name": "by-hand",
            "namespace": SYSTEM_NAMESPACE,
            "annotations": {
                "external-dns.alpha.kubernetes.io/hostname": "by-hand.example.test",
                "external-dns.alpha.kubernetes.io/target": "192.0.2.1",
            },
        },
        "spec": {"type": "ExternalName", "externalName": "elsewhere.example.test"},
    }


class _ExternalDNS(ProviderContract):
    kind: Any
    source: str

    @pytest.fixture
    async def subject(self, api: ClusterConfig, tmp_path: Path) -> AsyncIterator[ObjectSubject]:
        bind = Bind(tmp_path / "bind")
        await bind.start()
        async with Cluster(api, name="hub", qps=0) as cluster:
            assert not await install_crds(cluster, [external_dns_crd()], "kubectl")
            await cluster.apply(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}}, manager="user")
            external_dns = ExternalDNS(cluster, bind, source=self.source)
            external_dns.start()
            subject = self.kind(api, cluster, bind)
            yield subject
            await external_dns.stop()
            await subject.tested.close()
            for opened in subject.opened:
                await opened.aclose()
            for kind in (DNS_ENDPOINTS, SERVICES):
                for each in await cluster.list(kind, SYSTEM_NAMESPACE):
                    await cluster.delete(kind, *each.key)
        await bind.kill()


@needs_bind
@pytest.mark.req("C-53")
class TestExternalDNS(_ExternalDNS):
    kind = EndpointSubject
    source = "crd"


@needs_bind
@pytest.mark.req("C-53")
class TestExternalDNSAnnotations(_ExternalDNS):
    kind = ServiceSubject
    source = "service"
