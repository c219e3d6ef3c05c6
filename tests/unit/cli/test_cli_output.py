"""An answer is printed in the format that was asked for, once, or again whenever it changes."""

from __future__ import annotations

import asyncio
import json

import pytest
import yaml

from fairlead.cli import output
from fairlead.cli.options import Output
from fairlead.cli.output import VerbAnswer, show


class Enough(Exception):
    """Ends a watch."""


async def watched(values: list[dict[str, int]], form: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch answers with these values, one after another; ``age`` does not count as a change."""
    monkeypatch.setattr(output, "_EVERY_S", 0.0)
    left = list(values)

    async def ask() -> VerbAnswer:
        await asyncio.sleep(0)
        if not left:
            raise Enough
        value = left.pop(0)
        return VerbAnswer(value, lambda: [f"n is {value['n']}"], lambda: [f"lb/{value['n']}"], lasting=value["n"])

    with pytest.raises(Enough):
        await show(ask, form, watch=True)


VALUES = [{"n": 1, "age": 1}, {"n": 1, "age": 2}, {"n": 2, "age": 3}]


@pytest.mark.parametrize(
    ("form", "printed"),
    [(Output.TABLE, "n is 1\n\nn is 2\n"), (Output.WIDE, "n is 1\n\nn is 2\n"), (Output.NAME, "lb/1\nlb/2\n")],
)
async def test_a_change_is_printed_again_and_an_age_is_none(
    form: Output, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await watched(VALUES, form, monkeypatch)
    assert capsys.readouterr().out == printed


async def test_the_documents_of_a_watch_are_separate_for_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await watched(VALUES, Output.YAML, monkeypatch)
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == [VALUES[0], VALUES[2]]
    await watched(VALUES, Output.JSON, monkeypatch)
    decoder, text = json.JSONDecoder(), capsys.readouterr().out
    first, end = decoder.raw_decode(text)
    assert (first, decoder.raw_decode(text[end:].lstrip())[0]) == (VALUES[0], VALUES[2])


async def test_without_watch_it_is_printed_once_with_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    async def ask() -> VerbAnswer:
        return VerbAnswer({"n": 1}, lambda: ["n is 1"], tuple, code=4)

    assert await show(ask, Output.TABLE) == 4
    assert capsys.readouterr().out == "n is 1\n"
