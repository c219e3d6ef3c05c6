"""A page that is wrong fails: what executes the pages sees what is missing, and says what came instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.docs_console import Shell, blocks_of, missing, steps_of

PAGE = """
Text.

<!-- file: name.yaml -->
```yaml
kind: X
```

```console
$ echo one && echo two
one
two
$ cat <<EOF
> three
> EOF
three
```
"""


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(directory=tmp_path, substitutions={"one": "1"})
    yield shell
    shell.close()


def test_blocks_and_steps() -> None:
    yaml, console = blocks_of(PAGE)
    assert (yaml.language, yaml.file, yaml.text) == ("yaml", "name.yaml", "kind: X\n")
    first, second = steps_of(console)
    assert (first.command, first.expected) == ("echo one && echo two", ("one", "two"))
    assert (second.command, second.expected) == ("cat <<EOF\nthree\nEOF", ("three",))


def test_a_block_begins_with_a_command() -> None:
    with pytest.raises(ValueError, match="begins with a command"):
        steps_of(blocks_of("```console\nno command\n```")[0])


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        ("NAME   AGE", "NAME AGE"),
        ("web    7s", "web 2m13s"),
        ("at ... until ...", "at noon until night"),
        ("(x) [y] 1.5", "(x) [y] 1.5"),
    ],
)
def test_what_counts_as_shown(expected: str, line: str) -> None:
    assert missing([expected], ["other", line]) == ""


@pytest.mark.parametrize(("expected", "line"), [("web 3", "web 4"), ("web", "web x"), ("7s", "seven"), ("1.5", "1x5")])
def test_what_does_not(expected: str, line: str) -> None:
    assert missing([expected], [line]) == expected


def test_the_order_counts() -> None:
    assert missing(["b", "a"], ["a", "b"]) == "a"


def test_a_page_is_played(bash: Shell) -> None:
    bash.play(PAGE)
    assert (bash.directory / "name.yaml").read_text() == "kind: X\n"


def test_a_missing_line_is_named_with_what_came_instead(bash: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.docs_console._LINGER_S", 0.1)
    with pytest.raises(AssertionError, match=r"(?s)never showed: four.*it showed:\nfive"):
        bash.play("```console\n$ echo five\nfour\n```")


def test_a_command_that_fails_is_an_error(bash: Shell) -> None:
    with pytest.raises(AssertionError, match="ended with 3"):
        bash.play("```console\n$ (exit 3)\n```")


def test_lines_of_the_background_are_waited_for(bash: Shell) -> None:
    bash.play("```console\n$ (sleep 0.2; echo late) &\nlate\n```")
