"""A question without a signature, and what of its answer counts, in as few steps as there can be.

A hub asks eight questions for each name that it publishes, and most are answered by nothing. In: a name and a type, the
bytes of an answer. Out: the bytes of the question; header and answer section. The authority section, in which servers
repeat the zone's own servers, is read only when the answer is not authoritative: it says where a name is delegated.
An answer that is none is a ``dns.exception``.
"""

from __future__ import annotations

import secrets
import struct

import dns.exception
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
    """Return a message with the header and the answer section of ``raw``; of a referral the authority section too."""
    id_, flags, questions, answers, authorities, _ = _HEADER.unpack_from(raw)
    message = dns.message.Message(id_)
    message.flags = dns.flags.Flag(flags)
    if not flags & dns.flags.QR or flags & dns.flags.TC:
        # A message that is not an answer, or not a whole one, says nothing of what the zone lacks.
        raise dns.exception.FormError
    if message.flags & dns.flags.AA or message.rcode():
        authorities = 0
    if not answers and not authorities:
        return message
    parser = dns.wire.Parser(raw, _HEADER.size)
    for _ in range(questions):
        dns.name.from_wire_parser(parser)
        parser.get_bytes(4)
    for section, count in ((message.answer, answers), (message.authority, authorities)):
        for _ in range(count):
            name = dns.name.from_wire_parser(parser)
            type_, class_, ttl, length = parser.get_struct("!HHIH")
            with parser.restrict_to(length):
                rdata = dns.rdata.from_wire_parser(class_, type_, parser)
            message.find_rrset(section, name, rdata.rdclass, rdata.rdtype, create=True).add(rdata, ttl)
    return message
