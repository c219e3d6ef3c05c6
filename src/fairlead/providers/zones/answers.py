"""The answers of the authoritative server for names.

In: a connection and keys. Out: sets of records; an answer that is not authoritative, or an error, is a ``Retry`` with
the next step. Never: a name taken for absent because of an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rdtypes.ANY.SOA
import dns.rdtypes.ANY.TXT

from fairlead.errors import Retry
from fairlead.providers.zones.connection import DNSConnection
from fairlead.providers.zones.rrsets import CNAME, TXT, RRKey, RRSet, RRSets, canonical_name
from fairlead.providers.zones.settings import ServerSettings
from fairlead.providers.zones.wire import Question

#: A name is asked for by several types, before an update and after it.
_NAMES = 4096
_NEXT_STEPS = {
    dns.rcode.REFUSED: "allow this hub to query it, or correct parameters.server",
    dns.rcode.SERVFAIL: "look into the server's log: the zone may not be loaded",
    dns.rcode.NOTAUTH: "make it a primary server of the zone, or correct parameters.server",
    dns.rcode.NOTIMP: "use a server that takes queries and dynamic updates",
}


async def ask_records(connection: DNSConnection, settings: ServerSettings, keys: Iterable[RRKey]) -> dict[RRKey, RRSet]:
    """Return the sets that the server answers for ``keys``; those without records are left out."""
    wanted = sorted(set(keys))
    questions = [query(key.name, key.type) for key in wanted]
    there: dict[RRKey, RRSet] = {}
    for key, answer in zip(wanted, await connection.ask_all(questions), strict=True):
        require_authority(answer, settings)
        if (rrset := _set_of(answer, key)) is not None:
            there[key] = rrset
    return there


class AnsweringServer:
    """The part of a ``ZoneServer`` that is asked by DNS: the same however records are written."""

    #: Whether what was written is answered at once.
    immediate = True

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._connection = DNSConnection(settings)

    async def serial(self) -> int:
        """Return the serial of the zone, from its SOA record."""
        settings = self._settings
        answer = await self._connection.ask(query(settings.zone, "SOA"))
        require_authority(answer, settings)
        for rrset in answer.answer:
            for rdata in rrset:
                if isinstance(rdata, dns.rdtypes.ANY.SOA.SOA) and rrset.name == absolute(settings.zone):
                    return rdata.serial
        raise Retry(
            f"DNS server {settings.name} answers no SOA record for {settings.zone}; is spec.zone the apex of the zone?",
            reason="DNSNotAuthoritative",
        )

    async def answers(self, keys: Iterable[RRKey]) -> RRSets:
        """Return what the server answers."""
        return await ask_records(self._connection, self._settings, keys)

    async def kept(self, keys: Iterable[RRKey]) -> RRSets:
        """Return what the server answers: by that an update is judged, not by what it was answered."""
        return await self.answers(keys)

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


def query(name: str, type_: str) -> Question:
    """Return a question."""
    return Question(absolute(name), type_)


@lru_cache(maxsize=_NAMES)
def absolute(name: str) -> dns.name.Name:
    """Return ``name`` as the wire has it."""
    return dns.name.from_text(f"{name}.")


def require_authority(answer: dns.message.Message, settings: ServerSettings) -> None:
    """Raise ``Retry`` unless ``answer`` is an authoritative one of this zone."""
    rcode = answer.rcode()
    where = f"DNS server {settings.name}"
    if rcode not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        raise refused(rcode, settings)
    if not answer.flags & dns.flags.AA:
        raise Retry(
            f"{where} is not authoritative for zone {settings.zone}; name its primary server in parameters.server",
            reason="DNSNotAuthoritative",
        )


def refused(rcode: dns.rcode.Rcode, settings: ServerSettings, *, what: str = "a query") -> Retry:
    """Return the error for an answer that is none."""
    word = dns.rcode.to_text(rcode)
    step = _NEXT_STEPS.get(rcode, "look into the server's log")
    return Retry(
        f"DNS server {settings.name} answers {what} about zone {settings.zone} with {word}: {step}",
        reason=f"DNS{word.capitalize()}",
    )


def _set_of(answer: dns.message.Message, key: RRKey) -> RRSet | None:
    name, type_ = absolute(key.name), dns.rdatatype.from_text(key.type)
    for rrset in answer.answer:
        if rrset.name == name and rrset.rdtype == type_:
            return RRSet(frozenset(value_of(key.type, rdata) for rdata in rrset), rrset.ttl)
    return None


def value_of(type_: str, rdata: dns.rdata.Rdata) -> str:
    """Return the value of a record in its canonical form."""
    if isinstance(rdata, dns.rdtypes.ANY.TXT.TXT):
        return b"".join(rdata.strings).decode("utf-8", "replace")
    text = rdata.to_text()
    return canonical_name(text) if type_ == CNAME else text


def rdata_of(type_: str, value: str) -> dns.rdata.Rdata:
    """Return a value as the wire has it."""
    if type_ == TXT:
        raw = value.encode()
        chunks = [raw[at : at + 255] for at in range(0, len(raw), 255)] or [b""]
        return dns.rdtypes.ANY.TXT.TXT(dns.rdataclass.IN, dns.rdatatype.TXT, chunks)
    return dns.rdata.from_text("IN", type_, f"{value}." if type_ == CNAME else value)
