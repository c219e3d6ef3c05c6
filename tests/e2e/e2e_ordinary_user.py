"""Run a command as an ordinary user would, also where the tests are run by root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

#: Another user id with the files of this one, in a user namespace; without these, root without any capability.
_WAYS = (
    ("unshare", "--user", "--map-user=1000", "--map-group=1000"),
    ("setpriv", "--bounding-set=-all", "--inh-caps=-all"),
)


def as_ordinary_user(command: Sequence[str]) -> list[str]:
    """Return the command line that runs ``command`` without the rights of root."""
    if os.geteuid() != 0:
        return list(command)
    for way in _WAYS:
        if subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0:
            return [*way, *command]
    raise AssertionError("neither a user namespace nor dropped capabilities: util-linux is needed for this test")
