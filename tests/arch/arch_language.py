"""Count the words that the project does not use: in identifiers, docstrings, comments, messages and documentation.

In: the tree. Out: findings as ``file:line: kind: word``; ``python -m tests.arch.arch_language DIRECTORY`` prints those
below it.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Parts of an identifier (``tell_status``, ``TellStatus``) that no identifier has.
PARTS = frozenset(
    {
        "somebody", "nobody", "whoever", "anybody", "told", "tell", "tells", "teller", "telling", "wish", "wishes",
        "wished", "doubt", "squatter", "squatters", "suspect", "suspects", "stranger", "strangers", "judges", "lets",
    }
)  # fmt: skip
#: Whole identifiers of classes, functions, attributes, parameters and variables.
NAMES = frozenset(
    {
        "one", "found", "adopt", "recall", "recalls", "vanished", "left_out", "LeftOut", "words", "unheard", "unsure",
        "leaving_since", "Side", "Shelf", "Handover", "Opinions", "Questions", "Departures", "Origins", "Selected",
        "Acceptances", "AllocationBook", "Happened", "Recalls", "LetsGo", "Runs", "JudgesPods",
        "handover", "opinions", "departures", "acceptances", "access_marks", "LoadBalancerObjectSpec",
    }
)  # fmt: skip
#: Names of modules.
MODULES = frozenset(
    {
        "wishes", "teller", "wakes", "advice", "fitness", "keeper", "access_marks", "squatters", "suspects", "pauses",
        "left_out", "words", "look", "shelf", "opinions", "questions", "departures", "origins", "handover",
        "acceptance", "recorder", "slots", "compact", "wording", "asks", "known", "turns", "notes",
    }
)  # fmt: skip
#: Words of prose: docstrings, comments, messages (the strings of the source) and pages.
PROSE = re.compile(
    r"\b(somebody|nobody|whoever|anybody|told|tells?|telling|wish(?:es|ed)?|strangers?|squatters?|suspects?"
    r"|looks? again|lets? (?:it |them |him )?go|taken on|takes? on|behind our back|in (?:its|their|his) own words"
    r"|culprits?|innocent)\b",
    re.IGNORECASE,
)

_LINK_TARGET = re.compile(r"\]\([^)]*\)|`tests/[^`]*`")
#: Pages that are history, and pages that a program writes from the source.
NOT_READ = ("docs/adr/", "docs/reference/")
#: This file and the test name the words to ban them.
NOT_SCANNED = frozenset({"tests/arch/arch_language.py", "tests/arch/test_arch_language.py"})


def findings() -> Iterator[tuple[str, int, str]]:
    """Yield each banned word as (file, line, what)."""
    for top in ("src", "tests", "bench", "tools"):
        for path in sorted((ROOT / top).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            if file not in NOT_SCANNED:
                yield from ((file, line, what) for line, what in of_source(path, strings=top != "tests"))
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]):
        file = path.relative_to(ROOT).as_posix()
        if not file.startswith(NOT_READ):
            yield from ((file, line, f"page: {word}") for line, word in of_page(path.read_text(encoding="utf-8")))


def of_page(text: str) -> Iterator[tuple[int, str]]:
    """Yield the words of a page by line; *Avoid* of the glossary may name them."""
    for number, line in enumerate(text.splitlines(), 1):
        prose = line.rpartition(" | ")[0] if line.startswith("| **") else line
        prose = _LINK_TARGET.sub("]", prose)
        yield from ((number, match.group().lower()) for match in PROSE.finditer(prose))


def of_source(path: Path, *, strings: bool) -> Iterator[tuple[int, str]]:
    """Yield the words of a module by line; ``strings``: of its messages too, not only of docstrings and comments."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    if path.stem in MODULES:
        yield 1, f"module: {path.stem}"
    for line, name in identifiers(tree):
        if name.lstrip("_") in NAMES or PARTS & set(parts_of(name)):
            yield line, f"name: {name}"
    if PROSE.search(text):  # few modules have any, and looking where is slow
        yield from _of_prose(text, tree, strings=strings)


def _of_prose(text: str, tree: ast.Module, *, strings: bool) -> Iterator[tuple[int, str]]:
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (strings or id(node) in docstrings):
            yield from ((node.lineno, f"text: {match.group().lower()}") for match in PROSE.finditer(node.value))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield from ((token.start[0], f"comment: {match.group().lower()}") for match in PROSE.finditer(token.string))


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield every name that the module gives to something, where it is given."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case _:
                pass


def parts_of(name: str) -> list[str]:
    """Return the words of an identifier in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def main(arguments: list[str]) -> None:
    """Print the findings below a directory, or all of them."""
    for file, line, what in findings():
        if file.startswith(tuple(arguments) or ""):
            sys.stdout.write(f"{file}:{line}: {what}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
