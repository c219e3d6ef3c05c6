"""The client of PowerDNS's HTTP API.

In: a path and a body. Out: the decoded answer, or an error whose sentence says what to do. Never: a key in a message,
a redirect that is followed, or an answer larger than the largest zone that is expected.
Source: https://doc.powerdns.com/authoritative/http-api/zone.html
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

import aiohttp
import msgspec

from fairlead.api.json_text import decode, read_json
from fairlead.api.meta import JSONObject
from fairlead.errors import BadConfiguration, Retry
from fairlead.providers.zones.secrets import Secrets
from fairlead.providers.zones.settings import ServerSettings

SECRET_ENTRY = "api-key"  # noqa: S105 - the name of an entry
_LONGEST_ANSWER = 1 << 28
_CHUNK = 1 << 16
_STEPS = {
    401: f"it does not accept the key; entry {SECRET_ENTRY} of the Secret must be its api-key",
    403: f"it does not accept the key; entry {SECRET_ENTRY} of the Secret must be its api-key",
    404: "it has no such zone; create it there, or correct spec.zone and parameters.serverId",
    422: "it refuses the records; its message says why",
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
            text = f"gave no answer within {settings.timeout_s:g} s; it is asked again, or raise parameters.timeout"
            raise Retry(f"{where} {text}", reason="DNSTimeout") from None
        except aiohttp.ClientError as error:
            raise Retry(
                f"{where} cannot be reached; check that its API is on (api=yes), and parameters.url",
                detail=type(error).__name__,
                reason="DNSUnreachable",
            ) from error
        if status >= 300:
            step = _STEPS.get(status, "look into its log")
            said = f" ({_message(raw)})" if status == 422 else ""
            raise Retry(f"{where} answers {status} about zone {settings.zone}: {step}{said}", reason=f"DNS{status}")
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
            f"PowerDNS at {settings.other('url')} gives {what} about zone {settings.zone}; it is asked again. "
            "Check that parameters.url is that of PowerDNS's API",
            reason="DNSBadAnswer",
        )


def _message(raw: bytes) -> str:
    error = read_json(raw, _ApiError)
    return error.error[:200] if error is not None else "no message"
