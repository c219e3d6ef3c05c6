"""How figures are printed: one row each, next to the limit that it is held to, and what it compares with."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured figure. ``limit`` None: printed for information."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    compares_with: str = ""

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        return "ok" if self.value <= self.limit else "OVER"

    def row(self) -> str:
        limit = "" if self.limit is None else f"<= {self.limit:g} {self.unit}"
        digits = 4 if self.value < 10_000 else 6
        return (
            f"| {self.name} | {self.value:,.{digits}g} {self.unit} | {limit} | {self.verdict} | {self.compares_with} |"
        )


def heading() -> str:
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return f"{when}, {machine}\n\n| figure | measured | limit | | compares with |\n|---|---|---|---|---|"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` (0..1) of ``values`` lie."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=1000, method="inclusive")[min(998, max(0, round(share * 1000) - 1))]
