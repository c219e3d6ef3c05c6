"""Names of PoolServices, and which Service and pool each is for."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from regions_builders import RegionKey, pool_service, service

from fairlead.api.poolservice import PoolService
from fairlead.regions.source import pool_service_names, region_of

NAMES = st.from_regex(r"[a-z]([-a-z]{0,6}[a-z])?", fullmatch=True)


@pytest.mark.req("O-28", "W-O-1", "W-O-12")
@given(NAMES, NAMES, NAMES, NAMES)
def test_two_pairs_never_share_their_second_name(a: str, b: str, c: str, d: str) -> None:
    first, other = pool_service_names(a, b, "x"), pool_service_names(c, d, "x")
    assert first[0] == f"{a}-{b}"
    if (a, b) != (c, d):
        assert first[1] != other[1]
        assert first[2] != other[2]


@pytest.mark.req("W-O-12")
def test_names_are_never_too_long() -> None:
    for each in pool_service_names("s" * 63, "p" * 253, "class"):
        assert len(each) <= 253


@pytest.mark.req("O-42", "W-O-8")
@pytest.mark.parametrize("tampered", ["labels", "references", "pool", "class", "both labels and references"])
def test_one_of_ours_is_known_whatever_one_part_of_it_says(tampered: str) -> None:
    given = pool_service("test", "np1", of=service())
    wrong = {**(given.metadata.labels or {}), "openyurt.io/service-name": "mock", "openyurt.io/pool-name": "np9"}
    meta = given.metadata
    if "labels" in tampered:
        meta = msgspec.structs.replace(meta, labels=wrong)
    if "references" in tampered:
        meta = msgspec.structs.replace(meta, owner_references=None)
    spec = given.spec
    if tampered == "pool":
        spec = msgspec.structs.replace(spec, nodepool_name="np9")
    if tampered == "class":
        spec = msgspec.structs.replace(spec, load_balancer_class="other")
    assert region_of(PoolService(metadata=meta, spec=spec)) == RegionKey("default", "test", "np1")
