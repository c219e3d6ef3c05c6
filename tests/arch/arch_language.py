"""Check names and sentences by the rules of plain English: banned words, how sentences start, negation, length.

In: the tree. Out: findings as ``file:line: kind: rule: excerpt``; ``python -m tests.arch.arch_language DIRECTORY``
prints them. Kinds of text are messages (every string of the source with a space, and the help of commands), other
strings, docstrings, comments, pages, names of tests, variables, and other identifiers.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.arch.arch_structure import nodes_by_type

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
WORDS_BANNED = re.compile(
    r"\b(somebody|nobody|whoever|anybody|told|tells?|telling|wish(?:es|ed)?|strangers?|squatters?|suspects?"
    r"|looks? again|lets? (?:it |them |him )?go|taken on|takes? on|behind our back|in (?:its|their|his) own words"
    r"|culprits?|innocent)\b",
    re.IGNORECASE,
)

#: Numbers of requirements belong to the markers of tests: only tests have them.
PRIVATE = re.compile(r"\b(?:CORE|EDGE|L4|L7|X|LOOP|LT|AT|[GILOS])-\d+\b")
#: More words than this make a sentence of a message or of a help text too long.
WORDS = 25
#: More characters than this make the name of a test too long.
NAME_LENGTH = 79

#: Variables are named by nouns, not by pronouns or bare participles; so far in these packages.
NOT_NOUNS = frozenset({"each", "its", "said", "known", "given", "listed"})
NOUNS_IN = (
    *("src/fairlead/capi/", "src/fairlead/runtime/", "src/fairlead/standalone/", "src/fairlead/testing/"),
    *(f"src/fairlead/providers/{name}/" for name in ("controller", "haproxy", "webhook", "zones")),
    *("src/podless/", "src/fairlead_demo/"),
)

#: The subject of a sentence is named: no message, docstring or paragraph starts like this.
START = re.compile(r"(?:it|its|it's|what (?:is|are|was|were)|that which|of several|one that)\b", re.IGNORECASE)
#: Ordinary negation, time and verbs: no text has these.
PHRASES = re.compile(
    r"\b(?<!there )(?<!there has )(?<!there have )(?:is|are|was|were|be|been) no (?!longer\b|(?:more|less) than\b)\w*"
    r"|\bany ?more\b|\banew\b|\bstands\b|\bof which\b|\bbeside\b|\b(?:is|are|was) said\b|\bfor ever\b",
    re.IGNORECASE,
)
#: A sentence ends at a full stop, a question mark, an exclamation mark, or an empty line.
END = re.compile(r"[.!?](?:[)\"'`]*)(?:\s+|$)|\n\s*\n|\n\s*(?:[-*|]|\d+\.)\s")
#: Code and addresses of links are not prose.
CODE = re.compile(r"```.*?```|``[^`]*``|`[^`]*`|\]\([^)]*\)|<[^<> ]+>|https?://\S+", re.DOTALL)

#: Pages that are history, and pages that a program writes from the source.
NOT_READ = ("docs/adr/", "docs/reference/")
#: This module and its test name what is banned.
NOT_SCANNED = frozenset({"tests/arch/arch_language.py", "tests/arch/test_arch_language.py"})
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Finding(NamedTuple):
    """One place where a text breaks a rule."""

    file: str
    line: int
    kind: str
    rule: str
    excerpt: str

    def __str__(self) -> str:
        """Return the place, the kind of text, the rule and an excerpt on one line."""
        return f"{self.file}:{self.line}: {self.kind}: {self.rule}: {self.excerpt}"


class Text(NamedTuple):
    """One text of a file; ``whole``: the text is a message, docstring or paragraph from its start."""

    line: int
    kind: str
    text: str


def findings(under: tuple[str, ...] = ("",)) -> Iterator[Finding]:
    """Yield what breaks a rule in the files whose path starts with one of these."""
    for file, texts in _files():
        if file.startswith(under):
            for text in texts(ROOT / file):
                for rule, excerpt in broken(text):
                    elsewhere = (rule == "not a noun" and not file.startswith(NOUNS_IN)) or (
                        rule == "private number" and file.startswith("tests/")
                    )
                    if not elsewhere:
                        yield Finding(file, text.line, text.kind, rule, excerpt)


def broken(text: Text) -> Iterator[tuple[str, str]]:
    """Yield each rule that a text breaks, with an excerpt."""
    prose = text.text
    if text.kind in {"variable", "identifier", "module"}:
        if _is_banned(prose, text.kind):
            yield "banned name", prose
        if text.kind == "variable" and prose in NOT_NOUNS:
            yield "not a noun", prose
        return
    if text.kind == "test name":
        if len(prose) > NAME_LENGTH:
            yield "length", prose
        prose = " ".join(prose.split("_")[1:])
    elif text.kind not in {"message", "string"}:
        prose = CODE.sub("`code`", prose)
    if text.kind != "glossary":
        yield from (("banned word", match.group().lower()) for match in WORDS_BANNED.finditer(prose))
    if text.kind == "string":
        return
    if text.kind != "comment" and START.match(prose.strip()):
        yield "start", " ".join(prose.split())[:60]
    yield from (("phrase", _around(prose, match)) for match in PHRASES.finditer(prose))
    yield from (("private number", match.group()) for match in PRIVATE.finditer(prose))
    if text.kind == "message":
        for sentence in END.split(prose):
            if sentence.count("\n") + sentence.count(";") >= 3:  # a table, or the input of another program
                continue
            words = [word for word in sentence.split() if re.search(r"[A-Za-z]", word)]
            if len(words) > WORDS:
                yield f"{len(words)} words", " ".join(words)[:100]


@cache
def _is_banned(name: str, kind: str) -> bool:
    if kind == "module":
        return name in MODULES
    parts = {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)}
    return name.lstrip("_") in NAMES or not PARTS.isdisjoint(parts)


def _around(prose: str, match: re.Match[str]) -> str:
    return " ".join(prose[max(0, match.start() - 25) : match.end() + 25].split())


def _files() -> Iterator[tuple[str, Callable[[Path], Iterator[Text]]]]:
    for top in ("src", "tests", "bench", "tools", "deploy", "conformance", "examples"):
        for path in sorted((ROOT / top).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            if file not in NOT_SCANNED:
                yield file, of_test if top == "tests" else of_source
    pages = [*ROOT.glob("*.md"), *(p for top in ("docs", "deploy", "examples") for p in (ROOT / top).rglob("*.md"))]
    for path in sorted(pages):
        file = path.relative_to(ROOT).as_posix()
        if not file.startswith(NOT_READ):
            yield file, of_page
    for top in ("deploy", "examples"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in {".yaml", ".tpl", ".txt", ".service"} and path.name != "crds.yaml":
                yield path.relative_to(ROOT).as_posix(), of_manifest
    for path in (ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "mkdocs.yml"):
        yield path.name, of_manifest
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in {".js", ".css", ".html"}:
            yield path.relative_to(ROOT).as_posix(), of_script


def of_source(path: Path) -> Iterator[Text]:
    """Yield the names, messages, docstrings and comments of a module."""
    text = path.read_text(encoding="utf-8")
    nodes = nodes_by_type(text)
    docstrings = dict(_docstrings(nodes))
    for node, is_help in docstrings.values():
        yield Text(node.lineno, "message" if is_help else "docstring", str(node.value))
    yield from _names(path, nodes)
    # Of an f-string only itself and the expressions in it are read, not how they are formatted.
    parts = {id(part) for node in nodes[ast.JoinedStr] for part in node.values}
    parts |= {id(node.format_spec) for node in nodes[ast.FormattedValue]}
    for node in nodes[ast.JoinedStr]:
        if id(node) not in parts:
            values = [str(value.value) if isinstance(value, ast.Constant) else "{x}" for value in node.values]
            yield _string(node.lineno, "".join(values))
    for node in nodes[ast.Constant]:
        if isinstance(node.value, str) and id(node) not in parts and id(node) not in docstrings:
            yield _string(node.lineno, node.value)
    yield from _comments(text, nodes)


def _string(line: int, text: str) -> Text:
    return Text(line, "message" if " " in text.strip() else "string", text)


def of_test(path: Path) -> Iterator[Text]:
    """Yield the names, docstrings, comments and names of tests of a module; its strings are input."""
    text = path.read_text(encoding="utf-8")
    nodes = nodes_by_type(text)
    for node, _ in dict(_docstrings(nodes)).values():
        yield Text(node.lineno, "docstring", str(node.value))
    yield from _names(path, nodes)
    yield from _comments(text, nodes)
    for node in (*nodes[ast.FunctionDef], *nodes[ast.AsyncFunctionDef]):
        if node.name.startswith("test_"):
            yield Text(node.lineno, "test name", node.name)


def _names(path: Path, nodes: Mapping[type, list[Any]]) -> Iterator[Text]:
    """Yield each name that the module gives to something."""
    yield Text(1, "module", path.stem)
    yield from (Text(node.lineno, "variable", node.id) for node in nodes[ast.Name] if type(node.ctx) is ast.Store)
    yield from (Text(node.lineno, "variable", node.arg) for node in nodes[ast.arg])
    for node in nodes[ast.Attribute]:
        if type(node.ctx) is ast.Store:
            yield Text(node.lineno, "identifier", node.attr)
    yield from (Text(node.lineno, "identifier", node.name) for kind in _DEFINITIONS for node in nodes[kind])


def of_page(path: Path) -> Iterator[Text]:
    """Yield the paragraphs, list items and cells of a page, without its code."""
    text = re.sub(
        r"^( *)```.*?^ *```",
        lambda match: "\n" * match.group().count("\n"),
        path.read_text("utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    start, lines = 1, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        item = re.match(r"\s*(?:[-*]|\d+\.|#+)\s", line)
        if item or not line.strip() or line.lstrip().startswith("|"):
            if lines:
                yield Text(start, "page", "\n".join(lines))
            lines = []
            if line.lstrip().startswith("|"):
                cells = [cell.strip() for cell in line.split("|") if cell.strip()]
                # The last column of the glossary names what to avoid.
                kinds = ["page"] * (len(cells) - 1) + ["glossary" if line.startswith("| **") else "page"]
                yield from (Text(number, kind, cell) for kind, cell in zip(kinds, cells, strict=True))
                continue
        if rest := (line[item.end() :] if item else line).strip():
            start = start if lines else number
            lines.append(rest)


def of_manifest(path: Path) -> Iterator[Text]:
    """Yield the comments of a manifest, and its values that are sentences."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        comment = re.search(r"(?:^|\s)#+:?\s(.*)", line)
        if comment:
            yield Text(number, "comment", comment.group(1))
        value = re.match(r"\s*(?:- )?(?:summary|description|message|help)\s*[:=]\s*[\"']?(.*)", line)
        if value:
            yield Text(number, "message", value.group(1).strip("\"'"))
        elif not comment:
            yield Text(number, "comment", line)


