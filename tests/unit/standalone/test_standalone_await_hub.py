"""A hub that is just being started on this machine is waited for; nothing else is."""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead.runtime.clock import VirtualClock
from fairlead.standalone.right_cluster import WAIT_S, await_hub, is_locked


class Quick(VirtualClock):
    """Time that passes as soon as it is waited for."""

    async def sleep(self, seconds: float) -> None:
        await self.advance(seconds)


@contextmanager
def locked(directory: Path) -> Generator[None]:
    with (directory / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Condition:
    """Is true from the ``at``-th look on."""

    def __init__(self, at: int) -> None:
        self.at, self.looks = at, 0

    async def __call__(self) -> bool:
        self.looks += 1
        return self.looks >= self.at


@pytest.mark.req("X-10")
async def test_a_directory_that_no_process_has_locked_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    is_true = Condition(2)
    assert not is_locked(tmp_path)
    assert not await await_hub(tmp_path / "kubeconfig", is_true, what="its kinds", clock=Quick())
    assert not await await_hub(None, Condition(2), what="its kinds", clock=Quick())
    assert is_true.looks == 1


async def test_a_hub_that_starts_is_waited_for_and_the_user_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "identity").write_text("hub-1\n")
    with locked(tmp_path):
        assert await await_hub(tmp_path / "kubeconfig", Condition(100), what="its kinds", clock=Quick())
    assert capsys.readouterr().err == f"A hub is starting in {tmp_path}; waiting up to 30 s for its kinds.\n"


async def test_the_wait_has_a_limit(tmp_path: Path) -> None:
    (tmp_path / "identity").write_text("hub-1\n")
    clock = Quick()
    began_s = clock.monotonic()
    with locked(tmp_path):
        assert not await await_hub(tmp_path / "kubeconfig", Condition(10**6), what="its kinds", clock=clock)
    assert clock.monotonic() - began_s == pytest.approx(WAIT_S, abs=0.2)


async def test_an_api_without_a_hub_has_less_time_and_is_not_called_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Quick()
    began_s = clock.monotonic()
    with locked(tmp_path):
        assert not await await_hub(tmp_path / "kubeconfig", Condition(10**6), what="its kinds", clock=clock)
    assert clock.monotonic() - began_s == pytest.approx(5.0, abs=0.3)
    assert capsys.readouterr().err == ""


async def test_existing_parts_cost_no_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked(tmp_path):
        assert await await_hub(tmp_path / "kubeconfig", Condition(1), what="its kinds", clock=Quick())
    assert capsys.readouterr().err == ""
