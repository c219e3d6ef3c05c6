"""Label selectors."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.apiserver.selectors import parse_labels


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")), st.sampled_from("abc"), st.sampled_from("xyz"))
def test_selectors_and_their_opposites(labels: dict[str, str], key: str, value: str) -> None:
    def matches(text: str) -> bool:
        return parse_labels(text).matches(labels)

    assert matches(f"{key}={value}") is not matches(f"{key}!={value}")
    assert matches(f"{key} in ({value})") is not matches(f"{key} notin ({value})")
    assert matches(key) is not matches(f"!{key}")
