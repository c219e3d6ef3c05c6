"""One step of one order: what the authority is asked next, and what is on record afterwards.

In: a ManagedCertificate, a client with an account. Out: the next status, or a chain with its key. Each step may be
repeated: what was done is on record before the next step is, but for the key of a certificate, which is in this process
only until it is in its Secret. A process that ends in between begins a new order.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from fairlead.api.managedcertificate import CertificateIssuer, CertificateOrder, ManagedCertificate, OrderChallenge
from fairlead.api.times import parsed_time, wire_time
from fairlead.errors import Terminal
from fairlead.hub.certificates.keys import in_thread, new_key, signing_request
from fairlead.hub.certificates.order import OrderStep, RemoteOrder, choose_challenges, failure_of, next_step, shown
from fairlead.hub.certificates.solvers import Solvers
from fairlead.model.condition import ConditionReason

if TYPE_CHECKING:
    from fairlead.hub.certificates.client import AcmeClient

#: A challenge that is not answered by then is not going to be: users read why, and the order is repeated.
ANSWER_LIMIT = timedelta(minutes=5)
_LOOK_S = 0.5
_POLL_S = 1.0
_LONGEST_POLL_S = 30.0


class IssuedCertificate(msgspec.Struct, frozen=True):
    """A certificate with its key, both PEM, and the order that it came from."""

    chain: bytes
    key: bytes
    order: str

    def __repr__(self) -> str:
        return f"Made(order={self.order!r})"


class Progress(msgspec.Struct, frozen=True):
    """The progress of an order: the order to record (None: begin again), what it waits for, when to come back.

    ``made``: it has ended well.
    """

    order: CertificateOrder | None
    again_s: float
    waits: str = ""
    made: IssuedCertificate | None = None


class NotAnswered(Terminal):
    """A challenge was not answered within the limit."""


class Issuance:
    """Orders under way; holds the keys of those that are being completed."""

    def __init__(self, solvers: Solvers) -> None:
        self._solvers = solvers
        #: The URL of an order, and the key of its certificate, by ManagedCertificate.
        self._keys: dict[tuple[str, str], tuple[str, bytes]] = {}

    def forget(self, key: tuple[str, str]) -> None:
        """Drop the key of an order that is not completed."""
        self._keys.pop(key, None)

    async def begin(
        self, obj: ManagedCertificate, issuer: CertificateIssuer, client: AcmeClient, now: datetime
    ) -> Progress:
        """Begin an order; what it needs is to be recorded before it is served."""
        self.forget(obj.key)
        hosts = tuple(sorted(obj.spec.hosts))
        remote, authorizations = await in_thread(lambda: client.new_order(hosts), name="acme-order")
        order = CertificateOrder(
            url=remote.url,
            finalize=remote.finalize,
            started=wire_time(now),
            issuer=client.account,
            challenges=choose_challenges(authorizations, issuer.spec.solvers, thumbprint=client.thumbprint),
        )
        return Progress(order, _LOOK_S, "its challenges are being published")

    async def advance(
        self, obj: ManagedCertificate, order: CertificateOrder, client: AcmeClient, now: datetime
    ) -> Progress:
        """Take the next step of the order that is on record.

        Raises:
            AcmeRefused: the authority refuses it, or cannot be used now.
            NotAnswered: a challenge is not answered.
        """
        held = self._keys.get(obj.key)
        has_key = held is not None and held[0] == order.url
        remote = await in_thread(lambda: client.order(order.url), name="acme-look")
        step = next_step(order.challenges, remote, has_key=has_key)
        if remote is None or step is OrderStep.ABANDON:
            return Progress(None, _POLL_S, "it is ordered anew")
        if step is OrderStep.FAIL:
            authorizations = await in_thread(lambda: client.authorizations(remote.authorizations), name="acme-look")
            raise failure_of(obj.spec.hosts, remote, authorizations)
        if step is OrderStep.OFFER:
            return await self._offer(obj, order, client, now)
        if step is OrderStep.FINALIZE:
            key = new_key()
            request = signing_request(key, tuple(sorted(obj.spec.hosts)))
            self._keys[obj.key] = (order.url, key)
            ready = remote
            remote = await in_thread(lambda: client.finalize(ready, request), name="acme-finalize")
            step = OrderStep.FETCH
        if step is OrderStep.FETCH and remote.status == "valid" and remote.certificate:
            return await self._fetched(obj, order, remote, client)
        return Progress(order, _again_s(remote, order, now))

    async def _offer(
        self, obj: ManagedCertificate, order: CertificateOrder, client: AcmeClient, now: datetime
    ) -> Progress:
        await self._solvers.prepare(obj)
        challenges: list[OrderChallenge] = []
        waits = ""
        for challenge in order.challenges:
            missing = "" if challenge.offered else await self._solvers.missing(obj, challenge)
            if not missing and not challenge.offered:
                host, url = challenge.host, challenge.url
                await in_thread(lambda host=host, url=url: client.offer(host, url), name="acme-offer")
            waits = waits or missing
            challenges.append(challenge if missing else msgspec.structs.replace(challenge, offered=True))
        started = parsed_time(order.started)
        if waits and started is not None and now - started > ANSWER_LIMIT:
            raise NotAnswered(
                f"{shown(obj.spec.hosts)} cannot be ordered: {waits}; see that the load balancer is programmed and "
                "that the hub reaches its address at port 80 (HTTP01), or that its zone is published (DNS01)",
                reason=ConditionReason.CHALLENGE_NOT_ANSWERED,
            )
        return Progress(msgspec.structs.replace(order, challenges=tuple(challenges)), _LOOK_S, waits)

    async def _fetched(
        self, obj: ManagedCertificate, order: CertificateOrder, remote: RemoteOrder, client: AcmeClient
    ) -> Progress:
        _, key = self._keys[obj.key]
        chain = await in_thread(lambda: client.certificate(remote.certificate), name="acme-fetch")
        return Progress(order, 0.0, made=IssuedCertificate(chain, key, order.url))


def _again_s(remote: RemoteOrder, order: CertificateOrder, now: datetime) -> float:
    """Return when to ask next: as the authority asks, else more and more rarely."""
    if remote.after_s is not None:
        return min(max(remote.after_s, _LOOK_S), _LONGEST_POLL_S)
    started = parsed_time(order.started) or now
    return min(max(_POLL_S, (now - started).total_seconds() / 10), _LONGEST_POLL_S)
