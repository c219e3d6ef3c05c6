"""Names that are made from names never collide."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.kubernetes import NAMESPACES, SECRETS
from fairlead.api.names import fit, hub_name, label_value, short_hash
from fairlead.api.times import seconds_from_duration
from fairlead.errors import NotFound

LABEL = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
dns_label = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
dns_name = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=253).map(lambda s: f"a{s}z"[:253])


@pytest.mark.req("KI-5")
class TestCollisions:
    @pytest.mark.parametrize(
        ("first", "other"), [(("a", "b-c"), ("a-b", "c")), (("a", "b"), ("ab", "")), (("x-y", "z"), ("x", "y-z"))]
    )
    def test_b32_where_one_part_ends_matters(self, first, other):
        assert hub_name(*first) != hub_name(*other)
        assert short_hash(*first) != short_hash(*other)

    @given(st.tuples(dns_label, dns_label), st.tuples(dns_label, dns_label))
    def test_two_origins_never_share_a_name(self, first, other):
        assert (hub_name(*first) == hub_name(*other)) == (first == other)

    @given(st.lists(st.text(max_size=4), min_size=1, max_size=3), st.lists(st.text(max_size=4), min_size=1, max_size=3))
    def test_hashes_are_of_parts(self, first, other):
        assert (short_hash(*first) == short_hash(*other)) == (first == other)

    @pytest.mark.parametrize("tail", ["a", "b"])
    def test_names_that_differ_only_at_the_end_differ(self, tail):
        long = "x" * 252
        assert label_value(long + "a") != label_value(long + "b")
        assert label_value(long + tail) != long[:63]


class TestFit:
    @pytest.mark.parametrize("length", [1, 62, 63])
    def test_short_names_stay(self, length):
        assert fit("x" * length) == "x" * length

    @pytest.mark.parametrize("length", [64, 253])
    def test_long_names_are_cut_and_marked(self, length):
        assert len(fit("x" * length)) == 63

    @given(dns_name)
    def test_is_a_label_value_and_always_the_same(self, name):
        assert label_value(name) == label_value(name)
        assert len(label_value(name)) <= 63
        assert len(name) <= 63 or LABEL.match(label_value(name))

    def test_the_identity_decides_when_it_is_given(self):
        long = "x" * 80
        assert fit(long, identity=("a", "b-c")) != fit(long, identity=("a-b", "c"))


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("5m", 300), ("1h", 3600), ("0s", 0)])
def test_durations(text, seconds):
    assert seconds_from_duration(text) == seconds


@pytest.mark.req("CORE-19")
@pytest.mark.parametrize("text", ["99999999h", "999999999999999h"])
def test_no_duration_leads_out_of_the_years_that_times_have(text):
    assert datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds_from_duration(text))


@pytest.mark.parametrize(
    "text", ["", "30", "s", "-1s", "1.5s", "1h30m", "1 s", "1s\n", f"{'9' * 16}s", f"{'9' * 5000}h"]
)
def test_invalid_durations(text):
    with pytest.raises(ValueError, match="is not a duration"):
        seconds_from_duration(text)


@pytest.mark.req("EDGE-17")
@pytest.mark.parametrize("name", ["..", ".", "../../secrets/x", "a/b", "a%2fb", "%2e%2e"])
def test_no_path_of_a_request_leads_to_another_object(name: str) -> None:
    with pytest.raises(NotFound):
        SECRETS.path("shop", name)
    with pytest.raises(NotFound):
        SECRETS.path(name, "tls")
    with pytest.raises(NotFound):
        NAMESPACES.path("", name)
    assert SECRETS.path("shop", "system:a..b").endswith("/namespaces/shop/secrets/system:a..b")
