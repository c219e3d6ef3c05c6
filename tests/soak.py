"""Counts failures in many runs. ``python -m tests.soak demo 50``, ``python -m tests.soak test 5``.

Runs the demo, a storm or the tests again and again next to processes that keep the machine busy, and counts. Out: a
line for each run, then what failed and how often; exit code 1 when anything did. The log of a run that failed is kept.
A run that leaves a process behind has failed too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.left_running import end, left_running, marked

_PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
COMMANDS = {
    "demo": (sys.executable, "-m", "fairlead.cli.main", "demo", "--plain"),
    "http": (sys.executable, "-m", "fairlead.cli.main", "demo", "http", "--plain"),
    "regions": (sys.executable, "-m", "fairlead.cli.main", "demo", "regions", "--plain"),
    "storm": (*_PYTEST, "-n", "0", "-s", "tests/e2e/test_e2e_storm.py", "--storm-s", "90", "--storm-seed", "0"),
    "test": ("make", "test"),
    "e2e": ("make", "test-e2e"),
}
#: How a line begins that says what failed: the demo's, and pytest's.
_SAYS_WHAT = ("✗ ", "FAILED ", "ERROR ")
#: Ends with its parent, however that ends.
_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"


class Run(NamedTuple):
    """One run: its exit code, how long it took, and what failed in it; nothing when all went well."""

    code: int
    seconds: float
    failures: tuple[str, ...]


@contextlib.contextmanager
def busy(processes: int) -> Generator[None]:
    """Keep so many processors busy inside the block."""
    loads = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for load in loads:
            load.kill()
            load.wait()


def command(what: str, more: Sequence[str]) -> list[str]:
    """Return what is run, with more arguments for it; those of a make target go to pytest."""
    if COMMANDS[what][0] != "make":
        return [*COMMANDS[what], *more]
    return [*COMMANDS[what], f"ARGS={shlex.join(('-p', 'no:cacheprovider', *more))}"]


def failures_in(text: str) -> tuple[str, ...]:
    """Return the lines of a log that say what failed, without the times before them."""
    lines: list[str] = []
    for line in text.splitlines():
        starts = [line.find(start) for start in _SAYS_WHAT if start in line]
        # A test that prints such text in the middle of a line is none.
        if starts and (min(starts) == 0 or line[: min(starts)].replace("s", "").replace(".", "").strip().isdigit()):
            lines.append(line[min(starts) :].strip())
    return tuple(lines)


def run_once(command: Sequence[str], log: Path) -> Run:
    """Run a command to its end with its output in ``log``."""
    environment = marked()
    started_s = time.monotonic()
    try:
        with log.open("w") as out:
            code = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, env=environment, check=False
            ).returncode
    finally:
        left = left_running(environment, patience_s=5.0)
        end(left)
    failures = failures_in(log.read_text(errors="replace")) if code else ()
    if code and not failures:
        failures = (f"exit code {code} without a reason",)
    failures += tuple(f"left running: {process.command}" for process in left)
    return Run(code, time.monotonic() - started_s, failures)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; return 1 when a run failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=COMMANDS)
    parser.add_argument("runs", type=int, nargs="?", default=10)
    parser.add_argument("--busy", type=int, default=6, help="processes that keep the machine busy (default: 6)")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="begin no run after that long")
    parser.add_argument("more", nargs="*", help="more arguments for the command, after --")
    options = parser.parse_intermixed_args(arguments)
    logs = Path(tempfile.mkdtemp(prefix="fairlead-soak-"))
    end_s = time.monotonic() + 60 * options.minutes
    failures: Counter[str] = Counter()
    done = failed = 0
    with busy(options.busy):
        while done < options.runs and time.monotonic() < end_s:
            done += 1
            log = logs / f"{options.what}-{done}.log"
            run = run_once(command(options.what, options.more), log)
            load = os.getloadavg()[1]
            failures.update(run.failures)
            failed += bool(run.failures)
            outcome = f"FAILED, see {log}" if run.failures else "ok"
            print(f"{done:3}/{options.runs}  {run.seconds:6.0f} s  load {load:4.1f}  {outcome}", flush=True)
            for text in run.failures:
                print(f"              {text}", flush=True)
            if not run.failures:
                log.unlink()
    print(f"{failed} of {done} runs of {options.what} failed, beside {options.busy} busy processes")
    for text, count in failures.most_common():
        print(f"  {count} x  {text}")
    if not failed:
        logs.rmdir()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
