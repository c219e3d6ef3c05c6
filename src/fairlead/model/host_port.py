"""A host and its port as one text, as URLs and configurations have it: an IPv6 address in brackets. Pure."""

from __future__ import annotations


def host_port(host: str, port: int | str) -> str:
    """Return ``host:port``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
