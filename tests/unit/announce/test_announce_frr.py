"""The lines that FRR gets, and what its answers mean."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.announce.frr import (
    announced,
    configuration,
    difference,
    parse_lines,
    parse_neighbours,
    session_of,
    text_of,
)
from fairlead.announce.routes import AnnouncedRoute
from fairlead.errors import Retry
from fairlead.model.machine import BgpAttributes, BgpPeerPlan

A, B = AnnouncedRoute("192.0.2.1/32"), AnnouncedRoute("2001:db8::1/128", BgpAttributes(med=5, prepend=2))


def peer(name="tor", **fields: Any) -> BgpPeerPlan:
    defaults: dict[str, Any] = {"asn": 65000, "local_asn": 65001, "address": "10.0.0.1"}
    return BgpPeerPlan(name=name, **(defaults | fields))


def lines(*routes, peers=()):
    return configuration(peers or [peer()], routes, router_id="10.0.0.2")


@pytest.mark.req("P-24")
def test_a_file_has_the_lines_that_were_written() -> None:
    peers = [
        peer(password="secret", bfd=True, graceful_restart=True, ttl_security=True),
        peer("other", address="fe80::1", interface="eth0", local_asn=65002),
        peer("unnumbered", address="", interface="eth1"),
        peer("far", address="127.0.0.1", hops=4, port=1179),
    ]
    written = lines(A, B, peers=peers)
    assert parse_lines(text_of(written)) == sorted(written, key=parse_lines(text_of(written)).index)
    assert difference(parse_lines(text_of(written)), written) == []


@pytest.mark.req("P-21")
def test_only_the_changed_route_is_sent() -> None:
    commands = difference(lines(A), lines(A, AnnouncedRoute("192.0.2.2/32")))
    assert [text.strip() for text in commands if "neighbor" in text or "no " in text] == []
    assert [text.split()[1] for text in commands if text.strip().startswith("network")] == ["192.0.2.2/32"]
    commands = difference(lines(A, B), lines(A))
    assert [text.split()[2] for text in commands if text.strip().startswith("no network")] == ["2001:db8::1/128"]
    assert commands[-1].startswith("no route-map fairlead-set-"), "attributes of no route are removed last"


@pytest.mark.req("P-25")
def test_addresses_that_are_not_on_the_machine_are_not_announced() -> None:
    members = ("198.51.100.1/32", "198.51.100.2/32")
    written = lines(A, B, AnnouncedRoute("198.51.100.0/24", members=members), AnnouncedRoute("198.51.100.3/32"))
    assert announced(written, {A.prefix, members[1]}) == {A.prefix, "198.51.100.0/24"}
    assert announced(written, {B.prefix, "198.51.100.3/32"}) == {B.prefix, "198.51.100.3/32"}


def test_a_neighbour_with_another_as_is_entered_as_a_whole() -> None:
    commands = difference(lines(A), lines(A, peers=[peer(asn=65009)]))
    stripped = [text.strip() for text in commands]
    assert stripped.count("no neighbor 10.0.0.1") == 1
    assert "neighbor 10.0.0.1 remote-as 65009" in stripped
    assert "neighbor 10.0.0.1 activate" in stripped
    assert not any(text.startswith("no neighbor 10.0.0.1 ") for text in stripped)


NEIGHBOUR = """{"10.0.0.1": {"bgpState": "%s", "bgpTimerUpEstablishedEpoch": 1795680577, "lastResetDueTo": "%s",
 "lastNotificationReason": "%s", "addressFamilyInfo": {"ipv4Unicast": {"sentPrefixCounter": 2}},
 "peerBfdInfo": {"status": "Up"}}}"""


@pytest.mark.req("P-27")
def test_sessions() -> None:
    state = session_of(peer(bfd=True), parse_neighbours(NEIGHBOUR % ("Established", "", "")))
    assert (state.up, state.announced, state.bfd, state.problem) == (True, 2, "Up", "")
    down = NEIGHBOUR % ("Active", "BGP Notification received", "OPEN Message Error/Bad Peer AS")
    assert "spec.localASN" in session_of(peer(), parse_neighbours(down)).problem
    down = NEIGHBOUR % ("Active", "BGP Notification send", "OPEN Message Error/Bad Peer AS")
    assert "spec.asn" in session_of(peer(), parse_neighbours(down)).problem
    assert session_of(peer("another", address="10.0.0.9"), parse_neighbours(down)).problem
    with pytest.raises(Retry):
        parse_neighbours("% Unknown command")
