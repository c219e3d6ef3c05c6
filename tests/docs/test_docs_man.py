"""The man pages: one for each command, which groff reads without an error, and nothing acts as a request in them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Any

import pytest
import typer

from fairlead.cli.main import app
from tools import man


@pytest.mark.req("OP-7")
def test_each_command_has_a_page_with_each_of_its_options() -> None:
    pages = man.pages()
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        page = pages[f"fairlead-{name}.1"].replace("\\-", "-")
        missing = [
            option for each in command.params for option in each.opts if option.startswith("-") and option not in page
        ]
        assert missing == [], name
    assert "fairlead-tenant-add.1" in pages


@pytest.mark.req("OP-7")
def test_a_line_of_text_is_not_a_request() -> None:
    for name, text in man.pages().items():
        requests = {line.split()[0] for line in text.splitlines() if line.startswith((".", "'"))}
        assert requests <= {'.\\"', ".TH", ".SH", ".B", ".TP", ".BR"}, name


@pytest.mark.req("OP-7")
@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed: apt-get install groff")
def test_groff_reads_the_pages_without_an_error() -> None:
    text = "".join(man.pages().values())
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-z", "-K", "utf8"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if "error" in line or "macro" in line] == []


def completed(*typed: str) -> list[str]:
    program = [sys.executable, "-c", "from fairlead.cli.kubectl_complete import main; main()", *typed]
    return subprocess.run(program, capture_output=True, text=True, check=True, timeout=120).stdout.split()


@pytest.mark.req("OP-9")
def test_kubectl_is_given_commands_and_nothing_for_a_name_when_no_api_answers() -> None:
    assert completed("sta") == ["standalone", "status", ":4"]
    assert "doctor" in completed("")
    assert completed("status", "--kubeconfig", "/nowhere", "tcplb/") == [":4"]
