"""The files of a data directory are replaced by its user only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fairlead.errors import BadConfiguration
from fairlead.runtime.private_file import make_private


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_one_is_for_its_user_only(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b")
    assert _mode(tmp_path / "a" / "b") == 0o700


@pytest.mark.parametrize(("before", "after"), [(0o777, 0o775), (0o2775, 0o2775), (0o755, 0o755)])
def test_one_of_ours_that_every_user_may_write_is_closed_to_them(tmp_path: Path, before: int, after: int) -> None:
    tmp_path.chmod(before)
    make_private(tmp_path)
    assert _mode(tmp_path) == after


def test_a_shared_one_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(
        BadConfiguration, match=rf"every user may write {tmp_path} \(mode 1777\): choose a directory in"
    ):
        make_private(tmp_path)
    assert _mode(tmp_path) == 0o1777


@pytest.mark.parametrize(
    ("owner", "mode", "refusal"),
    [
        (4711, 0o755, "belongs to user 4711"),
        (4711, 0o777, "belongs to user 4711"),
        (0, 0o1777, "every user may write"),
        (0, 0o2775, ""),
        # As kubelet makes an emptyDir, without and with fsGroup.
        (0, 0o777, ""),
        (0, 0o2777, ""),
    ],
)
def test_of_other_users_only_root_may_own_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, refusal: str
) -> None:
    real = tmp_path.stat()
    values = list(real)
    values[0], values[4] = stat.S_IFDIR | mode, owner
    monkeypatch.setattr(Path, "stat", lambda _self, **_: os.stat_result(values))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    if refusal:
        with pytest.raises(BadConfiguration, match=refusal):
            make_private(tmp_path)
    else:
        make_private(tmp_path)
