"""Names and sentences are plain technical English."""

from __future__ import annotations

import pytest

from tests.arch.arch_language import Text, broken, findings, of_manifest, of_page, of_source, of_test


@pytest.mark.slow
def test_every_name_and_sentence_follows_the_rules():
    broken_rules = [str(finding) for finding in findings()]
    assert broken_rules == [], "\n  ".join(["python -m tests.arch.arch_language DIRECTORY prints:", *broken_rules])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("it has letters that DNS has not", "start"),
        ("Its Secret is gone", "start"),
        ("What is back after a loss", "start"),
        ("is no port", "phrase"),
        ("the agent is not here any more", "phrase"),
        ("the hub writes the file anew", "phrase"),
        ("the Envoy stands still", "phrase"),
        ("two Pods, one of which is ready", "phrase"),
        ("a Cluster beside another", "phrase"),
        ("see CORE-01", "private number"),
        ("one two three four five " * 5 + "six", "26 words"),
    ],
)
def test_each_rule_is_checked(text, rule):
    assert [name for name, _ in broken(Text(1, "message", text))] == [rule]


@pytest.mark.parametrize(
    "text",
    [
        "there is no node",
        "the port is no longer in use",
        "an item",
        "one two three. " * 20,
        "`is no port` is a quotation",
    ],
)
def test_plain_sentences_are_accepted(text):
    assert list(broken(Text(1, "page", text))) == []


def test_variables_are_nouns():
    assert [rule for rule, _ in broken(Text(1, "variable", "each"))] == ["not a noun"]
    assert list(broken(Text(1, "variable", "its_length"))) == []


def test_names_of_tests_are_checked():
    assert [rule for rule, _ in broken(Text(1, "test name", "test_it_" + "long_" * 16))] == ["length", "start"]


def test_messages_docstrings_comments_and_names_are_read(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        '"""First."""\n# second\n@app.command("x")\ndef test_third():\n    """Fourth."""\n    return f"a {1} b" "key"\n'
    )
    assert {(text.kind, text.text) for text in of_source(module)} == {
        ("module", "module"), ("docstring", "First."), ("comment", "second"), ("message", "Fourth."),
        ("identifier", "test_third"), ("message", "a {x} bkey"), ("string", "x"),
    }  # fmt: skip
    kinds = sorted(text.kind for text in of_test(module))
    assert kinds == ["comment", "docstring", "docstring", "identifier", "module", "test name"]


def test_names_docstrings_comments_and_messages_have_no_banned_word(tmp_path):
    module = tmp_path / "wakes.py"
    module.write_text(
        '"""Tell it."""\nclass Side:\n    wished = 1\nfor one in "nobody", "fine":\n    pass  # strangers\n'
    )
    rules = [excerpt for text in of_source(module) for _, excerpt in broken(text)]
    assert sorted(rules) == ["Side", "nobody", "one", "strangers", "tell", "wakes", "wished"]
    assert "nobody" not in [excerpt for text in of_test(module) for _, excerpt in broken(text)]


def test_the_last_column_of_the_glossary_may_name_what_is_avoided(tmp_path):
    page = tmp_path / "glossary.md"
    page.write_text("| **a** | what a thing is | stranger |\n\na stranger\n")
    assert [(text.line, rule) for text in of_page(page) for rule, _ in broken(text)] == [(3, "banned word")]


def test_paragraphs_items_and_cells_of_pages_are_read(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nOne\ntwo.\n\n- item\n\n```sh\ncode\n```\n| a | b |\n")
    assert [text.text for text in of_page(page)] == ["Title", "One\ntwo.", "item", "a", "b"]


def test_comments_and_sentences_of_manifests_are_read(tmp_path):
    manifest = tmp_path / "alerts.yaml"
    manifest.write_text("# Alerts.\nsummary: It is slow\n")
    assert [(text.kind, text.text) for text in of_manifest(manifest)] == [
        ("comment", "Alerts."), ("message", "It is slow"),
    ]  # fmt: skip
