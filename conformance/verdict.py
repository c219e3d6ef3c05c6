"""The tests that passed, by what the suite's binary prints and by its exit code.

Never by the report that it writes: that counts tests before they have run. In: its output. Out: results by test.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Outcome = Literal["PASS", "FAIL", "SKIP"]
#: With -test.v=test2json each result is printed when it is known, behind a marker (0x16), not indented.
_RESULT = re.compile(r"^\x16?\s*--- (PASS|FAIL|SKIP): TestConformance/(\w+) \(([\d.]+)s\)$", re.MULTILINE)
_ANY_FAILURE = re.compile(r"^\x16?\s*--- FAIL: ", re.MULTILINE)


def result_of(line: str) -> str:
    """Return a line of output if it is the result of a whole test, else nothing."""
    return line.lstrip("\x16 ").rstrip() if _RESULT.match(line.rstrip("\n")) else ""


class Verdict(msgspec.Struct, frozen=True):
    """What came of a run; ``outcomes`` by test, ``seconds`` how long each took."""

    passed: bool
    outcomes: dict[str, Outcome]
    seconds: dict[str, float]

    @property
    def failed(self) -> list[str]:
        """Return the tests that failed, sorted."""
        return sorted(name for name, outcome in self.outcomes.items() if outcome == "FAIL")

    def count(self, outcome: Outcome) -> int:
        """Return how many tests had this outcome."""
        return sum(each == outcome for each in self.outcomes.values())


def read_verdict(output: str, exit_code: int) -> Verdict:
    """Return the verdict; a run without any test, or with any failure printed, has not passed."""
    rows = _RESULT.findall(output)
    outcomes: dict[str, Outcome] = {name: outcome for outcome, name, _ in rows}
    seconds = {name: float(text) for _, name, text in rows}
    failed = _ANY_FAILURE.search(output) is not None
    return Verdict(exit_code == 0 and not failed and "PASS" in outcomes.values(), outcomes, seconds)
