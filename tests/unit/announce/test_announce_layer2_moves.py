"""Connections that are open at a planned move: which this machine has, and what is sent on to the former owner."""

from __future__ import annotations

import socket

import pytest

from fairlead.announce import layer2_moves
from fairlead.announce.layer2_moves import Connection, Moves, chain_to, connections_at, forwarding

VIP = {4: "192.0.2.100", 6: "2001:db8::100"}
FORMER = {4: "192.0.2.1", 6: "2001:db8::1"}


@pytest.mark.req("P-6")
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::")])
def test_connections_of_this_machine_are_found_by_their_local_address(family: int, host: str):
    dual = family == socket.AF_INET6
    with (
        socket.create_server((host, 0), family=family, dualstack_ipv6=dual) as server,
        socket.create_connection(("127.0.0.1", port := server.getsockname()[1])) as client,
    ):
        there = connections_at(["127.0.0.1"])
        assert Connection("127.0.0.1", client.getsockname()[1], "127.0.0.1", port) in there
        assert not [each for each in connections_at(["192.0.2.9"]) if each.local_port == port]
        listening = [each for each in there if each.local_port == port and each.remote_port == 0]
        assert not listening


@pytest.mark.req("P-6")
@pytest.mark.parametrize("version", [4, 6])
def test_a_connection_that_begins_here_or_began_here_stays_here(version: int):
    own = [Connection("192.0.2.7" if version == 4 else "2001:db8::7", 4000, VIP[version], 80)]
    lines = forwarding("netdev t", "eth0", [VIP[version]], FORMER[version], own).splitlines()
    rules = [line for line in lines if line.startswith("add rule netdev t to_")]
    began, known, others = rules
    assert "syn" in began
    assert began.endswith("accept")
    assert known.endswith("accept")
    assert f"to {FORMER[version]} device eth0" in others
    elements = [line for line in lines if line.startswith("add element")]
    assert len(elements) == 2
    assert f"{own[0].remote} . 4000 . {VIP[version]} . 80" in elements[0]
    assert VIP[version] in elements[1]


@pytest.mark.req("P-35")
@pytest.mark.parametrize("version", [4, 6])
def test_answers_to_what_pods_begin_stay_at_the_new_owner(version: int):
    other = {4: "192.0.2.101", 6: "2001:db8::101"}[version]
    ports = {VIP[version]: (32_768, 60_999)}
    lines = forwarding("netdev t", "eth0", [VIP[version], other], FORMER[version], (), ports).splitlines()
    chain = chain_to(FORMER[version], ports[VIP[version]])
    first = next(line for line in lines if line.startswith(f"add rule netdev t {chain} "))
    assert first.endswith("tcp dport 32768-60999 accept"), "before what is sent on"
    elements = [line for line in lines if line.startswith("add element")]
    assert f"{VIP[version]} timeout 300s : goto {chain} " in elements[0], "the range lasts as long as the address"
    assert f"{other} timeout 300s : goto {chain_to(FORMER[version])} " in elements[1]


@pytest.mark.req("P-6")
def test_a_new_process_forgets_what_an_earlier_one_left(monkeypatch: pytest.MonkeyPatch):
    kernel: list[tuple[str, ...]] = []
    entries = (f"{VIP[4]} timeout 5m expires 4m59s : goto to_192_0_2_1", "192.0.2.9 timeout 5m expires 1s : goto x")
    listing = f"elements = {{ {', '.join(entries)} }}"

    def run(*arguments: str, text: str = "") -> tuple[int, str, str]:
        kernel.append((*arguments, text))
        return 0, listing if arguments[-1] == "former4" else "", ""

    monkeypatch.setattr(layer2_moves, "_run", run)
    moves = Moves(3)
    moves.left([])
    assert kernel == []
    moves.taken("eth0", [VIP[4]], "192.0.2.2")
    texts = [entry[-1] for entry in kernel if entry[-1]]
    assert f"delete element netdev fairlead_moves_3 former4 {{ {VIP[4]} }}" in texts[0]
    assert f"{VIP[4]} timeout 300s : goto to_192_0_2_1 " in texts[0], "an entry that expired meanwhile is no error"
    moves.left([VIP[4], VIP[6]])
    assert "to_192_0_2_2" in kernel[-1][-1]


@pytest.mark.req("P-6")
def test_a_map_that_cannot_be_read_is_read_again_at_the_next_move(monkeypatch: pytest.MonkeyPatch):
    listings = iter([(1, "", "Operation not permitted")] * 2)
    listing = f"{VIP[4]} timeout 5m expires 4m59s : goto to_192_0_2_1"
    forgotten: list[str] = []

    def run(*_arguments: str, text: str = "") -> tuple[int, str, str]:
        if text:
            forgotten.append(text)
            return 0, "", ""
        return next(listings, (0, listing, ""))

    monkeypatch.setattr(layer2_moves, "_run", run)
    moves = Moves(3)
    moves.left([VIP[4]])
    assert forgotten == []
    moves.left([VIP[4]])
    assert VIP[4] in forgotten[0], "the map was not taken for an empty one"
