"""The coverage of branches by package. ``python -m tests.coverage_floor`` after ``coverage run``.

In: the data of ``coverage``. Out: the percentage of branches taken by package; exit code 1 when one is below its floor.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

#: Branches in per cent.
FLOOR_PERCENT = {"translate": 95.0, "sync": 95.0, "ledger": 95.0}


def branches(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> dict[str, tuple[int, int]]:
    """Return (taken, all) branches by package, from the report that ``coverage json`` writes."""
    counted: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for name, file in report["files"].items():
        room = Path(name).parts[2]
        taken, every = counted[room]
        summary = file["summary"]
        counted[room] = (taken + summary["covered_branches"], every + summary["num_branches"])
    return counted


def main() -> int:
    """Print one line for each package; returns the exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "coverage", "json", "--quiet", "-o", "-"], capture_output=True, text=True, check=True
    )
    counted = branches(json.loads(done.stdout))
    low = False
    for room, floor in FLOOR_PERCENT.items():
        taken, every = counted.get(room, (0, 0))
        percent = 100.0 * taken / every if every else 0.0
        low |= percent < floor
        print(f"{room:10} {taken:5} of {every:5} branches  {percent:5.1f} %  (floor {floor:g} %)")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
