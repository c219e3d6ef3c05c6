"""The lines of ``fairlead explain``."""

from __future__ import annotations

import msgspec
import pytest
from cli_builders import NOW, SINCE, lb, previewed

from fairlead.api.globalservice import GlobalMemberStatus
from fairlead.api.meta import WireCondition
from fairlead.cli.explain import explained, lines_of
from fairlead.hub.intents.intent import Exclusion


def test_omissions_and_messages_of_the_hub_are_in_the_lines() -> None:
    condition = WireCondition(
        type="Programmed", status="False", reason="ProviderFailed", message="no answer", last_transition_time=SINCE
    )
    shown = previewed(lb(), lb(), conditions=(condition,), unread="no answer")
    exclusion = Exclusion("Pod/shop/web-1", "BackendGroup/shop/web", "not ready")
    shown = msgspec.structs.replace(shown, exclusions=(exclusion,))
    assert lines_of(explained(shown, now=NOW, leading=True), now=NOW) == [
        "TCPLoadBalancer/shop/web: object deleted, provider haproxy",
        "  Programmed  False  30s  ProviderFailed: no answer",
        "Backends: none",
        "Excluded:",
        "  Pod/shop/web-1  not ready (BackendGroup/shop/web)",
        "Note: not read back: no answer",
    ]


@pytest.mark.req("MC-18")
def test_a_silent_member_has_its_age_in_the_lines() -> None:
    silent = GlobalMemberStatus("west", share="60%", state="Serving", endpoints="2/2", silent_since=SINCE)
    members = [silent, msgspec.structs.replace(silent, tenant="east", silent_since=None)]
    row = msgspec.structs.replace(explained(previewed(lb(), lb()), now=NOW, leading=True), members=members)
    west, east = (line for line in lines_of(row, now=NOW) if "tier 0" in line)
    assert "agent silent for 30s" in west
    assert "silent" not in east
