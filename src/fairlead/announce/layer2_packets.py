"""The bytes of layer 2: ARP, IPv6 neighbour discovery, and the signed hellos of machines. No I/O.

Gratuitous ARP goes out twice, as a request and as a reply: some hosts take only one of them. The reply has the sender
as its target, since Linux ignores a reply with another target for a second after the last change.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from fairlead.announce.layer2_state import Hello

#: EtherTypes; the last one is IEEE's for local experiments, for hellos on an interface without an address.
ETH_ARP, ETH_IPV6, ETH_HELLO = 0x0806, 0x86DD, 0x88B5
BROADCAST = "ff:ff:ff:ff:ff:ff"
NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT = 135, 136

_ZERO_MAC = "00:00:00:00:00:00"
_REQUEST, _REPLY = 1, 2
_ARP = struct.pack("!HHHBB", ETH_ARP, 1, 0x0800, 6, 4)
_OVERRIDE = 0x20000000
_SOURCE_LINK_ADDRESS, _TARGET_LINK_ADDRESS = 1, 2
_MAGIC = b"FL2\x01"
_TAG = 16


class Answer(NamedTuple):
    """A host that claims an address, or probes it: ``probe``."""

    address: str
    mac: str
    probe: bool = False


def is_v6(address: str) -> bool:
    """Return whether an address is of IPv6."""
    return ":" in address


def mac_bytes(mac: str) -> bytes:
    """Return the six bytes of a MAC address."""
    return bytes.fromhex(mac.replace(":", ""))


def mac_text(data: bytes) -> str:
    """Return a MAC address as text."""
    return data.hex(":")


def ethernet(target: str, source: str, kind: int, payload: bytes) -> bytes:
    """Return a frame."""
    return mac_bytes(target) + mac_bytes(source) + struct.pack("!H", kind) + payload


def probe(mac: str, address: str) -> bytes:
    """Return the frame that asks who has ``address``, and changes no cache (RFC 5227, RFC 4862)."""
    if is_v6(address):
        return _solicitation(mac, "::", address)
    return _arp(mac, _REQUEST, "0.0.0.0", _ZERO_MAC, address)


def question(mac: str, own: str, address: str) -> bytes:
    """Return the frame by which the host with ``own`` asks for the MAC of ``address``."""
    if is_v6(address):
        return _solicitation(mac, own, address)
    return _arp(mac, _REQUEST, own, _ZERO_MAC, address)


def announcements(mac: str, address: str) -> list[bytes]:
    """Return the frames that put ``mac`` into the caches of all neighbours."""
    if not is_v6(address):
        return [_arp(mac, _REQUEST, address, _ZERO_MAC, address), _arp(mac, _REPLY, address, mac, address)]
    target = socket.inet_pton(socket.AF_INET6, address)
    option = struct.pack("!BB", _TARGET_LINK_ADDRESS, 1) + mac_bytes(mac)
    body = struct.pack("!BBHI", NEIGHBOUR_ADVERTISEMENT, 0, 0, _OVERRIDE) + target + option
    return [_icmpv6(mac, "33:33:00:00:00:01", address, "ff02::1", body)]


def read_arp(frame: bytes) -> Answer | None:
    """Return the claim or probe in an Ethernet frame with ARP."""
    if len(frame) < 42 or frame[12:20] != _ARP:
        return None
    sender = socket.inet_ntoa(frame[28:32])
    mac = mac_text(frame[22:28])
    if sender == "0.0.0.0":
        return Answer(socket.inet_ntoa(frame[38:42]), mac, probe=True)
    return Answer(sender, mac)


def read_neighbour(message: bytes, source: str) -> Answer | None:
    """Return the claim or probe in an ICMPv6 message from ``source``."""
    if len(message) < 24:
        return None
    kind, target = message[0], socket.inet_ntop(socket.AF_INET6, message[8:24])
    if kind == NEIGHBOUR_ADVERTISEMENT:
        return Answer(target, _option(message[24:], _TARGET_LINK_ADDRESS) or _ZERO_MAC)
    if kind == NEIGHBOUR_SOLICITATION and source == "::":
        return Answer(target, _ZERO_MAC, probe=True)
    return None


def read_neighbour_frame(frame: bytes) -> Answer | None:
    """Return the claim or probe in an Ethernet frame with neighbour discovery."""
    if len(frame) < 78 or frame[20] != socket.IPPROTO_ICMPV6:
        return None
    return read_neighbour(frame[54:], socket.inet_ntop(socket.AF_INET6, frame[22:38]))


def seal(hello: Hello, keys: Sequence[bytes]) -> bytes:
    """Return the packet of a hello, signed with each key: during a change of keys the receiver may have either."""
    body = msgspec.msgpack.encode(hello)
    tags = b"".join(_tag(key, body) for key in keys)
    return _MAGIC + bytes([len(keys)]) + tags + body


def unseal(packet: bytes, keys: Sequence[bytes]) -> Hello | None:
    """Return the hello of a packet; None if no key has signed it, or it is of another release."""
    start = len(_MAGIC) + 1
    if packet[: len(_MAGIC)] != _MAGIC or len(packet) <= start:
        return None
    count = packet[len(_MAGIC)]
    body = packet[start + count * _TAG :]
    tags = [packet[start + nth * _TAG : start + (nth + 1) * _TAG] for nth in range(count)]
    if not any(hmac.compare_digest(_tag(key, body), tag) for key in keys for tag in tags):
        return None
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError:
        return None


_DECODER = msgspec.msgpack.Decoder(Hello)


def _tag(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:_TAG]


def _arp(mac: str, operation: int, sender: str, target_mac: str, target: str) -> bytes:
    payload = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
    payload += mac_bytes(mac) + socket.inet_aton(sender) + mac_bytes(target_mac) + socket.inet_aton(target)
    return ethernet(BROADCAST, mac, ETH_ARP, payload)


def _solicitation(mac: str, source: str, address: str) -> bytes:
    target = socket.inet_pton(socket.AF_INET6, address)
    option = b"" if source == "::" else struct.pack("!BB", _SOURCE_LINK_ADDRESS, 1) + mac_bytes(mac)
    body = struct.pack("!BBHI", NEIGHBOUR_SOLICITATION, 0, 0, 0) + target + option
    group = str(ipaddress.IPv6Address(b"\xff\x02" + bytes(9) + b"\x01\xff" + target[-3:]))
    return _icmpv6(mac, "33:33:ff:" + mac_text(target[-3:]), source, group, body)


def _icmpv6(mac: str, target_mac: str, source: str, target: str, body: bytes) -> bytes:
    addresses = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, target)
    checked = addresses + struct.pack("!II", len(body), socket.IPPROTO_ICMPV6) + body
    total = sum(struct.unpack(f"!{len(checked) // 2}H", checked))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    body = body[:2] + struct.pack("!H", ~total & 0xFFFF) + body[4:]
    header = struct.pack("!IHBB", 0x60000000, len(body), socket.IPPROTO_ICMPV6, 255)
    return ethernet(target_mac, mac, ETH_IPV6, header + addresses + body)


def _option(options: bytes, kind: int) -> str:
    """Return the MAC address in the options of a message of neighbour discovery."""
    while len(options) >= 8 and options[1]:
        if options[0] == kind:
            return mac_text(options[2:8])
        options = options[options[1] * 8 :]
    return ""
