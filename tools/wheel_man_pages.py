"""A build hook of the wheel of Fairlead: man pages that ``make wheels`` has written become files of the wheel.

In: ``build/man``. A wheel that pip builds from a clone has no man pages: writing them needs what Fairlead needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface):  # pyright: ignore[reportMissingTypeArgument]
    """Adds the man pages, if they exist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the directory of the man pages to the data of the wheel."""
        pages = Path(self.root) / "build" / "man"
        if version != "editable" and pages.is_dir():
            build_data["shared_data"][str(pages)] = "share/man/man1"
