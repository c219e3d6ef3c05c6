from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from fairlead.api.intent import Allocation
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import KubeObject, WireCondition, transitions
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer, TCPLoadBalancerStatus
from fairlead.api.tenant import TENANTS
from fairlead.errors import Conflict, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.writes import emit_transitions, write_status

ACCEPTED = WireCondition("Accepted", "True", "Accepted")


@pytest.fixture
async def balancer(embedded: Cluster) -> TCPLoadBalancer:
    meta = {"namespace": "a", "name": "web"}
    return await embedded.create(TCP_LOAD_BALANCERS, {"metadata": meta, "spec": {"ports": [{"port": 80}]}})


async def raw_status(cluster: Cluster) -> dict[str, Any]:
    body = await cluster.raw("GET", TCP_LOAD_BALANCERS.path("a", "web"))
    status = cast("dict[str, Any]", msgspec.json.decode(body).get("status", {}))
    return {name: value for name, value in status.items() if value != {}}  # an empty map means nothing


async def test_written_objects_are_returned(embedded: Cluster, balancer: TCPLoadBalancer) -> None:
    new = TCPLoadBalancerStatus(address="192.0.2.1", targets="1/2", conditions=[ACCEPTED])
    written = await write_status(embedded, TCP_LOAD_BALANCERS, balancer, balancer.status, new, manager="m")
    assert written is not None
    assert written == await embedded.get(TCP_LOAD_BALANCERS, "a", "web")
    ready = WireCondition("Ready", "True", "Ready")
    assert (written.status.address, written.status.conditions) == ("192.0.2.1", [ACCEPTED, ready])


async def test_the_same_status_is_not_written(embedded: Cluster, balancer: TCPLoadBalancer) -> None:
    writes = embedded.writes
    same = TCPLoadBalancerStatus()
    assert await write_status(embedded, TCP_LOAD_BALANCERS, balancer, balancer.status, same, manager="m") is None
    assert embedded.writes == writes


async def test_a_field_that_is_no_longer_applied_is_removed(embedded: Cluster, balancer: TCPLoadBalancer) -> None:
    old = TCPLoadBalancerStatus(address="192.0.2.1", targets="1/1")
    await write_status(embedded, TCP_LOAD_BALANCERS, balancer, balancer.status, old, manager="m")
    new = TCPLoadBalancerStatus(targets="0/1")
    await write_status(embedded, TCP_LOAD_BALANCERS, balancer, old, new, manager="m")
    assert await raw_status(embedded) == {"targets": "0/1"}


async def test_fields_of_another_manager_are_left_alone(embedded: Cluster, balancer: TCPLoadBalancer) -> None:
    record = TCPLoadBalancerStatus(allocation=Allocation(address="192.0.2.1"))
    await write_status(embedded, TCP_LOAD_BALANCERS, balancer, balancer.status, record, manager="record")
    new = TCPLoadBalancerStatus(targets="1/1", allocation=Allocation(address="stale"))
    others = ("allocation",)
    await write_status(embedded, TCP_LOAD_BALANCERS, balancer, record, new, manager="m", others=others)
    assert await raw_status(embedded) == {"allocation": {"address": "192.0.2.1", "ports": []}, "targets": "1/1"}


async def test_a_default_is_written_when_it_has_to_be(embedded: Cluster, balancer: TCPLoadBalancer) -> None:
    new = TCPLoadBalancerStatus(address="192.0.2.1")
    always = ("observedGeneration",)
    await write_status(embedded, TCP_LOAD_BALANCERS, balancer, balancer.status, new, manager="m", always=always)
    assert await raw_status(embedded) == {"address": "192.0.2.1", "observedGeneration": 0}


async def test_a_successor_of_the_same_name_is_not_written(embedded: Cluster, balancer: TCPLoadBalancer) -> None:
    await embedded.delete(TCP_LOAD_BALANCERS, "a", "web")
    new = TCPLoadBalancerStatus(targets="1/1")
    with pytest.raises(NotFound):
        await write_status(embedded, TCP_LOAD_BALANCERS, balancer, balancer.status, new, manager="m")
    meta = {"namespace": "a", "name": "web"}
    await embedded.create(TCP_LOAD_BALANCERS, {"metadata": meta, "spec": {"ports": [{"port": 80}]}})
    with pytest.raises(Conflict):
        await write_status(embedded, TCP_LOAD_BALANCERS, balancer, balancer.status, new, manager="m")
    assert await raw_status(embedded) == {}


async def test_a_cluster_scoped_kind_has_no_namespace(embedded: Cluster) -> None:
    tenant = await embedded.create(TENANTS, {"metadata": {"name": "east"}, "spec": {}})
    new = msgspec.structs.replace(tenant.status, state="Stale")
    written = await write_status(embedded, TENANTS, tenant, tenant.status, new, manager="m")
    assert written is not None
    assert written.status.state == "Stale"


class Recorded(EventRecorder):
    """Collects what would be written."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, component="test")
        self.events: list[tuple[str, str, str]] = []

    def emit(self, **event: Any) -> None:
        self.events.append((event["type"], event["reason"], event["message"]))


async def test_transitions_become_events(embedded: Cluster) -> None:
    old = [ACCEPTED, WireCondition("Programmed", "False", "ProviderFailed", "no answer")]
    new = [
        WireCondition("Accepted", "False", "Invalid", "spec.ports: none"),
        WireCondition("ResolvedRefs", "False", "BackendNotFound", "nothing there"),
        WireCondition("Programmed", "True", "Programmed"),
        WireCondition("Conflicted", "False", "Accepted"),
        WireCondition("Drifted", "True", "Drifted"),
        WireCondition("Guarded", "True", "Pending", "soon"),
    ]
    events = Recorded(embedded)
    emit_transitions(
        events,
        LOAD_BALANCERS,
        KubeObject(),
        transitions(old, new),
        good={"Programmed": "serving at 192.0.2.1"},
        quiet=lambda change: change.before is None and change.condition.reason == "BackendNotFound",
    )
    assert events.events == [
        ("Warning", "Invalid", "spec.ports: none"),
        ("Normal", "Programmed", "serving at 192.0.2.1"),
        ("Warning", "Drifted", "Drifted"),
    ]
    emit_transitions(events, LOAD_BALANCERS, KubeObject(), transitions(new, new))
    emit_transitions(events, LOAD_BALANCERS, KubeObject(), transitions(None, new[2:3]))
    assert len(events.events) == 3
