"""What a tenant writes into its objects cannot act on the terminal of an operator, or forge a line."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import msgspec
import pytest
from cli_builders import NOW, SINCE, lb, previewed
from rich.console import Console

import fairlead.cli
from fairlead.api.meta import WireCondition
from fairlead.cli.explain import explained, lines_of
from fairlead.cli.options import Output
from fairlead.cli.output import emit, say
from fairlead.cli.run import sentence_of
from fairlead.cli.status import print_status
from fairlead.errors import BadConfiguration
from fairlead.hub.intents.intent import Exclusion
from fairlead.status.formatting import columns
from tests.fleet_objects import status

HOSTILE = "web\x1b[2J\n✓ everything is healthy\r\u202e"
SHOWN = "web\\x1b[2J\\n✓ everything is healthy\\r\\u202e"
#: Where nothing is printed but what the process itself has chosen.
OWN_WORDS = {"output.py"}


@pytest.mark.req("S-9")
def test_status_shows_escapes_and_no_forged_line() -> None:
    fleet = status()
    row = msgspec.structs.replace(fleet.load_balancers[0], origin=HOSTILE, class_name=HOSTILE, reason=HOSTILE)
    member = msgspec.structs.replace(fleet.members[0], name=HOSTILE, state=HOSTILE)
    fleet = msgspec.structs.replace(fleet, load_balancers=[row], members=[member])
    out = io.StringIO()
    print_status(fleet, Console(file=out))
    assert "\x1b" not in out.getvalue()
    assert SHOWN in out.getvalue()
    assert not [line for line in out.getvalue().splitlines() if line.startswith("✓") and line.endswith("\r\u202e")]


@pytest.mark.req("S-9")
def test_explain_and_every_other_verb_prints_one_line_for_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    condition = WireCondition(
        type="Programmed", status="False", reason="ProviderFailed", message=HOSTILE, last_transition_time=SINCE
    )
    shown = previewed(lb(), lb(), conditions=(condition,), unread=HOSTILE)
    shown = msgspec.structs.replace(shown, exclusions=(Exclusion(HOSTILE, HOSTILE, "not ready"),))
    lines = lines_of(explained(shown, now=NOW, leading=True), now=NOW)
    say(lines)
    printed = capsys.readouterr().out
    assert printed.count("\n") == len(lines)
    assert "\x1b" not in printed
    assert f"ProviderFailed: {SHOWN}" in printed


@pytest.mark.req("S-9")
def test_columns_json_and_errors_are_as_safe(capsys: pytest.CaptureFixture[str]) -> None:
    assert columns([(HOSTILE, "b")]) == [f"  {SHOWN}  b"]
    emit(Output.JSON, {"name": HOSTILE + "\x9b\x7f"}, lines=tuple, names=tuple)
    printed = capsys.readouterr().out
    assert msgspec.json.decode(printed) == {"name": HOSTILE + "\x9b\x7f"}
    assert not set(printed) & set("\x1b\r\u202e\x9b\x7f")
    error = BadConfiguration(f"{HOSTILE} is wrong", detail=HOSTILE)
    assert sentence_of(error, verbose=True) == f"W{SHOWN[1:]} is wrong.\n  detail: {SHOWN}"


@pytest.mark.req("S-9")
def test_verbs_print_through_one_home_only() -> None:
    for path in sorted(Path(fairlead.cli.__file__).parent.rglob("*.py")):
        if path.name in OWN_WORDS:
            continue
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        bare = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
        assert not bare, f"{path.name}:{bare}: print with say() of cli/output.py, which escapes what others wrote"
