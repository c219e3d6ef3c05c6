"""Requests and answers of the suite's echo servers: values, without any protocol."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Headers = list[tuple[str, str]]
#: Where a container's lines go.
WriteLog = Callable[[str], None]

TEXT: Headers = [("Content-Type", "text/plain; charset=utf-8")]
JSON: Headers = [("Content-Type", "application/json"), ("X-Content-Type-Options", "nosniff")]

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Request:
    """One request; ``target`` is path and query as sent, ``tls`` what is known of the connection's TLS."""

    method: str
    target: str
    host: str
    protocol: str
    headers: Headers
    remote: str
    tls: dict[str, Any] | None = None

    @property
    def path(self) -> str:
        """Return the decoded path."""
        return urllib.parse.unquote(self.target.split("?", 1)[0]).replace("//", "/")

    @property
    def query(self) -> dict[str, str]:
        """Return the query parameters, the last of each name."""
        query = self.target.split("?", 1)[1] if "?" in self.target else ""
        return dict(urllib.parse.parse_qsl(query, keep_blank_values=True))

    def values(self, name: str) -> list[str]:
        """Return the values of a header by its lower-case name."""
        return [value for key, value in self.headers if key.lower() == name]


@dataclass(frozen=True)
class Answer:
    """One answer; ``reset``: none at all, the connection is reset."""

    status: int = 200
    headers: Headers = field(default_factory=list[tuple[str, str]])
    body: bytes = b""
    reset: bool = False


def canonical(name: str) -> str:
    """Return a header's name as MIME writes it: x-my-ID becomes X-My-Id."""
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))


def seconds(text: str) -> float:
    """Return a duration of Go ("500ms", "1m30s") in seconds.

    Raises:
        ValueError: it is none.
    """
    parts: list[tuple[str, str]] = re.findall(r"([0-9.]+)(ns|us|µs|ms|s|m|h)", text)
    if not parts:
        raise ValueError(f"not a duration: {text!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
