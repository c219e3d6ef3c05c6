"""deploy/systemd: units that systemd accepts, that are locked down, and that call the program as it is.

systemd itself does not run in tests, so what a unit's sandbox forbids is not tried here: `systemd-analyze` reads it.
"""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import typer

from fairlead.cli.main import app
from fairlead.machine.app import NICENESS

UNITS = Path(__file__).parents[3] / "deploy" / "systemd"
#: Those that run as an account of their own, without any right of root.
LOCKED_DOWN = pytest.mark.parametrize("name", ["hub", "agent", "run"])
NAMES = pytest.mark.parametrize("name", ["hub", "agent", "run", "proxy"])
#: What `systemd-analyze security` gives a unit, from 0 (all is forbidden) to 100; an ordinary service has 96.
#: A proxy machine changes addresses and routes.
EXPOSED_AT_MOST = {"hub": 25, "agent": 25, "run": 25, "proxy": 40}


def service(name: str) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNITS / f"fairlead-{name}.service")
    return parser["Service"]


@NAMES
@pytest.mark.req("OP-4")
def test_a_unit_calls_the_program_with_options_that_it_has(name: str) -> None:
    program, verb, *options = shlex.split(service(name)["ExecStart"])
    root: Any = typer.main.get_command(app)
    command = root.commands[verb]
    if hasattr(command, "commands"):
        command = command.commands[options.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    assert (Path(program).name, verb) == ("fairlead", name)
    assert {option.partition("=")[0] for option in options if option.startswith("--")} <= known
    assert options[-1] == "$FAIRLEAD_OPTIONS"


@LOCKED_DOWN
@pytest.mark.req("OP-4")
def test_envoy_is_left_running_where_there_is_one(name: str) -> None:
    """Without this a restart of the control plane would end the data plane with it."""
    unit = service(name)
    with_envoy = name != "agent"
    assert unit.get("KillMode") == ("process" if with_envoy else None)
    assert unit.get("AmbientCapabilities") == ("CAP_NET_BIND_SERVICE" if with_envoy else None)


@pytest.mark.req("P-4")
def test_a_proxy_machine_keeps_envoy_and_may_do_what_announcing_needs() -> None:
    unit = service("proxy")
    assert (unit["Type"], unit["KillMode"]) == ("notify", "process")
    assert unit["CapabilityBoundingSet"].split() == ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_NET_BIND_SERVICE"]
    assert {"AF_PACKET", "AF_NETLINK"} <= set(unit["RestrictAddressFamilies"].split())
    assert "ProtectKernelTunables" not in unit, "it sets ip_nonlocal_bind"


@pytest.mark.req("P-12")
def test_a_proxy_machine_runs_before_other_programs() -> None:
    assert int(service("proxy")["Nice"]) == NICENESS


@pytest.fixture
def systemd(tmp_path: Path) -> None:
    """Skip where `systemd-analyze` is missing, too old, or refuses a unit that nothing is wrong with."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd is not installed: apt-get install systemd")
    trivial = tmp_path / "trivial.service"
    trivial.write_text("[Service]\nExecStart=/bin/true\n")
    for arguments in (("verify", "--man=no"), ("security", "--no-pager", "--offline=true", "--threshold=100")):
        if analyze(*arguments, str(trivial)).returncode != 0:
            pytest.skip(f"systemd-analyze {arguments[0]} does not work here; it needs systemd 252 and a writable /run")


@NAMES
@pytest.mark.req("OP-4")
@pytest.mark.usefixtures("systemd")
def test_systemd_accepts_a_unit_and_finds_it_locked_down(name: str, tmp_path: Path) -> None:
    # It looks for the program, which is not in /usr/local/bin here.
    program = Path(sys.executable).with_name("fairlead")
    unit = tmp_path / f"fairlead-{name}.service"
    unit.write_text((UNITS / unit.name).read_text().replace("/usr/local/bin/fairlead", str(program)))
    verified = analyze("verify", "--man=no", str(unit))
    assert verified.returncode == 0, verified.stderr
    assert [line for line in verified.stderr.splitlines() if unit.name in line] == []
    exposed = analyze("security", "--no-pager", "--offline=true", f"--threshold={EXPOSED_AT_MOST[name]}", str(unit))
    assert exposed.returncode == 0, exposed.stdout[-3000:]
    assert re.search(r"Overall exposure level for .*: [0-3]\.\d", exposed.stdout)


@pytest.mark.req("OP-4", "P-16")
@pytest.mark.usefixtures("systemd")
@pytest.mark.parametrize("name", ["hub", "run"])
def test_the_drop_in_of_a_hub_that_announces_fits_its_unit(name: str, tmp_path: Path) -> None:
    page = (UNITS.parents[1] / "docs" / "how-to" / "run-with-systemd.md").read_text()
    (block,) = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    settings = textwrap.dedent(block).strip().removeprefix("[Service]\n").strip()
    unit = tmp_path / f"fairlead-{name}.service"
    text = (UNITS / unit.name).read_text().replace("/usr/local/bin/fairlead", "/bin/true")
    unit.write_text(text.replace("[Install]", f"{settings}\n\n[Install]"))
    assert "ProtectKernelTunables=no" in settings.splitlines(), "it sets ip_nonlocal_bind"
    assert "CAP_NET_ADMIN CAP_NET_RAW" in settings
    verified = analyze("verify", "--man=no", str(unit))
    assert (verified.returncode, [line for line in verified.stderr.splitlines() if unit.name in line]) == (0, [])


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"LANG": "C.UTF-8"},
    )
