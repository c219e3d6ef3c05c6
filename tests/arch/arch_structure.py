"""Count what the structure of sources and tests should not have: modules without a unit test, class names used twice.

In: the tree. Out: lists for ``test_arch_structure``, compared with ``arch_allowed.json``.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fairlead"
TESTS = ROOT / "tests"
UNIT = TESTS / "unit"

#: A module with that many branches decides something.
DECIDES_FROM = 20
#: Modules that decide and have no unit test of their own, and where they are tested instead.
TESTED_ELSEWHERE = {
    "announce/layer2.py": "needs network namespaces: tests/scenario/announce",
    "announce/layer2_netlink.py": "needs network namespaces: tests/scenario/announce",
    "agent/sources/gateway/source.py": "connects caches to queues: tests/scenario/agent/test_agent_gateways.py",
    "agent/sources/gateway/reports.py": "writes what status decides: tests/scenario/agent/test_agent_gateways.py",
    "hub/machines/server.py": "TLS and HTTP to machines: tests/scenario/machines",
    "providers/haproxy": "speaks to a real HAProxy: tests/contract/providers",
    "providers/memory.py": "held to the provider contract: tests/contract/providers",
    "hub/providers/runner.py": "one term of a durable provider: tests/scenario/hub and tests/scenario/lbcf",
    "kube/transport.py": "HTTP: tests/contract/kube and tests/unit/kube/test_kube_cluster.py",
    "regions/balancer.py": "writes what translate decides: tests/scenario/regions",
    "standalone": "starts processes: tests/e2e",
}
#: Nodes that have no other nodes in them that a rule reads: more than half of all.
_LEAVES = frozenset({ast.Name, ast.Constant, ast.Load, ast.Store, ast.Del, ast.Pass, str, type(None)})
#: Few test modules have such a line; the others need not be parsed.
_IMPORTS_A_TEST = re.compile(r"^\s*(from|import) .*\btest_", re.MULTILINE)


def nodes_by_type(text: str) -> Mapping[type, list[Any]]:
    """Return the nodes of the syntax tree of a module by type; ``ast.walk`` takes longer for each question."""
    nodes = defaultdict[type, list[Any]](list)
    stack: list[Any] = [ast.parse(text)]
    while stack:
        node = stack.pop()
        kind = type(node)
        nodes[kind].append(node)
        if kind not in _LEAVES:
            for value in vars(node).values():
                if type(value) is list:
                    stack += value
                elif isinstance(value, ast.AST):
                    stack.append(value)
    return nodes


@cache
def nodes_of(path: Path) -> Mapping[type, list[Any]]:
    """Return the nodes of a module of the source by type; each module is parsed once for all rules."""
    return nodes_by_type(path.read_text(encoding="utf-8"))


def without_unit_test() -> Counter[str]:
    """Return how many modules that decide no test of ``tests/unit/<room>`` is named after or imports, by room."""
    return Counter(name.split("/")[0] for name in modules_without_unit_test())


def modules_without_unit_test() -> list[str]:
    """Return the modules that decide and that no unit test is named after or imports."""
    missing: list[str] = []
    tests = {
        room: "".join(path.read_text(encoding="utf-8") for path in room.rglob("test_*.py")) for room in UNIT.iterdir()
    }
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if path.stem == "__init__" or name.startswith(("testing/", *TESTED_ELSEWHERE)):
            continue
        package, _, module = f"fairlead.{name.removesuffix('.py').replace('/', '.')}".rpartition(".")
        text = tests.get(UNIT / name.split("/")[0].removesuffix(".py"), "")
        imports = rf"from {package}\.{module} import|from {package} import [^\n]*\b{module}\b|{package}\.{module}\b"
        tested = any((UNIT / name.split("/")[0]).rglob(f"test_*_{path.stem}.py")) or re.search(imports, text)
        if not tested and branches(path) >= DECIDES_FROM:
            missing.append(name)
    return missing


def branches(path: Path) -> int:
    """Return how many decisions a module has: ``if``, conditional expressions, cases, ``and``/``or`` and filters."""
    nodes = nodes_of(path)
    filters = sum(len(part.ifs) for part in nodes[ast.comprehension])
    return filters + sum(len(nodes[kind]) for kind in (ast.If, ast.IfExp, ast.match_case, ast.BoolOp))


def imports_of_test_modules() -> list[str]:
    """Return where a test module imports a test module."""
    offenders: list[str] = []
    ours = {path.stem for path in TESTS.rglob("test_*.py")}
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if _IMPORTS_A_TEST.search(text) else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            offenders += [
                f"{path.relative_to(ROOT).as_posix()}: {name}"
                for name in names
                if name.rsplit(".", 1)[-1].startswith("test_") and name.rsplit(".", 1)[-1] in ours
            ]
    return offenders


def class_names_defined_twice() -> dict[str, list[str]]:
    """Return the class names that several modules define, private ones too, each with these modules."""
    where: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        for node in nodes_of(path)[ast.ClassDef]:
            where.setdefault(node.name, []).append(file)
    return {name: files for name, files in sorted(where.items()) if len(files) > 1}
