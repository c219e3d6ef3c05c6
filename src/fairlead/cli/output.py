"""Output of objects by the verbs: ``-o table|wide|json|yaml|name``, the same for each of them.

In: what a verb has found, as one value (json, yaml), as lines (table, wide), and the names of its objects. Out: stdout,
with nothing in it that acts on a terminal or looks like a line of its own (``runtime/logs.py``); nothing else in
``cli/`` prints. Never: a format that a verb refuses; ``name`` is what other verbs take.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from fairlead.cli.options import Output
from fairlead.cli.run import OK, close_stdout, sentence_of
from fairlead.errors import BadConfiguration, FairleadError, first_of
from fairlead.runtime.logs import legible, legible_json

_EVERY_S = 2.0
#: A cell that begins so is a formula in a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

A = TypeVar("A")


class VerbAnswer(NamedTuple):
    """What a verb has found: for programs, for people, as names that verbs take, and its exit code.

    ``lasting`` is the part of ``value`` that --watch compares, without ages; None: all of it.
    """

    value: Any
    lines: Callable[[], Iterable[str]]
    names: Callable[[], Iterable[str]]
    code: int = OK
    lasting: Any = None


async def show(ask: Callable[[], Awaitable[VerbAnswer]], output: Output, *, watch: bool = False) -> int:
    """Print an answer; with ``watch`` again whenever it changes, without end. Return its exit code."""

    async def write(answer: VerbAnswer) -> None:
        emit(output, answer.value, lines=answer.lines, names=answer.names)

    def lasting(answer: VerbAnswer) -> Any:
        return answer.value if answer.lasting is None else answer.lasting

    return (await repeat(ask, write, lasting, output, watch=watch)).code


async def repeat(
    ask: Callable[[], Awaitable[A]],
    write: Callable[[A], Awaitable[None]],
    lasting: Callable[[A], Any],
    output: Output,
    *,
    watch: bool,
) -> A:
    """Ask and write once, and return what was answered; with ``watch`` again whenever ``lasting`` of it changes.

    A watch does not end with the API: after the first answer errors are reported, and it asks again.
    Documents of YAML are separated as kubectl does; those of JSON follow each other, as from kubectl.
    """
    import msgspec

    loop = asyncio.get_running_loop()
    before = None
    while True:
        began_s = loop.time()
        answer = await (ask() if before is None else ask_until_answered(ask))
        now = msgspec.json.encode(lasting(answer))
        if now != before:
            if before is not None:
                sys.stdout.write({Output.YAML: "---\n", Output.TABLE: "\n", Output.WIDE: "\n"}.get(output, ""))
            try:
                await write(answer)
                sys.stdout.flush()
            except BrokenPipeError:
                # The reader closed the pipe, as head does; the exit code is still that of the answer.
                close_stdout()
                return answer
            before = now
        if not watch:
            return answer
        # Of a large hub that takes long to read, not all of its time is asked for.
        await asyncio.sleep(max(_EVERY_S, 2 * (loop.time() - began_s)))


async def ask_until_answered(ask: Callable[[], Awaitable[A]]) -> A:
    """Ask until there is an answer; each other error is reported once, and so is the first answer after one."""
    reported = ""
    while True:
        try:
            answer = await ask()
        except (FairleadError, ExceptionGroup) as error:
            cause = first_of(error)
            if not isinstance(cause, FairleadError) or isinstance(cause, BadConfiguration):
                raise
            if cause.sentence != reported:
                sys.stderr.write(f"{sentence_of(cause)} Asking again every {_EVERY_S:g} s.\n")
                reported = cause.sentence
            await asyncio.sleep(_EVERY_S)
            continue
        if reported:
            sys.stderr.write("Answered again.\n")
        return answer


def emit(
    output: Output, value: object, *, lines: Callable[[], Iterable[str]], names: Callable[[], Iterable[str]]
) -> None:
    """Print one answer; ``lines`` are those of table and wide, ``names`` one for each object in it.

    Raises:
        BrokenPipeError: the reader has closed the pipe.
    """
    if output.is_data:
        sys.stdout.write(encoded(value, output))
    else:
        say(list(names() if output is Output.NAME else lines()))
    sys.stdout.flush()


def say(lines: str | Iterable[str]) -> None:
    """Print one line, or several; whatever is in a line, it stays one line."""
    text = "\n".join(legible(line) for line in ([lines] if isinstance(lines, str) else lines))
    if text:
        print(text)


def encoded(value: object, output: Output) -> str:
    """Return ``value`` as indented JSON, or as YAML with its keys in the same order."""
    import msgspec

    if output is Output.YAML:
        import yaml

        # In ASCII: whatever else is in a text is escaped.
        return yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, width=10_000)
    return legible_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()) + "\n"


def csv_text(rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of CSV; a text that a spreadsheet would run as a formula begins with an apostrophe."""
    import csv

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow([f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell for cell in row])
    return text.getvalue().splitlines()
