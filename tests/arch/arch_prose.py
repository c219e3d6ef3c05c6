"""Check sentences by the rules of plain English: how they start, negation, length, and no private number.

In: the tree. Out: findings as ``file:line: kind: rule: excerpt``; ``python -m tests.arch.arch_prose [DIRECTORY ...]``
prints them, and ``--count`` prints their number for each package. Kinds of text are messages (every string of the
source with a space, and the help of commands), docstrings, comments, pages, names of tests, and names of variables.
"""

from __future__ import annotations

import ast
import collections
import io
import json
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
#: The findings that are allowed for now, by package and kind.
ALLOWED = Path(__file__).with_name("arch_prose.json")
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

#: This module and its tests name the phrases; a generated page repeats strings of the source.
NOT_READ = ("docs/reference/", "docs/adr/")
NOT_SCANNED = frozenset({"tests/arch/arch_prose.py", "tests/arch/test_arch_prose.py", "tests/arch/arch_language.py"})


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
                    nouns = rule == "not a noun" and not file.startswith(NOUNS_IN)
                    if not nouns and (rule != "private number" or not file.startswith("tests/")):
                        yield Finding(file, text.line, text.kind, rule, excerpt)


def broken(text: Text) -> Iterator[tuple[str, str]]:
    """Yield each rule that a text breaks, with an excerpt."""
    prose = text.text
    if text.kind == "variable":
        if prose in NOT_NOUNS:
            yield "not a noun", prose
        return
    if text.kind == "test name":
        if len(prose) > NAME_LENGTH:
            yield "length", prose
        prose = " ".join(prose.split("_")[1:])
    elif text.kind != "message":
        prose = CODE.sub("`code`", prose)
    if text.kind != "comment" and START.match(prose.strip()):
        yield "start", " ".join(prose.split())[:60]
    yield from (("phrase", _around(prose, match)) for match in PHRASES.finditer(prose))
    yield from (("private number", match.group()) for match in PRIVATE.finditer(prose))
    if text.kind == "message":
        for sentence in END.split(prose):
            if sentence.count("\n") + sentence.count(";") >= 3:  # a table, or the input of another program
                continue
            counted = [word for word in sentence.split() if re.search(r"[A-Za-z]", word)]
            if len(counted) > WORDS:
                yield f"{len(counted)} words", " ".join(counted)[:100]


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
    """Yield the messages, docstrings, comments and variables of a module."""
    text = path.read_text(encoding="utf-8")
    nodes = list(_nodes(ast.parse(text)))
    docstrings = dict(_docstrings(nodes))
    for node, is_help in docstrings.values():
        yield Text(node.lineno, "message" if is_help else "docstring", str(node.value))
    for node in nodes:
        if isinstance(node, ast.arg):
            yield Text(node.lineno, "variable", node.arg)
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                yield Text(node.lineno, "variable", node.id)
        elif isinstance(node, ast.JoinedStr):
            parts = [str(value.value) if isinstance(value, ast.Constant) else "{x}" for value in node.values]
            if " " in (message := "".join(parts)):
                yield Text(node.lineno, "message", message)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
            and " " in node.value.strip()
        ):
            yield Text(node.lineno, "message", node.value)
    yield from _comments(text, nodes)


def of_test(path: Path) -> Iterator[Text]:
    """Yield the docstrings, comments and names of tests of a module; its strings are input."""
    text = path.read_text(encoding="utf-8")
    nodes = list(_nodes(ast.parse(text)))
    for node, _ in dict(_docstrings(nodes)).values():
        yield Text(node.lineno, "docstring", str(node.value))
    yield from _comments(text, nodes)
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Text(node.lineno, "test name", node.name)


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
                yield from (Text(number, "page", cell.strip()) for cell in line.split("|") if cell.strip())
                continue
            start = number
        if rest := (line[item.end() :] if item else line).strip():
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


def _nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of a module; of an f-string only itself and the expressions in it."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, ast.JoinedStr):
            stack.extend(value.value for value in node.values if isinstance(value, ast.FormattedValue))
            continue
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                stack.append(value)
            elif isinstance(value, list):
                stack.extend(item for item in value if isinstance(item, ast.AST))


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, tuple[ast.Constant, bool]]]:
    for node in nodes:
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
            and isinstance(node.body[0].value, ast.Constant)
            and isinstance(node.body[0].value.value, str)
        ):
            yield id(node.body[0].value), (node.body[0].value, _is_command(node))


def _is_command(node: ast.AST) -> bool:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
    return any(re.search(r"\.(command|callback)\b", ast.unparse(decorator)) for decorator in decorators)


def _comments(text: str, nodes: Iterable[ast.AST]) -> Iterator[Text]:
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


def _comment_lines(text: str, nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the lines with a comment; only a file with ``#`` in a string needs the tokenizer, which is slow."""
    marked = {number: line for number, line in enumerate(text.splitlines(), 1) if "#" in line}
    strings = {
        number
        for node in nodes
        if isinstance(node, ast.JoinedStr | ast.Constant) and isinstance(getattr(node, "value", ""), str | bytes)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    if strings.isdisjoint(marked):
        yield from ((number, line[line.index("#") :]) for number, line in marked.items())
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def package_of(file: str) -> str:
    """Return the package that a file counts for: ``src/fairlead/hub``, ``tests/unit/hub``, ``docs``."""
    parts = file.split("/")
    depth = 3 if parts[0] in {"src", "tests"} else 1
    return "/".join(parts[: min(depth, len(parts) - 1)]) or "."


def counts() -> dict[str, dict[str, int]]:
    """Return the number of findings of each package and kind of text."""
    numbers = collections.Counter((package_of(finding.file), finding.kind) for finding in findings())
    out: dict[str, dict[str, int]] = {}
    for (package, kind), count in sorted(numbers.items()):
        out.setdefault(package, {})[kind] = count
    return out


def allowed() -> dict[str, dict[str, int]]:
    """Return the findings that each package may still have."""
    return json.loads(ALLOWED.read_text(encoding="utf-8"))


def main(arguments: list[str]) -> None:
    """Print the findings below some directories, their counts, or write the counts as what is allowed."""
    if "--count" in arguments or "--write" in arguments:
        text = json.dumps(counts(), indent=2)
        if "--write" in arguments:
            ALLOWED.write_text(text + "\n", encoding="utf-8")
        else:
            sys.stdout.write(text + "\n")
        return
    for finding in findings(tuple(arguments) or ("",)):
        sys.stdout.write(f"{finding}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
