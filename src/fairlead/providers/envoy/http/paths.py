"""Replaces the path of a request, in a rewrite or in a redirect.

In: a PathModifier and the path that the rule matches. Out: fields with the same names in RouteAction and
RedirectAction, but for the whole path. Query parameters stay. Requirements G-72, G-74, G-108.
"""

from __future__ import annotations

import re

from fairlead.model.http import PathMatch, PathModifier
from fairlead.providers.envoy.http.precedence import is_every_path
from fairlead.providers.envoy.http.route_match import prefix_of
from fairlead.providers.envoy.schema import Fields

_WHOLE_PATH = "(?s)^.+$"


def rewrite_fields(modifier: PathModifier, path: PathMatch) -> Fields:
    """Build what changes the path towards the backend."""
    if modifier.type == "ReplaceFullPath":
        return _regex(_WHOLE_PATH, modifier.value or "/")
    return _prefix(modifier.value, path)


def redirect_fields(modifier: PathModifier, path: PathMatch) -> Fields:
    """Build what changes the path of the new location."""
    if modifier.type == "ReplaceFullPath":
        return {"path_redirect": modifier.value or "/"}
    return _prefix(modifier.value, path)


def removed_prefix(path: PathMatch) -> str:
    """Return the expression of what a slash takes the place of when the prefix is removed."""
    return f"^{re.escape(prefix_of(path))}/*"


def _prefix(value: str, path: PathMatch) -> Fields:
    new = value.rstrip("/")
    if is_every_path(path):
        return {"prefix_rewrite": f"{new}/"}
    if not new:
        # prefix_rewrite would leave two slashes at the beginning.
        return _regex(removed_prefix(path), "/")
    return {"prefix_rewrite": new}


def _regex(pattern: str, value: str) -> Fields:
    substitution = value.replace("\\", "\\\\")
    return {"regex_rewrite": {"pattern": {"regex": pattern}, "substitution": substitution}}
