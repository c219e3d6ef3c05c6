"""Answers of PowerDNS's API: large ones are read whole, and what cannot be read is asked for again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web

from fairlead.errors import Retry
from fairlead.providers.zones.powerdns import provider as api
from fairlead.providers.zones.powerdns.provider import ApiRecord, ApiSet, PowerDNSApi
from fairlead.providers.zones.settings import ServerSettings


class Key:
    async def entry(self, name: str, entry: str) -> str:
        return f"{name}/{entry}"


@asynccontextmanager
async def answering(body: bytes) -> AsyncGenerator[PowerDNSApi]:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/api/v1/servers/localhost/zones/example.test.", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    asked = PowerDNSApi(
        ServerSettings("example.test", "127.0.0.1", 53, credentials="powerdns", others=(("url", url),)), secrets=Key()
    )
    try:
        yield asked
    finally:
        await asked.close()
        await runner.cleanup()


async def test_a_zone_that_comes_in_many_parts_is_read_whole() -> None:
    sets = [ApiSet(f"n{number}.example.test.", "A", 60, (ApiRecord("192.0.2.1"),)) for number in range(20_000)]
    async with answering(msgspec.json.encode({"rrsets": sets})) as asked:
        assert await asked.sets() == tuple(sets)


@pytest.mark.parametrize("body", [b"<html>", b"", b'{"rrsets": 1}', b'{"rrsets": [{"name": "a'])
async def test_an_answer_that_cannot_be_read_is_asked_for_again(body: bytes) -> None:
    async with answering(body) as asked:
        with pytest.raises(Retry, match="cannot be read about zone") as caught:
            await asked.sets()
    assert caught.value.reason == "DNSBadAnswer"


async def test_reading_of_an_endless_answer_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_LONGEST_ANSWER", 100_000)
    async with answering(bytes(100_001)) as asked:
        with pytest.raises(Retry, match="more than 100000 bytes"):
            await asked.check()
