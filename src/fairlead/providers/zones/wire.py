"""A question without a signature, and what of its answer counts, in as few steps as there can be.

A hub asks eight questions for each name that it publishes, and most are answered by nothing. In: a name and a type, the
bytes of an answer. Out: the bytes of the question; header and answer section. The other sections, in which servers
repeat the zone's own servers and their addresses, are not read. An answer that is none is a ``dns.exception``.
"""

from __future__ import annotations

import secrets
import struct

import dns.flags
import dns.message
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.wire

_HEADER = struct.Struct("!HHHHHH")
_IN = int(dns.rdataclass.IN)


class Question:
    """One question; ``id`` may be changed until it is sent."""

    def __init__(self, name: dns.name.Name, type_: str) -> None:
        self.id = secrets.randbelow(1 << 16)
        self._name = name
        self._type = int(dns.rdatatype.from_text(type_))

    def to_wire(self, *, max_size: int) -> bytes:
        """Return the message; it is always shorter than ``max_size``."""
        del max_size
        head = _HEADER.pack(self.id, 0, 1, 0, 0, 0)
        return head + (self._name.to_wire() or b"") + struct.pack("!HH", self._type, _IN)


def read_answer(raw: bytes) -> dns.message.Message:
    """Return a message with the header and the answer section of ``raw``."""
    id_, flags, questions, answers, _, _ = _HEADER.unpack_from(raw)
    message = dns.message.Message(id_)
    message.flags = dns.flags.Flag(flags)
    if not answers:
        return message
    parser = dns.wire.Parser(raw, _HEADER.size)
    for _ in range(questions):
        dns.name.from_wire_parser(parser)
        parser.get_bytes(4)
    for _ in range(answers):
        name = dns.name.from_wire_parser(parser)
        type_, class_, ttl, length = parser.get_struct("!HHIH")
        with parser.restrict_to(length):
            rdata = dns.rdata.from_wire_parser(class_, type_, parser)
        message.find_rrset(message.answer, name, rdata.rdclass, rdata.rdtype, create=True).add(rdata, ttl)
    return message
