"""The built wheels, outside the checkout: installed into an empty environment they have everything, and run the demo.

By default they are installed next to the libraries that are here, so that no package index is asked. `make test-wheel`
has pip and pipx install Fairlead with all that it needs, on each Python from 3.11 to 3.14 that is on this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from fairlead import __version__
from tests.left_running import left_running, marked
from tools import man

ROOT = Path(__file__).parents[2]
WITH_INDEX = bool(os.environ.get("FAIRLEAD_TEST_WHEEL"))
asks_an_index = pytest.mark.skipif(not WITH_INDEX, reason="asks a package index, and takes minutes: make test-wheel")


def run(*command: str | Path, where: Path, timeout_s: float = 300) -> str:
    """Run a command outside the checkout, with nothing of this environment, and return its output."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "LANG"}
    environment = marked({**kept, "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(where)})
    done = subprocess.run(
        list(map(str, command)),
        cwd=where,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert done.returncode == 0, f"{command}: {(done.stdout + done.stderr)[-4000:]}"
    assert left_running(environment) == []
    return done.stdout


#: The directory of each distribution, and its package.
DISTRIBUTIONS = {"fairlead": ".", "podless": "src/podless", "fairlead_demo": "src/fairlead_demo"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels by package, as they would be published."""
    directory = tmp_path_factory.mktemp("wheels")
    subprocess.run([sys.executable, "-m", "tools.man"], cwd=ROOT, check=True, capture_output=True, timeout=120)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    sources = [str(ROOT / source) for source in DISTRIBUTIONS.values()]
    subprocess.run([*pip, str(directory), *sources], check=True, capture_output=True, timeout=240)
    made = {path.name.partition("-")[0]: path for path in directory.glob("*.whl")}
    assert made.keys() == DISTRIBUTIONS.keys()
    return made


@pytest.mark.req("OP-3")
@pytest.mark.parametrize("package", DISTRIBUTIONS)
def test_a_wheel_has_every_file_of_its_package_and_nothing_else(wheels: dict[str, Path], package: str) -> None:
    wheel = wheels[package]
    assert wheel.name == f"{package}-{__version__}-py3-none-any.whl"
    source = ROOT / "src"
    files = [path for path in (source / package).rglob("*") if path.is_file() and path.suffix != ".pyc"]
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    packed = {name for name in names if ".data/" not in name}
    pages = {name.rpartition("/")[2] for name in names if ".data/data/share/man/man1/" in name}
    assert pages == (man.pages().keys() if package == "fairlead" else set())
    about = {f"{package}/{name}" for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE")}
    assert {path.relative_to(source).as_posix() for path in files} - about == packed


@pytest.mark.slow
@pytest.mark.envoy
@pytest.mark.req("OP-3")
def test_the_wheels_run_the_demo_outside_the_checkout(wheels: dict[str, Path], tmp_path: Path) -> None:
    """The one proof that nothing is left in the checkout: forty seconds, most of them the demo's own."""
    empty = tmp_path / "empty"
    run(sys.executable, "-m", "venv", empty, where=tmp_path)
    run(empty / "bin" / "pip", "install", "--quiet", "--no-index", "--no-deps", *wheels.values(), where=tmp_path)
    # The libraries come from here; a path that a .pth file names has no .pth files of its own, so not Fairlead itself.
    (site,) = empty.glob("lib/python3*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(empty / "bin" / "python", "-c", "import fairlead; print(fairlead.__file__)", where=tmp_path)
    assert Path(where.strip()).is_relative_to(site)
    check_commands(empty / "bin" / "fairlead", tmp_path)
    # As `kubectl fairlead`, with its completion, and its man pages.
    assert run(empty / "bin" / "kubectl-fairlead", "--version", where=tmp_path).split()[-1] == f"v{__version__}"
    assert "Usage: kubectl fairlead plan" in run(empty / "bin" / "kubectl-fairlead", "plan", "--help", where=tmp_path)
    completed = run(empty / "bin" / "kubectl_complete-fairlead", "sta", where=tmp_path)
    assert completed.split() == ["standalone", "status", ":4"]
    assert (empty / "share" / "man" / "man1" / "fairlead.1").is_file()


def check_commands(fairlead: Path, where: Path) -> None:
    """Assert that the program says its version, prints the kinds, and serves traffic in its demo."""
    assert run(fairlead, "--version", where=where).split()[-1] == f"v{__version__}"
    assert "kind: CustomResourceDefinition" in run(fairlead, "crds", where=where)
    assert "requests" in run(fairlead, "demo", "--plain", where=where)


def installed_by_extra(wheels: dict[str, Path]) -> list[str]:
    """Return the arguments of pip that install the extra ``standalone`` with the wheels of this checkout."""
    return ["--find-links", str(wheels["podless"].parent), f"{wheels['fairlead']}[standalone]"]


def interpreters() -> list[Path]:
    """Return a Python of each minor version that we support, as far as this machine has them."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    there: list[Path] = []
    for minor in range(11, 15):
        candidates = [*sorted(versions.glob(f"3.{minor}.*/bin/python3")), shutil.which(f"python3.{minor}")]
        there += [Path(candidate) for candidate in candidates if candidate][:1]
    return there


@pytest.mark.slow
@pytest.mark.envoy
@pytest.mark.timeout(1800)
@pytest.mark.req("OP-3")
@asks_an_index
@pytest.mark.parametrize("python", interpreters() if WITH_INDEX else [Path(sys.executable)], ids=str)
def test_pip_installs_it_with_all_that_it_needs(wheels: dict[str, Path], tmp_path: Path, python: Path) -> None:
    empty = tmp_path / "empty"
    run(python, "-m", "venv", empty, where=tmp_path)
    run(empty / "bin" / "pip", "install", "--quiet", *installed_by_extra(wheels), where=tmp_path, timeout_s=900)
    check_commands(empty / "bin" / "fairlead", tmp_path)


@pytest.mark.slow
@pytest.mark.envoy
@pytest.mark.timeout(1800)
@pytest.mark.req("OP-3")
@asks_an_index
@pytest.mark.skipif(not shutil.which("pipx"), reason="pipx is not installed: apt-get install pipx")
def test_pipx_installs_it_with_all_that_it_needs(wheels: dict[str, Path], tmp_path: Path) -> None:
    find = f"--pip-args=--find-links={wheels['podless'].parent}"
    run("pipx", "install", find, f"{wheels['fairlead']}[standalone]", where=tmp_path, timeout_s=900)
    check_commands(tmp_path / ".local" / "bin" / "fairlead", tmp_path)
