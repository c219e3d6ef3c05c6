"""Runs seeds in worker processes, shrinks what fails, and prints a story that replays exactly."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import structlog
from prometheus_client.metrics import MetricWrapperBase

from fairlead.api import crd
from fairlead.api.kinds import all_crds
from fairlead.kube import transport
from tests.simulate import former_faults
from tests.simulate.link import AiohttpHere
from tests.simulate.story import Event, Result, Story, parse, play, story_of

#: Seeds of one worker before it is replaced by a fresh one: the worlds that have ended stay in its memory.
_BATCH = 50


def prepare() -> None:
    """Make this process one for simulations: no sockets, no logs, no metrics, no collection of garbage."""
    transport.aiohttp = AiohttpHere()  # type: ignore[assignment]
    structlog.configure(wrapper_class=_NotLogged, cache_logger_on_first_use=True)  # type: ignore[arg-type]
    logging.disable(logging.CRITICAL)
    # Schemas are not the subject, and each start of a hub reads 25 of up to 40 KB.
    crd._encoded_schema = lambda _type: _SCHEMA  # type: ignore[assignment]
    all_crds.cache_clear()
    # Nothing asks for all tasks, and a weak set of them costs more than a task.
    asyncio.tasks._all_tasks.add = id  # type: ignore[attr-defined]
    MetricWrapperBase.labels = lambda *_, **__: _NOT_MEASURED  # type: ignore[method-assign,assignment]
    transport._server_time = lru_cache(maxsize=None)(transport._server_time.__wrapped__)
    gc.disable()
    sys.unraisablehook = lambda _: None


_SCHEMA = b'{"type":"object","properties":{"spec":{"type":"object"},"status":{"type":"object"}}}'


class _NotLogged:
    """A logger that writes nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def bind(self, **_: object) -> _NotLogged:
        """Return a logger with these values."""
        return self

    def info(self, *_: object, **__: object) -> None:
        """Write nothing."""

    def is_enabled_for(self, _level: int) -> bool:
        """Return False: no line is written."""
        return False

    debug = warning = error = exception = critical = log = info
    new = unbind = try_unbind = bind


class _NotMeasured:
    """A metric that is not read."""

    def inc(self, amount: float = 1) -> None:
        """Count nothing."""

    set = observe = set_function = inc


_NOT_MEASURED = _NotMeasured()


class Found(NamedTuple):
    """A seed that fails."""

    seed: int
    text: str


def run_seeds(
    first: int, count: int, *, workers: int, skip: Sequence[str], size: int = _BATCH
) -> Iterator[Found | int]:
    """Yield each violation, and the number of seeds done, as they come; seeds are split into batches."""
    _warm_up()
    batches = [(start, min(size, first + count - start)) for start in range(first, first + count, size)]
    running: dict[int, int] = {}
    try:
        while batches or running:
            while batches and len(running) < workers:
                start, length = batches.pop(0)
                reader, writer = os.pipe()
                if (pid := os.fork()) == 0:
                    os.close(reader)
                    _batch(start, length, writer, skip)
                os.close(writer)
                running[reader] = pid
            ready, _, _ = select.select(list(running), [], [])
            for reader in ready:
                data = b""
                while chunk := os.read(reader, 65536):
                    data += chunk
                os.close(reader)
                _, status = os.waitpid(running.pop(reader), 0)
                for line in data.decode().splitlines():
                    seed, _, text = line.partition(" ")
                    yield Found(int(seed), text) if text else int(seed)
                if status != 0:
                    yield Found(-1, f"a worker ended with status {status}: {data.decode()[-300:]}")
    finally:
        for pid in running.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _warm_up() -> None:
    """Play a story with a hub and an agent, so that workers begin with everything that is computed once."""
    play(parse('seed 1 shape {"kind":"agent","hubs":1,"agents":["east"]}; 5 lb east a envoy 80 - - -; 20 end'))


def _batch(start: int, size: int, writer: int, skip: Sequence[str]) -> None:
    code = 0
    try:
        for seed in range(start, start + size):
            result = play(story_of(seed), skip=skip)
            text = " ".join(str(result.violation).split()) if result.violation else ""
            os.write(writer, f"{seed} {text}".strip().encode() + b"\n")
    except BaseException:  # noqa: BLE001 - a worker must say why it ends
        traceback.print_exc()
        code = 1
    os._exit(code)


