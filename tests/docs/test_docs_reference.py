"""The reference is what the source says now, and pages speak of nothing that the source does not know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from fairlead.api import names
from fairlead.cli.main import app
from tests.docs.docs_console import ROOT, blocks_of, pages
from tools import charts, descriptions, generate

PAGES = pytest.mark.parametrize("page", pages(), ids=lambda file: str(file.relative_to(ROOT)))
_COMMAND = re.compile(r"(?m)(?:^|\s|\()fairlead (.+?)(?:$|[|&;`])")
_NAME = re.compile(r"(?<![\w.])fairlead\.dev/[a-z]+(?:-[a-z]+)*")


def test_reference_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, capsys.readouterr().err


def test_check_notices_drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "REFERENCE", tmp_path)
    monkeypatch.setattr(generate.charts, "files", dict)
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    (tmp_path / "metrics.md").write_text("old", encoding="utf-8")
    (tmp_path / "left-over.md").write_text("old", encoding="utf-8")
    assert generate.main(["--check"]) == 1


def test_check_notices_a_chart_that_is_not_what_the_manifests_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rights = "deploy/charts/fairlead-hub/templates/rbac.yaml"
    made = charts.files()
    assert "fairlead-hub-tenant" in made[rights]
    monkeypatch.setattr(charts, "files", lambda: {**made, rights: made[rights].replace("[get,", "[get, delete,")})
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().err == f"{rights} differs from the source; run: make docs\n"


def test_a_reason_without_a_sentence_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(descriptions.REASONS, "Invalid")
    with pytest.raises(SystemExit, match="lacks a sentence for Invalid"):
        generate.pages()


def test_a_sentence_about_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(descriptions.REASONS, "Bogus", "Nothing.")
    with pytest.raises(SystemExit, match="Bogus"):
        generate.pages()


@PAGES
def test_commands_and_flags_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    commands = [block.text for block in blocks_of(text) if block.language in {"sh", "console", "text", ""}]
    commands += re.findall(r"`(fairlead [^`]+)`", text)
    root: Any = typer.main.get_command(app)
    for match in (match for text in commands for match in _COMMAND.finditer(text)):
        command = root
        rest = match[1].split()
        while rest and rest[0] in getattr(command, "commands", {}):
            command = command.commands[rest.pop(0)]
        if command is root:
            # Prose about the program, or its output.
            assert not rest or not rest[0].startswith("--"), match[0]
            continue
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {
            "--help",
            "-h",
        }
        used = {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"}
        assert used <= known, f"fairlead {match[1]!r}: {sorted(used - known)} does not exist"


@PAGES
def test_annotations_and_labels_exist(page: Path) -> None:
    known = {value for value in vars(names).values() if isinstance(value, str)} | {names.API_VERSION}
    known |= {*names.HEALTH_ANNOTATIONS}
    known |= {
        f"{names.GROUP}/{line}" for line in ("gold", "envoy", "envoy-pods", "edge-haproxy", "fast")
    }  # classes of the examples
    text = page.read_text(encoding="utf-8")
    if "docs/regions" not in page.as_posix():
        assert set(_NAME.findall(text.replace(names.API_VERSION, ""))) <= known
