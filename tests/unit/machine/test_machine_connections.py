"""Open connections at another machine: the address of that machine, the file of conntrackd, and its counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.errors import BadConfiguration
from fairlead.machine.connections import checked_peer, configuration, sync_state
from fairlead.model.machine import ConnectionSyncState

COUNTERS = """cache internal:
current active connections:\t          40
connections created:\t\t          41\tfailed:\t           0

UDP traffic (active device=sync):
                3736 Bytes sent                   48 Bytes recv
                  47 Pckts sent                    3 Pckts recv

message tracking:
                   0 Malformed msgs                    2 Lost msgs
"""
QUEUES = """queue txqueue:
current elements:\t\t           3
maximum elements:\t\t  2147483647

queue errorq:
current elements:\t\t           9

queue rsqueue:
current elements:\t\t           4
"""


@pytest.mark.req("P-33")
@pytest.mark.parametrize("text", ["m2", "10.0.0.0/24", "127.0.0.1"])
def test_a_wrong_peer_is_refused(text) -> None:
    with pytest.raises(BadConfiguration, match="--sync-connections"):
        checked_peer(text)


@pytest.mark.req("P-33")
def test_connections_are_sent_only_with_a_peer() -> None:
    assert (checked_peer(""), checked_peer("2001:DB8::7")) == ("", "2001:db8::7")
    text = configuration(Path("/state"), "2001:db8::1", "2001:db8::7", interface="eth1")
    for line in ("IPv6_Destination_Address 2001:db8::7", "Interface eth1", "DisableExternalCache yes"):
        assert line in text


@pytest.mark.req("P-33")
def test_counters() -> None:
    expected = ConnectionSyncState(peer="10.0.0.2", connections=40, waiting=7, lost=2)
    assert sync_state("10.0.0.2", COUNTERS, QUEUES) == expected
