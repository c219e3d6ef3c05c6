"""Node ports and cluster IPs run out; ranges are one of each family."""

import pytest

from podless.kinds.allocations import NODE_PORTS, Allocations, service_networks


def test_node_ports_run_out() -> None:
    free = Allocations()
    assert free.free_port(set()) != free.free_port(set())
    assert free.free_port(set(NODE_PORTS)) is None


@pytest.mark.req("K-4")
def test_cluster_ips_are_of_the_family_that_is_asked_for() -> None:
    free = Allocations("fd00:10::/112,10.0.0.0/24")
    assert free.families == ("IPv6", "IPv4")
    assert [free.free_ip("IPv6"), free.free_ip("IPv6"), free.free_ip("IPv4")] == [
        "fd00:10::b",
        "fd00:10::c",
        "10.0.0.11",
    ]
    outside = free.check_ip("fd00:11::1", ("default", "web"))
    assert outside is not None
    assert "The range of valid IPs is fd00:10::/112" in outside.message


@pytest.mark.parametrize("text", ["", "10.0.0.0", "10.0.0.0/24,10.1.0.0/24", "10.0.0.0/24,web", "fd00::/127"])
def test_invalid_ranges_of_cluster_ips(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        service_networks(text)
