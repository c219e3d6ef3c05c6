"""Counts the mutants of translate, sync and ledger that tests kill. ``python -m tests.mutants [GLOB ...]``.

In: names of mutants as globs ("fairlead.translate.member*"), all by default, or how many to choose by chance. Out: a
table by module with what survived, which ``mutmut show NAME`` prints. A run that reaches its time limit says what is
left; the next one continues there.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

#: What mutmut calls the outcomes that count as noticed; "not checked" and "skipped" do not count at all.
KILLED = frozenset({"killed", "timeout", "suspicious", "segfault", "caught by type check"})
SURVIVED = frozenset({"survived", "no tests"})
GOAL_PERCENT = 90
#: "    fairlead.translate.member.x_translate_tcp__mutmut_3: survived"
_RESULT = re.compile(r"^\s*(?P<mutant>(?P<module>fairlead[\w.]*)\.\w+__mutmut_\d+): (?P<outcome>[\w ]+)$")

Results = Mapping[str, Mapping[str, Sequence[str]]]


def parse(text: str) -> Results:
    """Return the mutants by module and outcome, from what ``mutmut results --all true`` prints."""
    results: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for line in text.splitlines():
        if match := _RESULT.match(line):
            results[match["module"]][match["outcome"]].append(line.split(":")[0].strip())
    return results


def table(results: Results) -> tuple[list[str], float]:
    """Return the lines to print, and the percentage that is killed of all that were tried."""
    lines = [f"{'module':44} {'killed':>7} {'survived':>9} {'left':>6}"]
    total: Counter[str] = Counter()
    for module, by_outcome in sorted(results.items()):
        row = Counter({"killed": 0, "survived": 0, "left": 0})
        for outcome, mutants in by_outcome.items():
            kind = "killed" if outcome in KILLED else "survived" if outcome in SURVIVED else "left"
            row[kind] += len(mutants)
        lines.append(f"{module:44} {row['killed']:>7} {row['survived']:>9} {row['left']:>6}")
        total += row
    tried = total["killed"] + total["survived"]
    percent = 100.0 * total["killed"] / tried if tried else 0.0
    lines.append(f"{'all':44} {total['killed']:>7} {total['survived']:>9} {total['left']:>6}   {percent:.1f} % killed")
    return lines, percent


def outcomes(mutmut: str) -> Results:
    """Return what is known of all mutants by now."""
    run = subprocess.run([mutmut, "results", "--all", "true"], capture_output=True, text=True, check=True)
    return parse(run.stdout)


def chosen(mutmut: str, size: int, seed: int) -> list[str]:
    """Return so many mutants by chance; all are made first, as a filter that fits none makes mutmut do."""
    subprocess.run([mutmut, "run", "none"], check=False, capture_output=True)
    everything = sorted(name for by in outcomes(mutmut).values() for names in by.values() for name in names)
    return random.Random(seed).sample(everything, min(size, len(everything)))


def main(arguments: list[str] | None = None) -> int:
    """Run and print; returns 1 when fewer than the goal are killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="stop after that long (default: 60)")
    parser.add_argument("--sample", type=int, default=0, help="so many, chosen by chance (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="which ones a sample has (default: 1)")
    parser.add_argument("only", nargs="*", help="globs of mutants, such as 'fairlead.translate.member*'")
    options = parser.parse_args(arguments)
    mutmut = str(Path(sys.executable).with_name("mutmut"))
    only = options.only or (chosen(mutmut, options.sample, options.seed) if options.sample else [])
    # Other work on this machine goes first.
    run = ["nice", "-n", "19", mutmut, "run", "--max-children", str(os.cpu_count() or 1), *only]
    try:
        subprocess.run(run, check=False, timeout=60 * options.minutes)
    except subprocess.TimeoutExpired:
        print(f"stopped after {options.minutes:g} minutes; the next run continues")
    results = outcomes(mutmut)
    lines, percent = table(results)
    survivors = [name for by in results.values() for outcome in SURVIVED for name in by.get(outcome, ())]
    print("\n".join([*survivors, "", *lines]))
    return 0 if percent >= GOAL_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
