from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.providers.provider_processes import ExampleDriver, HAProxy

pytest.register_assert_rewrite("fairlead.testing.contract")


@pytest.fixture(scope="session")
def session_dir() -> Iterator[Path]:
    """A directory whose name leaves room for a unix socket."""
    path = Path(tempfile.mkdtemp(prefix="fl-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def haproxy(session_dir: Path) -> Iterator[HAProxy]:
    directory = session_dir / "haproxy"
    directory.mkdir()
    haproxy = HAProxy(directory, backends=60)
    yield haproxy
    haproxy.stop()


@pytest.fixture(scope="session")
def driver(session_dir: Path) -> Iterator[ExampleDriver]:
    directory = session_dir / "driver"
    directory.mkdir()
    driver = ExampleDriver(directory)
    yield driver
    driver.stop()
