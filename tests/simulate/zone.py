"""One DNS zone that several hubs with separate APIs write: its server, the links to it, and what must hold.

In: messages of the real provider, and what users want at each hub. Out: the records, as a server of RFC 2136 keeps
them, with a check after each update. Never: an update that is done in part, or that a dead process takes back.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zlib import crc32

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import dns.update

from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.errors import Retry
from fairlead.providers.zones.answers import absolute, rdata_of, value_of
from fairlead.providers.zones.connection import Question
from fairlead.providers.zones.peers import lease_seconds
from fairlead.providers.zones.plan import (
    EMPTY,
    TYPES,
    A,
    RRKey,
    RRSet,
    canonical_name,
    lease_key,
    mark_from_text,
    mark_key,
)
from fairlead.providers.zones.provider import DNSProvider
from fairlead.providers.zones.rfc2136.provider import PARAMETERS, UpdateServer
from fairlead.providers.zones.settings import ServerSettings
from tests.simulate.loop import OUTSIDE, Process

if TYPE_CHECKING:
    from tests.simulate.simulated_world import World

ZONE = "example.test"
HOSTS = (f"web.{ZONE}", f"api.{ZONE}")
#: What may happen to a message to the server, and whether it still takes effect.
TROUBLES = {"lost": False, "answer-lost": True, "slow": True, "servfail": False, "refused": False}
_TIMEOUT_S = 5.0
_SOA = "ns.example.test. hostmaster.example.test. {} 3600 600 86400 60"


def owner_of(api: str) -> str:
    """Return the ownerId of the hub with this API."""
    return f"owner-{api}"


@dataclass
class Wanted:
    """What the users of one hub want of one name."""

    addresses: set[str] = field(default_factory=set)
    unhealthy: set[str] = field(default_factory=set)
    #: Since when the name is published.
    since_s: float | None = None
    #: Since when each address is wanted and healthy.
    healthy_s: dict[str, float] = field(default_factory=dict)

    def change(self, addresses: set[str], unhealthy: set[str], now_s: float) -> None:
        """Want other addresses from now on."""
        healthy = addresses - unhealthy
        self.since_s = now_s if self.since_s is None else self.since_s
        self.healthy_s = {address: self.healthy_s.get(address, now_s) for address in healthy}
        self.addresses, self.unhealthy = addresses, unhealthy


class Line:
    """The link of one process to the server, in the place of ``DNSConnection``."""

    def __init__(self, zone: Zone, process: Process, api: str, settings: ServerSettings) -> None:
        self._zone, self._process, self._api, self._settings = zone, process, api, settings
        self._random = random.Random(f"{zone.seed}/{process.name}/{process.loop.now_s}/zone")

    async def ask(self, message: dns.message.Message | Question) -> dns.message.Message:
        """Return the answer, or fail as a connection does."""
        (answer,) = await self.ask_all([message])
        return answer

    async def ask_all(self, messages: Sequence[dns.message.Message | Question]) -> list[dns.message.Message]:
        """Return the answers to messages that go together."""
        zone, loop, draw = self._zone, self._process.loop, self._random.random
        trouble = "lost" if self._process.name in zone.cut else ""
        if not trouble and draw() < zone.rate.get(self._process.name, 0.0):
            trouble = self._random.choice(sorted(TROUBLES))
        done: asyncio.Future[list[dns.message.Message]] = loop.create_future()
        there_s, back_s = 0.001 + 0.02 * draw(), 0.001 + 0.02 * draw()
        if trouble == "slow":
            there_s += 4.0 * draw()

        def arrive() -> None:
            answers = [zone.answer(message, self._api, self._process.name, refused=trouble) for message in messages]
            if trouble != "answer-lost":
                loop.call_later(back_s, deliver, answers, context=OUTSIDE)

        def deliver(answers: list[dns.message.Message]) -> None:
            if not done.done():
                done.set_result(answers)

        if trouble != "lost":
            loop.call_later(there_s, arrive, context=OUTSIDE)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await done
        except TimeoutError:
            raise Retry(f"DNS server {self._settings.name} gave no answer", reason="DNSTimeout") from None

    async def close(self) -> None:
        """Keep nothing open."""


class _Server(UpdateServer):
    def __init__(self, settings: ServerSettings, line: Line) -> None:
        secrets: Any = None  # updates are not signed here
        super().__init__(settings, secrets=secrets)
        self._connection: Any = line


class Zone:
    """The records of the zone, and what users want of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seed = world.seed
        self.records: dict[RRKey, RRSet] = {}
        self.serial = 1
        #: Processes that cannot reach the server, since when, and the share of messages of others that are in trouble.
        self.cut: dict[str, float] = {}
        self.rate: dict[str, float] = {}
        #: When each process could read the zone again, and after how many seconds.
        self.gaps: dict[str, list[tuple[float, float]]] = {}
        #: When the lease of an owner was written last.
        self.leased_s: dict[str, float] = {}
        #: The seconds of the lease of the hub with each API.
        self.leases: dict[str, int] = {}
        self.wanted: dict[tuple[str, str], Wanted] = {}
        #: Changes of names; leases are not counted.
        self.changes = 0

    def provider(self, process: Process, api: str) -> DNSProvider:
        """Return the real provider of one process."""
        self.gaps[process.name] = [(self.world.loop.now_s, math.inf)]
        return DNSProvider(
            make=lambda settings: _Server(settings, Line(self, process, api, settings)),
            own=PARAMETERS,
            clock=process.clock,
            leases=True,
        )

    def open(self, name: str) -> None:
        """End the trouble between a process and the server."""
        if (since_s := self.cut.pop(name, None)) is not None:
            now_s = self.world.loop.now_s
            self.gaps.setdefault(name, []).append((now_s, now_s - since_s))
        self.rate.pop(name, None)

    # --- the server -----------------------------------------------------------------------------------------------

    def answer(
        self, message: dns.message.Message | Question, api: str, by: str, *, refused: str
    ) -> dns.message.Message:
        """Return the answer to a question or an update."""
        if isinstance(message, Question):
            answer = dns.message.Message(message.id)
            answer.flags = dns.flags.QR | dns.flags.AA
            if refused not in ("servfail", "refused"):
                wire = message.to_wire(max_size=65535)
                self._look_up(_name_of(wire[12:-4]), int.from_bytes(wire[-4:-2]), answer)
        else:
            assert isinstance(message, dns.update.UpdateMessage)
            answer = dns.message.make_response(message)
            if refused not in ("servfail", "refused"):
                answer.set_rcode(self._update(message, api, by))
        if refused in ("servfail", "refused"):
            answer.set_rcode(dns.rcode.SERVFAIL if refused == "servfail" else dns.rcode.REFUSED)
        return answer

    def _look_up(self, name: str, type_: int, answer: dns.message.Message) -> None:
        if type_ == dns.rdatatype.SOA:
            soa = RRSet(frozenset({_SOA.format(self.serial)}), 60)
            answer.answer.append(_rrset(RRKey(name, "SOA"), soa))
            return
        for key in self._keys_of(name) if type_ == dns.rdatatype.ANY else (RRKey(name, _TYPES[type_]),):
            if (rrset := self.records.get(key)) is not None:
                answer.answer.append(_rrset(key, rrset))

    def _keys_of(self, name: str) -> list[RRKey]:
        return sorted(key for key in self.records if key.name == name)

    def _update(self, message: dns.update.UpdateMessage, api: str, by: str) -> dns.rcode.Rcode:
        whole: dict[RRKey, frozenset[str]] = {}
        for rrset in message.prerequisite:
            key = _key_of(rrset)
            if rrset.rdclass != dns.rdataclass.NONE:
                whole[key] = whole.get(key, frozenset()) | _values(rrset)
            elif key.type == "ANY" and self._keys_of(key.name):
                return dns.rcode.YXDOMAIN
            elif key in self.records:
                return dns.rcode.YXRRSET
        if any(self._there(key) != values for key, values in whole.items()):
            return dns.rcode.NXRRSET
        records = dict(self.records)
        for rrset in message.update:
            key = _key_of(rrset)
            before = records.get(key, EMPTY)
            if rrset.deleting is None:
                records[key] = RRSet(before.values | _values(rrset), rrset.ttl)
            else:
                records[key] = RRSet(before.values - _values(rrset), before.ttl)
            if not records[key].values:
                del records[key]
        if records != self.records:
            before_all, self.records = self.records, records
            self.serial += 1
            self._changed(before_all, api, by)
        return dns.rcode.NOERROR

    def _changed(self, before: dict[RRKey, RRSet], api: str, by: str) -> None:
        world, owners = self.world, {owner_of(each) for each in self.leases}
        leases = {lease_key(owner, ZONE): owner for owner in owners}
        for key in sorted({*before, *self.records}):
            old, new = before.get(key, EMPTY), self.records.get(key, EMPTY)
            if old == new:
                continue
            world.digest = crc32(f"{world.loop.now_s!r} {key} {sorted(new.values)}".encode(), world.digest)
            world.note(f"{by} zone {key.name} {key.type} {sorted(old.values)} -> {sorted(new.values)}")
            if key in leases:
                self.leased_s[leases[key]] = world.loop.now_s
            else:
                self.changes += 1
        for host in HOSTS:
            self._check(host, before, api, by)

    # --- what must hold -------------------------------------------------------------------------------------------

    def _check(self, host: str, before: dict[RRKey, RRSet], api: str, by: str) -> None:
        """Check one update of a name: whose addresses it withdraws, and what is left."""
        world, now_s = self.world, self.world.loop.now_s
        marks = {mark for text in before.get(mark_key(host, A), EMPTY).values if (mark := mark_from_text(text))}
        left = {mark for text in self._there(mark_key(host, A)) if (mark := mark_from_text(text))}
        gone = before.get(RRKey(host, A), EMPTY).values - self._there(RRKey(host, A))
        lost = {(mark.holder.owner, mark.value) for mark in marks if mark not in left or mark.value in gone}
        for owner, address in sorted(lost):
            if owner != owner_of(api):
                if not self._has_expired(owner, by):
                    text = f"{address} of {host} was withdrawn by {by}, and the lease of {owner} has not expired"
                    world.fail("other_hubs_keep_their_addresses", text)
                continue
            since_s = self._wanted(api, host).healthy_s.get(address)
            if since_s is not None and now_s - since_s >= _LATE_S:
                world.fail("nothing_is_lost", f"{address} of {host} was removed by its own hub {by}, and is wanted")
        since_s = self._wanted(api, host).since_s
        if gone and not self._there(RRKey(host, A)) and since_s is not None and now_s - since_s >= _LATE_S:
            text = f"{by} removed {sorted(gone)}, the last of {host}, and publishes it"
            world.fail("no_name_is_emptied", text)

    def _there(self, key: RRKey) -> frozenset[str]:
        return self.records.get(key, EMPTY).values

    def _wanted(self, api: str, host: str) -> Wanted:
        return self.wanted.get((api, host)) or Wanted()

    def _has_expired(self, owner: str, by: str) -> bool:
        """Return whether a process can know that a lease has expired; time in which it cannot read does not count."""
        texts = self._there(lease_key(owner, ZONE))
        durations = [seconds for text in texts if (seconds := lease_seconds(text, owner)) is not None]
        if not durations:
            return False
        longest_s = max(durations)
        # Two reads may be half a lease apart.
        gaps = [read_s for read_s, gap_s in self.gaps.get(by, ()) if gap_s > longest_s / 2]
        return self.world.loop.now_s - max(self.leased_s.get(owner, 0.0), *gaps, 0.0) > longest_s

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what is not as it should be once no fault is left."""
        for host in HOSTS:
            every, healthy = set[tuple[str, str]](), set[tuple[str, str]]()
            for api, lease_s in self.leases.items():
                wanted, owner = self._wanted(api, host), owner_of(api)
                every |= {(owner, address) for address in wanted.addresses}
                # A hub that shares no zone keeps what does not serve.
                serving = wanted.addresses - wanted.unhealthy if lease_s else wanted.addresses
                healthy |= {(owner, address) for address in serving}
            answer = self._there(RRKey(host, A))
            marks = {mark for text in self._there(mark_key(host, A)) if (mark := mark_from_text(text))}
            owned = {(mark.holder.owner, mark.value) for mark in marks}
            if not every and (answer or marks):
                yield "what_is_not_wanted_is_gone", f"{host} was deleted, and is {sorted(answer)}"
            elif (
                frozenset(address for _, address in owned) != answer
                or not healthy <= owned <= every
                or bool(every) != bool(owned)
            ):
                text = f"{host} is {sorted(answer)} of {sorted(owned)}, and should be {sorted(healthy or every)}"
                yield "names_are_answered", text


#: Seconds by which information may be late, as in the invariants of load balancers.
_LATE_S = 60.0


_TYPES = {int(dns.rdatatype.from_text(type_)): type_ for type_ in TYPES}


@lru_cache(maxsize=1000)
def _name_of(wire: bytes) -> str:
    return canonical_name(dns.name.from_wire(wire, 0)[0].to_text())


@lru_cache(maxsize=1000)
def _rrset(key: RRKey, rrset: RRSet) -> dns.rrset.RRset:
    records = [rdata_of(key.type, value) for value in sorted(rrset.values)]
    return dns.rrset.from_rdata_list(absolute(key.name), rrset.ttl, records)


def _key_of(rrset: dns.rrset.RRset) -> RRKey:
    return RRKey(canonical_name(rrset.name.to_text()), dns.rdatatype.to_text(rrset.rdtype))


def _values(rrset: dns.rrset.RRset) -> frozenset[str]:
    type_ = dns.rdatatype.to_text(rrset.rdtype)
    return frozenset(value_of(type_, rdata) for rdata in rrset)


# --- what users do ------------------------------------------------------------------------------------------------


def share(world: World, api: str, lease_s: str) -> None:
    """Create the DNSZone of one hub, or change the seconds of its lease."""
    spec = {
        "zone": ZONE,
        "provider": "rfc2136",
        "parameters": {"server": "192.0.2.53"},
        "ownerId": owner_of(api),
        "peerLeaseSeconds": int(lease_s),
    }
    world.apply(world.network.apis[api], "namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})
    world.apply(world.network.apis[api], "dnszones", {"metadata": {"name": "example"}, "spec": spec})
    world.zone.leases[api] = int(lease_s)


def publish(world: World, api: str, host: str, addresses: str, unhealthy: str) -> None:
    """Create or change the Hostname of one hub."""
    there = world.network.apis[api].get("hostnames", SYSTEM_NAMESPACE, host)
    if there is not None and there["metadata"].get("deletionTimestamp"):
        return  # its user waits until the former one is gone
    wanted, sick = addresses.split(","), [each for each in unhealthy.strip("-").split(",") if each]
    spec = {"host": host, "addresses": wanted, "unhealthyAddresses": sick}
    body = {"metadata": {"name": host, "namespace": SYSTEM_NAMESPACE}, "spec": spec}
    if world.apply(world.network.apis[api], "hostnames", body) < 300:
        name = world.zone.wanted.setdefault((api, host), Wanted())
        name.change(set(wanted), set(sick), world.loop.now_s)


def unpublish(world: World, api: str, host: str) -> None:
    """Delete the Hostname of one hub."""
    world.delete(world.network.apis[api], "hostnames", SYSTEM_NAMESPACE, host)
    world.zone.wanted.pop((api, host), None)


def cut(world: World, name: str) -> None:
    """Cut a process from the server of the zone."""
    world.zone.cut.setdefault(name, world.loop.now_s)


def trouble(world: World, name: str, rate: str) -> None:
    """Have a share of the messages of a process to the server fail, late or in silence."""
    world.zone.rate[name] = float(rate)


__all__ = ["HOSTS", "ZONE", "Zone", "cut", "owner_of", "publish", "share", "trouble", "unpublish"]
