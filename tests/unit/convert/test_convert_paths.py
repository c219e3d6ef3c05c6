"""Which match and rewrite a path becomes."""

from __future__ import annotations

from typing import Any

import pytest
from convert_builders import convert, ingress, path, remarks, rules

from fairlead.api.gateway import HTTPPathMatch, PathModifierSpec


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
        ("/a", "Prefix", {"rewrite_target": "/"}, ("RegularExpression", "(?i)/a.*", "/")),
        ("/a", "Exact", {"rewrite_target": "/b"}, ("RegularExpression", "(?i)/a.*", "/b")),
        ("/a", "Exact", {"rewrite_target": "/a"}, ("Exact", "/a", "")),
        ("/a(/|$)(.*)", "Prefix", {"rewrite_target": "/$2"}, ("PathPrefix", "/a", "/")),
        ("/a/(.*)", "Prefix", {"rewrite_target": "/b/$1"}, ("PathPrefix", "/a", "/b")),
        ("/a/?(.*)$", "Prefix", {"rewrite_target": "/$1"}, ("PathPrefix", "/a", "/")),
        ("/(.*)", "Prefix", {"rewrite_target": "/$1"}, ("PathPrefix", "/", "")),
        ("/x[0-9]+", "Prefix", {"use_regex": "true"}, ("RegularExpression", "(?i)/x[0-9]+.*", "")),
        ("^/x.*", "Prefix", {"use_regex": "true"}, ("RegularExpression", "(?i)^/x.*.*", "")),
        ("/(x|y)$", "Prefix", {"use_regex": "true"}, ("RegularExpression", "(?i)/(x|y)$.*", "")),
        ("/plain", "Exact", {"use_regex": "true"}, ("RegularExpression", "(?i)/plain.*", "")),
        ("/", "Exact", {"use_regex": "true"}, ("PathPrefix", "/", "")),
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


@pytest.mark.req("L7-7")
@pytest.mark.parametrize(
    ("value", "target", "expected"),
    [
        ("/a(/|$)(.*)", "https://b.org/$2", ("ReplacePrefixMatch", "/")),
        ("/a/(.*)", "http://b.org:81/x/$1", ("ReplacePrefixMatch", "/x/")),
        ("/a", "https://b.org/x", ("ReplaceFullPath", "/x")),
    ],
)
def test_a_rewrite_to_a_url_is_a_redirect(value: str, target: str, expected: tuple[str, str]) -> None:
    (rule,) = rules(convert(ingress(hosts={"a.example.com": [path(value)]}, rewrite_target=target)))
    (redirect,) = [each.request_redirect for each in rule.filters or ()]
    assert redirect is not None
    assert redirect.path is not None
    assert (redirect.status_code, redirect.scheme, redirect.hostname) == (302, target.partition(":")[0], "b.org")
    assert (redirect.path.type, redirect.path.replace_full_path or redirect.path.replace_prefix_match) == expected
    assert not rule.backend_refs


@pytest.mark.req("L7-6")
@pytest.mark.parametrize("path_type", ["Exact", "Prefix", "ImplementationSpecific"])
def test_a_path_with_a_slash_is_where_the_one_without_is_redirected(path_type: str) -> None:
    first, second = rules(convert(ingress(hosts={"a.example.com": [path("/a/", path_type=path_type)]})))
    (redirect,) = [each.request_redirect for each in first.filters or ()]
    assert redirect is not None
    assert redirect.path == PathModifierSpec("ReplaceFullPath", "/a/")
    assert [match.path for match in first.matches or ()] == [HTTPPathMatch("Exact", "/a")]
    assert second.backend_refs
    both = convert(ingress(hosts={"a.example.com": [path("/a/", path_type=path_type), path("/a", path_type="Exact")]}))
    assert len(rules(both)) == 2, "nginx does not redirect a path that has a location of its own"


@pytest.mark.req("L7-6")
def test_longer_names_of_an_implementation_specific_path_are_listed() -> None:
    assert not convert(ingress(hosts={"a.example.com": [path("/a", path_type="ImplementationSpecific")]})).lossless
    assert convert(ingress(hosts={"a.example.com": [path("/", path_type="ImplementationSpecific")]})).lossless
