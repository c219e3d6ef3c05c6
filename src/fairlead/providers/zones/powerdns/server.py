"""A zone at PowerDNS, where only whole sets of records can be replaced.

    read     the records that PowerDNS answers; disabled ones are not among them
    update   the sets are read again, and written with our values added or removed and every other record as it was

In: edits. Out: sets that were replaced. Never: a record of another client that is changed, enabled or lost, or a
duplicate of a disabled one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dns.exception
import dns.rdata
import dns.rdtypes.ANY.TXT

from fairlead.api.meta import JSONObject
from fairlead.errors import Retry
from fairlead.providers.zones.answers import AnsweringServer, rdata_of, value_of
from fairlead.providers.zones.marks import mark_from_text, mark_key, marked
from fairlead.providers.zones.powerdns.api import ApiRecord, ApiSet, PowerDNSApi
from fairlead.providers.zones.rrsets import CNAME, EMPTY, TYPES, Edit, RRKey, RRSet, RRSets, canonical_name
from fairlead.providers.zones.secrets import Secrets
from fairlead.providers.zones.settings import ServerSettings

#: The parameters of a DNSZone that only this provider has.
PARAMETERS = frozenset({"url", "serverId"})


class PowerDNSServer(AnsweringServer):
    """One zone at a PowerDNS."""

    def __init__(self, settings: ServerSettings, *, secrets: Secrets) -> None:
        super().__init__(settings)
        self._api = PowerDNSApi(settings, secrets=secrets)

    async def check(self) -> int:
        """Ask the API for the zone, and the server for its serial, which is returned."""
        await self._api.check()
        return await self.serial()

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        """Return the enabled records of ``keys``, and those of other types where a CNAME is asked for."""
        wanted = set(keys)
        aliases = {key.name for key in wanted if key.type == CNAME}
        sets = await self._sets()
        rrsets = {key: _rrset(sets[key]) for key in sets if key in wanted or key.name in aliases}
        return {key: rrset for key, rrset in rrsets.items() if rrset.values}

    async def update(self, edits: Sequence[Edit], there: RRSets) -> bool:
        """Replace the sets that ``edits`` are about; False when one of them is no longer as in ``there``.

        The API has no condition: the zone is read once more right before, so that only a change of another client
        within that one moment could be lost.
        """
        by_key: dict[RRKey, list[Edit]] = {}
        for edit in edits:
            by_key.setdefault(edit.key, []).append(edit)
        now = await self._sets()
        if any(_values(now.get(key)) != there.get(key, EMPTY).values for key in by_key):
            return False
        merged = [_merged(key, each, now.get(key), there) for key, each in by_key.items()]
        # Deletions first: PowerDNS refuses a CNAME next to other records, even for a moment.
        await self._api.patch(sorted(merged, key=lambda rrset: rrset["changetype"] != "DELETE"))
        return True

    async def _sets(self) -> dict[RRKey, ApiSet]:
        return {RRKey(canonical_name(rrset.name), rrset.type): rrset for rrset in await self._api.sets()}

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()
        await super().close()


def _merged(key: RRKey, edits: Sequence[Edit], now: ApiSet | None, there: RRSets) -> JSONObject:
    """Return the set as it is to be: the records as they are, without those to delete, with those to add."""
    records = list(now.records) if now is not None else []
    ttl = now.ttl if now is not None else 0
    for edit in edits:
        same = [record for record in records if _is_value(key.type, record, edit.value)]
        if not edit.add:
            if enabled := [record for record in same if not record.disabled]:
                records.remove(_as_written(enabled, key.type, edit.value))
            continue
        if not any(record.disabled for record in records):
            ttl = edit.ttl
        disabled = [record for record in same if record.disabled]
        if disabled and not _is_ours(edit, there):
            raise Retry(
                f"{key.name} has a disabled record {key.type} {edit.value[:100]} in PowerDNS that Fairlead has not "
                "made; delete it there, or choose another host",
                reason="DNSRecordDisabled",
            )
        if disabled or not same:
            records = [record for record in records if record not in disabled]
            records.append(ApiRecord(rdata_of(key.type, edit.value).to_text()))
    if key.type == CNAME and len(records) > 1:
        raise Retry(
            f"{key.name} has a disabled CNAME record in PowerDNS, which allows one CNAME for a name; delete it there, "
            "or choose another host",
            reason="DNSRecordDisabled",
        )
    name = {"name": f"{key.name}.", "type": key.type}
    if not records:
        return {**name, "changetype": "DELETE"}
    rows = [{"content": record.content, "disabled": record.disabled} for record in records]
    return {**name, "changetype": "REPLACE", "ttl": ttl, "records": rows}


def _is_ours(edit: Edit, there: RRSets) -> bool:
    """Return whether a record with this value was made by Fairlead: a mark, or a value that one names."""
    texts = there.get(mark_key(*edit.key), EMPTY).values
    return mark_from_text(edit.value) is not None or marked(edit.value) in {
        mark.value for mark in map(mark_from_text, texts) if mark is not None
    }


def _is_value(type_: str, record: ApiRecord, value: str) -> bool:
    """Return whether ``record`` has exactly this value; texts are compared as bytes, however they are cut."""
    there, ours = _rdata(type_, record), rdata_of(type_, value)
    if isinstance(there, dns.rdtypes.ANY.TXT.TXT) and isinstance(ours, dns.rdtypes.ANY.TXT.TXT):
        return b"".join(there.strings) == b"".join(ours.strings)
    return value_of(type_, there) == value


def _as_written(records: Sequence[ApiRecord], type_: str, value: str) -> ApiRecord:
    """Return the one of these equal records that has the form in which Fairlead writes it."""
    ours = rdata_of(type_, value)
    return next((record for record in records if _rdata(type_, record) == ours), records[0])


def _values(rrset: ApiSet | None) -> frozenset[str]:
    return _rrset(rrset).values if rrset is not None else frozenset()


def _rrset(rrset: ApiSet) -> RRSet:
    """Return what PowerDNS answers of a set; types that no Hostname has are as the API writes them."""
    enabled = [record for record in rrset.records if not record.disabled]
    if rrset.type not in TYPES:
        return RRSet(frozenset(record.content for record in enabled), rrset.ttl)
    return RRSet(frozenset(value_of(rrset.type, _rdata(rrset.type, record)) for record in enabled), rrset.ttl)


def _rdata(type_: str, record: ApiRecord) -> dns.rdata.Rdata:
    try:
        return dns.rdata.from_text("IN", type_, record.content)
    except dns.exception.DNSException as error:
        raise Retry(
            f"PowerDNS lists a {type_} record that cannot be read; look at it there", reason="DNSBadAnswer"
        ) from error
