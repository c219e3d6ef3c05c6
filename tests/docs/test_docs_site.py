"""The documentation site: links stay in it, it can be searched, and no page asks another server for anything."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.docs_console import ROOT
from tools.site_hooks import with_links_inside

needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="MkDocs is not installed: make site installs it"
)
#: What a browser loads by itself, when a page is looked at.
_LOADED = re.compile(
    r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//|url\(["']?(?:https?:)?//|@import"""
)


@pytest.mark.req("OP-7")
@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("how-to/operate.md", "[a](doctor.md#b)", "[a](doctor.md#b)"),
        ("how-to/operate.md", "[kinds](../adr)", "[kinds](../adr/README.md)"),
        ("how-to/operate.md", "[units](../../deploy/systemd)", "units (`deploy/systemd`)"),
        ("how-to/operate.md", "[`deploy/systemd`](../../deploy/systemd)", "`deploy/systemd`"),
        ("index.md", "[it](CONTRIBUTING.md)", "it (`CONTRIBUTING.md`)"),
        ("index.md", "[it](https://example.com/a)", "[it](https://example.com/a)"),
        ("index.md", "[here](#below)", "[here](#below)"),
    ],
)
def test_a_link_leads_to_a_page_or_is_a_path(source: str, text: str, expected: str) -> None:
    there = {"how-to/doctor.md", "adr/README.md"}
    assert with_links_inside(text, source, there.__contains__) == expected


@pytest.mark.slow
@pytest.mark.req("OP-7")
@needs_mkdocs
def test_the_site_is_built_and_asks_no_other_server(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    files = [file for file in tmp_path.rglob("*") if file.suffix in {".html", ".css"}]
    assert {file.name for file in files} >= {"index.html", "tutorial.html", "doctor.html", "command-line.html"}
    asking = [file for file in files if _LOADED.search(re.sub(r'<link rel="canonical"[^>]*>', "", file.read_text()))]
    assert asking == []
    index = json.loads((tmp_path / "search" / "search_index.json").read_text())
    assert any("make before break" in entry["text"].lower() for entry in index["docs"])
