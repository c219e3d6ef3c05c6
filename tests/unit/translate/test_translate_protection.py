"""The label that holds a deleted object."""

from __future__ import annotations

import pytest

from fairlead.api.meta import KubeObject
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.testing.builders import decoded
from fairlead.translate.view import build_protected, is_labelled, is_leaving

DELETED = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("deleted", "labels", "leaving", "held"),
    [
        (None, None, False, False),
        (None, {"fairlead.dev/do-not-delete": ""}, False, False),
        (DELETED, None, True, False),
        (DELETED, {"other": "label"}, True, False),
        (DELETED, {"fairlead.dev/do-not-delete": ""}, False, True),
        (DELETED, {"fairlead.dev/do-not-delete": "false"}, False, True),
    ],
)
def test_a_deleted_object_leaves_unless_the_label_holds_it(deleted, labels, leaving, held):
    item = decoded({"metadata": {"name": "web", "deletionTimestamp": deleted, "labels": labels}}, KubeObject)
    assert is_leaving(item) is leaving
    assert is_labelled(item) is ("fairlead.dev/do-not-delete" in (labels or {}))
    condition = build_protected(item)
    assert (condition is not None) is held
    if condition is not None:
        assert (condition.type, condition.status) == (ConditionType.PROTECTED, True)
        assert condition.reason is ConditionReason.DO_NOT_DELETE
