"""What scenarios share: requests to API servers of this process need no sockets, but for tests of real time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worlds import in_process


@pytest.fixture
def sockets() -> None:
    """Have this test send its requests over sockets, and let real time pass between steps of the virtual clock."""


@pytest.fixture(autouse=True)
def requests_in_process(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if "sockets" not in request.fixturenames:
            in_process.install(patch)
        yield
