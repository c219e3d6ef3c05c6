"""Watch lines of a stored object."""

from apiserver_objects import event


def test_lines_are_made_once() -> None:
    added = event(1)
    assert added.line("ADDED") is added.line("ADDED")
    assert added.line("ADDED").startswith(b'{"type":"ADDED","object":{"kind":"X"')
