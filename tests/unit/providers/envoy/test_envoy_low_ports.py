"""An ordinary user may not open port 80: that is one sentence with the next step, not a puzzle."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from fairlead.providers.envoy import envoy_process as low_ports

BIND = "Error adding/updating listener(s) a: cannot bind '127.200.0.1:80': Permission denied"
ENVOY = Path("/opt/envoy")


class Refuses(socket.socket):
    def bind(self, _address: object) -> None:
        raise PermissionError(13, "Permission denied")


@pytest.mark.req("X-4")
def test_without_the_right_the_sentence_names_the_sysctl_and_the_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", Refuses)
    sentence = low_ports.low_ports_problem(ENVOY)
    assert "may not open ports below 1024" in sentence
    assert "net.ipv4.ip_unprivileged_port_start=80" in sentence
    assert "setcap cap_net_bind_service=+ep /opt/envoy" in sentence


@pytest.mark.req("X-4")
@pytest.mark.parametrize(
    ("capability", "allowed"),
    [
        ("0100000200040000000000000000000000000000", True),
        ("0000000200040000000000000000000000000000", False),
        ("0100000200080000000000000000000000000000", False),
    ],
)
def test_an_envoy_with_the_capability_may(monkeypatch: pytest.MonkeyPatch, capability: str, allowed: bool) -> None:
    monkeypatch.setattr(socket, "socket", Refuses)
    monkeypatch.setattr("os.getxattr", lambda *_: bytes.fromhex(capability))
    assert (low_ports.low_ports_problem(ENVOY) == "") is allowed


def test_with_the_right_there_is_nothing_to_say() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert low_ports.may_open(taken.getsockname()[1]), "in use is not forbidden"
    assert low_ports.may_open(0)
    assert low_ports.low_ports_problem(Path(sys.executable)) == "" or not low_ports.may_open(80)


@pytest.mark.req("X-4")
def test_a_refused_port_carries_the_next_step_and_other_refusals_stay_as_they_are() -> None:
    assert low_ports.explained(BIND).startswith(BIND)
    assert "ip_unprivileged_port_start" in low_ports.explained(BIND)
    other = BIND.replace("Permission denied", "Address already in use")
    assert low_ports.explained(other) == other


def test_an_address_that_the_machine_does_not_have_has_a_next_step() -> None:
    refusal = "Error adding/updating listener(s) a: cannot bind '203.0.113.95:80': Cannot assign requested address"
    assert low_ports.explained(refusal).startswith(refusal)
    assert "ip route add local" in low_ports.explained(refusal)
