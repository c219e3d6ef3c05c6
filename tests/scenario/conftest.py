"""What scenarios share: requests to API servers of this process take no sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worlds import in_process


@pytest.fixture(scope="session", autouse=True)
def no_sockets() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        in_process.install(patch)
        yield
