"""The label-selector grammar, term by term, and against a second opinion."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.selectors import EVERYTHING, BadSelector, Selector, from_label_selector, match_labels, parse_selector

LABELS = {"a": "b", "n": "5", "empty": "", "underscored": "1_0", "example.com/key": "v"}


@pytest.mark.req("O-30")
@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("a=b", True),
        ("a==b", True),
        ("a = b", True),
        ("a=c", False),
        ("a!=b", False),
        ("a!=c", True),
        ("missing!=c", True),
        ("a in (b, c)", True),
        ("a in (c)", False),
        ("missing in (b)", False),
        ("a notin (b)", False),
        ("missing notin (b)", True),
        ("a", True),
        ("missing", False),
        ("!missing", True),
        ("!a", False),
        ("empty=", True),
        ("empty in (,x)", True),
        ("a in (b),n>4,!missing", True),
        ("a=b,a=c", False),
        ("n>4", True),
        ("n>5", False),
        ("n<6", True),
        ("a>4", False),
        ("example.com/key=v", True),
        ("in=x", False),
        ("underscored>1", False),
    ],
)
def test_each_term(text: str, matches: bool) -> None:
    assert parse_selector(text).matches(LABELS) is matches


@pytest.mark.req("O-30", "W-O-9")
@pytest.mark.parametrize(
    "text",
    [
        "", " ", "a in (b", "a in b", "a b", "a=b,", ",a", "=b", "a==", "a=b=c", "a in ()x", "a>x", "a=b c", "(a)",
        "a notin", "!", "-a=b", "a=b!", "x" * 64, "Bad/key=v", "a=" + "v" * 64, "a=b;c=d", "/a",
    ],
)  # fmt: skip
def test_unreadable_objects_are_reported(text: str) -> None:
    if text == "a==":  # an empty value is a value
        assert parse_selector(text).matches({"a": ""})
        return
    with pytest.raises(BadSelector) as caught:
        parse_selector(text)
    assert str(caught.value)


def test_match_labels_wants_all_of_them() -> None:
    assert match_labels({"a": "b", "n": "5"}).matches(LABELS)
    assert not match_labels({"a": "b", "n": "6"}).matches(LABELS)
    assert not match_labels({"missing": ""}).matches(None)
    assert match_labels({}) == EVERYTHING
    assert EVERYTHING.matches(None)


KEYS = st.sampled_from(["a", "b", "example.com/c"])
VALUES = st.sampled_from(["x", "y", "z", ""])
TERMS = st.one_of(
    st.tuples(st.sampled_from(["=", "==", "!="]), KEYS, VALUES.map(lambda value: [value])),
    st.tuples(st.sampled_from(["in", "notin"]), KEYS, st.lists(VALUES, min_size=1, max_size=3)),
    st.tuples(st.sampled_from(["has", "!"]), KEYS, st.just([""])),
)


def second_opinion(term: tuple[str, str, list[str]], labels: dict[str, str]) -> bool:
    operator, key, values = term
    if operator in {"has", "!"}:
        return (key in labels) == (operator == "has")
    inside = key in labels and labels[key] in values
    return inside if operator in {"=", "==", "in"} else not inside


def written(term: tuple[str, str, list[str]], space: str) -> str:
    operator, key, values = term
    if operator == "has":
        return f"{space}{key}{space}"
    if operator == "!":
        return f"{space}!{space}{key}"
    if operator in {"in", "notin"}:
        return f"{key} {operator}{space}({f',{space}'.join(values)})"
    return f"{key}{space}{operator}{space}{values[0]}"


@pytest.mark.req("O-30")
@given(st.lists(TERMS, min_size=1, max_size=4), st.dictionaries(KEYS, VALUES), st.sampled_from(["", " ", "  "]))
def test_any_selector_matches_as_the_words_say(
    terms: list[tuple[str, str, list[str]]], labels: dict[str, str], space: str
) -> None:
    parsed = parse_selector(",".join(written(term, space) for term in terms))
    assert isinstance(parsed, Selector)
    assert parsed.matches(labels) == all(second_opinion(term, labels) for term in terms)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_but_never_crashes(text: str) -> None:
    with suppress(BadSelector):
        assert parse_selector(text).requirements


@pytest.mark.parametrize(
    ("fields", "matches"),
    [
        ({}, True),
        ({"matchLabels": None, "matchExpressions": None}, True),
        ({"matchLabels": {"a": "b"}}, True),
        ({"matchLabels": {"a": "c"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "b"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, False),
        ({"matchExpressions": [{"key": "absent", "operator": "NotIn", "values": ["b"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "n", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_a_label_selector(fields: dict[str, object], matches: bool) -> None:
    assert from_label_selector(fields).matches(LABELS) is matches


@pytest.mark.parametrize(
    "fields",
    [
        {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]},
        {"matchExpressions": [{"key": "a", "operator": "In"}]},
        {"matchExpressions": "a"},
        {"matchLabels": ["a"]},
    ],
)
def test_a_label_selector_that_is_not_understood(fields: dict[str, object]) -> None:
    with pytest.raises(BadSelector):
        from_label_selector(fields)
