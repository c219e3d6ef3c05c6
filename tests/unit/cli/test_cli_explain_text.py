"""The lines of ``fairlead explain``."""

from __future__ import annotations

import msgspec
from cli_builders import NOW, SINCE, lb, previewed

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
