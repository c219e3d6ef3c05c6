"""How does an answer look on the wire?"""

from __future__ import annotations

from aiohttp import web

from fairlead.apiserver.failure import ApiFailure
from fairlead.apiserver.objects import encode

_JSON = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}


def answer(body: bytes, status: int = 200, warnings: list[str] | None = None) -> web.Response:
    """Return a JSON answer; warnings become headers that kubectl prints."""
    response = web.Response(body=body, status=status, headers=_JSON)
    for warning in warnings or ():
        text = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{text}"')
    return response


def refusal(failure: ApiFailure) -> web.Response:
    """Return the ``Status`` of a failure."""
    response = answer(encode(failure.status()), failure.code)
    if failure.retry_after_s is not None:
        response.headers["Retry-After"] = str(failure.retry_after_s)
    return response
