"""The tutorial is executed from its first line to its last one, as a reader would."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.standalone.demo_net import free_network, free_port
from tests.docs.docs_console import ROOT, Shell

_HOME = "/tmp/fairlead-tutorial"


@pytest.fixture
def shell() -> Iterator[Shell]:
    with tempfile.TemporaryDirectory(prefix="fl-docs-") as name:
        east, west, pool = (free_network().rsplit(".", 1)[0] for _ in range(3))
        substitutions = {
            _HOME: name,
            "127.0.0.1:6443": f"127.0.0.1:{free_port()}",
            "127.200.": f"{pool}.",
            "127.61.": f"{east}.",
            "127.62.": f"{west}.",
        }
        one = Shell(
            directory=Path(name), substitutions=substitutions, done_before=frozenset({"make install && . .venv/bin/activate"})
        )
        yield one
        one.close()


@pytest.mark.envoy
@pytest.mark.slow
def test_tutorial(shell: Shell) -> None:
    shell.play((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))
