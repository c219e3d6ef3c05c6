"""Provider ``rfc2136``: names in zones of servers that take dynamic updates.

    prerequisites   what was read as absent still is: a CNAME and an address never meet, no other client is overtaken;
                    an address is withdrawn only from the set that was read, so that two hubs never empty it, and
                    that of another hub only while its lease is the one that expired
    deletions       single records, never whole sets
    additions       single records with their TTL

One message carries many names, and is applied as a whole or not at all. In: edits. Out: whether they were applied.
Never: an edit that the caller did not ask for.
Source: https://www.rfc-editor.org/rfc/rfc2136
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Sequence

import dns.exception
import dns.name
import dns.rcode
import dns.tsigkeyring
import dns.update

from fairlead.errors import BadConfiguration, Retry
from fairlead.kube.cluster import Cluster
from fairlead.providers.zones.answers import AnsweringServer, absolute, rdata_of, refused
from fairlead.providers.zones.peers import is_lease
from fairlead.providers.zones.plan import (
    ANY,
    CNAME,
    EMPTY,
    TXT,
    TYPES,
    Edit,
    RRKey,
    RRSets,
    is_mark,
    mark_from_text,
    mark_key,
)
from fairlead.providers.zones.provider import DNSProvider
from fairlead.providers.zones.settings import HubSecrets, Secrets, ServerSettings
from fairlead.runtime.clock import Clock, SystemClock


def create(
    *, cluster: Cluster | None = None, clock: Clock | None = None, secrets: Secrets | None = None
) -> DNSProvider:
    """Make the provider (entry point ``rfc2136``); ``secrets``: where keys are read, by default at the hub."""
    clock = clock or SystemClock()
    keys = secrets or HubSecrets(cluster, clock=clock)
    return DNSProvider(
        make=lambda settings: UpdateServer(settings, secrets=keys), own=PARAMETERS, clock=clock, leases=True
    )


#: The parameters of a DNSZone that only this provider has.
PARAMETERS = frozenset({"keyName", "algorithm"})
SECRET_ENTRY = "tsig-secret"  # noqa: S105 - the name of an entry
_ALGORITHMS = {name: dns.name.from_text(name) for name in ("hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512")}
_CHANGED = frozenset({dns.rcode.YXDOMAIN, dns.rcode.YXRRSET, dns.rcode.NXRRSET, dns.rcode.NXDOMAIN})


class UpdateServer(AnsweringServer):
    """One zone at a server that takes updates."""

    def __init__(self, settings: ServerSettings, *, secrets: Secrets) -> None:
        check(settings)
        super().__init__(settings)
        self._secrets = secrets

    async def check(self) -> int:
        """Ask for the zone's serial, which is returned."""
        return await self.serial()

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        """Return what the zone has, with records of any type where a CNAME is asked for.

        What only a wildcard makes up is not in it.
        """
        wanted = set(keys)
        there = await self.answers(wanted | {RRKey(key.name, ANY) for key in wanted if key.type == CNAME})
        doubtful = [key for key in there if _may_be_made_up(key, there)]
        if doubtful and not await self._are_absent(doubtful):
            doubtful = [key for key in doubtful if await self._are_absent([key])]
        return {key: rrset for key, rrset in there.items() if key not in doubtful}

    async def update(self, edits: Sequence[Edit], there: RRSets) -> bool:
        """Send one update; False when a prerequisite no longer holds."""
        message = await self._message()
        for key, names_any in _absences(edits, there):
            message.absent(absolute(key.name), *(() if names_any else (key.type,)))
        for key in sorted(frozenset[RRKey]().union(*(edit.as_read for edit in edits))):
            if values := sorted(there.get(key, EMPTY).values):
                message.present(absolute(key.name), *(rdata_of(key.type, value) for value in values))
            else:
                message.absent(absolute(key.name), key.type)
        for edit in edits:
            name, rdata = absolute(edit.key.name), rdata_of(edit.key.type, edit.value)
            if edit.add:
                message.add(name, edit.ttl, rdata)
            else:
                message.delete(name, rdata)
        rcode = await self._send(message)
        if rcode == dns.rcode.YXDOMAIN:
            await self._require_free({edit.key.name for edit in edits if edit.add and edit.key.type == CNAME})
        if rcode in _CHANGED:
            return False
        if rcode != dns.rcode.NOERROR:
            raise self._refused(rcode)
        return True

    # --- inside -----------------------------------------------------------------------------------------------

    async def _require_free(self, names: Iterable[str]) -> None:
        """Raise ``Retry`` for a name that is in use although no question shows a record of it.

        A server that does not answer questions for all types (RFC 8482) does not say which records these are.
        """
        for name in sorted(names):
            message = await self._message()
            message.absent(absolute(name))
            keys = {RRKey(name, type_) for type_ in (*TYPES, ANY)}
            if await self._send(message) == dns.rcode.YXDOMAIN and not await self.answers(keys):
                raise Retry(
                    f"{name} has records of a type that DNS server {self._settings.name} does not show. A name with a "
                    "CNAME cannot have others; delete them, or choose another host",
                    reason="DNSNameInUse",
                )

    async def _are_absent(self, keys: Sequence[RRKey]) -> bool:
        """Say whether the zone has nothing at these names, although the server answers: a wildcard covers the names.

        A name with records that are not the answered ones has records from which the server computes these.
        Only prerequisites of an update look at the zone itself (RFC 2136, 3.2).
        """
        message = await self._message()
        for name in dict.fromkeys(key.name for key in keys):
            message.absent(absolute(name))
        rcode = await self._send(message)
        if rcode not in (dns.rcode.NOERROR, *_CHANGED):
            raise self._refused(rcode)
        return rcode == dns.rcode.NOERROR

    async def _send(self, message: dns.update.UpdateMessage) -> dns.rcode.Rcode:
        """Return what the server answers; an answer that counts must be signed when the update was (RFC 8945, 5.3)."""
        answer = await self._connection.ask(message)
        rcode = answer.rcode()
        if message.keyring and not answer.had_tsig and rcode in (dns.rcode.NOERROR, *_CHANGED):
            settings = self._settings
            raise Retry(
                f"DNS server {settings.name} of zone {settings.zone} answers an update without a signature. "
                "Check that parameters.server accepts updates with parameters.keyName",
                reason="DNSNotSigned",
            )
        return rcode

    def _refused(self, rcode: dns.rcode.Rcode) -> Retry:
        if rcode != dns.rcode.REFUSED:
            return refused(rcode, self._settings, what="an update")
        settings = self._settings
        return Retry(
            f"DNS server {settings.name} answers an update about zone {settings.zone} with REFUSED. "
            "Allow the key by allow-update or update-policy in the server's configuration",
            reason="DNSRefused",
        )

    async def _message(self) -> dns.update.UpdateMessage:
        settings = self._settings
        message = dns.update.UpdateMessage(absolute(settings.zone))
        if settings.credentials:
            secret = await self._secrets.entry(settings.credentials, SECRET_ENTRY)
            try:
                keyring = dns.tsigkeyring.from_text({settings.other("keyName"): secret})
            except (binascii.Error, ValueError):
                raise BadConfiguration(
                    f"entry {SECRET_ENTRY} of Secret {settings.credentials} is not base64; replace it"
                ) from None
            algorithm = _ALGORITHMS[settings.other("algorithm", "hmac-sha256")]
            message.use_tsig(keyring, dns.name.from_text(settings.other("keyName")), algorithm=algorithm)
        return message


