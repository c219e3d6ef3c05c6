"""Every target there is: the ``TARGETS`` of the modules ``fuzz_*.py`` of this folder."""

from __future__ import annotations

import importlib
import resource
import time
from pathlib import Path

from tests.fuzz.fuzz_harness import Find, Target, fuzz

_MACHINERY = {"fuzz_api_victim", "fuzz_harness", "fuzz_mutations", "fuzz_targets"}


def all_targets() -> list[Target]:
    """Return the targets, in the order of their modules."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("fuzz_*.py"))
    modules = [importlib.import_module(f"tests.fuzz.{name}") for name in names if name not in _MACHINERY]
    return [target for module in modules for target in module.TARGETS]


def run_alone(name: str, seed: int, inputs: int, cpu_s: float) -> tuple[str, int, float, int, Find | None]:
    """Return name, inputs, seconds, the most memory of the process in MiB, and the find."""
    (target,) = [target for target in all_targets() if target.name == name]
    start_s = time.monotonic()
    tried, find = fuzz(target, seed, inputs=inputs, cpu_s=cpu_s)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return name, tried, time.monotonic() - start_s, memory, find
