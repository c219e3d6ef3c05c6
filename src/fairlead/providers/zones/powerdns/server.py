"""A zone at PowerDNS, where only whole sets of records can be replaced.

    read     the sets as the API has them, with records that are disabled
    update   each set with ours added and taken away, everything else in it as it was read, which is looked at once more
             before the one call for many names

In: edits. Out: sets that were replaced. Never: a set that is replaced without what others have in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import dns.exception
import dns.rdata

from fairlead.errors import Retry
from fairlead.providers.zones.answers import AnsweringServer, rdata_of, value_of
from fairlead.providers.zones.powerdns.api import ApiRecord, ApiSet, PowerDNSApi
from fairlead.providers.zones.rrsets import Edit, RRKey, RRSet, RRSets, canonical_name
from fairlead.providers.zones.secrets import Secrets
from fairlead.providers.zones.settings import ServerSettings

#: The parameters of a DNSZone that only this provider has.
PARAMETERS = frozenset({"url", "serverId"})
#: From so many names on the whole zone is read at once.
_MANY = 8


class PowerDNSServer(AnsweringServer):
    """One zone at a PowerDNS."""

    def __init__(self, settings: ServerSettings, *, secrets: Secrets) -> None:
        super().__init__(settings)
        self._api = PowerDNSApi(settings, secrets=secrets)
        #: The records of the sets that were read last, as the API has them.
        self._read: dict[RRKey, tuple[ApiRecord, ...]] = {}

    async def check(self) -> int:
        """Ask the API for the zone, and the server for its serial, which is returned."""
        await self._api.check()
        return await self.serial()

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        """Return what the zone has, disabled records included."""
        sets = await self._sets(set(keys))
        self._read = {key: each.records for key, each in sets.items()}
        return {key: _rrset(each) for key, each in sets.items()}

    async def update(self, edits: Sequence[Edit], there: RRSets) -> bool:
        """Replace the sets that ``edits`` are about; False when one of them is no longer as it was read.

        The API has no condition: they are read once more right before, so that only a change of another client within
        that one moment could be lost.
        """
        by_key: dict[RRKey, list[Edit]] = {}
        for edit in edits:
            by_key.setdefault(edit.key, []).append(edit)
        now = await self._sets(set(by_key))
        if any(set(self._read.get(key, ())) != _records(now.get(key)) for key in by_key):
            return False
        merged = [_merged(key, each, there.get(key), self._read.get(key, ())) for key, each in by_key.items()]
        # Deletions first: a CNAME may stand beside nothing, not even for a moment.
        await self._api.patch(sorted(merged, key=lambda rrset: rrset["changetype"] != "DELETE"))
        return True

    async def _sets(self, wanted: set[RRKey]) -> dict[RRKey, ApiSet]:
        names = sorted({key.name for key in wanted})
        parts = [await self._api.sets(name) for name in names] if len(names) < _MANY else [await self._api.sets()]
        sets = {_key(each): each for part in parts for each in part}
        return {key: sets[key] for key in wanted & sets.keys()}

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()
        await super().close()


def _merged(key: RRKey, edits: Sequence[Edit], there: RRSet | None, records: Sequence[ApiRecord]) -> dict[str, Any]:
    """Return the set as it is to be: what was read, less what is deleted, and what is added."""
    gone = {edit.value for edit in edits if not edit.add}
    kept = {_value(key.type, record): record for record in records}
    wanted = {value: record for value, record in kept.items() if value not in gone}
    ttl = there.ttl if there is not None else 0
    for edit in edits:
        if edit.add:
            wanted.setdefault(edit.value, ApiRecord(rdata_of(key.type, edit.value).to_text()))
            ttl = edit.ttl
    name = {"name": f"{key.name}.", "type": key.type}
    if not wanted:
        return {**name, "changetype": "DELETE"}
    rows = [{"content": record.content, "disabled": record.disabled} for record in wanted.values()]
    return {**name, "changetype": "REPLACE", "ttl": ttl, "records": rows}


def _records(rrset: ApiSet | None) -> set[ApiRecord]:
    return set(rrset.records) if rrset is not None else set()


def _key(rrset: ApiSet) -> RRKey:
    return RRKey(canonical_name(rrset.name), rrset.type)


def _rrset(rrset: ApiSet) -> RRSet:
    return RRSet(frozenset(_value(rrset.type, record) for record in rrset.records), rrset.ttl)


def _value(type_: str, record: ApiRecord) -> str:
    try:
        return value_of(type_, dns.rdata.from_text("IN", type_, record.content))
    except dns.exception.DNSException as error:
        raise Retry(
            f"PowerDNS lists a {type_} record that cannot be read; look at it there", reason="DNSBadAnswer"
        ) from error
