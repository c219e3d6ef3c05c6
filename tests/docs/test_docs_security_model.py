"""Each line of the security model names a test that is there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.docs_console import ROOT

PAGE = ROOT / "docs" / "security-model.md"
LINES = [
    line for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| attempt")
]  # fmt: skip
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split("|")[1].strip()[:60])
@pytest.mark.req("S-3", "S-6", "S-7", "S-9", "S-10", "S-11")
def test_a_line_names_its_test(line: str) -> None:
    assert line.count(" | ") == 2, "attempt, what holds, shown by"
    named = _TEST.findall(line.rsplit("|", 2)[1])
    assert named, "a line without a test is a promise only"
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        there = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
        assert not name or name in there, f"{path} has no {name}"


@pytest.mark.req("S-1", "S-2", "S-4", "S-5", "S-8")
@pytest.mark.parametrize(
    "attempt", ["any size", "selector that", "JSON patch", "YAML", "digits", "half TLS handshakes"]
)
def test_what_clients_can_do_to_the_api_server_has_a_line(attempt: str) -> None:
    assert any(attempt in line.split(" | ")[0] for line in LINES)


def test_the_dns_part_is_not_denied() -> None:
    assert "no DNS part" not in PAGE.read_text(encoding="utf-8")


def test_there_are_lines_for_every_party() -> None:
    assert len(LINES) > 25
    for page in ("README.md", "SECURITY.md"):
        assert "docs/security-model.md" in (ROOT / page).read_text(encoding="utf-8")
