"""What tenants write does nothing to the terminal of its reader."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.runtime.logs import as_one_line, legible, legible_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("shop/web", "shop/web"),
        ("größer, 数", "größer, 数"),
        ("\x1b[2J\x1b[31mroot", "\\x1b[2J\\x1b[31mroot"),
        ("fine\n✓ everything is healthy", "fine\\n✓ everything is healthy"),
        ("a\rb\tc\x00\x7f\x9b", "a\\rb\\tc\\x00\\x7f\\x9b"),
        ("a\u202eb\u2028c\u200bd\ud800", "a\\u202eb\\u2028c\\u200bd\\ud800"),
        ("\U000e0001tag", "\\U000e0001tag"),
    ],
)
@pytest.mark.req("S-9")
def test_what_acts_on_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert legible(text) == shown
    assert legible(shown) == shown


@given(st.text(st.characters()))
@pytest.mark.req("S-9")
def test_no_text_at_all_leaves_a_character_that_acts(text: str) -> None:
    for char in legible(text):
        assert unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.dictionaries(st.text(), st.text()))
@pytest.mark.req("S-9")
def test_json_reads_back_as_the_same_and_acts_on_no_terminal(value: dict[str, str]) -> None:
    text = legible_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(text) == value
    assert legible(text.replace("\n", "")) == text.replace("\n", "")


@pytest.mark.req("S-9")
def test_a_line_of_the_log_is_one_line_and_a_traceback_keeps_its_own() -> None:
    event = {"event": "refused\nINFO all is well", "sentence": "\x1b[2J", "exception": "Traceback\n  a \x1b[1m", "n": 3}
    assert as_one_line(None, "info", event) == {
        "event": "refused\\nINFO all is well",
        "sentence": "\\x1b[2J",
        "exception": "Traceback\n  a \\x1b[1m",
        "n": 3,
    }
