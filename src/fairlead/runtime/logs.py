"""Logging: structured lines on stderr, for machines or for people, and never a secret.

In: a level, and whether to write JSON. Out: structlog and the standard library's logging, both configured.
Never: prints the value of a key that looks like a credential, at any depth.
"""

from __future__ import annotations

import logging
import re
import sys
import unicodedata
from collections.abc import Mapping
from typing import cast

import structlog
from structlog.types import EventDict, Processor, WrappedLogger

REDACTED = "[redacted]"
_SECRET_KEY = re.compile(
    r"token|authorization|password|passwd|secret|credential|private.?key|client.?key|api.?key|cookie", re.IGNORECASE
)
_SECRET_TEXT = re.compile(
    r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
    r"|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"
)


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace values that look like a secret, by key name or by content (structlog processor)."""
    for key, value in event.items():
        event[key] = redacted(key, value)
    return event


def as_one_line(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape terminal control characters and line breaks in all texts (structlog processor).

    A traceback keeps its lines.
    """
    for key, value in event.items():
        if isinstance(value, str):
            lines = value.split("\n") if key in {"exception", "stack"} else [value]
            event[key] = "\n".join(map(legible, lines))
    return event


def redacted(key: object, value: object) -> object:
    """Return a value without parts that look like a secret, by key name or by content."""
    match value:
        case str() | bytes() | Mapping() | list() | tuple() if _SECRET_KEY.search(str(key)):
            return REDACTED
        case str():
            return _SECRET_TEXT.sub(REDACTED, value)
        case Mapping():
            return {k: redacted(k, v) for k, v in cast("Mapping[object, object]", value).items()}
        case list() | tuple():
            return [redacted("", item) for item in cast("list[object]", value)]
        case _:
            return value


def configure_logging(level: str = "info", json: bool | None = None) -> None:
    """Set up logging for the whole process; ``json=None`` means JSON unless stderr is a terminal."""
    as_json = not sys.stderr.isatty() if json is None else json
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Tracebacks become text before redaction, which then sees them too.
    last: list[Processor] = [redact, structlog.processors.JSONRenderer()]
    if as_json:
        shared.append(structlog.processors.format_exc_info)
    else:
        shared.append(structlog.processors.format_exc_info)
        last = [redact, as_one_line, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("aiohttp.access", "asyncio", "kubernetes", "acme.client", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


#: Controls (Cc), format characters such as direction marks (Cf), lone surrogates (Cs), ends of lines (Zl, Zp).
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: All that is not printable ASCII is looked at; most texts have nothing of it.
_NOT_PLAIN = re.compile(r"[^ -~]")


def legible(text: str) -> str:
    """Return ``text`` as one line that a terminal prints as it is; its escapes are those of Python."""
    return _NOT_PLAIN.sub(lambda match: _escaped(match[0]), text)


def legible_json(text: str) -> str:
    """Return a JSON text with the same characters as escapes of JSON, so that it reads back as the same value."""
    return _NOT_PLAIN.sub(lambda match: _escaped_json(match[0]), text)


def _escaped(char: str) -> str:
    if unicodedata.category(char) not in _UNSAFE:
        return char
    code = ord(char)
    return _NAMED.get(char) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )


def _escaped_json(char: str) -> str:
    if char == "\n" or unicodedata.category(char) not in _UNSAFE:
        return char  # a line end can only be layout: in strings JSON has escaped it already
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
