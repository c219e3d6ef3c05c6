"""Who is this hub replica? The same after a restart in the same data directory, and never the same as another's.

A hub that is killed gets its own lease back at once because of that. The caller holds the directory's lock, so that
two processes never share a name.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from fairlead.errors import BadConfiguration

_FILE = "identity"


def new_identity() -> str:
    """Make up a name for one process: where it runs, and something that nobody else has."""
    return f"{os.uname().nodename}-{secrets.token_hex(4)}"


def kept_identity(data_dir: Path) -> str:
    """Return the name kept in ``data_dir``, made up at the first time.

    Raises:
        BadConfiguration: it can neither be read nor written.
    """
    path = data_dir / _FILE
    try:
        kept = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        if not kept:
            kept = new_identity()
            data_dir.mkdir(parents=True, exist_ok=True)
            path.write_text(kept + "\n", encoding="utf-8")
    except OSError as error:
        raise BadConfiguration(
            f"--data-dir: {path} cannot be used ({error.strerror}); make the directory writable or choose another"
        ) from error
    return kept
