"""What all tests share: how hypothesis searches, how many schedules the simulation runs, which tests start first."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator
from typing import Any

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings

from fairlead.errors import BadConfiguration
from fairlead.providers.envoy import envoy_process
from fairlead_demo.worlds.guard import guard

# Deterministic: a failure in one run is the same failure in the next, and its seed is printed.
settings.register_profile(
    "fairlead",
    deadline=None,
    derandomize=True,
    print_blob=True,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fairlead")


_close: Callable[[Any], None] = asyncio.SelectorEventLoop.close


def _close_and_report(loop: Any) -> None:
    """Close the loop of a test; connections that are open then are reported here, not in a test that runs later."""
    transports = [] if loop.is_closed() else list(loop._transports.values())
    left = [f"{transport!r} of {transport._protocol!r}" for transport in transports if transport._sock is not None]
    _close(loop)
    if left:
        warnings.warn(f"open when the loop ended: {', '.join(left)}", ResourceWarning, stacklevel=2)


def pytest_configure(config: pytest.Config) -> None:
    """End whatever a test has started also when the tests are killed; run all tests only where all of them can run."""
    guard()
    asyncio.SelectorEventLoop.close = _close_and_report  # pyright: ignore[reportAttributeAccessIssue]
    if not hasattr(config, "workerinput"):
        # Agents keep their names there; the home of the user who runs the tests is not theirs. Workers inherit it.
        state = tempfile.TemporaryDirectory(prefix="fairlead-state-", ignore_cleanup_errors=True)
        os.environ["XDG_STATE_HOME"] = state.name
        config.add_cleanup(state.cleanup)
    everything = not config.getoption("markexpr") and list(config.args) == config.getini("testpaths")
    if everything and not hasattr(config, "workerinput") and (problem := _without_envoy()):
        pytest.exit(problem, returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep the tests and modules, a million objects, out of hundreds of passes of the garbage collector.

    The tests make many objects that end by their reference count: the collector has little to find.
    """
    _compile_part(session.config)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def _compile_part(config: pytest.Config) -> None:
    """Rewrite the asserts of this worker's part of the test modules, if they changed; the others find them compiled.

    Without this, every worker of the first run after a change compiles all modules.
    """
    workers = getattr(config, "workerinput", None)
    if workers is None or sys.dont_write_bytecode:
        return
    state = config.stash[rewrite.assertstate_key]
    roots = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    modules = [module for root in roots for module in ([root] if root.is_file() else sorted(root.rglob("test_*.py")))]
    for module in modules[int(workers["workerid"].removeprefix("gw")) :: workers["workercount"]]:
        compiled = rewrite.get_cache_dir(module) / f"{module.stem}{rewrite.PYC_TAIL}"
        with contextlib.suppress(SyntaxError):  # reported by the collection
            if rewrite.try_makedirs(compiled.parent) and rewrite._read_pyc(module, compiled) is None:
                source_hash, code = rewrite._rewrite_test(module, config)
                rewrite._write_pyc(state, code, source_hash, compiled)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say in one sentence what a test of Envoy needs."""
    if item.get_closest_marker("envoy") and (problem := _without_envoy()):
        pytest.fail(problem, pytrace=False)


def _without_envoy() -> str:
    try:
        envoy_process.find_binary()
    except BadConfiguration as error:
        return f"{error.sentence}; or leave out what needs it:  pytest -m 'not envoy'"
    return ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what can be asked of the simulation (`make crashes` runs all of it), and of the storm."""
    parser.addoption("--thorough", action="store_true", help="also the cases of which other tests are samples")
    parser.addoption("--schedules", type=int, default=200, help="schedules of the crash simulation")
    parser.addoption("--storm-s", type=float, default=12.0, help="how long the storm lasts, in seconds")
    parser.addoption("--storm-seed", type=int, default=1, help="what the storm does; 0: another one in each run")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the thorough tests unless asked for; have every worker begin with its part of the slow ones.

    xdist cuts the list into one piece a worker. Modules stay together, for the fixtures that their tests share.
    """
    if not config.getoption("--thorough"):
        left_for_crashes = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_for_crashes)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    modules = [list(tests) for _, tests in itertools.groupby(slow, key=lambda item: item.path)]
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    starts = [len(items) * worker // workers for worker in range(workers + 1)]
    items.clear()
    for worker, end in enumerate(starts[1:]):
        items += itertools.chain.from_iterable(modules[worker::workers])
        taken = max(0, end - len(items))
        items += quick[:taken]
        del quick[:taken]
    items += quick
