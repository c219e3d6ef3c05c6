"""What ``fairlead pause`` and ``fairlead resume`` print."""

from __future__ import annotations

from datetime import UTC, datetime

from cli_builders import lb, previewed

from fairlead.cli.changes import paused_lines, resumed_lines
from fairlead.cli.hub_reader import Snapshot
from fairlead.status.fleet import HubRow
from fairlead.status.object_ref import ObjectRef
from fairlead.testing.builders import target

LEADS = HubRow("hub-1", 1.0, True)
NOW = datetime(2030, 1, 1, tzinfo=UTC)
MEANT = ObjectRef("TCPLoadBalancer", "shop", "web")


def test_pause_says_what_it_holds_and_how_to_let_it_through() -> None:
    shown = previewed(lb(target("1"), paused=True), lb(target("1"), target("2")), paused=("TCPLoadBalancer/shop/web",))
    lines = paused_lines(MEANT, Snapshot([shown], LEADS, NOW), was=False)
    assert lines[0] == "TCPLoadBalancer shop/web is paused; 1 held so far."
    assert lines[-1] == "Apply the held changes with: fairlead resume tcplb/web -n shop"
    assert any("= hold Deregister" in line for line in lines)
    assert paused_lines(MEANT, Snapshot([], HubRow(), NOW), was=True) == [
        "TCPLoadBalancer shop/web was paused already; nothing held so far.",
        "Apply the held changes with: fairlead resume tcplb/web -n shop",
        "No hub leads now, so nothing is done; start one with: fairlead hub",
    ]


def test_resume_says_what_goes_on_and_what_is_paused_still() -> None:
    changed = (lb(target("1"), paused=True), lb(target("1"), target("2")))
    own = previewed(*changed, paused=("TCPLoadBalancer/shop/web",))
    lines = resumed_lines(MEANT, Snapshot([own], LEADS, NOW), was=True)
    assert lines[0] == "TCPLoadBalancer shop/web is resumed; it held 1 change."
    assert any(line.startswith("  - Deregister") for line in lines)
    both = previewed(*changed, paused=("TCPLoadBalancer/shop/web", "LoadBalancerClass/edge"))
    lines = resumed_lines(MEANT, Snapshot([both], LEADS, NOW), was=True)
    assert lines == [
        "TCPLoadBalancer shop/web is resumed; it held 0 changes.",
        "LoadBalancerClass/edge is still paused and holds its own changes: fairlead resume LoadBalancerClass/edge",
    ]
    assert resumed_lines(MEANT, Snapshot([own], LEADS, NOW), was=False) == ["TCPLoadBalancer shop/web was not paused."]
