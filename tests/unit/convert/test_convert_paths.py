"""Which match and rewrite a path becomes."""

from __future__ import annotations

from typing import Any

import pytest
from convert_builders import convert, ingress, path, remarks, rules


def converted(value: str, path_type: str = "ImplementationSpecific", **annotations: Any) -> tuple[str, str, str]:
    """Return type and value of the match, and what the path is changed to."""
    (rule,) = rules(convert(ingress(hosts={"a.example.com": [path(value, path_type=path_type)]}, **annotations)))
    (match,) = rule.matches or []
    assert match.path is not None
    rewrites = [each.url_rewrite.path for each in rule.filters or () if each.url_rewrite]
    changed = [f"{each.replace_full_path or ''}{each.replace_prefix_match or ''}" for each in rewrites if each]
    return match.path.type or "", match.path.value or "", "".join(changed)


@pytest.mark.req("E-35", "GI-2")
@pytest.mark.parametrize(
    ("value", "path_type", "annotations", "expected"),
    [
        ("/a", "Exact", {}, ("Exact", "/a", "")),
        ("/a", "Prefix", {}, ("PathPrefix", "/a", "")),
        ("", "ImplementationSpecific", {}, ("PathPrefix", "/", "")),
        ("/a", "Prefix", {"rewrite_target": "/"}, ("PathPrefix", "/a", "/")),
        ("/a", "Exact", {"rewrite_target": "/b"}, ("Exact", "/a", "/b")),
        ("/a(/|$)(.*)", "Prefix", {"rewrite_target": "/$2"}, ("PathPrefix", "/a", "/")),
        ("/a/(.*)", "Prefix", {"rewrite_target": "/b/$1"}, ("PathPrefix", "/a", "/b")),
        ("/a/?(.*)$", "Prefix", {"rewrite_target": "/$1"}, ("PathPrefix", "/a", "/")),
        ("/(.*)", "Prefix", {"rewrite_target": "/$1"}, ("PathPrefix", "/", "")),
        ("/x[0-9]+", "Prefix", {"use_regex": "true"}, ("RegularExpression", "(?i)/x[0-9]+.*", "")),
        ("^/x.*", "Prefix", {"use_regex": "true"}, ("RegularExpression", "(?i)/x.*", "")),
        ("/x|/y$", "Prefix", {"use_regex": "true"}, ("RegularExpression", "(?i)/x|/y", "")),
        ("/plain", "Prefix", {"use_regex": "true"}, ("PathPrefix", "/plain", "")),
    ],
)
def test_paths(value: str, path_type: str, annotations: dict[str, Any], expected: tuple[str, str, str]) -> None:
    assert converted(value, path_type, **annotations) == expected


@pytest.mark.parametrize(
    ("value", "target"), [("/(a|b)/(.*)", "/$2"), ("/a(/|$)(.*)", "/$1/$2"), ("/a", "/$1"), ("/a(/|$)(.*)", "/x$2")]
)
def test_a_path_that_would_do_something_else_is_left_out(value: str, target: str) -> None:
    hosts = {"a.example.com": [path(value), path("/kept(/|$)(.*)")]}
    conversion = convert(ingress(hosts=hosts, rewrite_target=target))
    assert any(each.startswith(f"path {value}:") for each in remarks(conversion))
    assert not any(
        match.path and match.path.value == value
        for route in conversion.objects[1:]
        for rule in route[1].spec.rules or ()  # type: ignore[attr-defined]
        for match in rule.matches
    )
