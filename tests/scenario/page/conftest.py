"""One Chromium for the tests of this folder."""

from __future__ import annotations

import pytest

from tests.worlds.browser import Browser, chromium


@pytest.fixture
async def browser(tmp_path):
    if chromium() is None:
        pytest.skip("Chromium is not installed; as root, make test installs it (.ci/chromium)")
    async with Browser(tmp_path / "chromium") as running:
        yield running
