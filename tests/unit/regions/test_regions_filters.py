"""The keys that a change concerns (T-O-30 .. T-O-65)."""

from __future__ import annotations

import msgspec
import pytest
from regions_builders import FINALIZER, membership, pool, pool_service, service, slice_of

from fairlead.api.meta import only_status_changed
from fairlead.api.poolservice import PoolService
from fairlead.regions.plan import (
    pool_service_matters,
    pools_of_slice_change,
    selectors_that_flip,
    service_matters,
    services_of_pool_service,
)
from fairlead.regions.source import SourceService


def later(**changes) -> SourceService:
    """Return the Service of the tests as it is after a change."""
    return service(version="2", **changes)


@pytest.mark.req("T-O-30", "T-O-31", "T-O-32", "T-O-33", "O-27")
@pytest.mark.parametrize(
    ("each", "matters"),
    [
        (service(), True),
        (service(kind="ClusterIP", class_name=None), False),
        (service(class_name=None), False),
        (service(class_name=""), False),
        (service(selector=None), False),
        (service(selector=""), False),
        (service(selector="  "), False),
    ],
)
def test_coming_and_going(each: SourceService, matters: bool) -> None:
    assert service_matters(None, each) is matters
    assert service_matters(each, None) is matters


@pytest.mark.req(
    "T-O-34", "T-O-35", "T-O-36", "T-O-37", "T-O-38", "T-O-39", "T-O-40", "T-O-41", "T-O-42", "T-O-43", "T-O-44",
    "O-46", "O-47", "W-O-11",
)  # fmt: skip
@pytest.mark.parametrize(
    ("old", "new", "matters"),
    [
        pytest.param(service(), later(clusterIP="10.96.0.9"), False, id="T-O-34 cluster IP"),
        pytest.param(service(), later(selector=None), True, id="T-O-35 selector removed"),
        pytest.param(service(), later(selector="app=other"), True, id="T-O-36 selector changed"),
        pytest.param(service(selector=None), later(), True, id="T-O-37 selector added"),
        pytest.param(service(), later(kind="ClusterIP", class_name=None), True, id="T-O-38 type"),
        pytest.param(service(), later(finalizers=[FINALIZER]), True, id="T-O-39 finalizers"),
        pytest.param(service(), later(annotations={"aggregated.a": "x"}), True, id="T-O-40 aggregated"),
        pytest.param(service(), later(labels={"aggregated.a": "x"}), True, id="W-O-11 aggregated label"),
        pytest.param(service(), later(annotations={"note": "x"}), False, id="T-O-41 ordinary annotation"),
        pytest.param(
            service(selector=None), later(selector=None, finalizers=["other/one"]), False,
            id="T-O-42 finalizer of one that is not managed",
        ),
        pytest.param(service(), later(deleting=True), True, id="T-O-43 deleting"),
        pytest.param(service(deleting=True), later(deleting=True), False, id="W-O-11 still deleting"),
        pytest.param(
            service(), later(status={"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}), True,
            id="T-O-44 status",
        ),
        pytest.param(service(), later(ports=[{"port": 81}]), True, id="ports"),
        pytest.param(service(), later(class_name="other"), True, id="class"),
        pytest.param(service(), later(labels={"team": "a"}), True, id="label in the document"),
        pytest.param(service(), later(annotations={"elb.io/size": "x"}), True, id="a provider's annotation"),
        pytest.param(service(), later(), False, id="nothing"),
    ],
)  # fmt: skip
def test_updates_of_services(old: SourceService, new: SourceService, matters: bool) -> None:
    assert service_matters(old, new) is matters


UNMANAGED = pool_service("test", "np1", labels={"openyurt.io/service-name": "test"})
UNNAMED = pool_service("test", "np1", labels={"poolservice.openyurt.io/managed-by": "load-balancer-set-controller"})


@pytest.mark.req("T-O-50", "T-O-51", "T-O-52", "O-45")
@pytest.mark.parametrize(
    ("old", "new", "matters"),
    [
        (None, UNMANAGED, False),
        (None, UNNAMED, False),
        (UNMANAGED, None, False),
        (UNNAMED, UNMANAGED, False),
        (None, pool_service("test", "np1"), True),
        (pool_service("test", "np1"), None, True),
        (pool_service("test", "np1"), pool_service("test", "np1", version="2"), True),
        (pool_service("test", "np1"), UNMANAGED, True),
    ],
)
def test_whose_pool_services_matter(old: PoolService | None, new: PoolService | None, matters: bool) -> None:
    assert pool_service_matters(old, new) is matters


@pytest.mark.req("T-O-53", "T-O-54", "T-O-55", "T-O-56", "T-O-57", "O-44")
@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        (None, pool_service("test", "np1"), {"test"}),
        (None, UNNAMED, set[str]()),
        (pool_service("mock1", "np1", name="x"), pool_service("mock2", "np1", name="x"), {"mock1", "mock2"}),
        (pool_service("test", "np1"), UNNAMED, {"test"}),
        (pool_service("test", "np1"), pool_service("test", "np1", annotations={"a": "b"}), {"test"}),
    ],
)
def test_which_services_are_looked_at(old: PoolService | None, new: PoolService | None, keys: set[str]) -> None:
    assert services_of_pool_service(old, new) == {("default", key) for key in keys}


