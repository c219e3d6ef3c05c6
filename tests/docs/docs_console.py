"""Executes a page: its console blocks are typed into one bash, and the lines they show must come.

    $ command        typed unchanged; the lines after it must appear in the output, in this order, others between
    > continued      more of the same command
    ...              in an expected line: anything (two lines of a table need not be equally wide either)
    7s, 2m13s        in an expected line: any age

``<!-- file: NAME -->`` before a yaml block writes the block to that file. A page names fixed ports and addresses, which
``substitutions`` replaces by free ones, so that two runs never meet.
"""

from __future__ import annotations

import os
import queue
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.providers.envoy.envoy_process import find_running

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"<!-- file: (\S+) -->\s*$")
#: What was done before the tests run.
_DONE_BEFORE = frozenset({"make install && . .venv/bin/activate", ". .venv/bin/activate"})
#: What was started in the background may say its line a little later.
_LINGER_S = 180.0
#: So many last lines of each log file are shown when a command fails.
_LOG_LINES = 40
#: On a busy machine, the thirty seconds that kubectl waits by itself are too short.
_KUBECTL_WAIT = re.compile(r"(\bkubectl(?: --\S+ \S+)* wait) ")
_AGE = re.compile(r"(?<![\w.])(\d+[smhd])+(?![\w.])")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page: its language, text and line number, and the file that it is to be saved as."""

    language: str
    text: str
    line: int
    file: str = ""


@dataclass(frozen=True)
class Step:
    """One command and the lines that must appear."""

    command: str
    expected: tuple[str, ...]
    line: int


def pages() -> list[Path]:
    """Return the pages that people read: at the top, and in docs/ those that are not generated and no decisions."""
    others = {"reference", "adr"}
    below = [file for file in (ROOT / "docs").rglob("*.md") if not others & set(file.relative_to(ROOT).parts)]
    return sorted([*ROOT.glob("*.md"), *below])


def blocks_of(markdown: str) -> list[Block]:
    """Return all fenced blocks, in order."""
    blocks: list[Block] = []
    for match in _FENCE.finditer(markdown):
        name = _FILE.search(markdown[: match.start()])
        line = markdown.count("\n", 0, match.start()) + 1
        blocks.append(Block(match[1], match[2], line, name[1] if name else ""))
    return blocks


def steps_of(block: Block) -> list[Step]:
    """Split a console block into commands with what they show."""
    commands: list[tuple[list[str], list[str], int]] = []
    for number, line in enumerate(block.text.splitlines(), start=block.line + 1):
        if line.startswith("$ "):
            commands.append(([line[2:]], [], number))
        elif line.startswith("> ") and commands and not commands[-1][1]:
            commands[-1][0].append(line[2:])
        elif commands and line.strip() and line.strip() != "...":
            commands[-1][1].append(line)
        elif not commands and line.strip():
            raise ValueError(f"line {number}: a console block begins with a command ($ ...), not with {line!r}")
    return [Step("\n".join(command), tuple(expected), number) for command, expected, number in commands]


def pattern_of(line: str) -> re.Pattern[str]:
    """Compile an expected line."""
    normalized = " ".join(line.split())
    parts = [re.escape(part) for part in normalized.split("...")]
    text = ".*".join(parts)
    return re.compile(_AGE.sub(lambda _: r"(\d+[smhd])+", text))


def missing(expected: Sequence[str], lines: Sequence[str]) -> str:
    """Return the first expected line that does not appear after those before it, empty when all do."""
    rest = iter(" ".join(line.split()) for line in lines)
    for line in expected:
        pattern = pattern_of(line)
        if not any(pattern.fullmatch(line) for line in rest):
            return line
    return ""


@dataclass
class Shell:
    """A bash in ``directory``; ``close`` ends everything that was started in it."""

    directory: Path
    substitutions: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    #: What bash is started with, such as ``unshare``.
    prefix: Sequence[str] = ()

    def __post_init__(self) -> None:
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        self._process = subprocess.Popen(
            [*self.prefix, "bash", "--norc", "--noprofile"],
            cwd=self.directory,
            env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": "200", **self.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def substitute(self, text: str) -> str:
        for old, new in self.substitutions.items():
            text = text.replace(old, new)
        return text

    def play(self, markdown: str, *, timeout_s: float = 400.0) -> None:
        """Execute a page from top to bottom."""
        for block in blocks_of(markdown):
            if block.file:
                (self.directory / block.file).write_text(self.substitute(block.text), encoding="utf-8")
            if block.language == "console":
                for step in steps_of(block):
                    if step.command not in _DONE_BEFORE:
                        self.run(step, timeout_s=timeout_s)

    def type(self, command: str) -> list[str]:
        """Run a command that no page shows."""
        return self.run(Step(command, (), 0), timeout_s=400.0)

    def run(self, step: Step, *, timeout_s: float) -> list[str]:
        """Type one command; return once it has ended and all that is expected was seen."""
        mark = f"--{secrets.token_hex(8)}--"
        assert self._process.stdin is not None
        command = _KUBECTL_WAIT.sub(r"\1 --timeout=3m ", self.substitute(step.command))
        self._process.stdin.write(f"{command}\necho {mark}$?\n")
        self._process.stdin.flush()
        expected = [self.substitute(line) for line in step.expected]
        code: str | None = None
        seen: list[str] = []
        end_s = time.monotonic() + timeout_s
        while (line := self._line(end_s)) is not None:
            before, marked, after = line.partition(mark)
            if not marked or before:
                seen.append(before)
            if marked:
                code, end_s = after, min(end_s, time.monotonic() + _LINGER_S)
            if code is not None and not missing(expected, seen):
                assert code == "0", f"line {step.line}: {step.command!r} ended with {code}:\n" + "\n".join(seen)
                return seen
        lack = missing(expected, seen) or "its end"
        said = "\n".join(seen) or "(nothing)"
        logs = "".join(
            f"\n{file.name} ends with:\n" + "\n".join(file.read_text(errors="replace").splitlines()[-_LOG_LINES:])
            for file in sorted(self.directory.glob("*.log"))
        )
        raise AssertionError(f"line {step.line}: $ {step.command}\nnever showed: {lack}\nit showed:\n{said}{logs}")

    def close(self) -> None:
        """End the shell and everything in its session, and the Envoys that have left it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(timeout=5.0)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        for file in self.directory.glob("**/bootstrap.json"):
            # Not the pid file alone: a hub that was killed in between may have started one and not noted it yet.
            while (running := find_running(file.parent)) is not None and running.alive():
                with suppress(ProcessLookupError):
                    os.kill(running.pid, signal.SIGKILL)
                time.sleep(0.01)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _line(self, end_s: float) -> str | None:
        """Return the next line of output, None when there is none in time."""
        try:
            return self._lines.get(timeout=max(0.0, end_s - time.monotonic()))
        except queue.Empty:
            return None
