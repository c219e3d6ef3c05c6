"""When the copy of a Service is written, when it is deleted, and what is reported when the member refuses it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources import shared as service_copier
from fairlead.agent.sources.caches import MemberService, ServiceCaches
from fairlead.agent.sources.shared import ServiceCopier
from fairlead.errors import Forbidden, Wait
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig

WEB = ("shop", "web")


class World:
    """A member without a server: what is applied gets nodePorts, and is in the cache at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clusters = {name: Cluster(ClusterConfig(server="http://127.0.0.1:1"), name=name) for name in ("member", "hub")}
        self.sources = ServiceCaches(hub_namespace="tenant-east", member=clusters["member"], hub=clusters["hub"])
        self.leads = True
        self.refuses = False
        self.now_s = 1000.0
        self.calls: list[str] = []
        member = clusters["member"]
        self.copier = ServiceCopier(member=member, caches=self.sources, may_write=lambda: self.leads)
        monkeypatch.setattr(member, "apply", self._apply)
        monkeypatch.setattr(member, "delete", self._delete)
        monkeypatch.setattr(member.clock, "monotonic", lambda: self.now_s)

    def service(self, name: str = "web", **spec: Any) -> None:
        spec = {"ports": [{"port": 80}], "selector": {"app": "web"}, **spec}
        self._put({"metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"}, "spec": spec})

    def _put(self, body: Any) -> MemberService:
        obj = msgspec.convert(body, type=MemberService)
        self.sources.services._store.put(obj)
        return obj

    async def _apply(self, _resource: Any, body: Any, **_more: Any) -> MemberService:
        self.calls.append(f"apply {body['metadata']['name']}")
        if self.refuses:
            raise Forbidden("no")
        ports = [{**each, "nodePort": 30000 + each["port"]} for each in body["spec"]["ports"]]
        meta = {**body["metadata"], "uid": "copy", "resourceVersion": str(len(self.calls) + 1)}
        return self._put({"metadata": meta, "spec": {**body["spec"], "ports": ports}})

    async def _delete(self, _resource: Any, namespace: str, name: str, **_more: Any) -> None:
        self.calls.append(f"delete {name}")
        there = self.sources.services.get(namespace, name)
        assert there is not None
        self.sources.services._store.remove(there.key)

    def reach(self) -> tuple[list[int], str]:
        service, problem = self.copier.reach(WEB, nodes=True)
        return [port.node_port for port in (service.spec.ports or () if service else ())], problem


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.mark.req("K-38")
async def test_a_copy_is_written_once_and_again_when_its_original_changes(world: World) -> None:
    world.service()
    assert world.reach() == ([0], "")
    await world.copier.ensure(WEB)
    await world.copier.ensure(WEB)
    assert world.calls == ["apply web-fairlead-nodes"]
    assert world.reach() == ([30080], "")
    world.service(ports=[{"port": 81}])
    await world.copier.ensure(WEB)
    assert world.calls == ["apply web-fairlead-nodes"] * 2
    assert world.reach() == ([30081], "")


@pytest.mark.req("K-38", "K-39")
async def test_what_needs_no_copy_is_left_alone(world: World) -> None:
    world.service(type="NodePort", ports=[{"port": 80, "nodePort": 30001}])
    await world.copier.ensure(WEB)
    await world.copier.ensure(("shop", "missing"))
    assert world.calls == []
    assert world.reach() == ([30001], "")
    assert world.copier.reach(("shop", "missing"), nodes=True) == (None, "")


@pytest.mark.req("K-38")
async def test_a_copy_that_nothing_needs_goes_after_a_while(world: World) -> None:
    world.service()
    await world.copier.ensure(WEB)
    assert await world.copier.collect(WEB), "the hub may still use it"
    world.now_s += service_copier.LINGER_S
    # Needed again meanwhile: the time begins again.
    await world.copier.ensure(WEB)
    assert await world.copier.collect(WEB)
    world.now_s += service_copier.LINGER_S
    assert not await world.copier.collect(WEB)
    assert world.calls[-1] == "delete web-fairlead-nodes"
    assert not world.copier.has_copy(WEB)
    assert not await world.copier.collect(WEB)


@pytest.mark.req("K-38")
async def test_a_missing_right_is_reported_and_tried_again_later(world: World) -> None:
    world.service()
    world.refuses = True
    await world.copier.ensure(WEB)
    ports, problem = world.reach()
    assert ports == [0], "reached by its pods"
    assert "apply deploy/kubernetes/agent.yaml" in problem
    world.refuses = False
    await world.copier.ensure(WEB)
    assert len(world.calls) == 1
    world.now_s += service_copier.REFUSED_RETRY_S
    await world.copier.ensure(WEB)
    assert world.reach() == ([30080], "")


@pytest.mark.req("K-38")
async def test_a_foreign_service_of_that_name_stays(world: World) -> None:
    world.service()
    world.service("web-fairlead-nodes")
    await world.copier.ensure(WEB)
    assert world.calls == []
    assert "web-fairlead-nodes was not made by Fairlead" in world.reach()[1]
    assert not await world.copier.collect(WEB)


async def test_only_the_agent_that_leads_writes(world: World) -> None:
    world.service()
    world.leads = False
    with pytest.raises(Wait):
        await world.copier.ensure(WEB)
    assert world.calls == []
