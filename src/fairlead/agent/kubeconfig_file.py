"""Writes a renewed token into the kubeconfig that has the old one, readable by its owner alone.

In: the kubeconfig's files, the old token and the new one. Out: the file with nothing else changed, or why not.
Never: writes a file whose token has been replaced by another process, or touches anything but the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairlead.runtime.private_file import write_private


def replace_token(files: Sequence[Path], old: str, new: str) -> str:
    """Replace ``old`` in the first file that has it; return why that cannot be done, empty when it was.

    Between reading and replacing the file nothing waits, so that a key that is put there at the same time is not
    overwritten by the renewal of an older one.
    """
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
            if old not in text:
                continue
            write_private(path, text.replace(old, new))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            return f"The kubeconfig {path} cannot be written ({reason})"
        return ""
    names = ", ".join(map(str, files)) or "none"
    return f"The token that was renewed is no longer in the kubeconfig ({names})"
