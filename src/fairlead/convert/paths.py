"""The paths of a host of ingress-nginx as matches and path modifiers, in nginx's order.

    literal mode   the longest path wins; a path that ends with / has a redirect from the one without
    regex mode     where one path of a host, of whatever Ingress, has use-regex or a rewrite: each path of the host is a
                   regular expression for the beginning of the request's path, without regard to case; the first
                   that matches wins, longest text first

    /api            rewrite-target /        every request that begins with /api asks for /: ReplaceFullPath
    /api(/|$)(.*)   rewrite-target /$2      the prefix is cut off: ReplacePrefixMatch
    /v[0-9]+/x      use-regex               RegularExpression

In: paths, and the annotations of their Ingresses. Out: a ``ConvertedPath`` for each, or None where Gateway API has no
equal, with a remark. Source: internal/ingress/controller/template/template.go of ingress-nginx.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import re2

from fairlead.api.gateway_routes import HTTPPathMatch, PathModifierSpec, RedirectFilter
from fairlead.api.ingress import IngressObject, IngressPath
from fairlead.api.meta import ObjectKey
from fairlead.convert.annotations import flag_of
from fairlead.convert.nginx import is_request_path, redirect_to
from fairlead.convert.remarks import Remarks

_PLAIN = r"(?:/[A-Za-z0-9._~!&',;=:@%-]+)*"
_LITERAL = re.compile(rf"{_PLAIN}/?")
#: A prefix, then everything behind it in a group of the number that the target names; and what PathPrefix does else.
_CUT = (
    (re.compile(rf"\^?(?P<prefix>{_PLAIN})\(/\|\$\)\(\.\*\)\$?"), "$2", "letters of another case are not matched"),
    (re.compile(rf"\^?(?P<prefix>{_PLAIN})/\(\.\*\)\$?"), "$1", "the path without / is matched too, another case not"),
    (re.compile(rf"\^?(?P<prefix>{_PLAIN})/\?\(\.\*\)\$?"), "$1", "longer names and another case are not matched"),
)
#: The beginning of an expression up to the first character that does not stand for itself.
_HEAD = re.compile(r"\^?(?P<literal>[^.^$*+?()\[\]{}|\\]*)(?P<next>.?)", re.DOTALL)
#: A group, a class or an escaped character, which alternatives may be in; innermost groups first.
_NESTED = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\([^()\[\\]*\)")
_URL = ("http://", "https://", "$scheme")
_RE2: Any = re2
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class ConvertedPath(msgspec.Struct, frozen=True):
    """The path of a match, and how it is changed on its way to the backend, or redirected; None: not at all."""

    match: HTTPPathMatch
    change: PathModifierSpec | None = None
    redirect: RedirectFilter | None = None


class PathOfHost(msgspec.Struct, frozen=True):
    """A path of a host, with the Ingress that it is of and what it becomes."""

    ingress: ObjectKey
    value: str
    converted: ConvertedPath


def needs_regex(path: IngressPath, annotations: Mapping[str, str]) -> bool:
    """Return whether a path makes nginx match all paths of its host as regular expressions."""
    target = annotations.get("rewrite-target", "")
    return flag_of(annotations, "use-regex") or (bool(target) and target != (path.path or "/"))


def nginx_order(value: str) -> tuple[int, tuple[int, ...]]:
    """Return a sort key: nginx tries the longest path first, then the last one by its characters."""
    return -len(value), tuple(-ord(each) for each in value)


def convert_path(
    ingress: IngressObject, path: IngressPath, annotations: Mapping[str, str], remarks: Remarks, *, regex: bool
) -> ConvertedPath | None:
    """Return ``path`` converted; None, with a remark, when no rule of Gateway API has the same effect as in nginx.

    ``regex``: the host is in regex mode.
    """
    value = path.path or "/"
    if not regex:
        return _literal(ingress, path, value, remarks)
    target = annotations.get("rewrite-target", "")
    if target == value:
        target = ""
    if "$" in target:
        return _cut(ingress, value, target, remarks)
    if target.startswith(_URL):
        redirect = redirect_to(target, 302)
        if redirect is None:
            return _lost(ingress, value, f"rewrite-target {target} is more than a RequestRedirect can express", remarks)
        return _matched(ingress, value, ConvertedPath(HTTPPathMatch(), redirect=redirect), remarks)
    if target and not is_request_path(target):
        return _lost(ingress, value, f"rewrite-target {target} is not a path", remarks)
    change = PathModifierSpec("ReplaceFullPath", replace_full_path=target) if target else None
    return _matched(ingress, value, ConvertedPath(HTTPPathMatch(), change), remarks)


def overtaking(paths: Sequence[PathOfHost]) -> Iterable[tuple[PathOfHost, PathOfHost]]:
    """Yield each path of a host in regex mode that a Gateway would try before one that nginx tries first.

    Fairlead and other implementations try expressions before prefixes, and the longer of two first.
    """
    in_order = sorted(paths, key=lambda each: nginx_order(each.value))
    for number, later in enumerate(in_order):
        for first in in_order[:number]:
            a, b = _rank(first), _rank(later)
            # Within one Ingress, rules are in nginx's order, which decides where the rank does not.
            if (b < a or (a == b and first.ingress != later.ingress)) and _overlap(first.value, later.value):
                yield later, first
                break


def _literal(ingress: IngressObject, path: IngressPath, value: str, remarks: Remarks) -> ConvertedPath:
    if path.path_type == "Exact":
        return ConvertedPath(HTTPPathMatch("Exact", value))
    if path.path_type != "Prefix" and not value.endswith("/"):
        why = f"nginx takes longer names such as {value}x too, and PathPrefix whole names only: use pathType Prefix"
        remarks.lost(ingress, f"path {value}", why)
    return ConvertedPath(HTTPPathMatch("PathPrefix", value))


def _matched(ingress: IngressObject, value: str, converted: ConvertedPath, remarks: Remarks) -> ConvertedPath | None:
    """Return ``converted`` with the match of ``value`` as an expression for the beginning of a path."""
    if value == "/":
        return msgspec.structs.replace(converted, match=HTTPPathMatch("PathPrefix", "/"))
    if problem := _expression_problem(value):
        return _lost(ingress, value, problem, remarks)
    if not _LITERAL.fullmatch(value):
        remarks.note(ingress, f"path {value}", "regular expressions are matched as the implementation does: RE2 here")
    # Nothing is shortened: the length of the text decides which of two expressions goes first.
    return msgspec.structs.replace(converted, match=HTTPPathMatch("RegularExpression", f"(?i){value}.*"))


def _expression_problem(value: str) -> str:
    rest = value
    while (shorter := _NESTED.sub("", rest)) != rest:
        rest = shorter
    if "|" in rest:
        return "the alternatives are not in a group, so nginx matches the last ones anywhere in a path"
    return re2_problem(value)


def re2_problem(expression: str) -> str:
    """Return why RE2 does not compile an expression of nginx; empty when it does."""
    try:
        _RE2.compile(expression.encode(), _OPTIONS)
    except _RE2.error:
        return "RE2 has no lookaround, backreferences or other syntax of PCRE"
    return ""


def _cut(ingress: IngressObject, value: str, target: str, remarks: Remarks) -> ConvertedPath | None:
    for pattern, group, otherwise in _CUT:
        matched = pattern.fullmatch(value)
        if matched is None or not target.endswith(f"/{group}") or "$" in target.removesuffix(group):
            continue
        prefix, new = matched["prefix"] or "/", target.removesuffix(group)
        match, redirect, change = HTTPPathMatch("PathPrefix", prefix), None, None
        if new.startswith(_URL):
            redirect = redirect_to(new, 302, keep_rest=True)
            if redirect is None:
                break
        elif not is_request_path(new):
            break
        elif (new := new.removesuffix("/") or "/") != prefix:
            change = PathModifierSpec("ReplacePrefixMatch", replace_prefix_match=new)
        if prefix != "/":
            remarks.lost(ingress, f"path {value}", f"of PathPrefix {prefix}, {otherwise}")
        return ConvertedPath(match, change, redirect)
    return _lost(ingress, value, f"rewrite-target {target} is more than a prefix that is replaced", remarks)


def _lost(ingress: IngressObject, value: str, why: str, remarks: Remarks) -> None:
    remarks.lost(ingress, f"path {value}", f"{why}; the path is left out")


def _rank(path: PathOfHost) -> tuple[int, int]:
    match = path.converted.match
    if match.type == "RegularExpression":
        return 0, -len(match.value or "")
    return (2, 0) if match.value == "/" else (1, -len(match.value or ""))


def _overlap(first: str, second: str) -> bool:
    """Return whether one request may match both expressions; in doubt it may."""
    a, b = _head(first), _head(second)
    return a.startswith(b) or b.startswith(a)


def _head(value: str) -> str:
    match = _HEAD.match(value)
    if match is None:
        return ""
    literal = match["literal"].lower()
    return literal[:-1] if match["next"] in {"*", "?", "{"} else literal
