"""Print the progress of a demo: a live table on a terminal, plain lines everywhere else.

In: the steps, and the counters of the traffic. Out: text. Never decides whether the demo has passed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairlead.runtime.background import watched
from fairlead_demo.worlds.traffic import Traffic

_REFRESH_PER_S = 4
_PLAIN_EVERY_S = 10.0


class ProgressOutput:
    """The output of a demo while it runs; ``traffics`` by title, such as ``east default/web``."""

    def __init__(self, *, traffics: Mapping[str, Traffic], plain: bool, console: Console | None = None) -> None:
        self._console = console or Console()
        self._traffics = traffics
        self._lines: list[Text] = []
        self._doing = ""
        self._started_s = time.monotonic()
        self._live = None if plain or not self._console.is_terminal else self._make_live()
        self._ticker: asyncio.Task[None] | None = None

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the demo started."""
        return time.monotonic() - self._started_s

    def _make_live(self) -> Live:
        return Live(
            console=self._console, get_renderable=self._render, refresh_per_second=_REFRESH_PER_S, transient=False
        )

    async def __aenter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        else:
            self._ticker = watched("ticker", self._tick())
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._doing = ""
        if self._ticker is not None:
            self._ticker.cancel()
        if self._live is not None:
            self._live.stop()

    def step_started(self, step: str) -> None:
        """Print the step that is running now."""
        self._doing = step

    def step_done(self, step: str, *facts: str) -> None:
        """Print a step that has passed, with the observed facts."""
        self._doing = ""
        self._print(Text(f"✓ {step}", style="green"), facts)

    def failed(self, step: str, *facts: str) -> None:
        """Print a check that has failed, with the observed facts."""
        self._doing = ""
        self._print(Text(f"✗ {step}", style="bold red"), facts)

    def _print(self, headline: Text, facts: tuple[str, ...]) -> None:
        lines = [Text(f"{self.elapsed_s:5.1f} s  ", style="dim") + headline]
        lines += [Text(f"           {fact}", style="dim") for fact in facts]
        self._lines += lines
        if self._live is None:
            for line in lines:
                self._console.print(line, soft_wrap=True)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_PLAIN_EVERY_S)
            if self._traffics:
                counts = "; ".join(f"{name}: {counts_text(traffic)}" for name, traffic in self._traffics.items())
                self._console.print(Text(f"{self.elapsed_s:5.1f} s    {counts}", style="dim"), soft_wrap=True)

    def _render(self) -> Group:
        parts: list[Text | Table] = list(self._lines)
        if self._doing:
            parts.append(Text(f"{self.elapsed_s:5.1f} s  … {self._doing}", style="yellow"))
        if self._traffics:
            parts += [Text(), traffic_table(self._traffics)]
        return Group(*parts)


def counts_text(traffic: Traffic) -> str:
    """Return the counters of one address as one line of text."""
    count = traffic.count
    lost = f", {count.lost} lost with a killed pod" if count.lost else ""
    return f"{count.sent} sent, {count.answered} answered, {count.failed} failed{lost}"


def traffic_table(traffics: Mapping[str, Traffic]) -> Table:
    """Return the table of the counters of all addresses."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for title in ("SERVICE", "ADDRESS", "SENT", "ANSWERED", "FAILED", "LOST WITH POD", "ANSWERS BY POD"):
        table.add_column(title)
    for name, traffic in traffics.items():
        count = traffic.count
        failed = Text(str(count.failed), style="bold red" if count.failed else "green")
        table.add_row(
            name,
            f"{traffic.host}:{traffic.port}",
            str(count.sent),
            str(count.answered),
            failed,
            str(count.lost),
            answers_by_pod(count.by_pod),
        )
    return table


def answers_by_pod(answers: Mapping[str, int]) -> str:
    """Return the answers by pod, in the order of their start: ``web-1..3: 5 7 6``."""
    by_head: dict[str, dict[int, int]] = {}
    parts: list[str] = []
    for pod, count in sorted(answers.items()):
        head, _, number = pod.rpartition("-")
        if number.isdigit():
            by_head.setdefault(head, {})[int(number)] = count
        else:
            parts.append(f"{pod}: {count}")
    for head, counts in sorted(by_head.items()):
        numbers = sorted(counts)
        gapless = len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1
        which = f"{numbers[0]}..{numbers[-1]}" if gapless else ",".join(map(str, numbers))
        parts.append(f"{head}-{which}: {' '.join(str(counts[number]) for number in numbers)}")
    return "  ".join(parts)
