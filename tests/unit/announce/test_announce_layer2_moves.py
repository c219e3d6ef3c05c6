"""Connections that are open at a planned move: which this machine has, and what is sent on to the former owner."""

from __future__ import annotations

import socket

import pytest

from fairlead.announce.layer2_moves import Connection, connections_at, forwarding

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
    ports = {VIP[version]: (32_768, 60_999)}
    lines = forwarding("netdev t", "eth0", [VIP[version]], FORMER[version], (), ports).splitlines()
    ingress = [line for line in lines if line.startswith("add rule netdev t ingress")]
    assert [line.endswith("accept") for line in ingress] == [True, True, False, False], "before what is sent on"
    assert f"add element netdev t egress{version} {{ {VIP[version]} . 32768-60999 timeout 300s }}" in lines
