"""Whatever others write is read or refused, and costs little; ``make fuzz`` tries for longer."""

from __future__ import annotations

import re

import pytest

from tests.fuzz.fuzz_harness import Target, fuzz, plain
from tests.fuzz.fuzz_targets import all_targets

SEED = 1


@pytest.mark.parametrize("target", all_targets(), ids=lambda target: target.name)
def test_every_input_is_read_or_refused(target: Target) -> None:
    _, find = fuzz(target, SEED, inputs=target.quick)
    assert find is None, str(find)


def test_names_of_targets_are_unique() -> None:
    names = [target.name for target in all_targets()]
    assert len(names) == len(set(names))


# --- the harness itself finds what there is -------------------------------------------------------------------------


def _reads_numbers(raw: bytes) -> int:
    return int(raw.decode())


def test_an_error_that_is_not_a_rejection_is_found_and_minimized() -> None:
    target = Target("numbers", (b"12345678",), plain(_reads_numbers), refusals=(UnicodeDecodeError,))
    _, find = fuzz(target, SEED, inputs=400)
    assert find is not None
    assert "ValueError" in find.error
    assert len(find.raw) <= 2


def test_a_rejection_is_not_a_find_and_seeds_are_reproducible() -> None:
    seen: list[list[bytes]] = []
    for _ in range(2):
        inputs: list[bytes] = []
        seen.append(inputs)
        target = Target("numbers", (b"1", b'{"a": [1, 2]}'), plain(inputs.append))
        assert fuzz(target, SEED, inputs=100) == (102, None)
    assert seen[0] == seen[1]
    assert len(set(seen[0])) > 50
    refusing = Target("numbers", (b"1",), plain(_reads_numbers), refusals=(ValueError,))
    assert fuzz(refusing, SEED, inputs=400) == (401, None)


def test_an_input_that_costs_too_much_is_found() -> None:
    target = Target("slow", (b" " * 40 + b"x",), plain(lambda raw: re.match(rb"^(\s+)+$", raw)), cpu_s=0.3)
    _, find = fuzz(target, SEED, inputs=1)
    assert find is not None
    assert "CPU time" in find.error


def test_a_promise_of_the_reader_is_held_against_every_input() -> None:
    def read(raw: bytes) -> None:
        assert b"\xff" not in raw

    _, find = fuzz(Target("promise", (b"abcdef",), plain(read)), SEED, inputs=2_000)
    assert find is not None
    assert find.raw == b"\xff"
