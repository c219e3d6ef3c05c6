"""Numbers, lists, and hosts with ports as text has them. Pure, and imports nothing: every command loads it."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 load balancer, 2 load balancers."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun[:-1]}ies" if noun.endswith("y") else f"{count} {noun}s"


def listed(texts: Sequence[str], most: int) -> str:
    """Return the first ``most`` of ``texts`` with commas between them, and how many more there are."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


_MOST_DIGITS = 18


def whole_number(text: str, *, most: int = 10**_MOST_DIGITS - 1, least: int = 0) -> int | None:
    """Return the number that ``text`` is, in ASCII digits alone; None when it is none from ``least`` to ``most``."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    number = int(text)
    return number if least <= number <= most else None


def host_port(host: str, port: int | str) -> str:
    """Return ``host:port``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(text: str) -> tuple[str, str]:
    """Return host and port of ``host:port``; the port is empty where there is none, as with an address alone."""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":")
    # More than one colon is an IPv6 address alone.
    host, colon, port = text.partition(":")
    return (host, port) if colon and ":" not in port else (text, "")
