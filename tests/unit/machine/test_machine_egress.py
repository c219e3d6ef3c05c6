"""The rules of egress identities, and how a machine keeps and drops them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.machine.egress import egress_rules
from fairlead.machine.kernel import KernelPath
from fairlead.model.forwarding import EgressIdentity, ForwardingTable

WEB = EgressIdentity(address="192.0.2.10", sources=("10.0.0.1", "10.0.0.2"), first_port=32_768, last_port=60_999)
API = EgressIdentity(address="192.0.2.11", sources=("10.0.0.3",), first_port=40_001, last_port=60_999)
WEB6 = EgressIdentity(address="2001:db8::10", sources=("fd00::1",), first_port=32_768, last_port=60_999)


@pytest.mark.req("P-35")
def test_each_range_of_ports_has_one_rule_and_both_families_are_apart():
    rules = [line for line in egress_rules((WEB, API, WEB6)).splitlines() if line.startswith("add rule")]
    ports = [line for line in rules if "snat" in line and "th dport" not in line and "tcp" in line]
    assert len(ports) == 3
    assert "map { 10.0.0.1 : 192.0.2.10, 10.0.0.2 : 192.0.2.10 } : 32768-60999" in ports[0]
    assert "map { 10.0.0.3 : 192.0.2.11 } : 40001-60999" in ports[1]
    assert "snat ip6 to ip6 saddr map { fd00::1 : 2001:db8::10 } : 32768-60999" in ports[2]
    dropped = [line for line in rules if line.endswith("drop")]
    assert "192.0.2.10 . 32768-60999, 192.0.2.11 . 40001-60999" in dropped[0]


def test_without_identities_the_table_is_emptied_and_stays():
    commands = egress_rules(())
    assert "add rule" not in commands
    assert "delete" not in commands
    assert commands.count("flush chain") == 2


@pytest.mark.req("P-35")
def test_identities_stay_unless_a_table_has_others(tmp_path: Path):
    path = KernelPath(tmp_path / "table.json", on_change=lambda: None)
    path.update(ForwardingTable(version="a-1", egress=(WEB,)))
    path.update(ForwardingTable(version="a-2", whole=False))
    assert path.wanted_egress == (WEB,)
    path.update(ForwardingTable(version="a-3", whole=False, egress=(WEB, API)))
    assert path.wanted_egress == (WEB, API)
    path.update(ForwardingTable(version="a-4", whole=False, egress=()))
    assert path.wanted_egress == ()
    path.update(ForwardingTable(version="b-1", egress=(API,)))
    path.update(ForwardingTable(version="old-hub-1"))
    assert path.wanted_egress == (), "a hub that knows no identities sends none"
