"""Hooks of the documentation site: the README becomes its first page, and links stay within the site.

In: pages of the repository. Out: the same for MkDocs, which calls these two functions. A link to a file
that is not a page, such as a manifest, becomes its path.
"""

from __future__ import annotations

import importlib
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
_INDEX = "index.md"


def on_files(files: Any, config: Any) -> Any:
    """Add the README as index.md; its links begin at the root, those of a page at docs."""
    # By name: the tools of checks do not have MkDocs.
    pages: Any = importlib.import_module("mkdocs.structure.files")
    readme = Path(config["docs_dir"]).parent / "README.md"
    text = re.sub(r"\]\(docs/", "](", readme.read_text(encoding="utf-8"))
    files.append(pages.File.generated(config, _INDEX, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001 - as MkDocs calls it
    """Return the page with links that lead to pages of the site only."""
    return with_links_inside(markdown, page.file.src_uri, lambda path: files.get_file_from_path(path) is not None)


def with_links_inside(markdown: str, source: str, is_page: Callable[[str], bool]) -> str:
    """Return the text of the page ``source`` with each link to another file replaced by the path of the file."""
    here = posixpath.dirname(source)

    def linked(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        there = posixpath.normpath(posixpath.join(here, target))
        if is_page(there):
            return match[0]
        # A directory of pages leads to its first one.
        if is_page(posixpath.join(there, "README.md")):
            return f"[{text}]({posixpath.join(target, 'README.md')}{anchor})"
        path = there if source == _INDEX else posixpath.normpath(posixpath.join("docs", there))
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return _LINK.sub(linked, markdown)
