"""The store stays as it is when the journal refuses."""

from pathlib import Path
from typing import Any

import pytest

from podless.failure import ApiFailure
from podless.store.sqlite import SqliteJournal
from podless.store.store import MemoryJournal, ObjectStore


def test_the_store_changes_nothing_when_the_journal_refuses() -> None:
    class Refusing(MemoryJournal):
        def put(self, bucket: str, entry: Any) -> None:
            raise ApiFailure(507, "InsufficientStorage", "full")

    store = ObjectStore(Refusing())
    with pytest.raises(ApiFailure):
        store.put("x", {"metadata": {"name": "a"}})
    assert (store.rv, len(store.bucket("x"))) == (0, 0)


@pytest.mark.req("T-survivors")
def test_checkpoints_reach_the_disk_before_the_log_is_reused(tmp_path: Path) -> None:
    """What keeps a power cut from damaging the file: with ``synchronous`` OFF, SQLite never calls fsync."""
    journal = SqliteJournal(tmp_path)
    try:
        names = ("synchronous", "journal_mode")
        settings = {name: journal._db.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
    finally:
        journal.close()
    assert settings == {"synchronous": 1, "journal_mode": "wal"}
