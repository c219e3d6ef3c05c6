"""The bytes of layer 2, held to the RFCs and to what Linux does with them."""

from __future__ import annotations

import socket
import struct
from dataclasses import replace

import pytest

from fairlead.announce import layer2_packets as packets
from fairlead.announce.layer2_state import ENTRIES, Claiming, Entry, Hello

MAC = "02:00:00:00:00:01"
HELLO = Hello(name="machine-1", instance=7, echo=8, sequence=9, mac=MAC, hears=frozenset({"machine-2"}))
KEY, OTHER = b"k" * 32, b"o" * 32


@pytest.mark.req("P-14")
def test_gratuitous_arp_is_a_request_and_a_reply_to_its_sender():
    request, reply = packets.announcements(MAC, "10.0.0.5")
    assert [struct.unpack_from("!H", frame, 20)[0] for frame in (request, reply)] == [1, 2]
    for frame in (request, reply):
        assert frame[:6] == b"\xff" * 6
        assert packets.mac_text(frame[22:28]) == MAC
        assert socket.inet_ntoa(frame[28:32]) == socket.inet_ntoa(frame[38:42]) == "10.0.0.5"
    assert packets.mac_text(reply[32:38]) == MAC


@pytest.mark.req("P-15")
def test_an_arp_probe_has_no_sender_address():
    answer = packets.read_arp(packets.probe(MAC, "10.0.0.5"))
    assert answer == packets.Answer("10.0.0.5", MAC, probe=True)


@pytest.mark.req("P-28")
def test_neighbour_discovery_is_read_from_frames():
    [advertisement] = packets.announcements(MAC, "2001:db8::5")
    assert packets.read_neighbour_frame(advertisement) == packets.Answer("2001:db8::5", MAC)
    assert packets.read_neighbour_frame(packets.question(MAC, "2001:db8::1", "2001:db8::5")) is None
    assert packets.read_neighbour_frame(advertisement[:60]) is None


@pytest.mark.req("P-14", "P-15")
def test_neighbour_discovery_has_right_checksums_and_flags():
    [advertisement] = packets.announcements(MAC, "2001:db8::5")
    solicitation = packets.probe(MAC, "2001:db8::5")
    for frame, group in ((advertisement, "ff02::1"), (solicitation, "ff02::1:ff00:5")):
        assert frame[21] == 255
        assert socket.inet_ntop(socket.AF_INET6, frame[38:54]) == group
        checked = frame[22:54] + struct.pack("!II", len(frame) - 54, 58) + frame[54:]
        assert sum(struct.unpack(f"!{len(checked) // 2}H", checked)) % 0xFFFF == 0
    assert struct.unpack_from("!I", advertisement, 58)[0] == 0x20000000
    assert packets.read_neighbour(advertisement[54:], "2001:db8::5") == packets.Answer("2001:db8::5", MAC)
    probe = packets.read_neighbour(solicitation[54:], "::")
    assert probe is not None
    assert (probe.address, probe.probe) == ("2001:db8::5", True)


def test_a_hello_is_read_with_either_of_two_keys():
    assert packets.unseal(packets.seal(HELLO, [KEY]), [OTHER, KEY]) == HELLO
    assert packets.unseal(packets.seal(HELLO, [OTHER, KEY]), [KEY]) == HELLO


@pytest.mark.parametrize("position", [0, 4, 5, 30, -1])
def test_a_changed_hello_is_not_read(position):
    packet = bytearray(packets.seal(HELLO, [KEY]))
    packet[position] ^= 1
    assert packets.unseal(bytes(packet), [KEY]) is None


@pytest.mark.parametrize("packet", [b"", b"FL2\x01", b"FL2\x01\x00", b"FL2\x01\xff", b"x" * 200])
def test_garbage_is_not_read(packet):
    assert packets.unseal(packet, [KEY]) is None
    assert packets.read_arp(packet) is None
    assert packets.read_neighbour(packet[:23], "::") is None


def test_a_hello_of_another_key_or_without_one_is_not_read():
    assert packets.unseal(packets.seal(HELLO, [KEY]), [OTHER]) is None
    assert packets.unseal(packets.seal(HELLO, []), [KEY]) is None


def test_a_full_hello_fits_an_ethernet_frame():
    entries = {
        f"2001:db8:ffff:ffff:ffff:ffff:ffff:{number:04x}": Entry(Claiming.OWNER, 10**12) for number in range(ENTRIES)
    }
    hello = replace(HELLO, name="m" * 40, plan="v" * 40, hears=frozenset({"n" * 40}), entries=entries, instance=1 << 62)
    packet = packets.seal(replace(hello, echo=1 << 62, sequence=1 << 40), [KEY, OTHER])
    assert len(packet) <= 1500 - 48
    assert packets.unseal(packet, [KEY]) == replace(hello, echo=1 << 62, sequence=1 << 40)
