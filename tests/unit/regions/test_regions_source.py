"""The Service in a PoolService: canonical, and bounded."""

from __future__ import annotations

import pytest
from regions_builders import service

from fairlead.regions.source import DOCUMENT_LIMIT_BYTES


@pytest.mark.req("O-10")
def test_a_document_is_canonical_and_bounded() -> None:
    given = service(labels={"b": "1", "a": "2"}, annotations={"z.io/a": "1"})
    same = service(labels={"a": "2", "b": "1"}, annotations={"z.io/a": "1"}, finalizers=["x/y"], version="9")
    assert given.document == same.document
    big = {f"example.com/{number}": "x" * 1000 for number in range(200)}
    long, other = service(annotations=big), service(annotations={**big, "example.com/0": "y"})
    assert len(long.document) < DOCUMENT_LIMIT_BYTES
    assert long.document != other.document
    assert '"ports"' in long.document
