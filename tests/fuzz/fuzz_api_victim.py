"""The embedded API server that is fed broken requests."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from fairlead.api.kinds import all_crds
from podless import ApiServer

_ANSWER_S = 60
NS = "/api/v1/namespaces/ns"
LBS = "/apis/fairlead.dev/v1alpha1/namespaces/ns/tcploadbalancers"


class Victim:
    """A server, a connection to it, and an object that has to be there after every input."""

    def __init__(self) -> None:
        self.server = ApiServer(admin_token="token")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def start(self) -> None:
        await self.server.start()
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        objects: list[tuple[str, Any]] = [(crds, crd) for crd in all_crds()]
        objects += [
            ("/api/v1/namespaces", {"metadata": {"name": "ns"}}),
            (f"{NS}/configmaps", {"metadata": {"name": "sentinel"}, "data": {"a": "b"}}),
            (
                f"{NS}/services",
                {
                    "metadata": {"name": "web"},
                    "spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]},
                },
            ),
            (LBS, {"metadata": {"name": "lb", "labels": {"a": "b"}}, "spec": {"ports": [{"port": 80}]}}),
        ]
        for path, obj in objects:
            status, body = await self.send(request("POST", path, {}, {}, obj))
            assert status in {201, 409}, body

    async def send(self, raw: bytes) -> tuple[int, bytes]:
        """Send a request, and read its answer; 0 where there is none."""
        if self._streams is None:
            host, port = self.server.url.removeprefix("http://").rsplit(":", 1)
            self._streams = await asyncio.open_connection(host, int(port))
        reader, writer = self._streams
        async with asyncio.timeout(_ANSWER_S):
            try:
                writer.write(raw)
                head = await reader.readuntil(b"\r\n\r\n")
                status, fields = int(head.split(b" ", 2)[1]), head.lower()
                length = fields.partition(b"content-length:")[2].partition(b"\r\n")[0]
                body = await reader.readexactly(int(length)) if length else b""
                if not length or b"connection: close" in fields:
                    self.drop()
            except (asyncio.IncompleteReadError, ConnectionError):
                self.drop()
                return 0, b""
        return status, body

    async def send_and_leave(self, raw: bytes) -> None:
        """Send bytes that are not a request, and close the connection without waiting for an answer."""
        host, port = self.server.url.removeprefix("http://").rsplit(":", 1)
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(raw)
        writer.write_eof()
        await asyncio.sleep(0)
        writer.close()

    def drop(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def request(method: str, path: str, query: dict[str, str], headers: dict[str, str], body: Any) -> bytes:
    """Return a request as bytes; header lines and path are as raw as HTTP lets them be."""
    data = b"" if body is None else body.encode() if isinstance(body, str) else msgspec.json.encode(body)
    target = quote(path, safe="/%._-~!$&'()*+,;=:@") + ("?" + urlencode(query) if query else "")
    lines = [f"{method} {target} HTTP/1.1", "Host: x", "Connection: keep-alive", f"Content-Length: {len(data)}"]
    heads = {"Authorization": "Bearer token", "Content-Type": "application/json"} | headers
    lines += [f"{name}: {value}" for name, value in heads.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data
