"""Names and sentences are plain technical English: no banned word in identifiers, docstrings, comments, pages."""

from __future__ import annotations

from tests.arch.arch_language import findings, of_page, of_source


def test_nothing_has_a_banned_word():
    banned = [f"{file}:{line}: {what}" for file, line, what in findings()]
    assert banned == [], "\n  ".join(["words that are not used here:", *banned])


def test_names_docstrings_comments_and_messages_are_read(tmp_path):
    module = tmp_path / "wakes.py"
    module.write_text(
        '"""Tell it."""\nclass Side:\n    wished = 1\nfor one in "nobody", "fine":\n    pass  # strangers\n'
    )
    assert [what for _, what in of_source(module, strings=True)] == [
        "module: wakes", "name: Side", "name: one", "name: wished", "text: tell", "text: nobody", "comment: strangers",
    ]  # fmt: skip
    assert "text: nobody" not in [what for _, what in of_source(module, strings=False)]


def test_the_last_column_of_the_glossary_may_name_what_is_avoided():
    assert list(of_page("| **a** | what a thing is | stranger |\n")) == []
    assert list(of_page("a stranger\n")) == [(1, "stranger")]
