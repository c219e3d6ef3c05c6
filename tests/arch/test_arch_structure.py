"""Every module that decides has a unit test, no test imports a test, and a class name means one thing.

``arch_allowed.json`` has the exceptions that are left; a number only ever becomes smaller.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.arch.arch_structure import (
    SOURCE,
    TESTED_ELSEWHERE,
    class_names_defined_twice,
    imports_of_test_modules,
    modules_without_unit_test,
    without_unit_test,
)

ALLOWED = json.loads(Path(__file__).with_name("arch_allowed.json").read_text(encoding="utf-8"))


def test_every_module_that_decides_has_a_unit_test():
    allowed = ALLOWED["without_unit_test"]
    over = {room: count for room, count in without_unit_test().items() if count > allowed.get(room, 0)}
    missing = [name for name in modules_without_unit_test() if name.split("/")[0] in over]
    assert over == {}, f"no test of tests/unit/<room> imports one of {missing}; allowed: {allowed}"


def test_modules_tested_elsewhere_exist():
    assert [name for name in TESTED_ELSEWHERE if not (SOURCE / name).exists()] == []


def test_json_is_decoded_in_one_place():
    decoding = re.compile(r"\bjson\.(decode|Decoder|loads?)\b")
    # The embedded API and the tools of tests read what this process has written or has checked before.
    others = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if not path.is_relative_to(SOURCE / "testing") and decoding.search(path.read_text(encoding="utf-8"))
    ]
    assert sorted(others) == sorted(ALLOWED["decode_json"])


def test_no_test_module_imports_a_test_module():
    offenders = imports_of_test_modules()
    assert len(offenders) <= ALLOWED["imports_of_test_modules"], offenders


def test_a_class_name_means_one_thing():
    """``class_names`` has the names that are allowed to several classes, each with its reason."""
    twice = class_names_defined_twice()
    assert {name: files for name, files in twice.items() if name not in ALLOWED["class_names"]} == {}
