"""Validation of DNS names, and the next step for an invalid one."""

from __future__ import annotations

import pytest

from fairlead.api.hostname import host_problem, is_within, wildcards_over


@pytest.mark.parametrize("name", ["a", "a.b", "xn--bcher-kva.example", "1.example.com", "a" * 63 + ".com"])
def test_names_are_accepted(name):
    assert host_problem(name) == ""


@pytest.mark.req("KI-10")
@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("", "shop.example.com"),
        ("bücher.example", "write it as xn--bcher-kva.example"),
        ("Shop.example.com", "write shop.example.com"),
        ("shop.example.com.", "write shop.example.com"),
        ("a" * 64 + ".com", "64 characters, and DNS allows 63"),
        (".".join(["a" * 50] * 6), "305 characters, and DNS allows 253"),
        ("-a.com", "no hyphen at either end"),
        ("a..com", "no hyphen at either end"),
        ("a b.com", "letters, digits and hyphens"),
        ("*.example.com", "without"),
    ],
)
def test_others_are_refused_with_the_next_step(name, step):
    assert step in host_problem(name)


def test_an_asterisk_is_the_whole_first_label():
    assert host_problem("*.example.com", wildcard=True) == ""
    for name in ("a.*.com", "*a.com", "*"):
        assert "asterisk" in host_problem(name, wildcard=True), name


def test_the_wildcards_over_a_name_are_those_of_its_parents():
    assert list(wildcards_over("a.b.com")) == ["*.b.com", "*.com"]
    assert list(wildcards_over("*.b.com")) == ["*.com"]
    assert list(wildcards_over("com")) == []


def test_a_domain_has_its_sub_names():
    assert is_within("b.example", "b.example")
    assert is_within("a.b.example", "b.example")
    assert is_within("*.b.example", "b.example")
    assert not is_within("ab.example", "b.example")
    assert not is_within("example", "b.example")
