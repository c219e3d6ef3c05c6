"""The certificate files: complete, private, and replaced in one step."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.errors import BadConfiguration
from fairlead.providers.envoy.certificates import TlsDirectory

FIRST = {"tls.crt": b"certificate", "tls.key": b"key", "ca.crt": b"ca"}


def test_files_are_private_and_the_old_ones_go(tmp_path: Path) -> None:
    directory = TlsDirectory(data_dir=tmp_path)
    directory.write(FIRST)
    files = directory.files
    assert [path.read_bytes() for path in (files.certificate, files.key, files.client_ca)] == [*FIRST.values()]
    assert files.key.stat().st_mode & 0o077 == 0
    directory.write({**FIRST, "tls.key": b"other"})
    assert files.key.read_bytes() == b"other"
    assert len([path for path in (tmp_path / "xds-tls").iterdir() if not path.is_symlink()]) == 1
    directory.write({})
    assert files.key.read_bytes() == b"other", "nothing to write is no reason to remove what is there"


def test_the_same_content_is_not_written_again(tmp_path: Path) -> None:
    directory = TlsDirectory(data_dir=tmp_path)
    directory.write(FIRST)
    directory.files.key.unlink()
    directory.write(dict(FIRST))
    assert not directory.files.key.exists()
    TlsDirectory(data_dir=tmp_path).write(FIRST)
    assert directory.files.key.read_bytes() == b"key", "another process knows nothing of what was written"


def test_a_directory_that_cannot_be_written_names_the_flag(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadConfiguration, match="--data-dir"):
        TlsDirectory(data_dir=tmp_path / "file").write(FIRST)
