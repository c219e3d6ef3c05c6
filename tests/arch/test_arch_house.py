"""The rules of the project that a linter does not know: imports, sizes of files, names, docstrings."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.arch.arch_structure import nodes_of

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
FILES = sorted(SRC.rglob("*.py"))
MODULES = {".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}

BANNED_FILES = re.compile(r"(^|_)(utils?|commons?|helpers?|misc|managers?|handlers?)(_|$)")
BANNED_CLASSES = re.compile(r"(Manager|Handler|Helper|Utils?)$")
#: A module says what it holds ("The backends of a group."), not which question it answers.
QUESTION_WORD = re.compile(r"(Who|Whose|Whom|What|Which|How|When|Where|Why|Is|Are|Does|Do|Has|Have|May|Can|Will)\b")
FIRST_LINE_ASKS = re.compile(r'(?:#.*\n|\s)*r?"""[^\n]*\?')
#: Where files in Python are.
TOPS = ("src", "tests", "bench", "tools", "deploy", "conformance", "examples")
#: Words of other people's protocols, which cannot be renamed.
ALLOWED_NAMES = frozenset({"podless.patch.managers", "podless.http.handler"})

PURE = (
    "fairlead.errors",
    "fairlead.model",
    "fairlead.api",
    "fairlead.translate",
    "fairlead.sync.plan",
    "fairlead.sync.history",
)
IMPURE = frozenset(
    {
        "asyncio", "logging", "time", "random", "socket", "ssl", "os", "pathlib", "subprocess", "threading", "tempfile",
        "aiohttp", "grpc", "structlog", "secrets", "uuid", "urllib.request", "http", "signal", "select", "shutil", "io",
    }
)  # fmt: skip
#: ``datetime`` is a value; its clocks are not.
IMPURE_CALLS = frozenset({"now", "utcnow", "today"})
#: Where anything at all may be caught: one key of a loop, one load balancer of a worker, one request, one watch, one
#: command, and one provider from another package.
BROAD_EXCEPT = frozenset(
    {
        "fairlead.runtime.loop",
        "fairlead.sync.worker",
        "fairlead.sync.readback",
        "podless.http.handler",
        "podless.http.watcher",
        "fairlead.cli.run",
        "fairlead.hub.intents.certificates",
        "fairlead.hub.providers.registry",
        "fairlead.hub.providers.runner",
        "fairlead.kube.cache",
        "fairlead.page.board",
        "fairlead.providers.readback_watch",
    }
)


def nodes_in(module, *kinds):
    """Return the nodes of these types in a module."""
    nodes = nodes_of(MODULES[module])
    return [node for kind in kinds for node in nodes[kind]]


def is_pure(module):
    return any(module == pure or module.startswith(pure + ".") for pure in PURE)


@cache
def imports_of(module):
    """Return what a module imports, by full name."""
    names = {alias.name for node in nodes_in(module, ast.Import) for alias in node.names}
    for node in nodes_in(module, ast.ImportFrom):
        if node.module and not node.level:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names if f"{node.module}.{alias.name}" in MODULES}
    return names


@pytest.mark.slow
def test_import_contracts():
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(is_debug_mode=False))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


def test_the_pure_core_imports_nothing_that_does_anything_even_indirectly():
    seen: dict[str, str] = {}
    todo = [(module, module) for module in MODULES if is_pure(module)]
    offenders = []
    while todo:
        module, whence = todo.pop()
        if module in seen:
            continue
        seen[module] = whence
        imported = imports_of(module)
        offenders += [
            f"{whence} -> {module} -> {name}" for name in imported if not IMPURE.isdisjoint({name, name.split(".")[0]})
        ]
        # A package's own __init__ counts: importing a module of it runs it.
        parents = {".".join(module.split(".")[:n]) for n in range(2, module.count(".") + 1)}
        todo += [(name, module) for name in imported | parents if name in MODULES and name != "fairlead"]
    offenders += [
        f"{whence} -> {module}" for module, whence in seen.items() if not is_pure(module) and module != "fairlead.sync"
    ]
    assert offenders == []


def test_the_pure_core_asks_no_clock_and_awaits_nothing():
    offenders = []
    for module in filter(is_pure, MODULES):
        asks = [
            node
            for node in nodes_in(module, ast.Call)
            if isinstance(node.func, ast.Attribute)
            and node.func.attr in IMPURE_CALLS
            and "date" in ast.unparse(node.func.value)
        ]
        waits = nodes_in(module, ast.Await, ast.AsyncWith, ast.AsyncFor)
        offenders += [f"{module}:{node.lineno}" for node in (*asks, *waits)]
    assert offenders == []


