"""Which modules call a provider: the worker, the read-back, and what answers at once or in a process of its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fairlead

ROOT = Path(fairlead.__file__).parent
METHODS = frozenset({"ensure", "apply", "delete", "observe"})
CALLERS = {
    "sync/execute.py": {"ensure", "apply", "delete"},
    "sync/readback.py": {"observe"},
    # Of providers whose whole state is served from here: no request is made.
    "hub/providers/runner.py": {"observe"},
    # A command in a process of its own.
    "hub/inspect/preview.py": {"observe"},
}


def calls_of(path: Path) -> set[str]:
    """Return the methods of the contract that a module calls on something that it names a provider."""
    called: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS):
            continue
        owner = node.func.value
        name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
        if name.lstrip("_") == "provider":
            called.add(node.func.attr)
    return called


@pytest.mark.req("A-16", "T-3")
def test_only_the_worker_changes_and_only_the_readback_reads():
    folders = ("hub", "sync", "ledger")
    modules = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    result = {path.relative_to(ROOT).as_posix(): calls for path in modules if (calls := calls_of(path))}
    assert result == CALLERS
