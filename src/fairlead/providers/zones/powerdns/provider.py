"""Provider ``powerdns``: names in zones of PowerDNS servers, through its HTTP API.

    read     the records that PowerDNS answers; disabled ones are not among them
    update   the sets are read again, and written with our values added or removed and every other record as it was

PowerDNS replaces only whole sets of records. In: edits. Out: sets that were replaced, or an error whose sentence has
the next step. Never: a record of another client that is changed, enabled or lost, a duplicate of a disabled one, a key
in a message, a redirect that is followed, or an answer larger than the largest zone that is expected.
Source: https://doc.powerdns.com/authoritative/http-api/zone.html
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

import aiohttp
import dns.exception
import dns.rdata
import dns.rdtypes.ANY.TXT
import msgspec

from fairlead.api.json_text import decode, read_json
from fairlead.api.meta import JSONObject
from fairlead.errors import BadConfiguration, Retry
from fairlead.kube.cluster import Cluster
from fairlead.providers.zones.answers import AnsweringServer, rdata_of, value_of
from fairlead.providers.zones.plan import (
    CNAME,
    EMPTY,
    TYPES,
    Edit,
    RRKey,
    RRSet,
    RRSets,
    canonical_name,
    mark_from_text,
    mark_key,
    marked,
)
from fairlead.providers.zones.provider import DNSProvider
from fairlead.providers.zones.settings import HubSecrets, Secrets, ServerSettings
from fairlead.runtime.clock import Clock, SystemClock


def create(
    *, cluster: Cluster | None = None, clock: Clock | None = None, secrets: Secrets | None = None
) -> DNSProvider:
    """Make the provider (entry point ``powerdns``); ``secrets``: where keys are read, by default at the hub."""
    clock = clock or SystemClock()
    keys = secrets or HubSecrets(cluster, clock=clock)
    return DNSProvider(
        make=lambda settings: PowerDNSServer(settings, secrets=keys), own=PARAMETERS, clock=clock, leases=True
    )


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
        """Replace the sets that ``edits`` are about; False when one of them, or of ``as_read``, has changed.

        The API has no condition: the zone is read once more right before, so that only a change of another client
        within that one moment could be lost.
        """
        by_key: dict[RRKey, list[Edit]] = {}
        for edit in edits:
            by_key.setdefault(edit.key, []).append(edit)
        needed = by_key.keys() | frozenset[RRKey]().union(*(edit.as_read for edit in edits))
        now = await self._sets()
        if any(_values(now.get(key)) != there.get(key, EMPTY).values for key in needed):
            return False
        merged = [_merged(key, key_edits, now.get(key), there) for key, key_edits in by_key.items()]
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
                # Of equal records, the one in the form in which Fairlead writes it.
                written = (record for record in enabled if _rdata(key.type, record) == rdata_of(key.type, edit.value))
                records.remove(next(written, enabled[0]))
            continue
        if not any(record.disabled for record in records):
            ttl = edit.ttl
        disabled = [record for record in same if record.disabled]
        if disabled and not _is_ours(edit, there):
            raise Retry(
                f"{key.name} has a disabled record {key.type} {edit.value[:100]} in PowerDNS that Fairlead did not "
                "create; delete it there, or choose another host",
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
            f"PowerDNS lists a {type_} record that cannot be read; check it there", reason="DNSBadAnswer"
        ) from error


SECRET_ENTRY = "api-key"  # noqa: S105 - the name of an entry
_LONGEST_ANSWER = 1 << 28
_CHUNK = 1 << 16
_STEPS = {
    401: f"the key is not accepted; entry {SECRET_ENTRY} of the Secret must be its api-key",
    403: f"the key is not accepted; entry {SECRET_ENTRY} of the Secret must be its api-key",
    404: "the server has no such zone; create it there, or correct spec.zone and parameters.serverId",
    422: "the records are rejected; the message says why",
}


class ApiRecord(msgspec.Struct, frozen=True):
    """One record of a set."""

    content: str
    disabled: bool = False


class ApiSet(msgspec.Struct, frozen=True):
    """A set of records, as the API has it."""

    name: str
    type: str
    ttl: int = 0
    records: tuple[ApiRecord, ...] = ()


class _ApiZone(msgspec.Struct, frozen=True):
    # Without a default: an answer that does not have it is not an empty zone.
    rrsets: tuple[ApiSet, ...]


class _ApiError(msgspec.Struct, frozen=True):
    error: str = ""


class PowerDNSApi:
    """The API of the server of one zone."""

    def __init__(self, settings: ServerSettings, *, secrets: Secrets) -> None:
        self._settings = settings
        self._secrets = secrets
        url = settings.other("url").rstrip("/")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise BadConfiguration(
                "parameters.url of the DNSZone must be the URL of PowerDNS's API, such as http://192.0.2.53:8081, "
                "without a user or password"
            )
        if not settings.credentials:
            raise BadConfiguration("parameters.credentials of the DNSZone is missing: name the Secret with the api-key")
        server = settings.other("serverId", "localhost")
        self._url = f"{url}/api/v1/servers/{server}/zones/{settings.zone}."
        self._session: aiohttp.ClientSession | None = None

    async def sets(self) -> tuple[ApiSet, ...]:
        """Return all sets of the zone.

        A query for one name (``rrset_name``) leaves out disabled records before PowerDNS 5.
        """
        raw = await self._call("GET", {})
        try:
            return decode(raw, _ApiZone).rrsets
        except msgspec.DecodeError as error:
            raise self._bad_answer("an answer that cannot be read") from error

    async def check(self) -> None:
        """Raise what is wrong with zone, address or key."""
        await self._call("GET", {"rrsets": "false"})

    async def patch(self, rrsets: list[JSONObject]) -> None:
        """Replace or delete whole sets."""
        await self._call("PATCH", {}, {"rrsets": rrsets})

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _call(self, method: str, query: Mapping[str, str], body: object = None) -> bytes:
        settings = self._settings
        where = f"PowerDNS at {settings.other('url')}"
        headers = {"X-API-Key": await self._secrets.entry(settings.credentials, SECRET_ENTRY)}
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        try:
            async with (
                asyncio.timeout(settings.timeout_s),
                self._session.request(
                    method, self._url, params=query, json=body, headers=headers, allow_redirects=False
                ) as answer,
            ):
                raw = await self._read(answer)
                status = answer.status
        except TimeoutError:
            text = f"gave no answer within {settings.timeout_s:g} s; the hub retries. Raise parameters.timeout"
            raise Retry(f"{where} {text}", reason="DNSTimeout") from None
        except aiohttp.ClientError as error:
            raise Retry(
                f"{where} cannot be reached; check that its API is on (api=yes), and parameters.url",
                detail=type(error).__name__,
                reason="DNSUnreachable",
            ) from error
        if status >= 300:
            step, problem = _STEPS.get(status, "check its log"), read_json(raw, _ApiError)
            reason = f" ({'no message' if problem is None else problem.error[:200]})" if status == 422 else ""
            raise Retry(f"{where} answers {status} about zone {settings.zone}: {step}{reason}", reason=f"DNS{status}")
        return raw

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        """Return the whole answer, which comes in as many parts as the network makes of it."""
        raw = bytearray()
        async for chunk in answer.content.iter_chunked(_CHUNK):
            raw += chunk
            if len(raw) > _LONGEST_ANSWER:
                raise self._bad_answer(f"more than {_LONGEST_ANSWER} bytes")
        return bytes(raw)

    def _bad_answer(self, what: str) -> Retry:
        settings = self._settings
        return Retry(
            f"PowerDNS at {settings.other('url')} gives {what} about zone {settings.zone}; the hub retries. "
            "Check that parameters.url is that of PowerDNS's API",
            reason="DNSBadAnswer",
        )
