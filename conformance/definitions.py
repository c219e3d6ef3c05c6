"""The tests of the suite and the features that each needs, read from the suite's own sources.

In: the texts of its Go files. Out: tests and features. Pure but for the reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

_TEST = re.compile(r"ConformanceTest\{\s*\n(.*?)\n\tTest:", re.DOTALL)
_NAME = re.compile(r'ShortName:\s*"(\w+)"')
_FEATURES = re.compile(r"Features:\s*\[\]\w+\.FeatureName\{(.*?)\}", re.DOTALL)
_FEATURE = re.compile(r"\.(Support\w+)")
_CONSTANT = re.compile(r'^\s*(Support\w+)(?:\s+FeatureName)?\s*=\s*(?:FeatureName\()?"(\w+)"', re.MULTILINE)


class SuiteTest(msgspec.Struct, frozen=True):
    """One test of the suite; ``features`` are all that it needs."""

    name: str
    features: tuple[str, ...]
    provisional: bool = False


def read_features(texts: Iterable[str]) -> dict[str, str]:
    """Return the features by the names of their constants."""
    return {name: value for text in texts for name, value in _CONSTANT.findall(text)}


def read_tests(texts: Iterable[str], features: dict[str, str]) -> list[SuiteTest]:
    """Return the tests, sorted by name."""
    tests: list[SuiteTest] = []
    for text in texts:
        for head in _TEST.findall(text):
            name, listed = _NAME.search(head), _FEATURES.search(head)
            if name is None:
                continue
            needs: list[str] = _FEATURE.findall(listed.group(1)) if listed is not None else []
            tests.append(
                SuiteTest(name.group(1), tuple(features.get(each, each) for each in needs), "Provisional: true" in head)
            )
    return sorted(tests, key=lambda test: test.name)


def tests_of(api: Path, tests: Path) -> list[SuiteTest]:
    """Return the tests of the suite that are not about a mesh."""
    features = read_features(path.read_text() for path in sorted((api / "pkg" / "features").glob("*.go")))
    every = read_tests((path.read_text() for path in sorted((tests / "tests").rglob("*.go"))), features)
    return [test for test in every if not any(feature.startswith("Mesh") for feature in test.features)]


def features_of(api: Path) -> list[str]:
    """Return all features that are not about a mesh, sorted."""
    features = read_features(path.read_text() for path in sorted((api / "pkg" / "features").glob("*.go")))
    return sorted({value for value in features.values() if not value.startswith("Mesh")})
