"""Node ports run out."""

from fairlead.apiserver.kinds.allocations import NODE_PORTS, Allocations


def test_node_ports_run_out() -> None:
    free = Allocations()
    assert free.free_port(set()) != free.free_port(set())
    assert free.free_port(set(NODE_PORTS)) is None
