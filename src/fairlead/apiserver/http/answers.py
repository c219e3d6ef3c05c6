"""HTTP responses: JSON, warnings, and large bodies in parts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from aiohttp import web

from fairlead.apiserver.cooperative_yield import TimeSlice
from fairlead.apiserver.failure import ApiFailure
from fairlead.apiserver.objects import encode

PART_BYTES = 256 * 1024
_JSON = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}


def answer(body: bytes, status: int = 200, warnings: list[str] | None = None) -> web.Response:
    """Return a JSON answer; warnings become headers that kubectl prints."""
    response = web.Response(body=body, status=status, headers=_JSON)
    for warning in warnings or ():
        # A line end would end the header, and what follows be read as the next one.
        plain = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in warning)
        text = plain.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{text}"')
    return response


async def answer_pieces(request: web.BaseRequest, pieces: Iterable[bytes]) -> web.StreamResponse:
    """Return a JSON answer made piece by piece, other tasks running in between; a large one is sent in parts."""
    time_slice, made, parts = TimeSlice(), list[bytes](), list[bytes]()
    for piece in pieces:
        made.append(piece)
        if time_slice.over:
            parts.append(b"".join(made))
            made.clear()
            await time_slice.give_way()
    parts.append(b"".join(made))
    size = sum(map(len, parts))
    if size <= PART_BYTES:
        return answer(b"".join(parts))
    response = web.StreamResponse(headers=_JSON)
    response.content_length = size
    with contextlib.suppress(ConnectionError):  # the client went away
        await response.prepare(request)
        for part in parts:
            for start in range(0, len(part), PART_BYTES):
                await response.write(part[start : start + PART_BYTES])
                await time_slice.give_way()
        await response.write_eof()
    return response


def refusal(failure: ApiFailure) -> web.Response:
    """Return the ``Status`` of a failure."""
    response = answer(encode(failure.status()), failure.code)
    if failure.retry_after_s is not None:
        response.headers["Retry-After"] = str(failure.retry_after_s)
    return response
