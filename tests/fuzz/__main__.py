"""Fuzz for long: ``FUZZ_SECONDS=600 python -m tests.fuzz [TARGET ...]``; exit code 1 when something was found.

Every target gets an equal share of the seconds (CPU time), and at least ``FUZZ_INPUTS`` inputs. ``FUZZ_SEED`` repeats a
run; by default each run is another.
A find goes into the corpus of its target once it is mended, so that the test suite tries it ever after.
"""

from __future__ import annotations

import os
import random
import sys
import time

from tests.fuzz.fuzz_harness import fuzz
from tests.fuzz.fuzz_targets import all_targets


def main(names: list[str]) -> int:
    """Run the named targets, or all."""
    targets = [target for target in all_targets() if not names or target.name in names]
    if not targets:
        print("There is no such target; there are: " + ", ".join(target.name for target in all_targets()))
        return 2
    seconds = float(os.environ.get("FUZZ_SECONDS", "60"))
    inputs = int(os.environ.get("FUZZ_INPUTS", "0"))
    seed = int(os.environ.get("FUZZ_SEED") or random.randrange(10**9))
    print(f"seed {seed}, {seconds:g} s for {len(targets)} targets", flush=True)
    failed = 0
    for target in targets:
        start_s = time.monotonic()
        tried, find = fuzz(target, seed, inputs=inputs, cpu_s=seconds / len(targets))
        rate = tried / (time.monotonic() - start_s)
        print(
            f"{target.name:24} {tried:9} inputs  {rate:7.0f} a second  {'FOUND' if find else 'nothing found'}",
            flush=True,
        )
        if find:
            failed += 1
            print(find, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
