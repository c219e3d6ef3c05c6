"""From Ingresses to objects of Gateway API, as files: ``<case>.in.yaml`` and what ``fairlead convert`` prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.api.meta import ObjectKey
from fairlead.cli.convert import read_files, yaml_of
from fairlead.convert.ingresses import convert_ingresses

HERE = Path(__file__).parent
CASES = sorted(path.name.removesuffix(".in.yaml") for path in HERE.glob("*.in.yaml"))


@pytest.mark.req("E-35", "GI-1", "GI-2")
@pytest.mark.parametrize("case", CASES)
def test_ingresses_become(case: str, golden: Callable[[Path, str], None]) -> None:
    given = read_files([str(HERE / f"{case}.in.yaml")], "default")
    conversion = convert_ingresses(
        given.ingresses, given.services, gateway=ObjectKey("default", "ingress"), class_name="fairlead"
    )
    assert conversion.objects
    golden(HERE / f"{case}.out.yaml", yaml_of(conversion))


def test_there_are_cases() -> None:
    assert len(CASES) >= 8
