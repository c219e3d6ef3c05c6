"""Elements of nftables maps: which targets have which slots, and what a change sends to the kernel."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fairlead.machine.kernel_maps import (
    LAYOUT,
    Flow,
    elements_of,
    flows_in,
    flows_of,
    listed_elements,
    skeleton,
    transaction,
)
from fairlead.model.keys import Protocol
from fairlead.model.machine import ForwardedLoadBalancer, ForwardedPort, ForwardedTarget, target_name

VIP = "192.0.2.10"
AT = f"{VIP} . tcp . 80"


def target(address: str, **fields: Any) -> ForwardedTarget:
    return ForwardedTarget(address=address, port=8080, **fields)


def load_balancer(
    *targets: ForwardedTarget, addresses: tuple[str, ...] = (VIP,), **fields: Any
) -> ForwardedLoadBalancer:
    port = ForwardedPort(protocol=Protocol.TCP, port=80, targets=targets)
    return ForwardedLoadBalancer(kind="K", name="east/web", addresses=addresses, ports=(port,), **fields)


def chain(elements: dict[tuple[str, str], str], version: int = 4) -> str:
    return next((value for (name, _), value in elements.items() if name == f"services{version}"), "")


def shares(elements: dict[tuple[str, str], str]) -> Counter[str]:
    return Counter(value.split(" . ")[0] for (name, _), value in elements.items() if name == "targets4")


def clients(elements: dict[tuple[str, str], str]) -> dict[str, str]:
    """Return the target of each slot."""
    return {key: value for (name, key), value in elements.items() if name == "targets4"}


@pytest.mark.req("P-30")
def test_a_few_equal_targets_have_one_slot_each():
    elements = elements_of(load_balancer(target("10.0.0.2"), target("10.0.0.1")))
    assert elements == {
        ("ports4", AT): "",
        ("sources4", AT): "goto keep-address",
        ("services4", AT): "goto random-2",
        ("targets4", f"{AT} . 0"): "10.0.0.1 . 8080",
        ("targets4", f"{AT} . 1"): "10.0.0.2 . 8080",
    }


@pytest.mark.req("P-32")
def test_weights_are_slots_in_proportion():
    assert shares(elements_of(load_balancer(target("10.0.0.1", weight=20), target("10.0.0.2", weight=60)))) == {
        "10.0.0.1": 1,
        "10.0.0.2": 3,
    }
    uneven = elements_of(load_balancer(target("10.0.0.1", weight=99), target("10.0.0.2", weight=1)))
    assert chain(uneven) == "goto random-64"
    assert shares(uneven) == {"10.0.0.1": 63, "10.0.0.2": 1}
    assert "10.0.0.2" not in shares(elements_of(load_balancer(target("10.0.0.1"), target("10.0.0.2", weight=0))))


def test_many_targets_all_have_a_share():
    many = elements_of(load_balancer(*(target(f"10.0.0.{number}") for number in range(1, 101))))
    assert chain(many) == "goto random-1024"
    assert set(shares(many).values()) == {10, 11}


@pytest.mark.req("P-32")
def test_a_target_that_leaves_moves_few_clients_of_others():
    targets = [target(f"10.0.0.{number}") for number in range(1, 5)]
    before = elements_of(load_balancer(*targets, affinity=True))
    after = elements_of(load_balancer(*targets, affinity=True), down={target_name(Protocol.TCP, "10.0.0.1", 8080)})
    assert chain(before) == chain(after) == "goto hash-64"
    others = {key: value for key, value in clients(before).items() if not value.startswith("10.0.0.1 ")}
    moved = sum(clients(after)[key] != value for key, value in others.items())
    assert moved <= len(others) // 4
    assert before == elements_of(load_balancer(*reversed(targets), affinity=True)), "equal on every machine"


@pytest.mark.req("P-32")
def test_targets_that_drain_or_are_down_get_nothing():
    down = {target_name(Protocol.TCP, "10.0.0.2", 8080)}
    lb = load_balancer(target("10.0.0.1", draining=True), target("10.0.0.2"), target("10.0.0.3"))
    assert shares(elements_of(lb, down=down)) == {"10.0.0.3": 1}
    nothing = elements_of(load_balancer(target("10.0.0.2")), down=down)
    assert ("ports4", AT) in nothing, "so that connections are refused, and reach no other program of the machine"
    assert chain(nothing) == ""


@pytest.mark.req("P-31")
def test_whose_address_targets_see():
    lb = load_balancer(target("10.0.0.1"))
    assert elements_of(lb)["sources4", AT] == "goto keep-address"
    assert elements_of(lb, shared={VIP})["sources4", AT] == "goto own-address"
    assert ("sources4", AT) not in elements_of(load_balancer(target("10.0.0.1"), keep_client=True))


def test_each_family_has_its_own_targets():
    both = elements_of(load_balancer(target("10.0.0.1"), target("fd00::1"), addresses=(VIP, "2001:db8::10")))
    assert shares(both) == {"10.0.0.1": 1}
    assert both["targets6", "2001:db8::10 . tcp . 80 . 0"] == "fd00::1 . 8080"
    assert chain(elements_of(load_balancer(target("10.0.0.1"), addresses=("2001:db8::10",))), 6) == ""


@pytest.mark.req("P-30")
def test_a_change_is_as_many_elements_as_differ():
    before = elements_of(load_balancer(*(target(f"10.0.0.{number}") for number in (1, 2, 3))))
    after = elements_of(load_balancer(*(target(f"10.0.0.{number}") for number in (1, 2, 4))))
    assert transaction(before, after) == (
        f"delete element inet fairlead targets4 {{ {AT} . 2 }}\n"
        f"add element inet fairlead targets4 {{ {AT} . 2 : 10.0.0.4 . 8080 }}\n"
    )
    assert transaction(after, after) == ""
    removal = transaction(after, {})
    assert "add" not in removal
    assert "table" not in removal
    assert "chain" not in removal


def test_flows_of_a_load_balancer_are_those_of_its_elements():
    lb = load_balancer(target("10.0.0.1"), target("10.0.0.2", draining=True))
    begun = {Flow("tcp", VIP, 80, "10.0.0.1", 8080)}
    assert flows_in(elements_of(lb)) == begun
    assert flows_of(lb) == begun | {Flow("tcp", VIP, 80, "10.0.0.2", 8080)}


@pytest.mark.req("P-30")
def test_a_table_of_another_layout_is_recognized():
    assert f"chain {LAYOUT}" in skeleton()
    assert "delete" not in skeleton()
    assert "flush" not in skeleton()
    foreign = b'{"nftables": [{"table": {"family": "inet", "name": "fairlead", "handle": 1}}]}'
    assert listed_elements(foreign) is None
    ours = b"""{"nftables": [{"chain": {"name": "layout-1"}}, {"set": {"name": "ports4", "elem":
        [{"concat": ["192.0.2.10", "tcp", 80]}]}}, {"map": {"name": "services4", "elem":
        [[{"concat": ["192.0.2.10", "tcp", 80]}, {"goto": {"target": "random-2"}}]]}},
        {"map": {"name": "targets6"}}]}"""
    assert listed_elements(ours) == {("ports4", AT): "", ("services4", AT): "goto random-2"}
