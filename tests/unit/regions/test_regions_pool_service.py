"""One step for one Service: which writes are sent, in which order, and when the step is repeated."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import msgspec
import pytest
from regions_builders import FINALIZER, pool, pool_service, service

from fairlead.api.names import AGGREGATED_PREFIX, ANNOTATION_ACCESS_POINTS
from fairlead.kube.events import EventRecorder
from fairlead.regions.app import FLIP_GRACE_S, WAITING_RETRY_S, RegionsController
from fairlead.regions.inventory import Changes, RegionsInventory
from fairlead.regions.source import SourceService
from fairlead.runtime.clock import VirtualClock
from tests.unit.kube.kube_scripted import ScriptedApi

KEY = ("default", "test")


def unmanaged(**more) -> SourceService:
    return service(kind="ClusterIP", class_name=None, **more)


class Bench:
    """A controller whose caches are filled by hand, in front of an API server."""

    def __init__(self, api: ScriptedApi, cluster) -> None:
        self.api = api
        self.clock = cluster.clock
        self.leads = True
        self.inventory = RegionsInventory(cluster)
        self.inventory.pools["a"] = pool("a", app="deploy")
        events = EventRecorder(cluster, component="fairlead-regions")
        self.controller = RegionsController(
            cluster=cluster,
            inventory=self.inventory,
            changes=Changes(cluster=cluster, inventory=self.inventory),
            events=events,
            leading=lambda: self.leads,
        )

    def put(self, obj: SourceService) -> None:
        """Have the cache and the server hold a Service."""
        self.inventory.services._store.put(obj)
        body = msgspec.to_builtins(obj.metadata)
        self.api.put("services", {"metadata": {"name": body["name"], "namespace": body["namespace"]}})

    def put_pool_service(self, name="a", **more) -> None:
        obj = pool_service("test", name, of=service(), **more)
        self.inventory.pool_services._store.put(obj)
        self.api.objects.setdefault("poolservices", {})["default", obj.metadata.name] = {
            "metadata": {
                "name": obj.metadata.name, "namespace": "default", "uid": obj.metadata.uid, "resourceVersion": "1",
            }
        }  # fmt: skip

    async def reconcile(self) -> float | None:
        return await self.controller.reconcile_service(KEY)

    def writes(self) -> list[str]:
        """Return what was sent, oldest first: the finalizers of the Service, or a method and the name."""
        sent: list[str] = []
        for seen in self.api.seen:
            if seen.path.endswith("/services/test") and seen.method == "PATCH":
                sent.append(f"finalizers {json.loads(seen.body)['metadata']['finalizers']}")
            elif seen.method != "GET":
                sent.append(f"{seen.method} {seen.path.rsplit('/', 1)[-1]}")
        return sent


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with ScriptedApi() as api, api.cluster(clock=VirtualClock()) as cluster:
        yield Bench(api, cluster)


@pytest.mark.req("O-9")
async def test_the_finalizer_is_there_before_the_first_pool_service(bench):
    bench.put(service())
    assert await bench.reconcile() is None
    assert bench.writes() == [f"finalizers ['{FINALIZER}']", "POST poolservices"]


async def test_a_service_that_is_as_it_should_be_is_left_alone(bench):
    bench.put(service(finalizers=[FINALIZER]))
    await bench.reconcile()
    bench.api.seen.clear()
    await bench.reconcile()
    assert bench.writes() == [], "our own write counts before the cache shows it"


async def test_a_replica_that_does_not_lead_writes_nothing(bench):
    bench.leads = False
    bench.put(service())
    assert await bench.reconcile() is None
    assert bench.api.seen == []


async def test_a_service_that_was_never_managed_is_left_alone(bench):
    bench.put(unmanaged())
    assert await bench.reconcile() is None
    assert bench.api.seen == []


async def test_a_pool_that_no_longer_matches_loses_its_pool_service(bench):
    bench.put(service(finalizers=[FINALIZER]))
    bench.inventory.pools["b"] = pool("b", app="other")
    bench.put_pool_service("a")
    bench.put_pool_service("b")
    await bench.reconcile()
    assert [write for write in bench.writes() if write.startswith("DELETE")] == ["DELETE test-b"]


async def test_what_waits_is_reconciled_again(bench):
    bench.put(service(finalizers=[FINALIZER], status={"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}))
    bench.inventory.pools.clear()
    bench.put_pool_service("a", ingress=("192.0.2.1",))
    assert await bench.reconcile() == WAITING_RETRY_S
    assert bench.writes() == []


@pytest.mark.req("O-27")
async def test_regions_outlive_a_service_that_is_not_managed_for_a_moment(bench):
    bench.put(unmanaged(finalizers=[FINALIZER]))
    bench.put_pool_service("a")
    assert await bench.reconcile() == FLIP_GRACE_S
    assert bench.writes() == []
    bench.clock.jump(FLIP_GRACE_S / 2)
    assert await bench.reconcile() == pytest.approx(FLIP_GRACE_S / 2)
    bench.clock.jump(FLIP_GRACE_S / 2)
    await bench.reconcile()
    assert bench.writes() == ["DELETE test-a"]


async def test_a_service_that_is_managed_again_begins_a_new_grace_period(bench):
    no_more = unmanaged(finalizers=[FINALIZER])
    bench.put(no_more)
    bench.put_pool_service("a")
    await bench.reconcile()
    bench.clock.jump(FLIP_GRACE_S)
    bench.put(service(finalizers=[FINALIZER]))
    await bench.reconcile()
    bench.put(no_more)
    assert await bench.reconcile() == FLIP_GRACE_S


async def test_a_service_that_is_being_deleted_has_no_grace_period(bench):
    bench.put(service(finalizers=[FINALIZER], deleting=True))
    bench.put_pool_service("a")
    await bench.reconcile()
    assert bench.writes() == ["DELETE test-a"]


@pytest.mark.req("O-9")
async def test_the_finalizer_goes_with_the_last_pool_service(bench):
    bench.put(service(finalizers=["other", FINALIZER], deleting=True))
    bench.put_pool_service("a", deleting=True)
    await bench.reconcile()
    assert bench.writes() == [], "it is still being deleted"
    bench.inventory.pool_services._store.remove(("default", "test-a"))
    await bench.reconcile()
    assert bench.writes() == ["finalizers ['other']"]


@pytest.mark.parametrize(
    ("marks", "deleting", "released"),
    [
        ({}, False, True),
        ({"annotations": {ANNOTATION_ACCESS_POINTS: "{}"}}, False, False),
        ({"annotations": {f"{AGGREGATED_PREFIX}x": "1"}}, False, False),
        ({"labels": {f"{AGGREGATED_PREFIX}x": "1"}}, False, False),
        ({"labels": {f"{AGGREGATED_PREFIX}x": "1"}}, True, True),
    ],
)
async def test_what_access_points_have_written_goes_before_the_finalizer(bench, marks, deleting, released):
    bench.put(unmanaged(finalizers=[FINALIZER], deleting=deleting, **marks))
    await bench.reconcile()
    bench.clock.jump(FLIP_GRACE_S)
    await bench.reconcile()
    assert bench.writes()[:1] == (["finalizers []"] if released else [])


async def test_a_service_deleted_meanwhile_is_not_an_error(bench):
    bench.inventory.services._store.put(service(finalizers=[FINALIZER], deleting=True))
    assert await bench.reconcile() is None


async def test_leadership_that_is_lost_in_the_middle_ends_the_writes(bench):
    bench.put(service())
    answers = iter([True])
    bench.controller._leading = lambda: next(answers, False)
    bench.leads = False
    await bench.reconcile()
    assert bench.writes() == []


# --- a Service that was removed by force -----------------------------------------------------------------------


async def test_pool_services_of_a_service_that_is_gone_are_deleted(bench):
    bench.put_pool_service("a")
    bench.put_pool_service("b", deleting=True)
    assert await bench.reconcile() is None
    assert bench.writes() == ["DELETE test-a"]


async def test_a_service_that_the_server_still_has_is_not_gone(bench):
    bench.api.put("services", {"metadata": {"name": "test", "namespace": "default"}})
    bench.put_pool_service("a")
    await bench.reconcile()
    assert bench.writes() == []


async def test_while_something_cannot_be_read_nothing_counts_as_gone(bench):
    bench.put_pool_service("a")
    bench.inventory.services.problem = "the watch is broken"
    assert bench.inventory.problem
    assert await bench.reconcile() == WAITING_RETRY_S
    assert bench.api.seen == []
