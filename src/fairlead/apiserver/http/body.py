"""Read the body of a request: JSON, YAML or protobuf, up to a limit."""

from __future__ import annotations

import asyncio
from typing import cast

from aiohttp import web

from fairlead.apiserver.bounds import check_shape
from fairlead.apiserver.failure import ApiFailure, bad_request, too_large, unsupported_media_type
from fairlead.apiserver.http.parse import parse_any
from fairlead.apiserver.http.protobuf import MAGIC, ProtobufReader
from fairlead.apiserver.objects import Obj, encode

MAX_BYTES = 3 * 1024 * 1024
MAX_BODY_S = 60.0


async def read_bytes(request: web.BaseRequest) -> bytes:
    """Read the body; raises 413 beyond ``MAX_BYTES``."""
    if (request.content_length or 0) > MAX_BYTES:
        raise too_large(MAX_BYTES)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(MAX_BODY_S):
            async for chunk in request.content.iter_any():
                size += len(chunk)
                if size > MAX_BYTES:
                    raise too_large(MAX_BYTES)
                chunks.append(chunk)
    except TimeoutError as error:
        raise ApiFailure(408, "Timeout", f"the body of the request did not come within {MAX_BODY_S:g} s") from error
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def parse_object(raw: bytes, media: str, protobuf: ProtobufReader) -> Obj:
    """Decode a body that must be an object; raises 400 or 415."""
    if raw.startswith(MAGIC):
        read = protobuf.read(raw)
        check_shape(encode(read))
        return read
    if media and not any(subtype in media for subtype in ("json", "yaml", "octet-stream", "protobuf")):
        raise unsupported_media_type(media)
    body = parse_any(raw, media)
    if not isinstance(body, dict):
        raise bad_request("the body of the request must be an object")
    return cast("Obj", body)
