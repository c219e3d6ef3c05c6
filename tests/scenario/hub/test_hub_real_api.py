"""What the hub writes about load balancers, groups and classes, at a real API server, in real time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from hub_world import HubWorld, WatchedCluster
from shop_world import DrivenShop, open_shop

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import FINALIZER_IN_USE, FINALIZER_PROTECTED, LABEL_DO_NOT_DELETE
from fairlead.errors import Invalid
from fairlead.kube.config import ClusterConfig, bearer, tls_context
from fairlead.providers.memory import MemoryCloud
from fairlead.runtime.clock import SystemClock
from podless import ApiServer
from tests.contract.kube.conftest import Real, real

__all__ = ["real"]


class RealWorld(HubWorld):
    """The world of the scenarios, at a server that has its own time."""

    def __init__(self, there: Real) -> None:
        self._there = there
        super().__init__(ApiServer())  # never started
        self.clock = SystemClock()
        self.cloud, self.outside = MemoryCloud(clock=self.clock), MemoryCloud(clock=self.clock)
        self.user = self.connect("user")

    def connect(self, name: str) -> WatchedCluster:
        tls = tls_context(authority=self._there.authority)
        config = ClusterConfig(server=self._there.url, sign_in=bearer(self._there.token, tls=tls))
        return WatchedCluster(config, name=name, clock=self.clock, qps=0)

    async def until(self, check: Callable[[], Any], *, what: str = "", limit_s: float = 180.0) -> Any:
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    last = check()
                    if isinstance(last, Awaitable):
                        last = await last
                    if last:
                        return last
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"not within {limit_s} s: {what or check}") from None

    async def quiet(self, seconds: float = 8.0) -> None:
        """Nothing here waits for time to pass."""


@pytest.fixture
async def shop(real: Real) -> AsyncIterator[DrivenShop]:
    world = RealWorld(real)
    async with open_shop(world) as opened:
        yield opened
    await world.user.aclose()


async def gone(shop: DrivenShop, resource: Any, name: str) -> None:
    async def check() -> bool:
        return await shop.world.find(resource, "shop" if resource.namespaced else "", name) is None

    await shop.world.until(check, what=f"{name} is gone")


@pytest.mark.real_api
@pytest.mark.req("L-36", "L-37", "L-38", "L-39")
async def test_one_life_of_everything(shop: DrivenShop) -> None:
    """Refused, accepted, refused again; used, held, released."""
    await shop.class_("driven")
    shop.driver.on("validateLoadBalancer", {"succ": False, "msg": "lbID 7 is taken"})
    await shop.lb("mine", className="driven", parameters={"lbID": "7"})
    await shop.lb_says("Accepted", "False", "lbID 7 is taken", name="mine")
    await shop.warned("mine", "RefusedByProvider", "lbID 7 is taken")
    shop.driver.on("validateLoadBalancer", {"succ": True})
    await shop.lb("mine", className="driven", parameters={"lbID": "7"}, attributes={"size": "s"})
    await shop.lb_says("Programmed", "True", name="mine")
    with pytest.raises(Invalid, match="parameters is immutable"):
        await shop.class_("driven", parameters={"size": "l"})

    await shop.group("fixed", lbs=["mine"], static=["10.9.0.1:8080"], parameters={"zone": "a", "rack": "1"})
    await shop.group_says("fixed", "Programmed", "True")
    shop.driver.on("validateBackend", lambda body: {"succ": body["parameters"].get("zone") != "b", "msg": "no zone b"})
    await shop.group("fixed", lbs=["mine"], static=["10.9.0.1:8080"], parameters={"zone": "b"})
    await shop.group_says("fixed", "Accepted", "False", "no zone b", "the last accepted version is served")
    backend_group = await shop.api.get(BACKEND_GROUPS, "shop", "fixed")
    assert backend_group.status.accepted["shop/mine"].parameters == {"zone": "a", "rack": "1"}
    assert (backend_group.status.backends, backend_group.status.registered_backends) == (1, 1)
    await shop.group("fixed", lbs=["mine"], static=["10.9.0.1:8080"], parameters={"zone": "c"})
    await shop.group_says("fixed", "Accepted", "True")
    backend_group = await shop.api.get(BACKEND_GROUPS, "shop", "fixed")
    assert backend_group.status.accepted["shop/mine"].parameters == {"zone": "c"}

    labelled = {"metadata": {"labels": {LABEL_DO_NOT_DELETE: ""}}}
    await shop.api.merge_patch(BACKEND_GROUPS, "shop", "fixed", labelled)
    await shop.api.merge_patch(LOAD_BALANCERS, "shop", "mine", labelled)

    async def held() -> bool:
        backend_group = await shop.api.get(BACKEND_GROUPS, "shop", "fixed")
        return FINALIZER_PROTECTED in (backend_group.metadata.finalizers or ())

    await shop.world.until(held)
    await shop.says(LOAD_BALANCER_CLASSES, "driven", "InUse", "True", "LoadBalancer shop/mine")
    assert (await shop.api.get(LOAD_BALANCER_CLASSES, "", "driven")).metadata.finalizers == [FINALIZER_IN_USE]
    await shop.api.delete(LOAD_BALANCER_CLASSES, "", "driven")
    await shop.api.delete(BACKEND_GROUPS, "shop", "fixed")
    await shop.api.delete(LOAD_BALANCERS, "shop", "mine")
    await shop.group_says("fixed", "Protected", "True", "remove the label")
    await shop.lb_says("Protected", "True", "remove the label", name="mine")
    await shop.says(LOAD_BALANCER_CLASSES, "driven", "InUse", "True", "kept until nothing uses it")
    assert shop.at_driver() == {"10.9.0.1:8080"}

    unlabelled = {"metadata": {"labels": {LABEL_DO_NOT_DELETE: None}}}
    await shop.api.merge_patch(BACKEND_GROUPS, "shop", "fixed", unlabelled)
    await gone(shop, BACKEND_GROUPS, "fixed")
    await shop.driver_has()
    await shop.api.merge_patch(LOAD_BALANCERS, "shop", "mine", unlabelled)
    await gone(shop, LOAD_BALANCERS, "mine")
    await gone(shop, LOAD_BALANCER_CLASSES, "driven")
    for resource, name in ((LOAD_BALANCERS, "shared"), (LOAD_BALANCER_CLASSES, "edge")):
        await shop.api.delete(resource, "shop" if resource.namespaced else "", name)
        await gone(shop, resource, name)
