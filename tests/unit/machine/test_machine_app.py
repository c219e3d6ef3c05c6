"""The process on a proxy machine: notifications to systemd, and the addresses of xDS servers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from fairlead.machine.app import notify_systemd, xds_addresses


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_notified_where_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    place = f"@fairlead-{tmp_path}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + place[1:] if abstract else place)
        monkeypatch.setenv("NOTIFY_SOCKET", place)
        notify_systemd("READY=1", "STATUS=Serving")
        assert systemd.recv(1000) == b"READY=1\nSTATUS=Serving"
    notify_systemd("WATCHDOG=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify_systemd("WATCHDOG=1")


def test_xds_is_at_the_next_port_of_each_hub() -> None:
    assert xds_addresses(["hub.example:7443", "[2001:db8::1]:7443"]) == ("hub.example:7444", "[2001:db8::1]:7444")
