"""Decode the body of a request in time linear in its length: JSON, or YAML without aliases.

In: bytes. Out: a JSON value, at most ``MAX_DEPTH`` deep, or 400 and 413. YAML is limited in length, and aliases are
refused, because a few lines of them can expand to gigabytes.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import yaml
from aiohttp import web

from podless.bounds import MAX_DEPTH, check_shape, too_deep
from podless.failure import ApiFailure, bad_request, too_large, unsupported_media_type
from podless.http.protobuf import MAGIC, ProtobufReader
from podless.objects import Obj, decode, encode

MAX_YAML_BYTES = 256 * 1024
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_any(raw: bytes, media: str) -> Any:
    """Decode JSON or, where the media type says so, YAML; raises 400 and 413."""
    try:
        value = decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if "yaml" not in media:
            raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error
        return _parse_yaml(raw)
    check_shape(raw)
    return value


def _parse_yaml(raw: bytes) -> Any:
    if len(raw) > MAX_YAML_BYTES:
        raise too_large(MAX_YAML_BYTES, "of YAML; JSON may be longer")
    try:
        _check_events(raw)
        value = yaml.load(raw, Loader=_LOADER)  # noqa: S506 - a safe loader, in C where there is one
        # Dates, sets and keys that are not strings are converted to JSON types.
        clean = encode(value)
        check_shape(clean)
        return decode(clean)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise bad_request(f"error decoding YAML: {error}") from error


def _check_events(raw: bytes) -> None:
    """Raise 400 for aliases and for too deep nesting, before any object is constructed."""
    depth = 0
    for event in yaml.parse(raw, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise bad_request("error decoding YAML: aliases (*name) are not accepted: write the value out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise too_deep()
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


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
