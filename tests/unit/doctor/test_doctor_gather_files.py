"""Which logs go into a support bundle: those that are named, and of a directory those of Fairlead."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.doctor.bundle import logs_below, read_logs


@pytest.mark.parametrize(
    "name", ["hub.log", "envoy.log", "apiserver.log", "east-agent.log", "fairlead-hub.log", "envoy-1.log", "run.log"]
)
def test_a_log_of_fairlead_in_a_directory_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("line\n")
    read = read_logs([tmp_path], last_bytes=100)
    assert (list(read.texts.values()), read.unread) == (["line\n"], [])


@pytest.mark.parametrize("name", ["postgres.log", "auth.log", "payroll-2024.log", "hubris.log"])
def test_a_log_of_others_in_a_directory_is_named_and_not_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("secret\n")
    read = read_logs([tmp_path], last_bytes=100)
    assert read.texts == {}
    assert read.unread == [
        f"{tmp_path / name}: not known to be a log of Fairlead; to have it in the file: --log {tmp_path / name}"
    ]


def test_a_log_that_is_named_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "other.log").write_text("0123456789")
    assert list(read_logs([tmp_path / "other.log"], last_bytes=4).texts.values()) == ["6789"]
    assert read_logs([tmp_path / "none.log"], last_bytes=4).unread == [
        f"{tmp_path / 'none.log'}: No such file or directory"
    ]


def test_only_logs_of_envoys_are_read_in_a_data_directory(tmp_path: Path) -> None:
    # As `fairlead standalone` has it, and `fairlead hub --envoys 2`.
    envoys = [tmp_path / "hub" / "envoy.log", *(tmp_path / "envoys-2" / each / "envoy.log" for each in ("1", "2"))]
    for log in (tmp_path / "hub.log", *envoys, tmp_path / "hub" / "others.log"):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("it said so\n", encoding="utf-8")
    read = read_logs(logs_below(tmp_path), last_bytes=100)
    assert sorted(read.texts) == sorted("-".join(log.parts[1:]) for log in (tmp_path / "hub.log", *envoys))
    assert read.unread == []
    assert logs_below(None) == []
