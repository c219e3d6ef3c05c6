"""HTTP responses: JSON, warnings, and large bodies in parts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from aiohttp import web

from podless.cooperative_yield import TimeSlice
from podless.failure import ApiFailure
from podless.objects import encode

PART_BYTES = 256 * 1024
#: Without a byte taken for so long a client has gone, or holds what others need.
STALLED_S = 60.0
_JSON = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}


def json_response(body: bytes, status: int = 200, warnings: list[str] | None = None) -> web.Response:
    """Return a JSON answer; warnings become headers that kubectl prints."""
    response = web.Response(body=body, status=status, headers=_JSON)
    for warning in warnings or ():
        # A line end would end the header, and what follows be read as the next one.
        plain = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in warning)
        text = plain.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{text}"')
    return response


async def json_response_in_chunks(request: web.BaseRequest, pieces: Iterable[bytes]) -> web.StreamResponse:
    """Return a JSON answer made piece by piece, other tasks running in between.

    Of a large one no more is made than its client takes: many that read nothing would each hold all of it.
    """
    parts = parts_of(pieces)
    first = await anext(parts, b"")
    second = await anext(parts, None)
    if second is None:
        return json_response(first)
    response = web.StreamResponse(headers=_JSON)
    response.enable_chunked_encoding()
    with contextlib.suppress(ConnectionError):  # the client went away
        await response.prepare(request)
        await write(response, first)
        await write(response, second)
        async for part in parts:
            await write(response, part)
        await response.write_eof()
    return response


async def parts_of(pieces: Iterable[bytes], *, at_once: bool = False) -> AsyncIterator[bytes]:
    """Join pieces to parts of about ``PART_BYTES``, other tasks running in between.

    ``at_once``: what is made when it is the turn of others is a part, however short.
    """
    time_slice, made, size = TimeSlice(), list[bytes](), 0
    for piece in pieces:
        made.append(piece)
        size += len(piece)
        if size >= PART_BYTES or (at_once and time_slice.used_up):
            part = b"".join(made)
            made.clear()
            size = 0
            yield part
        await time_slice.yield_if_used_up()
    if made:
        yield b"".join(made)


async def write(response: web.StreamResponse, data: bytes) -> None:
    """Write to a client; one that takes nothing for ``STALLED_S`` is gone, a ``ConnectionError``."""
    try:
        async with asyncio.timeout(STALLED_S):
            await response.write(data)
    except TimeoutError as error:
        raise ConnectionResetError("the client takes nothing") from error


def failure_response(failure: ApiFailure) -> web.Response:
    """Return the ``Status`` of a failure."""
    response = json_response(encode(failure.status()), failure.code)
    if failure.retry_after_s is not None:
        response.headers["Retry-After"] = str(failure.retry_after_s)
    return response
