"""The list of requirements is sound: every marker is readable and known, and every ID is there once."""

from __future__ import annotations

import textwrap

import pytest

from tests.requirements import Marker, Requirement, match, read_markers, read_requirements, unproven


@pytest.mark.slow
def test_every_marker_names_a_requirement():
    requirements, enforced = read_requirements()
    assert enforced
    assert match(requirements, read_markers()) == []


@pytest.mark.parametrize(
    ("prefix", "first", "last", "milestone"),
    [
        ("K-", 1, 35, "layer-4"),
        ("I-", 1, 10, "layer-4"),
        ("E-", 1, 12, "layer-4"),
        ("L-", 1, 45, "ledger"),
        ("A-", 1, 52, "pods"),
        ("O-", 1, 55, "regions"),
    ],
)
def test_nothing_is_missing_from_the_list(prefix, first, last, milestone):
    requirements, _ = read_requirements()
    for number in range(first, last + 1):
        assert requirements[f"{prefix}{number}"].milestone == milestone


@pytest.fixture
def tree(tmp_path):
    def write(source):
        (tmp_path / "test_one.py").write_text(textwrap.dedent(source))
        return tmp_path

    return write


def test_markers_are_found_on_functions_classes_and_parameters(tree):
    markers = read_markers(
        tree("""
        import pytest
        pytestmark = pytest.mark.req("I-1")
        @pytest.mark.req("I-2", "I-3")
        def test_a(): ...
        @pytest.mark.req("I-4")
        class TestB:
            @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.req("I-5"))])
            async def test_c(self, x): ...
        """)
    )
    assert [(marker.id, marker.test) for marker in markers] == [
        ("I-1", "test_one.py"),
        ("I-2", "test_one.py::test_a"),
        ("I-3", "test_one.py::test_a"),
        ("I-5", "test_one.py::TestB::test_c"),
        ("I-4", "test_one.py::TestB"),
    ]


def test_a_marker_that_cannot_be_read_is_an_error(tree):
    with pytest.raises(SystemExit, match="literal"):
        read_markers(tree("import pytest\nNAME = 'I-1'\n@pytest.mark.req(NAME)\ndef test_a(): ...\n"))


def test_unknown_and_unproven_requirements_are_listed():
    known = {
        "I-1": Requirement("I-1", "now"),
        "I-2": Requirement("I-2", "later"),
        "I-3": Requirement("I-3", "now", not_done="x"),
    }
    markers = [Marker("I-9", "t")]
    assert match(known, markers) == ["t: there is no requirement 'I-9' (tests/requirements.toml)"]
    assert [requirement.id for requirement in unproven(known, frozenset({"now"}))] == ["I-1"]
