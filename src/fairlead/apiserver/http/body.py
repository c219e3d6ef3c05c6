"""Read the body of a request: JSON, YAML or protobuf, up to a limit."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import yaml
from aiohttp import web

from fairlead.apiserver.failure import bad_request, too_large, unsupported_media_type
from fairlead.apiserver.http.protobuf import MAGIC, ProtobufReader
from fairlead.apiserver.objects import Obj, decode

MAX_BYTES = 3 * 1024 * 1024
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


async def read_bytes(request: web.BaseRequest) -> bytes:
    """Read the body; raises 413 beyond ``MAX_BYTES``."""
    if (request.content_length or 0) > MAX_BYTES:
        raise too_large(MAX_BYTES)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > MAX_BYTES:
            raise too_large(MAX_BYTES)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def parse_any(raw: bytes, media: str) -> Any:
    """Decode JSON or, where the media type says so, YAML; raises 400."""
    try:
        return decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if "yaml" not in media:
            raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error
    try:
        return yaml.load(raw, Loader=_LOADER)  # noqa: S506 - a safe loader, in C where there is one
    except (yaml.YAMLError, RecursionError) as error:
        raise bad_request(f"error decoding YAML: {error}") from error


def parse_object(raw: bytes, media: str, protobuf: ProtobufReader) -> Obj:
    """Decode a body that must be an object; raises 400 or 415."""
    if raw.startswith(MAGIC):
        return protobuf.read(raw)
    if media and not any(word in media for word in ("json", "yaml", "octet-stream", "protobuf")):
        raise unsupported_media_type(media)
    body = parse_any(raw, media)
    if not isinstance(body, dict):
        raise bad_request("the body of the request must be an object")
    return cast("Obj", body)
