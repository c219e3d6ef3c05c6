"""Names and sentences are plain technical English: no banned word in identifiers, docstrings, comments, pages.

``arch_allowed.json`` has what each directory may still have of them; a number only ever becomes smaller.
"""

from __future__ import annotations

import json

from tests.arch.arch_language import ALLOWED_FILE, ROOT, directory_of, findings, of_page, of_source

ALLOWED = json.loads(ALLOWED_FILE.read_text())["language"]


def test_no_directory_has_more_banned_words_than_it_may():
    by_directory: dict[str, list[str]] = {}
    for file, line, what in findings():
        by_directory.setdefault(directory_of(file), []).append(f"{file}:{line}: {what}")
    over = {name: lines for name, lines in by_directory.items() if len(lines) > ALLOWED.get(name, 0)}
    report = [
        f"{name} has {len(lines)} banned words, {ALLOWED.get(name, 0)} are allowed; the last ones:\n  "
        + "\n  ".join(lines[-20:])
        for name, lines in over.items()
    ]
    assert not over, "\n".join(report) + "\nall of them: .venv/bin/python -m tests.arch.arch_language DIRECTORY"


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


def test_every_allowed_directory_exists():
    assert [name for name in ALLOWED if not (ROOT / name).is_dir()] == []
