"""Feed what others may write, broken in every way, to what reads it: seeded, with the corpus in code.

    corpus ─► mutate ─► target.read ─► returned, or one of its refusals   fine; what is new joins the corpus
                                    └► anything else, or too much CPU time   a find, made smaller, shown as bytes

In: ``Target``s; each module ``fuzz_*.py`` next to this one lists its own in ``TARGETS``. Out: ``Find``s.
Never: depends on the wall clock or on another target; one seed gives the same inputs.
"""

from __future__ import annotations

import gc
import random
import re
import signal
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from tests.fuzz.fuzz_mutations import mutate

Read = Callable[[bytes], object]
KEPT = 400
SHRINK_RUNS = 300


class TooSlow(BaseException):
    """One input took too much CPU time; not an ``Exception``, so that no reader under test can catch it."""


@dataclass(frozen=True)
class Target:
    """One thing that reads what others wrote.

    ``opened`` gives the reader inside a block, for targets that need something set up; see ``plain``. The reader takes
    the bytes and returns, or raises one of ``refusals``. An ``assert`` in it is a promise that every input must keep.
    ``tokens`` are words of the format, to be put in anywhere. ``cpu_s`` is what one input may cost.
    """

    name: str
    corpus: tuple[bytes, ...]
    opened: Callable[[], AbstractContextManager[Read]]
    refusals: tuple[type[Exception], ...] = ()
    tokens: tuple[bytes, ...] = ()
    max_bytes: int = 16_384
    cpu_s: float = 2.0
    #: How many inputs the test suite tries.
    quick: int = 400


@dataclass(frozen=True)
class Find:
    """An input that a target did not stand, as small as we could make it."""

    target: str
    raw: bytes
    error: str

    def __str__(self) -> str:
        shown = repr(self.raw) if len(self.raw) < 4_000 else f"{self.raw[:2_000]!r} ... {len(self.raw)} bytes"
        return f"{self.target}: {self.error}\n  input: {shown}"


def plain(read: Read) -> Callable[[], AbstractContextManager[Read]]:
    """Return the ``opened`` of a reader that needs nothing."""
    return lambda: nullcontext(read)


def fuzz(target: Target, seed: int, *, inputs: int = 0, cpu_s: float = 0.0) -> tuple[int, Find | None]:
    """Try ``inputs`` inputs, or for ``cpu_s`` of CPU time; return how many were tried, and the first find.

    The corpus itself comes first: it has to be read without a find, too.
    """
    rng = random.Random(f"{target.name} {seed}")
    corpus = list(target.corpus)
    seen: set[str] = set()
    tried, start_s = 0, time.process_time()
    with target.opened() as read:
        while tried < inputs + len(target.corpus) or time.process_time() - start_s < cpu_s:
            fresh = tried >= len(target.corpus)
            raw = mutate(rng, rng.choice(corpus), corpus, target.tokens, target.max_bytes) if fresh else corpus[tried]
            tried += 1
            outcome, bad = _outcome(target, read, raw)
            if bad:
                return tried, _shrunk(target, read, raw, outcome)
            if outcome not in seen:
                seen.add(outcome)
                if fresh:
                    corpus.append(raw)
                    del corpus[len(target.corpus) : -KEPT]
    return tried, None


def _outcome(target: Target, read: Read, raw: bytes) -> tuple[str, bool]:
    """Return what became of an input, without the parts of a message that vary, and whether that is a find."""
    try:
        with _cpu_limit(target.cpu_s):
            result = read(raw)
    except target.refusals as error:
        return re.sub(r"['\"].*['\"]|[0-9]+", "#", f"{type(error).__name__}: {error}", flags=re.DOTALL)[:200], False
    except TooSlow:
        return f"more than {target.cpu_s:g} s of CPU time", True
    except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
        return traceback.format_exc(limit=-6), True
    return f"returned {result}"[:40] if isinstance(result, (str, int)) else f"returned {type(result).__name__}", False


@contextmanager
def _cpu_limit(limit_s: float) -> Generator[None]:
    """Raise ``TooSlow`` in the block once the process has used that much CPU time.

    Garbage of earlier tests is not collected meanwhile: it would count, and swallow ``TooSlow``.
    """

    def stop(_number: int, _frame: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    gc.disable()
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.enable()
        signal.signal(signal.SIGPROF, before)


def _last_line(outcome: str) -> str:
    return outcome.strip().rpartition("\n")[2].partition(":")[0]


def _shrunk(target: Target, read: Read, raw: bytes, outcome: str) -> Find:
    """Cut pieces out, ever smaller ones, as long as the same kind of error comes."""
    runs, size = 0, max(1, len(raw) // 2)
    slow = outcome.startswith("more than")
    while size and runs < (10 if slow else SHRINK_RUNS):
        start, cut = 0, False
        while start < len(raw) and runs < SHRINK_RUNS:
            shorter = raw[:start] + raw[start + size :]
            runs += 1
            again, bad = _outcome(target, read, shorter)
            if bad and _last_line(again) == _last_line(outcome):
                raw, outcome, cut = shorter, again, True
            else:
                start += size
        size = size if cut and size < len(raw) else size // 2
    return Find(target.name, raw, outcome)
