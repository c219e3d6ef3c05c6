"""The rules of egress identities, and how a machine keeps and drops them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fairlead.errors import Retry
from fairlead.machine import kernel
from fairlead.machine.kernel import KernelPath, egress_rules
from fairlead.model.machine import EGRESS_TABLE, EgressIdentity, ForwardedLoadBalancer, ForwardingTable

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


@pytest.mark.req("P-35")
@pytest.mark.parametrize("whole", [True, False])
def test_identities_that_the_hub_cannot_read_are_kept(tmp_path: Path, whole: bool):
    path = KernelPath(tmp_path / "table.json", on_change=lambda: None)
    path.update(ForwardingTable(version="a-1", egress=(WEB, WEB6)))
    other = msgspec.structs.replace(API, sources=("10.0.0.2", "10.0.0.3"))
    path.update(ForwardingTable(version="b-1", whole=whole, egress=(other,), kept_egress=(WEB.address, "192.0.2.99")))
    left = msgspec.structs.replace(WEB, sources=("10.0.0.1",))
    assert path.wanted_egress == (left, other), "a source has one address"


@pytest.mark.req("P-35")
async def test_load_balancers_and_identities_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    written: list[str] = []
    broken = EGRESS_TABLE

    async def nft(program: str, *arguments: str, text: str = "") -> bytes:
        table = next((name for name in (EGRESS_TABLE, kernel.TABLE) if f"table {name}" in text), kernel.TABLE)
        if text and broken == table:
            raise Retry("nft failed: no such chain")
        written.extend([table] if text else [])
        return b""

    monkeypatch.setattr(kernel, "run_network_program", nft)
    monkeypatch.setattr(KernelPath, "_watch_tables", lambda _self: None)
    monkeypatch.setattr(kernel, "_RETRY_S", 0.0)
    monkeypatch.setattr(KernelPath, "_allow_forwarding", staticmethod(lambda _versions: None))
    table = ForwardingTable(
        version="a-1", egress=(WEB,), load_balancers=(ForwardedLoadBalancer(kind="K", name="east/web"),)
    )
    path = KernelPath(tmp_path / "table.json", on_change=lambda: None)
    path.update(table)
    running = asyncio.create_task(path.run())
    await until(lambda: path.state.version == "a-1" and bool(path.state.problem))
    assert (path.state.egress, EGRESS_TABLE in written) == ((), False)
    broken = kernel.TABLE
    written.clear()
    path.update(msgspec.structs.replace(table, version="a-2", egress=(WEB, API)))
    await until(lambda: path.state.egress == (WEB.address, API.address))
    running.cancel()
    await asyncio.wait({running})


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(180):
        while not is_so():  # noqa: ASYNC110 - the state has no event
            await asyncio.sleep(0.001)
