"""Completion of ``kubectl fairlead ...``: kubectl runs ``kubectl_complete-fairlead`` with what was typed so far.

In: the words after ``fairlead``, the last of which is to be completed and may be empty. Out: one candidate a line, and
a directive. Never: an error; a shell that completes has no place for it.
Source: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

#: Files are no candidates (cobra's ShellCompDirectiveNoFileComp).
NO_FILES = ":4"


def candidates(typed: Sequence[str]) -> list[str]:
    """Return what the last of what was typed may become: commands, options, and names of objects."""
    import typer
    from click.shell_completion import ShellComplete

    from fairlead.cli.main import app

    *before, incomplete = typed or [""]
    completion = ShellComplete(typer.main.get_command(app), {}, "fairlead", "_FAIRLEAD_COMPLETE")
    return [item.value for item in completion.get_completions(before, incomplete)]


def main() -> None:
    """Print the candidates for the arguments of this process."""
    sys.stdout.write("".join(f"{line}\n" for line in (*candidates(sys.argv[1:]), NO_FILES)))
