"""Labels and annotations that regions ask to have shown."""

from __future__ import annotations

import pytest
from regions_builders import pool_service

from fairlead.regions.plan import aggregated


@pytest.mark.req("W-O-3", "O-36", "O-37", "O-38")
def test_labels_only_where_they_are_legal() -> None:
    both = [
        pool_service("t", "a", aggregateToLabels={"id": "1", "kind": "x", "bad key": "1", "n": "y" * 64}),
        pool_service("t", "b", aggregateToLabels={"id": "2", "kind": "x"}, aggregateToAnnotations={"id": "3"}),
    ]
    labels, annotations = aggregated(both)
    assert labels == {"aggregated.kind": "x"}
    assert annotations == {"aggregated.id": "1,2,3", "aggregated.n": "y" * 64}
