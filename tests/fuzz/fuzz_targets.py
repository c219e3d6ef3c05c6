"""Every target there is: the ``TARGETS`` of the modules ``fuzz_*.py`` of this folder."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.fuzz.fuzz_harness import Target

_MACHINERY = {"fuzz_api_victim", "fuzz_harness", "fuzz_mutations", "fuzz_targets"}


def all_targets() -> list[Target]:
    """Return the targets, in the order of their modules."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("fuzz_*.py"))
    modules = [importlib.import_module(f"tests.fuzz.{name}") for name in names if name not in _MACHINERY]
    return [target for module in modules for target in module.TARGETS]