def check(settings: ServerSettings) -> None:
    """Raise ``BadConfiguration`` for parameters that cannot be right."""
    if settings.other("algorithm", "hmac-sha256") not in _ALGORITHMS:
        raise BadConfiguration(f"parameters.algorithm of the DNSZone is none of {', '.join(_ALGORITHMS)}")
    if bool(settings.credentials) != bool(settings.other("keyName")):
        raise BadConfiguration("parameters.keyName and parameters.credentials of the DNSZone belong together: set both")
    try:
        dns.name.from_text(settings.other("keyName", "none"))
    except dns.exception.DNSException:
        raise BadConfiguration("parameters.keyName of the DNSZone is not a DNS name") from None


def _absences(edits: Sequence[Edit], there: RRSets) -> list[tuple[RRKey, bool]]:
    """Return which sets must not be there; True: no set of any type under that name."""
    added = {edit.key for edit in edits if edit.add and not is_mark(edit)}
    touched = {edit.key.name for edit in edits if not edit.add and not is_mark(edit)}
    absent: list[tuple[RRKey, bool]] = []
    for key in sorted(added):
        empty = all(not there.get(RRKey(key.name, type_), EMPTY).values for type_ in TYPES)
        if key.type == CNAME and empty and key.name not in touched:
            absent.append((key, True))
        elif key.type != CNAME:
            if key.type != TXT and not there.get(key, EMPTY).values:
                absent.append((key, False))
            if not there.get(RRKey(key.name, CNAME), EMPTY).values:
                absent.append((RRKey(key.name, CNAME), False))
    return absent


def _may_be_made_up(key: RRKey, there: RRSets) -> bool:
    """Return whether a wildcard may be all that is behind an answer: no mark of a hub is there for it."""
    if "*" in key.name or any(mark_from_text(text) or is_lease(text) for text in there[key].values):
        return False
    marks = there.get(mark_key(key.name, key.type), EMPTY).values
    return not any(map(mark_from_text, marks))
