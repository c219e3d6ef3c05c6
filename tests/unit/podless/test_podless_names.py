"""Names, keys and labels."""

import pytest

from podless.kinds.names import check_key, check_labels, check_name


@pytest.mark.parametrize(
    ("value", "style", "good"),
    [
        ("a-b", "dns1035", True),
        ("1a", "dns1035", False),
        ("1a", "label", True),
        ("a.b", "subdomain", True),
        ("a.b", "label", False),
        ("a..b", "subdomain", False),
        ("x" * 254, "subdomain", False),
        ("system:x", "path", True),
        ("a/b", "path", False),
        ("..", "path", False),
    ],
)
def test_names(value: str, style: str, good: bool) -> None:
    assert (check_name(value, style, "metadata.name") == []) is good


@pytest.mark.parametrize("key", ["a", "a/b", "example.com/A_b.c"])
def test_legal_keys(key: str) -> None:
    assert check_key(key, "x") == []


@pytest.mark.parametrize("key", ["", "a/", "UP.com/a", "x" * 64, "-a", "a b"])
def test_illegal_keys(key: str) -> None:
    assert check_key(key, "x")


def test_label_values() -> None:
    assert check_labels({"a": "", "b": "X_y.z"}, "l") == []
    assert len(check_labels({"a": "x" * 64, "b": "no spaces"}, "l")) == 2
