"""The store stays as it is when the journal refuses."""

from typing import Any

import pytest

from fairlead.apiserver.failure import ApiFailure
from fairlead.apiserver.store.journal import MemoryJournal
from fairlead.apiserver.store.store import ObjectStore


def test_the_store_changes_nothing_when_the_journal_refuses() -> None:
    class Refusing(MemoryJournal):
        def put(self, bucket: str, entry: Any) -> None:
            raise ApiFailure(507, "InsufficientStorage", "full")

    store = ObjectStore(Refusing())
    with pytest.raises(ApiFailure):
        store.put("x", {"metadata": {"name": "a"}})
    assert (store.rv, len(store.bucket("x"))) == (0, 0)