def test_every_module_begins_with_a_statement_of_what_it_holds():
    first = {module: (ast.get_docstring(nodes_in(module, ast.Module)[0]) or "").splitlines()[:1] for module in MODULES}
    assert [module for module, line in first.items() if not line or len(line[0]) <= 20] == []
    assert [module for module, line in first.items() if QUESTION_WORD.match(line[0])] == []


def test_no_module_begins_with_a_question():
    """Of every file in Python the first line of its docstring is matched: parsing them all would be slow."""
    files = [path for top in TOPS for path in (ROOT / top).rglob("*.py")]
    assert len(files) > len(FILES)
    asks = [path for path in files if FIRST_LINE_ASKS.match(path.read_text(encoding="utf-8"))]
    assert [str(path.relative_to(ROOT)) for path in asks] == []


def test_every_name_says_something():
    named = [module for module in MODULES if module not in ALLOWED_NAMES]
    offenders = [module for module in named if BANNED_FILES.search(module.rsplit(".", 1)[-1])]
    for module in named:
        classes = [node.name for node in nodes_in(module, ast.ClassDef)]
        offenders += [f"{module}: {name}" for name in classes if BANNED_CLASSES.search(name)]
    assert offenders == []


def test_no_module_keeps_state_of_its_own():
    """Best effort: a mutable thing at module level that does not look like a constant, and ``global``."""
    mutable = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
    offenders = []
    for module in MODULES:
        offenders += [f"{module}: global" for _ in nodes_in(module, ast.Global)]
        for node in nodes_in(module, ast.Module)[0].body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, mutable):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            offenders += [f"{module}: {name}" for name in names if not name.lstrip("_").isupper() and name != "__all__"]
    assert offenders == []


def test_everything_is_caught_only_where_a_process_or_a_request_ends():
    offenders = []
    for module in MODULES:
        for node in nodes_in(module, ast.ExceptHandler) if module not in BROAD_EXCEPT else ():
            bare = node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "Exception")
            raises_on = isinstance(node.body[-1], ast.Raise)
            if bare and not raises_on:
                offenders.append(f"{module}:{node.lineno}")
    assert offenders == []


def test_no_product_code_imports_what_is_for_tests():
    product = [module for module in MODULES if not module.startswith("fairlead.testing")]
    imports = {(module, name) for module in product for name in imports_of(module)}
    assert [pair for pair in imports if pair[1].startswith(("fairlead.testing", "tests"))] == []


def test_the_demo_needs_no_test_framework():
    """``make demo`` installs none."""
    demo = [module for module in MODULES if module.startswith("fairlead_demo")]
    imported = {(module, name.split(".")[0]) for module in demo for name in imports_of(module)}
    assert {(module, name) for module, name in imported if name in {"pytest", "hypothesis", "tests"}} == set()


def test_names_of_test_modules_are_unique():
    """Test modules have no packages, so two of one name would hide each other."""
    names = [
        path.stem for path in (ROOT / "tests").rglob("*.py") if path.stem not in {"conftest", "__init__", "__main__"}
    ]
    assert sorted({name for name in names if names.count(name) > 1}) == []


#: Where a task is started without ``runtime.background`` and outside a ``TaskGroup``, and who learns that it failed.
TASKS_OF_THEIR_OWN = {
    "podless.background.restarted_task": "the package imports no runtime: this is its own way",
    "podless.http.listener": "the handshake of a connection handles its errors itself",
    "fairlead.kube.lease": "a term awaits its work, its renewals and its watchdog",
    "fairlead.kube.discovery": "run() awaits the watch and the switch, and raises what they raise",
    "fairlead.providers.zones.connection": "ask_all() awaits its questions",
    "fairlead.providers.zones.answers": "each caller of check() awaits the check",
    "fairlead.sync.execute": "each caller awaits the call that its changes are part of; in_time() awaits the call",
}


def test_no_task_in_the_background_ends_in_silence():
    """A bare task that fails is noticed by its owner only, and an owner that does not await it never learns of it."""
    watching = ("fairlead.runtime.", "fairlead.testing.", "fairlead_demo.worlds.")
    offenders = set()
    for module in MODULES:
        for node in nodes_in(module, ast.Call) if not module.startswith(watching) else ():
            if isinstance(node.func, ast.Attribute) and node.func.attr in {"create_task", "ensure_future"}:
                owner = ast.unparse(node.func.value)
                if owner == "asyncio" or "loop" in owner:
                    offenders.add(module)
    assert offenders == set(TASKS_OF_THEIR_OWN), "start it with keep_running() or watched() of runtime.background"
