"""HTTPS to the hub: enrol with a one-time token, renew the certificate, wait for the plan, send reports.

Any of the hubs may be asked; one that does not answer or does not lead is passed over, and the one that answered is
asked first the next time. Every hub proves itself as ``HUB_NAME``, by whatever address it is reached.

    401 Unauthorized    403 Forbidden    409 AlreadyExists    400 Invalid    503 NotLeading    others Unreachable

The sentence of each error is the hub's own.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec

from fairlead.api.json_text import read_json
from fairlead.errors import (
    AlreadyExists,
    BadConfiguration,
    FairleadError,
    Forbidden,
    Invalid,
    Unauthorized,
    Unreachable,
)
from fairlead.model.machine import (
    HUB_NAME,
    EnrolAnswer,
    EnrolRequest,
    ForwardingTable,
    HubProblem,
    MachinePlan,
    MachineReport,
    RenewRequest,
    fingerprint_of,
)
from fairlead.runtime.tls import client_context

T = TypeVar("T")


class NotLeading(Unreachable):
    """503: this hub is not the leader; another one leads or will do so soon."""


_ERRORS: dict[int, type[FairleadError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    409: AlreadyExists,
    503: NotLeading,
}


_TIMEOUT = aiohttp.ClientTimeout(total=15.0, connect=4.0)
#: The hub answers after 25 s at the latest.
_LONG_POLL = aiohttp.ClientTimeout(total=40.0, connect=4.0)
#: A hub that has just started leads after ten seconds if the one before was killed.
_LEADER_S = 30.0
#: Certificates are valid an hour before they are issued; announcements and reports compare clocks, too.
_SKEW_S = 300.0


#: OpenSSL's codes for certificates that are not valid yet, and that have expired.
_NOT_NOW = (9, 10)


class _Authorities(msgspec.Struct):
    ca: str = ""


class HubClient:
    """The hubs of one machine. ``tls`` returns the context of new connections."""

    def __init__(self, hubs: tuple[str, ...], tls: Callable[[], ssl.SSLContext]) -> None:
        self.hubs = hubs
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        #: Waits for the last answers to requests with the certificate before.
        self._former: aiohttp.ClientSession | None = None

    async def renew(self, csr: str) -> EnrolAnswer:
        """Return a new certificate for the same machine."""
        return _whole(await self._ask("POST", "/v1/renew", EnrolAnswer, RenewRequest(csr=csr)))

    async def authorities(self) -> str:
        """Return the authorities that the hubs trust now, as PEM."""
        return _whole(await self._ask("GET", "/v1/ca", _Authorities)).ca

    async def plan(self, after: str) -> MachinePlan | None:
        """Return the plan once its version differs from ``after``; None when nothing has changed for a while."""
        return await self._ask("GET", f"/v1/plan?{urlencode({'after': after})}", MachinePlan, timeout=_LONG_POLL)

    async def forwarding(self, after: str) -> ForwardingTable | None:
        """Return what the kernel forwards, or what changed since version ``after``; None if nothing has for a while."""
        path = f"/v1/forwarding?{urlencode({'after': after})}"
        return await self._ask("GET", path, ForwardingTable, timeout=_LONG_POLL)

    async def report(self, report: MachineReport) -> None:
        """Send the state of this machine."""
        await self._ask("POST", "/v1/report", MachineReport, report)

    async def reconnect(self) -> None:
        """Use the present certificate and authorities for new requests; open requests are completed."""
        former, self._former, self._session = self._former, self._session, None
        if former is not None:
            await former.close()

    async def close(self) -> None:
        """Close all connections."""
        await self.reconnect()
        await self.reconnect()

    async def _ask(
        self,
        method: str,
        path: str,
        as_type: type[T],
        body: msgspec.Struct | None = None,
        *,
        timeout: aiohttp.ClientTimeout = _TIMEOUT,
    ) -> T | None:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._tls()))
        problems: list[FairleadError] = []
        for hub in self.hubs:
            try:
                answer = await _ask(self._session, hub, method, path, as_type, body, timeout=timeout)
            except Unreachable as error:
                problems.append(error)
                continue
            self.hubs = (hub, *(other for other in self.hubs if other != hub))
            return answer
        raise problems[0] if problems else Unreachable("the hub has no address")


async def join(hub: str, *, token: str, fingerprint: str, name: str, csr: str) -> EnrolAnswer:
    """Enrol this machine with a one-time token.

    Raises:
        BadConfiguration: the hub at this address is not the one of ``fingerprint``, or the clocks differ.
        FairleadError: the hub cannot be reached, or refuses the token or the name.
    """
    # What is read before the hub has proved itself is only used when its digest is that of the command.
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=unverified)) as session:
        dates: list[str] = []
        authorities = _whole(await _ask(session, hub, "GET", "/v1/ca", _Authorities, dates=dates))
    digest = fingerprint_of(authorities.ca)
    if digest != fingerprint.strip().lower():
        raise BadConfiguration(
            f"the fingerprint of the hub at {hub} is {digest}, not the one of --ca-fingerprint. It is another hub, or "
            "the connection is intercepted. Compare with the command that fairlead proxy token printed"
        )
    ahead_s = _ahead_s(dates) or 0.0
    if abs(ahead_s) > _SKEW_S:
        side = "ahead of" if ahead_s > 0 else "behind"
        raise BadConfiguration(
            f"the clock of this machine is {abs(ahead_s):.0f} s {side} the hub's; set it (timedatectl set-ntp true), "
            "then run the same command again"
        )
    request = EnrolRequest(token=token, name=name, csr=csr, clock=datetime.now(UTC).timestamp())
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=client_context(authorities.ca.encode()))
    ) as session:
        return await _enrol(session, hub, request)


async def look_at(hub: str, tls: ssl.SSLContext) -> tuple[str, float | None]:
    """Ask a hub for the plan; return why it does not answer this machine, and how far our clock is ahead of its."""
    dates: list[str] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
        try:
            await _ask(session, hub, "GET", f"/v1/plan?{urlencode({'after': 'none'})}", MachinePlan, dates=dates)
            problem = ""
        except NotLeading:
            problem = ""  # it would answer if it led
        except FairleadError as error:
            problem = error.sentence
    return problem, _ahead_s(dates)


async def _enrol(session: aiohttp.ClientSession, hub: str, request: EnrolRequest) -> EnrolAnswer:
    end_s = time.monotonic() + _LEADER_S
    while True:
        try:
            return _whole(await _ask(session, hub, "POST", "/v1/enrol", EnrolAnswer, request))
        except NotLeading:
            if time.monotonic() > end_s:
                raise
            await asyncio.sleep(1.0)


async def _ask(
    session: aiohttp.ClientSession,
    hub: str,
    method: str,
    path: str,
    as_type: type[T],
    body: msgspec.Struct | None = None,
    *,
    timeout: aiohttp.ClientTimeout = _TIMEOUT,
    dates: list[str] | None = None,
) -> T | None:
    data = None if body is None else msgspec.json.encode(body)
    headers = {} if body is None else {"Content-Type": "application/json"}
    try:
        async with session.request(
            method, f"https://{hub}{path}", data=data, headers=headers, timeout=timeout, server_hostname=HUB_NAME
        ) as answer:
            status, text = answer.status, await answer.read()
            if dates is not None:
                dates.append(answer.headers.get("Date", ""))
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unreachable(f"the hub at {hub} does not answer: {_cause(error)}", detail=repr(error)) from error
    if status == 204:
        return None
    if status != 200:
        problem = read_json(text, HubProblem)
        sentence = problem.message if problem is not None else f"the hub at {hub} answered with HTTP status {status}"
        raise _ERRORS.get(status, Unreachable)(sentence)
    value = read_json(text, as_type)
    if value is None:
        raise Unreachable(f"the hub at {hub} answered {path} with something else than expected; is it a Fairlead hub?")
    return value


def _whole(value: T | None) -> T:
    if value is None:
        raise Unreachable("the hub has answered without content")
    return value


def _cause(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "no answer in time"
        case aiohttp.ClientConnectorCertificateError(
            certificate_error=ssl.SSLCertVerificationError(verify_code=code)
        ) if code in _NOT_NOW:
            return (
                f"the hub's certificate is not valid at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, the time of this "
                "machine; set the clock that is wrong (timedatectl set-ntp true)"
            )
        case aiohttp.ClientConnectorCertificateError():
            return "this machine does not trust the authority of that server's certificate"
        case aiohttp.ClientConnectorError(os_error=reason) | reason:
            number = reason.errno if isinstance(reason, OSError) else None
            return os.strerror(number) if number else str(reason) or type(reason).__name__


def _ahead_s(dates: Sequence[str]) -> float | None:
    """Return how far our clock is ahead of a server's, by the Date of its last answer; None without one."""
    try:
        return (datetime.now(UTC) - parsedate_to_datetime(dates[-1])).total_seconds() if dates else None
    except ValueError:
        return None
