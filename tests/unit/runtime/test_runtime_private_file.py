"""A private file appears whole, and private, or not at all."""

from __future__ import annotations

import stat

import pytest

from fairlead.runtime.private_file import readable_by_others, write_private


def test_a_file_readable_by_others_is_replaced(tmp_path):
    path = tmp_path / "key"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_private(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_failure_keeps_the_old_content_and_no_temporary_file(tmp_path):
    path = tmp_path / "key"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_private(path, "\udc80")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize(
    ("mode", "open_to_others"),
    [
        (stat.S_IFREG | 0o644, True),
        (stat.S_IFREG | 0o640, True),
        (stat.S_IFREG | 0o600, False),
        (stat.S_IFIFO | 0o644, False),
    ],
)
def test_which_modes_others_can_read(mode, open_to_others):
    assert readable_by_others(mode) == open_to_others
