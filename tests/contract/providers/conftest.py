from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlead.model.change import Action, Reason
from fairlead_demo.worlds.name_servers import Bind
from tests.contract.providers.haproxy_balanced import KEY, Balanced
from tests.contract.providers.provider_processes import ExampleDriver, HAProxy, free_port

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


@pytest.fixture(scope="session")
def front(session_dir: Path) -> Iterator[tuple[HAProxy, int]]:
    directory = session_dir / "front"
    directory.mkdir()
    port = free_port()
    extra = (
        f"frontend f\n  bind 127.0.0.1:{port}\n  default_backend front\n"
        "backend front\n  balance roundrobin\n  server theirs 192.0.2.1:1 weight 7 disabled\n"
        "backend sticky\n  balance source\n"
        f"frontend same\n  bind 127.0.0.1:{free_port()}\n  default_backend same\n"
        "backend same\n  balance roundrobin\n"
    )
    haproxy = HAProxy(directory, backends=1, extra=extra)
    yield haproxy, port
    haproxy.stop()


@pytest.fixture
async def balanced(front: tuple[HAProxy, int]) -> AsyncIterator[Balanced]:
    balanced = Balanced(*front)
    await balanced.start()
    yield balanced
    with contextlib.suppress(Exception):
        for web in balanced.webs:
            web.hanging.set()
            await balanced.apply(Action.DEREGISTER, web, reason=Reason.DRAINED)
        await balanced.provider.delete(KEY)
    await balanced.close()


@pytest.fixture
async def bind(tmp_path: Path) -> AsyncIterator[Bind]:
    bind = Bind(tmp_path / "bind")
    await bind.start()
    yield bind
    await bind.kill()
