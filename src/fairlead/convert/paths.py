"""A path of an Ingress with ``use-regex`` and ``rewrite-target`` as a match and a path modifier.

    /api            rewrite-target /        every request below /api asks for /: ReplaceFullPath
    /api(/|$)(.*)   rewrite-target /$2      the prefix is cut off: ReplacePrefixMatch
    /v[0-9]+/x      use-regex               RegularExpression, without regard to case, as nginx does

In: a path, and the annotations. Out: a ``ConvertedPath``, or None where Gateway API cannot say it, with a remark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from fairlead.api.gateway_routes import HTTPPathMatch, PathModifierSpec
from fairlead.api.ingress import IngressObject, IngressPath
from fairlead.convert.remarks import Remarks

_PLAIN = r"(?:/[A-Za-z0-9._~!&',;=:@%-]+)*"
_LITERAL = re.compile(rf"{_PLAIN}/?")
#: A prefix, then everything behind it in a group of the number that the target names.
_CUT = (
    (re.compile(rf"\^?(?P<prefix>{_PLAIN})\(/\|\$\)\(\.\*\)\$?"), "$2"),
    (re.compile(rf"\^?(?P<prefix>{_PLAIN})/\(\.\*\)\$?"), "$1"),
    (re.compile(rf"\^?(?P<prefix>{_PLAIN})/\?\(\.\*\)\$?"), "$1"),
)


class ConvertedPath(msgspec.Struct, frozen=True):
    """The path of a match, and how it is changed on its way to the backend; None: not at all."""

    match: HTTPPathMatch
    change: PathModifierSpec | None = None


def convert_path(
    ingress: IngressObject, path: IngressPath, annotations: Mapping[str, str], remarks: Remarks
) -> ConvertedPath | None:
    """Return ``path`` converted; None when no rule of Gateway API has the same effect as in nginx."""
    target = annotations.get("rewrite-target", "")
    value = path.path or "/"
    if target or annotations.get("use-regex") == "true":
        return _with_regex(ingress, value, exact=path.path_type == "Exact", target=target, remarks=remarks)
    return ConvertedPath(HTTPPathMatch("Exact" if path.path_type == "Exact" else "PathPrefix", value))


def _with_regex(
    ingress: IngressObject, value: str, *, exact: bool, target: str, remarks: Remarks
) -> ConvertedPath | None:
    if _LITERAL.fullmatch(value):
        match = HTTPPathMatch("Exact" if exact else "PathPrefix", value)
        if "$" in target:
            remarks.lost(ingress, f"path {value}", f"rewrite-target {target} names a group that the path has not")
            return None
        return ConvertedPath(match, _whole(target) if target else None)
    if target:
        return _cut(ingress, value, target, remarks)
    regex = value.removeprefix("^")
    regex = regex[:-1] if regex.endswith("$") else regex if regex.endswith(".*") else f"{regex}.*"
    remarks.note(ingress, f"path {value}", "regular expressions are matched as the implementation does: RE2 here")
    return ConvertedPath(HTTPPathMatch("RegularExpression", f"(?i){regex}"))


def _cut(ingress: IngressObject, value: str, target: str, remarks: Remarks) -> ConvertedPath | None:
    for pattern, group in _CUT:
        matched = pattern.fullmatch(value)
        if matched is not None and target.endswith(f"/{group}") and "$" not in target.removesuffix(group):
            prefix, new = matched["prefix"] or "/", target.removesuffix(f"/{group}") or "/"
            match = HTTPPathMatch("PathPrefix", prefix)
            if prefix == new:
                return ConvertedPath(match)
            return ConvertedPath(match, PathModifierSpec("ReplacePrefixMatch", replace_prefix_match=new))
    why = f"rewrite-target {target} is more than a prefix that is replaced; the path is left out"
    remarks.lost(ingress, f"path {value}", why)
    return None


def _whole(target: str) -> PathModifierSpec:
    return PathModifierSpec("ReplaceFullPath", replace_full_path=target)
