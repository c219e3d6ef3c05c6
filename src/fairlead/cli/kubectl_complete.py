"""Completion of ``kubectl fairlead ...``: kubectl runs ``kubectl_complete-fairlead`` with what was typed so far.

In: the arguments after ``fairlead``; the last one is to be completed and may be empty. Out: one candidate a line,
and a directive. Never: an error; a shell that completes has no place for it.
Source: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence

#: Files are not candidates (cobra's ShellCompDirectiveNoFileComp).
NO_FILES = ":4"


def as_bash_asks(typed: Sequence[str]) -> Mapping[str, str]:
    """Return the environment in which bash asks the program for the candidates of the last argument."""
    line = ["fairlead", *(typed or [""])]
    return {"_FAIRLEAD_COMPLETE": "complete_bash", "COMP_WORDS": shlex.join(line), "COMP_CWORD": str(len(line) - 1)}


def main() -> None:
    """Print the candidates for the arguments of this process."""
    from fairlead.cli.main import app
    from fairlead.cli.run import run_app

    os.environ.update(as_bash_asks(sys.argv[1:]))
    sys.argv[1:] = []
    with contextlib.suppress(SystemExit):
        run_app(app)
    sys.stdout.write(f"{NO_FILES}\n")
