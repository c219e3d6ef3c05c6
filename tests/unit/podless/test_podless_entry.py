"""Watch lines of a stored object."""

from typing import Any

import pytest
from podless_objects import event

from podless.selectors import FieldTerm, Selection
from podless.store import entry


def test_lines_are_made_once() -> None:
    added = event(1)
    assert added.line("ADDED") is added.line("ADDED")
    assert added.line("ADDED").startswith(b'{"type":"ADDED","object":{"kind":"X"')


@pytest.mark.req("S-2")
def test_watches_with_field_selectors_decode_a_change_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    read = entry.decode

    def counted(raw: bytes) -> Any:
        decoded.append(raw)
        return read(raw)

    monkeypatch.setattr(entry, "decode", counted)
    stored = entry.entry_of({"metadata": {"name": "a"}, "status": {"phase": "Running", "ready": True}}, 1)
    selections = [
        Selection(fields=(FieldTerm(("status", "phase"), value, equal=True),)) for value in ("Running", "1", "2", "3")
    ]
    assert [each.matches(stored) for each in selections] == [True, False, False, False]
    assert (stored.text(("status", "ready")), stored.text(("status", "none"))) == ("true", "")
    assert len(decoded) == 3, "once for each path"
