"""Fuzz for long: ``FUZZ_SECONDS=600 python -m tests.fuzz [TARGET ...]``; exit code 1 when something was found.

Every target gets an equal share of the seconds (CPU time), and at least ``FUZZ_INPUTS`` inputs, in each of
``FUZZ_WORKERS`` processes. ``FUZZ_SEED`` repeats a run; by default each run is another. A name may be a pattern:
``'*-answers'``. A process that takes more memory than ``FUZZ_MEMORY_MIB`` is a find, too.
A find goes into the corpus of its target once it is mended, so that the test suite tries it ever after.
"""

from __future__ import annotations

import os
import random
import sys
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from multiprocessing import get_context

from tests.fuzz.fuzz_targets import all_targets, run_alone


def main(patterns: list[str]) -> int:
    """Run the named targets, or all."""
    everything = [target.name for target in all_targets()]
    names = [name for name in everything if not patterns or any(fnmatchcase(name, text) for text in patterns)]
    if not names:
        print("There is no such target; there are: " + ", ".join(everything))
        return 2
    seconds = float(os.environ.get("FUZZ_SECONDS", "60"))
    inputs = int(os.environ.get("FUZZ_INPUTS", "0"))
    workers = int(os.environ.get("FUZZ_WORKERS", "1"))
    limit_mib = int(os.environ.get("FUZZ_MEMORY_MIB", "1024"))
    seed = int(os.environ.get("FUZZ_SEED") or random.randrange(10**9))
    print(f"seed {seed}, {seconds:g} s for {len(names)} targets, {workers} processes", flush=True)
    failed, total = 0, 0
    # A fresh process for each target: the memory of one is not that of another.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        share_s = seconds / len(names)
        runs = [
            pool.submit(run_alone, name, seed + worker, inputs, share_s) for name in names for worker in range(workers)
        ]
        for run in runs:
            name, tried, took_s, memory, find = run.result()
            total += tried
            bad = find is not None or memory > limit_mib
            outcome = "FOUND" if bad else "nothing found"
            print(f"{name:24} {tried:9} inputs  {tried / took_s:7.0f} a second  {memory:5} MiB  {outcome}", flush=True)
            failed += bad
            if find is not None:
                print(find, flush=True)
    print(f"{total} inputs", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
