"""A host and its port as one text, as URLs and configurations have it: an IPv6 address in brackets. Pure."""

from __future__ import annotations

from fairlead.model.families import family_of


def host_port(host: str, port: int | str) -> str:
    """Return ``host:port``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(text: str) -> tuple[str, str]:
    """Return host and port of ``host:port``; the port is empty where there is none, as with an address alone."""
    host, colon, port = text.rpartition(":")
    address = text.strip("[]")
    return (host.strip("[]"), port) if colon and family_of(address) is None else (address, "")
