"""The echo server of the suite over HTTP/1.1, h2c and TLS.

In: a request. Out: an answer; the path decides: /health, /status/NNN, /retry/.., else the request itself as JSON.
"""

from __future__ import annotations

import asyncio
import collections
import json
import re
from typing import Any

from conformance.podlet.requests import JSON, TEXT, Answer, Headers, Request, WriteLog, canonical, seconds


class HTTPEcho:
    """The answers of one pod; ``context`` names it."""

    def __init__(self, context: dict[str, str], http_port: str, write_log: WriteLog) -> None:
        self._context = context
        self._http_port = http_port
        self._write_log = write_log
        self._attempts: dict[str, int] = collections.defaultdict(int)

    async def handle(self, request: Request) -> Answer:
        """Return the answer to one request."""
        path = request.path
        if path == "/health":
            return Answer(200, TEXT, b"OK")
        if path.startswith("/status/"):
            status = re.fullmatch(r"/status/(\d\d\d)", request.target)
            return Answer(int(status.group(1)) if status else 400)
        if path.startswith("/retry/"):
            return await self._retry(request)
        return await self._echo(request)

    async def _retry(self, request: Request) -> Answer:
        query = request.query
        if not query.get("uuid"):
            return Answer(400, TEXT, b"uuid is required")
        if not query.get("succeedAfter", "").isdigit():
            return Answer(400, TEXT, b"succeedAfter is required")
        if self._attempts[query["uuid"]] >= int(query["succeedAfter"]):
            return await self._echo(request)
        self._attempts[query["uuid"]] += 1
        if query.get("delayRetry"):
            await asyncio.sleep(seconds(query["delayRetry"]))
        if query.get("responseCode", "").isdigit():
            return Answer(int(query["responseCode"]))
        return Answer(reset=True)

    async def _echo(self, request: Request) -> Answer:
        self._write_log(f"Echoing back request made to {request.target} to client ({request.remote})")
        if delay := request.query.get("delay"):
            try:
                await asyncio.sleep(seconds(delay))
            except ValueError as error:
                return Answer(500, JSON, json.dumps({"message": str(error)}).encode())
        headers: dict[str, list[str]] = {}
        for name, value in request.headers:
            if name.lower() not in ("host", "transfer-encoding", "trailer"):
                headers.setdefault(canonical(name), []).append(value)
        body: dict[str, Any] = {
            "path": request.target,
            "host": request.host,
            "method": request.method,
            "proto": request.protocol,
            "headers": headers,
            "httpPort": self._http_port,
            **self._context,
        }
        if request.tls:
            body["tls"] = request.tls
        return Answer(200, _asked_for(request) + JSON, json.dumps(body, indent=1).encode())


def _asked_for(request: Request) -> Headers:
    """Return what X-Echo-Set-Header ("Name:value, Name2:value") asks for; the case of names is kept."""
    wanted: dict[str, str] = {}
    for line in request.values("x-echo-set-header"):
        for pair in line.split(","):
            name, _, value = pair.strip().partition(":")
            if name:
                wanted[name] = f"{wanted[name]},{value.strip()}" if name in wanted else value
    return list(wanted.items())
