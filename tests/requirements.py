"""Lists the tests that prove each requirement. ``python -m tests.requirements [PREFIX ...]``.

In: ``requirements.toml``, and every ``@pytest.mark.req("ID")`` below ``tests/``, read without running anything. Out: a
table, and exit code 1 when a requirement of an enforced milestone has neither a test nor a reason, or when a marker
names an unknown ID.
"""

from __future__ import annotations

import argparse
import ast
import bisect
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


@dataclass
class Requirement:
    """One thing to prove; ``title`` is empty for those that are only known by their number yet."""

    id: str
    milestone: str
    title: str = ""
    not_done: str = ""
    issue: str = ""
    tests: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Marker:
    """One ID on one test (or class of tests, or module)."""

    id: str
    test: str


def read_requirements(path: Path = HERE / "requirements.toml") -> tuple[dict[str, Requirement], frozenset[str]]:
    """Return the requirements by ID, in the order of the file, and the milestones that are enforced."""
    data = tomllib.loads(path.read_text())
    enforced = data["enforced"]
    requirements: dict[str, Requirement] = {}
    for entry in data.get("requirement", ()):
        requirement = Requirement(**{"milestone": enforced[0], **entry})
        if requirement.id in requirements:
            raise SystemExit(f"{path.name}: {requirement.id} is there twice")
        requirements[requirement.id] = requirement
    for entry in data.get("range", ()):
        for number in range(entry["first"], entry["last"] + 1):
            name = f"{entry['prefix']}{number:0{entry.get('width', 1)}d}"
            requirements.setdefault(name, Requirement(name, entry["milestone"]))
    return requirements, frozenset(enforced)


def read_markers(root: Path = HERE) -> list[Marker]:
    """Return every marker below ``root``, in the order of files and lines."""
    markers: list[Marker] = []
    for path in sorted(root.rglob("test_*.py")):
        text = path.read_text()
        lines = [number for number, line in enumerate(text.splitlines(), 1) if "mark.req(" in line]
        if lines:
            markers += _markers(ast.parse(text), path.relative_to(root).as_posix(), "", lines)
    return markers


def _markers(node: ast.AST, place: str, test: str, lines: list[int]) -> Iterator[Marker]:
    """Yield the markers in a node; ``lines`` are those of the markers of the file, sorted."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.expr):
            first = min([child.lineno, *(decorator.lineno for decorator in getattr(child, "decorator_list", ()))])
            index = bisect.bisect_left(lines, first)
            if index == len(lines) or lines[index] > (child.end_lineno or first):
                continue
        inner = test
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{test}::{child.name}"
        if isinstance(child, ast.Call) and _is_req(child.func):
            for argument in child.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise SystemExit(f"{place}:{child.lineno}: req() takes literal IDs, so that they can be read here")
                yield Marker(argument.value, f"{place}{test}")
        yield from _markers(child, place, inner, lines)


def _is_req(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "req"
        and isinstance(function.value, ast.Attribute)
        and function.value.attr == "mark"
    )


def match(requirements: dict[str, Requirement], markers: Iterable[Marker]) -> list[str]:
    """Give every requirement its tests; return a sentence for each marker that names none."""
    problems: list[str] = []
    for marker in markers:
        requirement = requirements.get(marker.id)
        if requirement is None:
            problems.append(f"{marker.test}: there is no requirement {marker.id!r} (tests/requirements.toml)")
        elif marker.test not in requirement.tests:
            requirement.tests.append(marker.test)
    return problems


def unproven(requirements: dict[str, Requirement], enforced: frozenset[str]) -> list[Requirement]:
    """Return those that should have a test by now and have neither one nor a reason."""
    return [
        requirement
        for requirement in requirements.values()
        if requirement.milestone in enforced and not requirement.tests and not requirement.not_done
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print the table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.requirements", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("prefix", nargs="*", help="only IDs that begin like this, with all of their tests")
    chosen = tuple(parser.parse_args(arguments).prefix)
    requirements, enforced = read_requirements()
    problems = match(requirements, read_markers())
    for requirement in requirements.values():
        if requirement.id.startswith(chosen) if chosen else requirement.milestone in enforced or requirement.tests:
            _print_row(requirement, requirement.milestone in enforced, whole=bool(chosen))
    missing = unproven(requirements, enforced)
    current = [requirement for requirement in requirements.values() if requirement.milestone in enforced]
    proven = sum(bool(requirement.tests) for requirement in current)
    print(f"\n{proven} of {len(current)} requirements of {', '.join(sorted(enforced))} have tests.")
    for requirement in missing:
        problems.append(f"{requirement.id} has no test: {requirement.title}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _print_row(requirement: Requirement, enforced: bool, *, whole: bool) -> None:
    state = (
        f"{len(requirement.tests):3} tests"
        if requirement.tests
        else ("  not done" if requirement.not_done else "         ")
    )
    issue = f" ({requirement.issue})" if requirement.issue else ""
    print(
        f"{requirement.id:7} {state:10} {requirement.title or requirement.milestone}{issue}"
        + ("" if enforced else "  [later]")
    )
    if requirement.not_done:
        print(f"{'':18} {requirement.not_done}")
    for test in requirement.tests if whole else requirement.tests[:2]:
        print(f"{'':18} {test}")
    if not whole and len(requirement.tests) > 2:
        print(f"{'':18} and {len(requirement.tests) - 2} more: python -m tests.requirements {requirement.id}")


if __name__ == "__main__":
    sys.exit(main())
