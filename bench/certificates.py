"""Certificates, measured: what many of them cost, and what one that is renewed costs the others."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator

from bench.figures import Figure
from bench.fleet import Fleet, fleet, until_true
from bench.http import address_of, filled_with, programmed, pushes
from fairlead.api.kubernetes import SECRETS
from fairlead.api.meta import JSONObject
from fairlead_demo.worlds.certificates import self_signed

_CONNECTIONS = 20


class Kept:
    """A connection over TLS that stays open between its requests."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.cuts = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self, address: str) -> bytes:
        """Connect; return the certificate that is shown, DER."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._streams = await asyncio.open_connection(address, 443, ssl=context, server_hostname=self.host)
        return self._streams[1].get_extra_info("ssl_object").getpeercert(binary_form=True) or b""

    async def ask(self) -> None:
        """Send one request, and count the connection as cut when no whole answer comes."""
        assert self._streams is not None
        reader, writer = self._streams
        try:
            writer.write(f"GET / HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            length = next(
                int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-l")
            )
            await asyncio.wait_for(reader.readexactly(length), 30)
            self.cuts += b"connection: close" in head.lower()
        except (OSError, EOFError, TimeoutError):
            self.cuts += 1

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()


async def renewed(count: int = 1000) -> AsyncIterator[Figure]:
    """Hold many certificates, renew one."""
    async with fleet(target="Pod") as running, filled_with(running, count, certificates=_data, one_secret=True):
        one_mb = running.hub.rss_mb
    async with fleet(target="Pod") as running, filled_with(running, count, certificates=_data):
        each_kb = (running.hub.rss_mb - one_mb) * 1024 / count
        address = await address_of(running)
        kept = [Kept(f"h{1 + number}.example.com") for number in range(min(_CONNECTIONS, count - 1))]
        before = {each.host: await each.open(address) for each in kept}
        for each in kept:
            await each.ask()
        pushed = await pushes(running)
        await _renew(running, kept[0].host, address, before[kept[0].host])
        for each in kept:
            await each.ask()
            each.close()
        pushed = await pushes(running) - pushed

        async def whole() -> bool:
            return await programmed(running, count)

        await until_true(whole, what="all is programmed again", timeout_s=120, every_s=0.5)
    what = f"one of {count:,} certificates renewed"
    yield Figure(name=f"{what}: responses that changed a resource of Envoy", value=pushed, unit="", limit=1)
    cut = sum(each.cuts for each in kept)
    yield Figure(name=f"{what}: connections cut, of {len(kept)} that are open", value=cut, unit="", limit=0)
    name = f"memory of the hub for each of {count:,} certificates, against one that all hosts share"
    yield Figure(name=name, value=each_kb, unit="kB", limit=20)


def _data(host: str) -> JSONObject:
    chain, key = self_signed(host)
    return {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}


async def _renew(running: Fleet, host: str, address: str, before: bytes) -> None:
    """Replace the certificate of a host in the member, and wait until Envoy shows the new one."""
    name = f"i{host.split('.', maxsplit=1)[0].removeprefix('h')}"
    await running.member_cluster.merge_patch(SECRETS, "default", name, {"data": _data(host)})

    async def shown() -> bool:
        probe = Kept(host)
        try:
            return await probe.open(address) != before
        finally:
            probe.close()

    await until_true(shown, what="the new certificate is shown", timeout_s=120, every_s=0.05)
