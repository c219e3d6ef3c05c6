"""How is a demo played and summed up? The same for every demo: steps, the last requests, one honest line.

In: a stage and its steps. Out: text, and whether everything that was promised has happened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from rich.console import Console
from rich.text import Text

from fairlead.demo.show import Show, traffic_table
from fairlead.demo.traffic import Traffic
from fairlead.errors import FairleadError


class Playable(Protocol):
    """What every demo has: somewhere to show, traffic, and an opinion on what failed."""

    @property
    def show(self) -> Show:
        """Return where progress is shown."""
        ...

    @property
    def traffics(self) -> Mapping[str, Traffic]:
        """Return the load on each Service, by name."""
        ...

    def failures(self) -> list[str]:
        """Say what went wrong with requests, one sentence each."""
        ...


S = TypeVar("S", bound=Playable)


async def play(stage: S, steps: Sequence[Callable[[S], Awaitable[None]]], *, sorry: str) -> bool:
    """Play ``steps`` in order, then let the last requests come back; ``sorry`` heads the list of what failed."""
    async with stage.show as show:
        for step in steps:
            try:
                await step(stage)
            except FairleadError as error:
                show.failed(error.sentence, *([error.detail] if error.detail else []))
                return False
        show.doing("the last requests come back")
        for traffic in stage.traffics.values():
            await traffic.stop()
        under_way = sum(traffic.count.under_way for traffic in stage.traffics.values())
        if failures := [*stage.failures(), *([f"{under_way} requests unaccounted for"] if under_way else [])]:
            show.failed(sorry, *failures)
            return False
    return True


def sum_up(console: Console, stage: Playable, *, passed: bool, ending: str = "") -> None:
    """Print the table, where it was not live, and the verdict with its counts; ``ending`` follows them."""
    out = console if console.is_terminal else Console(width=200)
    out.print()
    if stage.traffics and not console.is_terminal:
        out.print(traffic_table(stage.traffics))
    sent = sum(traffic.count.sent for traffic in stage.traffics.values())
    failed = sum(traffic.count.failed for traffic in stage.traffics.values())
    verdict = "PASSED" if passed else "FAILED"
    text = f"{verdict} in {stage.show.elapsed_s:.0f} s: {sent} requests sent, {failed} failed{ending}"
    out.print(Text(text, style="bold green" if passed else "bold red"))
