"""The file that BIRD gets, and what its answers mean."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from fairlead.announce.bird import (
    configuration,
    find_binary,
    parse_protocols,
    prefixes_in,
    router_id,
    session_of,
    symbol_of,
)
from fairlead.announce.routes import AnnouncedRoute
from fairlead.errors import BadConfiguration
from fairlead.model.machine import BgpAttributes, BgpPeerPlan

ROUTES = [
    AnnouncedRoute("192.0.2.1/32"),
    AnnouncedRoute(
        "192.0.2.2/32", BgpAttributes(communities=("65000:1", "65000:1:2"), local_preference=0, med=0, prepend=16)
    ),
    AnnouncedRoute("2001:db8::/48", BgpAttributes(peers=("tor-a.example", "x"))),
]


def peer(name="tor", **fields: Any) -> BgpPeerPlan:
    defaults: dict[str, Any] = {"asn": 65000, "local_asn": 4_200_000_001, "address": "127.0.0.1"}
    return BgpPeerPlan(name=name, **(defaults | fields))


PEERS = [
    peer("a", password="with spaces # and {}; signs"),
    peer("b", address="::1", ttl_security=True, hold_s=3),
    peer("c", hops=4, bfd=True),
    peer("d", address="", interface="eth0.100", bfd=True, bfd_interval_ms=50),
    peer("e", address="fe80::1", interface="bond0", graceful_restart=True),
    peer("f", asn=65001, local_asn=65001, port=1179),
    peer("name." * 30 + "end"),
    peer("g", address="10.255.255.1", hops=255, bfd=True),
]


def text_of(peers=(), routes=(), tmp_path=Path("/run/x")):
    return configuration(peers, routes, directory=tmp_path, router_id="10.0.0.1")


@pytest.mark.req("P-18", "P-24")
@pytest.mark.parametrize("peers", [[], PEERS, *([each] for each in PEERS)], ids=lambda peers: f"{len(peers)}")
def test_bird_accepts_every_file(tmp_path: Path, peers) -> None:
    binary = shutil.which("bird", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if binary is None:
        pytest.skip("bird missing: apt-get install bird2")
    file = tmp_path / "bird.conf"
    file.write_text(text_of(peers, ROUTES, tmp_path))
    done = subprocess.run([binary, "-p", "-c", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.req("P-21")
def test_a_route_that_changes_changes_no_session() -> None:
    """BIRD sends all routes again when a filter changes, and restarts a session when anything else of it does."""

    def sessions(routes):
        text = text_of(PEERS, routes)
        return text[text.index("protocol radv") :]

    assert sessions(ROUTES) == sessions([]) == sessions([AnnouncedRoute("192.0.2.9/32", BgpAttributes(peers=("b",)))])
    assert prefixes_in(text_of(PEERS, ROUTES)) == [route.prefix for route in ROUTES]


def test_names_are_short_and_differ() -> None:
    names = [f"{'x' * 60}{number}" for number in range(20)]
    assert len({symbol_of(name) for name in names}) == 20
    assert max(len(symbol_of(name)) for name in names) < 64


def test_a_machine_without_ipv4_has_a_router_id() -> None:
    assert router_id([]) == router_id([peer(address="fe80::1", interface="eth0")])
    assert 1 <= int(router_id([]).split(".")[0]) < 127


def test_a_program_that_is_missing_names_its_package() -> None:
    with pytest.raises(BadConfiguration, match="apt-get install bird2"):
        find_binary("fairlead-no-such-program", "bird2", "BIRD 2")


ANSWER = """\
Name       Proto      Table      State  Since         Info
device1    Device     ---        up     2026-11-26 07:40:56
router:tor BGP        ---        {state}     2026-11-26 08:02:47  {info}
  BGP state:          {info}
    Neighbor address: 127.0.0.1
    Neighbor AS:      65000
    {error}
  Channel ipv4
    State:          UP
    Routes:         0 imported, 2 exported, 0 preferred
  Channel ipv6
    State:          DOWN
    Routes:         0 imported, 3 exported, 0 preferred
fairlead_bfd BFD      ---        up     2026-11-26 07:40:56
    Routes:         0 imported, 9 exported
"""


def session(info, error="", *, bad_as="", bfd="", **fields: Any):
    state = "up" if info == "Established" else "start"
    text = ANSWER.format(state=state, info=info, error=f"Last error:       {error}" if error else "")
    bad = {symbol_of("tor"): bad_as} if bad_as else {}
    return session_of(peer(**fields), parse_protocols(text.splitlines()), {"127.0.0.1": bfd} if bfd else {}, bad)


@pytest.mark.req("P-27")
def test_an_established_session() -> None:
    state = session("Established", bfd="Up")
    assert (state.up, state.announced, state.bfd, state.problem) == (True, 5, "", "")
    assert abs(state.since - time.mktime((2026, 11, 26, 8, 2, 47, 0, 0, -1))) < 1
    assert session_of(peer(bfd=True), [], {}, {}).problem


@pytest.mark.req("P-27")
@pytest.mark.parametrize(
    ("info", "error", "fields", "part"),
    [
        ("Connect", "", {"password": "x"}, "same password"),
        ("Connect", "", {}, "127.0.0.1:179"),
        ("Connect", "", {"address": "2001:db8::1"}, "[2001:db8::1]:179"),
        ("Active", "BGP Error: Bad peer AS", {"bad_as": "64512"}, "answers with AS 64512"),
        ("Active", "Received: Bad peer AS", {}, "rejects AS 4200000001"),
        ("Active", "Socket: Connection reset by peer", {}, "as its neighbor with AS 4200000001"),
        ("Active", "Socket: Connection refused", {}, "port 179"),
        ("Active", "Socket: No route to host", {}, "cannot be reached"),
        ("Idle", "Error: Link down", {}, "interface and cable"),
        ("Idle", "", {}, "spec.hops"),
        ("Idle", "Error: Hold timer expired", {}, "Hold timer expired"),
        ("Passive", "", {"address": "", "interface": "eth0"}, "no router on eth0"),
    ],
)
def test_a_session_that_is_down_has_a_next_step(info, error, fields, part) -> None:
    state = session(info, error, **fields)
    assert not state.up
    assert part in state.problem