def of_script(path: Path) -> Iterator[Text]:
    """Yield the lines of a script or style sheet."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        yield Text(number, "comment", line)


def _docstrings(nodes: Mapping[type, list[Any]]) -> Iterator[tuple[int, tuple[ast.Constant, bool]]]:
    for node in (node for kind in (ast.Module, *_DEFINITIONS) for node in nodes[kind]):
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            yield id(first.value), (first.value, _is_command(node))


def _is_command(node: ast.AST) -> bool:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
    return any(re.search(r"\.(command|callback)\b", ast.unparse(decorator)) for decorator in decorators)


def _comments(text: str, nodes: Mapping[type, list[Any]]) -> Iterator[Text]:
    """Yield comments; those on adjacent lines are one text."""
    start, last, lines = 0, 0, list[str]()
    for line, comment in _comment_lines(text, nodes):
        if lines and line != last + 1:
            yield Text(start, "comment", "\n".join(lines))
            lines = []
        start, last = line if not lines else start, line
        lines.append(comment.lstrip("#: "))
    if lines:
        yield Text(start, "comment", "\n".join(lines))


def _comment_lines(text: str, nodes: Mapping[type, list[Any]]) -> Iterator[tuple[int, str]]:
    """Yield the lines with a comment; only ``#`` in a string of several lines needs the tokenizer, which is slow."""
    marked = {number: line for number, line in enumerate(text.splitlines(), 1) if "#" in line}
    spans: dict[int, list[tuple[int, int]]] = {number: [] for number in marked}
    for node in (*nodes[ast.JoinedStr], *nodes[ast.Constant]):
        if not isinstance(getattr(node, "value", ""), str | bytes):
            continue
        if node.lineno == node.end_lineno:
            if node.lineno in spans:
                spans[node.lineno].append((node.col_offset, node.end_col_offset))
        elif not spans.keys().isdisjoint(range(node.lineno, node.end_lineno + 1)):
            tokens = tokenize.generate_tokens(io.StringIO(text).readline)
            yield from ((token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT)
            return
    for number, line in marked.items():
        raw = line.encode()  # columns of nodes are bytes
        starts = (at for at, byte in enumerate(raw) if byte == ord("#"))
        start = next((at for at in starts if not any(first <= at < end for first, end in spans[number])), None)
        if start is not None:
            yield number, raw[start:].decode()


if __name__ == "__main__":
    for finding in findings(tuple(sys.argv[1:]) or ("",)):
        sys.stdout.write(f"{finding}\n")
