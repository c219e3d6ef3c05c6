"""One load balancer in detail: what is registered is listed in order, with what is seen of it."""

from __future__ import annotations

import pytest

from fairlead.hub.inspect.debug import KeyState
from fairlead.hub.inventory import Inventory
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.page.detail import MOST_BACKENDS, detail_of
from fairlead.testing.builders import HTTP, lb_key, target

KEY = lb_key()


@pytest.fixture
def inventory() -> Inventory:
    return Inventory(Cluster(ClusterConfig(server="http://192.0.2.1", sign_in=bearer("none")), name="hub"))


def test_what_nothing_is_known_of_has_no_detail(inventory: Inventory) -> None:
    assert detail_of(KEY, None, inventory) is None


def test_backends_are_listed_by_address_with_what_is_seen_of_them(inventory: Inventory) -> None:
    targets = (target("3", draining=True), target("1"), target("2"))
    registered = {(HTTP, each.key): each for each in targets}
    state = KeyState("TCPLoadBalancer", KEY.namespace, KEY.name, True, [], [])
    detail = detail_of(KEY, state, inventory, registered, ["10.0.0.2:8080"])
    assert detail is not None
    assert [(each.address, each.state) for each in detail.backends] == [
        ("10.0.0.1:8080", "Served"),
        ("10.0.0.2:8080", "Unhealthy"),
        ("10.0.0.3:8080", "Draining"),
    ]
    assert (detail.more_backends, detail.held, detail.routes) == (0, [], [])


def test_more_backends_than_a_page_takes_are_counted(inventory: Inventory) -> None:
    registered = {(HTTP, each.key): each for each in (target("1", port) for port in range(1, MOST_BACKENDS + 4))}
    state = KeyState("TCPLoadBalancer", KEY.namespace, KEY.name, True, [], [])
    detail = detail_of(KEY, state, inventory, registered)
    assert detail is not None
    assert (len(detail.backends), detail.more_backends) == (MOST_BACKENDS, 3)
