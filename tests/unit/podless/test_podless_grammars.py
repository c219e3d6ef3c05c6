"""The grammars of labels and CIDRs, which Podless and Fairlead each have: both give the same answers."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.api.annotations import parse_cidr
from fairlead.api.selectors import BadSelector, Selector, parse_selector
from podless.failure import ApiFailure
from podless.kinds.service_rules import cidr_warnings
from podless.selectors import parse_labels

_TOKENS = st.sampled_from(
    ["a", "b", "x/a", "1", "-2", "=", "==", "!=", "!", "in", "notin", "(", ")", ",", "<", ">", " "]
)
_SELECTORS = st.lists(_TOKENS, max_size=9).map(" ".join)
_PARTS = st.sampled_from(
    ["10", "0", "010", "5", "255", "::", "ffff:", "2001:db8::", ".", "/", "24", "128", "8", "%", " "]
)
_CIDRS = st.lists(_PARTS, max_size=9).map("".join)


@given(_SELECTORS, st.dictionaries(st.sampled_from(["a", "b", "x/a"]), st.sampled_from(["1", "7", "a"])))
@example("a in (1, a), !b, x/a>1", {"a": "1", "x/a": "7"})
def test_both_read_a_label_selector_alike(text: str, labels: dict[str, str]) -> None:
    verdicts: list[bool | None] = [None, None]
    with suppress(BadSelector):
        selector = parse_selector(text) if text.strip() else Selector(())
        verdicts[0] = selector.matches(labels)
    with suppress(ApiFailure):
        verdicts[1] = all(term.matches(labels) for term in parse_labels(text))
    assert verdicts[0] is verdicts[1]


@given(_CIDRS)
@example("::ffff:10.0.0.5/120")
@example("010.0.0.5/08")
@example("2001:DB8::/32")
def test_both_read_a_cidr_alike(text: str) -> None:
    cidr = parse_cidr(text)
    assert cidr_warnings(text) == (None if cidr is None else list(cidr.warnings))
