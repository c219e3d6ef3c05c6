"""Fairlead without its extra ``standalone``: what works, and what a command prints that needs a package of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: The modules of the processes that run in a cluster.
IN_A_CLUSTER = ("hub_process", "agent_process", "controllers")


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python where neither Podless nor the demo can be imported."""
    hidden = "import sys; sys.modules.update({'podless': None, 'fairlead_demo': None}); "
    return subprocess.run([sys.executable, "-c", hidden + code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["demo"], "demo"),
        (["demo", "regions"], "demo"),
        (["apiserver", "--data-dir", "/nonexistent/x"], "Kubernetes API"),
    ],
    ids=" ".join,
)
def test_a_command_names_the_extra_that_it_needs(arguments: list[str], missing: str) -> None:
    done = run(f"sys.argv = ['fairlead', *{arguments}]; from fairlead.cli.main import main; main()")
    assert done.returncode == 2
    assert missing in done.stderr
    assert "fairlead[standalone]" in done.stderr


def test_processes_of_a_cluster_need_no_extra() -> None:
    imports = "; ".join(f"import fairlead.standalone.{name}" for name in IN_A_CLUSTER)
    done = run(f"{imports}; import fairlead.hub.app, fairlead.agent.app, fairlead.doctor")
    assert done.returncode == 0, done.stderr
