from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-golden", action="store_true", help="take what comes out now for what should come out")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a file, or write it there with ``--rewrite-golden``."""
    rewrite = bool(request.config.getoption("--rewrite-golden", default=False))

    def check(path: Path, text: str) -> None:
        if rewrite:
            path.write_text(text)
            return
        expected = path.read_text() if path.exists() else ""
        diff = "".join(difflib.unified_diff(expected.splitlines(True), text.splitlines(True), "expected", "now"))
        assert not diff, f"{path.name} differs; if that is intended: make golden\n{diff}"

    return check
