"""The protocol of DNS servers that hold records, and the answers of the authoritative server for names.

In: a connection and keys; names and edits. Out: sets of records. An answer that is not authoritative, or an error, is a
``Retry`` (may pass) or ``Terminal`` (needs the operator) with the next step. Never: a name taken for absent because of
an error.

    check   concurrent checks of one zone make one query; all callers get its answer, or its failure
    kept    an answer that has just decided an update counts once more, when the name is read back after it

Answers are shared for at most a second. Never: a check that was answered before it was asked, or an answer used for two
updates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Protocol

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
from fairlead.providers.zones.connection import DNSConnection, Question
from fairlead.providers.zones.plan import ANY, CNAME, EMPTY, TXT, TYPES, Edit, RRKey, RRSet, RRSets, canonical_name
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.clock import Clock

#: A name is asked for by several types, before an update and after it.
_NAMES = 4096
#: Types that a CNAME may have next to it (RFC 4034), and the type of an empty answer (RFC 8482).
_NO_CONFLICT = frozenset({"RRSIG", "NSEC", "KEY", "HINFO"})
#: Types that only PowerDNS has.
_POWERDNS_TYPES: dict[int, str] = {65401: "ALIAS", 65402: "LUA"}
#: Reasons of errors that are about one name, not about the server or its zone.
OUTSIDE_ZONE = frozenset({"DNSDelegated", "DNSRedirected"})
_NEXT_STEPS = {
    dns.rcode.REFUSED: "allow this hub to query it, or correct parameters.server",
    dns.rcode.SERVFAIL: "check the server's log: the zone may not be loaded",
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
        there |= _sets_of(answer, key, settings)
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
    if answer.flags & dns.flags.AA:
        return
    zone = absolute(settings.zone)
    for rrset in answer.authority:
        if rrset.rdtype == dns.rdatatype.NS and rrset.name != zone and rrset.name.is_subdomain(zone):
            cut = canonical_name(rrset.name.to_text())
            raise Retry(
                f"{cut} is delegated by zone {settings.zone} at {where}, so names in it belong to another zone; create "
                f"a DNSZone for {cut}, or choose another host",
                reason="DNSDelegated",
            )
    raise Retry(
        f"{where} is not authoritative for zone {settings.zone}; name its primary server in parameters.server",
        reason="DNSNotAuthoritative",
    )


def refused(rcode: dns.rcode.Rcode, settings: ServerSettings, *, what: str = "a query") -> Retry:
    """Return the error for a response code other than success."""
    word = dns.rcode.to_text(rcode)
    step = _NEXT_STEPS.get(rcode, "check the server's log")
    return Retry(
        f"DNS server {settings.name} answers {what} about zone {settings.zone} with {word}: {step}",
        reason=f"DNS{word.capitalize()}",
    )


def _sets_of(answer: dns.message.Message, key: RRKey, settings: ServerSettings) -> dict[RRKey, RRSet]:
    """Return what an answer has of ``key``; with type ``ANY`` the sets of all types that no Hostname has."""
    name = absolute(key.name)
    there: dict[RRKey, RRSet] = {}
    for rrset in answer.answer:
        if rrset.rdtype == dns.rdatatype.DNAME and rrset.name != name:
            raise Retry(
                f"{key.name} cannot have records: {canonical_name(rrset.name.to_text())} in zone {settings.zone} has a "
                "DNAME record, which redirects all names in it; delete it, or choose another host",
                reason="DNSRedirected",
            )
        type_ = _POWERDNS_TYPES.get(rrset.rdtype) or dns.rdatatype.to_text(rrset.rdtype)
        wanted = type_ not in _NO_CONFLICT | set(TYPES) if key.type == ANY else type_ == key.type
        if rrset.name == name and wanted:
            there[RRKey(key.name, type_)] = RRSet(frozenset(value_of(type_, rdata) for rdata in rrset), rrset.ttl)
    return there


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


class Answering(Protocol):
    """The part of a ``ZoneServer`` that following a zone needs."""

    @property
    def immediate(self) -> bool:
        """Return whether what was written is answered at once, so that ``kept`` is ``answers``."""
        ...

    async def serial(self) -> int:
        """Return the serial of the zone, which moves with each change of it."""
        ...

    async def answers(self, keys: Iterable[RRKey]) -> RRSets:
        """Return what the server answers to a question for ``keys``."""
        ...


class ZoneServer(Answering, Protocol):
    """One zone at one server."""

    async def check(self) -> int:
        """Raise what is wrong with zone, server or credentials, as far as reading can show it; returns the serial."""
        ...

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        """Return what the zone has of ``keys``; a set without records may be left out.

        Where a CNAME is asked for, records of every other type of its name are in the answer too.
        """
        ...

    async def kept(self, keys: Iterable[RRKey]) -> RRSets:
        """Return what there is of ``keys`` where they are written, by which an update is judged."""
        ...

    async def update(self, edits: Sequence[Edit], there: RRSets) -> bool:
        """Make ``edits``; False when the zone is no longer as in ``there``, and nothing was done."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


#: For how long what an update was judged by counts, in seconds.
FRESH_S = 1.0


class RecentAnswers:
    """The answers of the last second, by zone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._checks: dict[ServerSettings, asyncio.Task[int]] = {}
        self._judged: dict[tuple[ServerSettings, RRKey], tuple[RRSet, float]] = {}

    async def check(self, settings: ServerSettings, server: ZoneServer) -> int:
        """Return the serial of the zone."""
        task = self._checks.get(settings)
        if task is None or task.done():
            task = asyncio.create_task(server.check(), name=f"check of {settings.zone}")
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # who asked may be gone
            self._checks[settings] = task
        return await asyncio.shield(task)

    def keep(self, settings: ServerSettings, now: RRSets) -> None:
        """Keep what has been read after an update."""
        now_s = self._clock.monotonic()
        self._judged = {at: judged for at, judged in self._judged.items() if now_s - judged[1] < FRESH_S}
        self._judged |= {(settings, key): (rrset, now_s) for key, rrset in now.items()}

    async def kept(self, settings: ServerSettings, server: ZoneServer, keys: Collection[RRKey]) -> RRSets:
        """Return what there is of ``keys`` where they are written."""
        now_s = self._clock.monotonic()
        judged = {key: self._judged.pop((settings, key), (EMPTY, -FRESH_S)) for key in keys}
        if judged and all(now_s - read_s < FRESH_S for _, read_s in judged.values()):
            return {key: rrset for key, (rrset, _) in judged.items()}
        return await server.kept(keys)

    def close(self) -> None:
        """End the questions under way."""
        for task in self._checks.values():
            task.cancel()