def test_layer_2s_words_concern_access_points_only() -> None:
    old = pool_service("test", "np1")
    assert only_status_changed(old, pool_service("test", "np1", ingress=["1.1.1.1"], version="2"))
    assert not only_status_changed(old, pool_service("test", "np1", annotations={"a": "b"}))


@pytest.mark.req("T-O-60", "T-O-61", "T-O-62", "T-O-63", "T-O-64", "T-O-65", "O-48", "W-O-7", "W-O-10")
@pytest.mark.parametrize(
    ("old", "new", "flips"),
    [
        pytest.param(None, pool("a", app="deploy"), ["app=deploy"], id="created with labels"),
        pytest.param(pool("a", app="deploy"), None, ["app=deploy"], id="deleted"),
        pytest.param(None, pool("a"), ["!app"], id="without labels only what asks for that"),
        pytest.param(pool("a"), pool("a", app="deploy"), ["!app", "app=deploy"], id="label added"),
        pytest.param(pool("a", app="deploy"), pool("a", region="x", app="deploy"), [], id="spec only"),
        pytest.param(pool("a", app="x"), pool("a", app="y"), [], id="a label that nobody asks for"),
        pytest.param(pool("a", app="deploy"), pool("a", app="deploy", deleting=True), ["app=deploy"], id="deleting"),
    ],
)
def test_a_pool_concerns_those_whose_selector_flips(old: object, new: object, flips: list[str]) -> None:
    texts = ["app=deploy", "tier=gold", "!app", "app in (broken"]
    assert sorted(selectors_that_flip(old, new, texts)) == sorted(flips)  # type: ignore[arg-type]


@pytest.mark.req("O-13")
def test_a_slice_concerns_the_pools_whose_part_of_it_differs() -> None:
    who = membership(n1="east", n2="west", n3="")
    old = slice_of(("10.0.0.1", "n1", True), ("10.0.0.2", "n2", True))
    assert pools_of_slice_change(None, old, who) == {"east", "west"}
    assert pools_of_slice_change(old, slice_of(("10.0.0.2", "n2", True), ("10.0.0.1", "n1", True)), who) == set()
    assert pools_of_slice_change(old, slice_of(("10.0.0.1", "n1", False), ("10.0.0.2", "n2", True)), who) == {"east"}
    assert pools_of_slice_change(old, slice_of(("10.0.0.1", "n1", True)), who) == {"west"}
    assert pools_of_slice_change(old, None, who) == {"east", "west"}
    more = slice_of(("10.0.0.1", "n1", True), ("10.0.0.2", "n2", True), ("10.0.0.3", "n3", True))
    assert pools_of_slice_change(old, more, who) == set()
    port = msgspec.structs.replace(old, ports=[])
    assert pools_of_slice_change(old, port, who) == {"east", "west"}
