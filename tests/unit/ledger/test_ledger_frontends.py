"""What is on record of a load balancer itself: each provider in its place, and the newest word last."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from fairlead.api.intent import Frontend
from fairlead.api.meta import JSONObject, Resource
from fairlead.api.tcploadbalancer import TCPLoadBalancerStatus
from fairlead.ledger.frontends import Frontends, spec_text
from fairlead.ledger.names import record_name
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import Ensured

KEY = LoadBalancerKey("TCPLoadBalancer", "tenant-east", "shop.web")
SPEC = FrontendSpec(KEY, "tenant-east", (Listener(80),), parameters={"socket": "/s"})


class SlowStore:
    """An API whose answers come when they are let go; what arrives counts in the order in which it was sent."""

    def __init__(self) -> None:
        self.status: JSONObject = {}
        self.answers = asyncio.Event()
        self.answers.set()
        self.called = asyncio.Event()

    async def merge_patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JSONObject,
        *,
        subresource: str = "",
        manager: str = "",
    ) -> Any:
        self.called.set()
        await self.answers.wait()
        _merge(self.status, patch["status"])

    async def get(self, resource: Resource, namespace: str, name: str) -> Any:
        raise NotImplementedError

    async def create(self, resource: Resource, obj: JSONObject) -> Any:
        raise NotImplementedError

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", resource_version: str = ""
    ) -> bool:
        raise NotImplementedError

    def read(self) -> TCPLoadBalancerStatus:
        return msgspec.convert(self.status, TCPLoadBalancerStatus)


def _merge(into: JSONObject, patch: JSONObject) -> None:
    for key, value in patch.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        elif value is None:
            into.pop(key, None)
        else:
            into[key] = value


async def test_two_providers_have_a_place_each() -> None:
    store = SlowStore()
    first, second = Frontends(store=store, provider="haproxy"), Frontends(store=store, provider="webhook")
    await first.ensuring(SPEC)
    await first.ensured(SPEC, Ensured(("192.0.2.1",), info={"socket": "/s"}))
    second.stand_beside(KEY)
    await second.ensuring(SPEC)
    await second.ensured(SPEC, Ensured(("192.0.2.2",), epoch="7"))
    status = store.read()
    assert status.recorded_providers == {"haproxy", "webhook"}
    one, other = status.frontend_of("haproxy"), status.frontend_of("webhook")
    assert one == status.frontend == Frontend("haproxy", "Ensured", spec_text(SPEC), {"socket": "/s"}, ["192.0.2.1"])
    assert other == Frontend("webhook", "Ensured", spec_text(SPEC), {}, ["192.0.2.2"], epoch="7")
    assert status.frontend_of("envoy") is None


async def test_the_life_of_a_provider_does_not_undo_its_answer() -> None:
    """Both are written at the same time: neither may carry an older word of the other with it."""
    store = SlowStore()
    frontends = Frontends(store=store, provider="haproxy")
    await frontends.ensuring(SPEC)
    store.answers.clear()
    store.called.clear()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(frontends.ensured(SPEC, Ensured(("192.0.2.1",))))
        group.create_task(frontends.lives(KEY, "8@1"))
        await store.called.wait()
        await asyncio.sleep(0)
        store.answers.set()
    found = store.read().frontend_of("haproxy")
    assert found is not None
    assert (found.state, found.addresses, found.epoch) == ("Ensured", ["192.0.2.1"], "8@1")


async def test_the_first_life_is_known_before_anything_is_registered_in_it() -> None:
    """Else a provider that restarts before it was read back for the first time would never be healed."""
    store = SlowStore()
    frontends = Frontends(store=store, provider="haproxy")
    await frontends.ensured(SPEC, Ensured(epoch="7@1"))
    assert frontends.get(KEY).epoch == "7@1"
    # Ensured again in another life, what was registered in the one before is still lost.
    await frontends.ensured(SPEC, Ensured(("192.0.2.1",), epoch="8@1"))
    assert frontends.get(KEY).epoch == "7@1"


def test_the_same_backend_of_two_providers_is_two_records() -> None:
    place = (KEY, Listener(80).key, TargetKey("10.0.0.1", 80))
    names = {record_name(*place), record_name(*place, provider="haproxy"), record_name(*place, provider="webhook")}
    assert len(names) == 3
