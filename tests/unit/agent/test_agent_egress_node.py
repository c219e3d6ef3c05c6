"""Rules and routes of a node for its labelled pods."""

from __future__ import annotations

import pytest

from fairlead.agent.egress_node import (
    IDENTITY,
    MAIN,
    REFUSE,
    Hop,
    nft_rules,
    rule_commands,
    table_of,
    wanted_rules,
)

VIP, POD = "192.0.2.10", "10.0.0.1"


@pytest.mark.req("P-35")
def test_a_pod_has_its_own_route_and_never_another_one():
    here = {VIP: Hop(device="eth0")}
    assert list(wanted_rules({POD: VIP}, here)) == [(MAIN, POD, 0), (REFUSE, POD, 0), (IDENTITY, POD, table_of(VIP))]
    refused = [(MAIN, POD, 0), (REFUSE, POD, 0)]
    assert list(wanted_rules({POD: ""}, {})) == refused, "no address yet, or a label that cannot be followed"
    assert list(wanted_rules({POD: VIP}, {VIP: Hop(problem="not on a link")})) == refused
    assert list(wanted_rules({POD: VIP}, {VIP: Hop(device="eth0", problem="silent")})) == list(
        wanted_rules({POD: VIP}, here)
    )
    assert list(wanted_rules({POD: VIP}, {VIP: Hop(own=True)})) == [], "this node is the machine"


def test_rules_that_differ_are_written_and_new_ones_come_first():
    before = wanted_rules({POD: VIP}, {VIP: Hop(device="eth0")})
    after = wanted_rules({"10.0.0.2": VIP}, {VIP: Hop(device="eth0")})
    assert rule_commands(before, before) == ""
    verbs = [line.split()[1] for line in rule_commands(after, before).splitlines()]
    assert verbs == ["add"] * 3 + ["del"] * 3
    (refuse,) = [line for line in rule_commands(before, ()).splitlines() if "unreachable" in line]
    assert f"pref {REFUSE} from {POD}" in refuse


def test_tables_of_addresses_differ_and_are_none_of_the_systems():
    tables = {table_of(address) for address in (VIP, "192.0.2.11", "1.0.0.1", "2001:db8::1", "2001:db8::2")}
    assert len(tables) == 5
    assert min(tables) > 255
    assert max(tables) < 1 << 32


def test_the_node_leaves_only_packets_to_these_next_hops_untranslated():
    text = nft_rules({POD: VIP, "10.0.0.2": "", "fd00::1": "2001:db8::10"})
    rules = [line for line in text.splitlines() if line.startswith("add rule")]
    assert "ip saddr { 10.0.0.1 } rt ip nexthop { 192.0.2.10 } snat ip to ip saddr" in rules[0]
    assert "ip6 saddr { fd00::1 } rt ip6 nexthop { 2001:db8::10 }" in rules[1]