def shrink(story: Story, invariant: str, *, skip: Sequence[str], budget_s: float = 60.0) -> Story:
    """Drop events while the same invariant is violated; halves first, then single ones."""
    end_s = time.monotonic() + budget_s
    events = list(story.events)
    size = max(1, len(events) // 2)
    while size:
        at = 0
        while at < len(events) and time.monotonic() < end_s:
            fewer = [*events[:at], *(e for e in events[at : at + size] if e.verb == "end"), *events[at + size :]]
            if len(fewer) < len(events):
                result = play(Story(story.seed, story.shape, tuple(fewer)), skip=skip)
                if result.violation is not None and result.violation.invariant == invariant:
                    events = fewer
                    continue
            at += size
        size //= 2
    return Story(story.seed, story.shape, tuple(events))


def _in_child(story: Story, skip: Sequence[str]) -> None:
    """Shrink and print in a process of its own, whose memory goes with it."""
    sys.stdout.flush()
    if (pid := os.fork()) == 0:
        result = play(story, skip=skip)
        if result.violation is not None:
            print("  " + str(shrink(story, result.violation.invariant, skip=skip)))
            sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)


def _show(result: Result, *, trace: bool) -> None:
    if trace:
        print("\n".join(result.trace))
    print(f"{result.violation or 'no violation'}")
    print(f"{result.steps} steps, {result.virtual_s:.0f} virtual seconds, digest {result.digest:08x}")


def prove(names: Sequence[str], *, first: int, seeds: int, workers: int) -> int:
    """Put each fault back, and print within how many seeds it is found; return how many are not."""
    missed, needed = 0, list[int]()
    for name in names:
        sys.stdout.flush()
        reader, writer = os.pipe()
        if (pid := os.fork()) == 0:
            former_faults.FORMER[name]()
            os.write(writer, _first_violation(first, seeds, workers).encode())
            os._exit(0)
        os.close(writer)
        started_s = time.monotonic()
        with os.fdopen(reader) as answer:
            text = answer.read()
        os.waitpid(pid, 0)
        count, _, what = text.partition(" ")
        took_s = time.monotonic() - started_s
        if what:
            needed.append(int(count))
        else:
            missed += 1
        print(f"{name:32} {count:>5} seeds {took_s:5.0f} s  {what or 'NOT FOUND'}", flush=True)
    if needed:
        print(f"{len(needed)} of {len(names)} found, median {sorted(needed)[len(needed) // 2]} seeds", flush=True)
    return missed


def _first_violation(first: int, seeds: int, workers: int) -> str:
    done = 0
    for each in run_seeds(first, seeds, workers=workers, skip=(), size=10):
        done += 1
        if isinstance(each, Found) and each.seed >= 0:
            return f"{done} seed {each.seed}: {each.text[:150]}"
    return str(done)


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds")
    parser.add_argument("--first", type=int, default=None, help="the first seed; a new one each time when not given")
    parser.add_argument("--seed", type=int, default=None, help="one seed, with its trace")
    parser.add_argument("--story", default="", help="one story: its text, or a file with it")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--skip", default="", help="invariants that are not checked, with commas between")
    parser.add_argument("--no-trace", action="store_true")
    parser.add_argument("--shrink", action="store_true", help="print a minimal story of --seed or --story")
    parser.add_argument("--known", default="", help="put this fault back first, such as any_404_is_gone")
    parser.add_argument("--prove", nargs="*", help="put each of these faults back, all without a name, and find them")
    parser.add_argument("--stop-after", type=int, default=5, help="end after so many violations")
    options = parser.parse_args(argv)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is that of hashes: the same in every run of one seed.
        os.environ["PYTHONHASHSEED"] = "0"
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulate", *(argv or sys.argv[1:])])
    prepare()
    if options.prove is not None:
        names = options.prove or list(former_faults.FORMER)
        os._exit(prove(names, first=options.first or 1, seeds=options.seeds, workers=options.workers))
    if options.known:
        former_faults.FORMER[options.known]()
    skip = [name for name in options.skip.split(",") if name]
    if options.story or options.seed is not None:
        text = Path(options.story).read_text() if options.story and Path(options.story).is_file() else options.story
        story = parse(text) if text else story_of(options.seed)
        print(story)
        result = play(story, trace=not options.no_trace, skip=skip)
        _show(result, trace=not options.no_trace)
        if options.shrink and result.violation is not None:
            print(f"minimal: {shrink(story, result.violation.invariant, skip=skip)}")
        sys.stdout.flush()
        os._exit(1 if result.violation else 0)
    first = options.first if options.first is not None else int(time.time()) % 1_000_000 * 1000
    print(f"seeds {first} to {first + options.seeds - 1}, {options.workers} workers", flush=True)
    started_s, done, violations = time.monotonic(), 0, 0
    for each in run_seeds(first, options.seeds, workers=options.workers, skip=skip):
        done += 1
        if done % 200 == 0:
            print(f"{done} seeds, {violations} violations, {time.monotonic() - started_s:.0f} s", flush=True)
        if isinstance(each, Found):
            violations += 1
            print(f"seed {each.seed}: {each.text}", flush=True)
            if each.seed >= 0 and violations <= options.stop_after:
                _in_child(story_of(each.seed), skip)
    print(f"{done} seeds, {violations} violations, {time.monotonic() - started_s:.0f} s", flush=True)
    os._exit(1 if violations else 0)


__all__ = ["Event", "main", "prepare", "run_seeds", "shrink"]
