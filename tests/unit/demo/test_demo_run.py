"""A story passes only when every step was kept and every request was answered."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fairlead_demo.run import run_story, sum_up
from fairlead_demo.stories.context import StoryContext
from fairlead_demo.worlds.processes import ExpectationFailed
from fairlead_demo.worlds.traffic import Traffic


class ShortStage(StoryContext):
    """A stage with traffic that is never started."""

    def __init__(self) -> None:
        self.out = io.StringIO()
        super().__init__(console=Console(file=self.out, width=200), plain=True)
        self.traffics["east default/web"] = Traffic(host="127.0.0.1", port=1)

    def ending(self, *, passed: bool) -> str:
        return "" if passed else ", as expected"

    async def close(self) -> None:
        await self.stop_traffic()


async def keeps(context: ShortStage) -> None:
    context.progress.step_done("kept")


async def breaks(context: ShortStage) -> None:
    raise ExpectationFailed("the promise was broken")


async def fails_a_request(context: ShortStage) -> None:
    count = context.traffics["east default/web"].count
    count.sent, count.failed = 1, 1
    count.failures.append("HTTP/1.1 503")


async def loses_sight_of_a_request(context: ShortStage) -> None:
    context.traffics["east default/web"].count.sent = 1


async def test_all_steps_kept_and_all_requests_answered_is_a_pass() -> None:
    context = ShortStage()
    assert await run_story(context, (keeps, keeps))


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (breaks, "the promise was broken"),
        (fails_a_request, "east default/web: 1 requests failed (HTTP/1.1 503)"),
        (loses_sight_of_a_request, "1 requests unaccounted for"),
    ],
)
async def test_anything_else_is_a_failure_that_says_why(step, reason: str) -> None:
    context = ShortStage()
    assert not await run_story(context, (keeps, step))
    assert reason in context.out.getvalue()


def test_the_verdict_counts_the_requests(capsys: pytest.CaptureFixture[str]) -> None:
    sum_up(ShortStage(), passed=False)
    assert "FAILED in 0 s: 0 requests sent, 0 failed, as expected" in capsys.readouterr().out
