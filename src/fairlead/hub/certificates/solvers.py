"""Answers to challenges by HTTP-01 and DNS-01, and whether an answer is served already.

    http-01   the load balancers of the certificate answer by a route of their own, which is in their translation as
              soon as the order is on record; asked here at their own addresses
    dns-01    the texts of a Hostname for _acme-challenge.NAME, which is published by the DNS provider: those of all
              open orders that prove NAME, such as one for NAME and one for *.NAME

In: challenges on record. Out: why one is not answered yet; Hostnames, made and removed. Never: has an authority
check what is not answered.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

import aiohttp

from fairlead.api.hostname import HOSTNAMES, WILDCARD
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, HTTPLoadBalancer
from fairlead.api.managedcertificate import ManagedCertificate, OrderChallenge
from fairlead.api.meta import JSONObject, condition_of
from fairlead.api.names import (
    LABEL_CHALLENGE,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    MANAGER_CERTIFICATES,
    SYSTEM_NAMESPACE,
    short_hash,
)
from fairlead.errors import NotFound
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.observe import observed_of
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import check_leads
from fairlead.kube.writes import Overlay
from fairlead.model.condition import ConditionType
from fairlead.model.in_words import host_port
from fairlead.model.keys import LoadBalancerKey, family_of
from fairlead.runtime.queue import KeyedLock
from fairlead.translate.generated import CHALLENGE_PATH, CHALLENGE_PORT

_PREFIX = "_acme-challenge."
#: So many texts a Hostname may have.
_MOST_TEXTS = 16
_ANSWER_S = 10.0
_MOST_BYTES = 4096


class Solvers:
    """Both solvers."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        managed: Overlay[ManagedCertificate],
        providers: ProviderRegistry,
        leading: Callable[[], bool],
    ) -> None:
        self._leading = leading
        self._cluster = cluster
        self._inventory = inventory
        self._managed = managed
        self._providers = providers
        self._locks = KeyedLock()

    async def prepare(self, obj: ManagedCertificate) -> None:
        """Publish the TXT records that the challenges on record need."""
        for host in sorted(set(_dns_challenges(obj))):
            await self._publish(host)

    async def withdraw(self) -> None:
        """Remove the texts that no open order needs; certificates that share a name keep theirs."""
        if self._inventory.managed.problem:
            return  # the texts of a certificate that cannot be read stay until it can
        for there in await self._cluster.list(HOSTNAMES, SYSTEM_NAMESPACE, label_selector=LABEL_CHALLENGE):
            if not there.deleting and set(there.spec.texts) != set(self._texts(there.spec.host)[0]):
                await self._publish(there.spec.host)

    async def _publish(self, host: str) -> None:
        """Write the Hostname of a challenge with the texts of all open orders, or delete it when there are none."""
        name = _hostname_name(host)
        # One write at a time, so that the last one has the texts of every order that is on record by then.
        async with self._locks.hold(host):
            texts, first = self._texts(host)
            check_leads(self._leading, f"Hostname {SYSTEM_NAMESPACE}/{name}")
            if first is None:
                with suppress(NotFound):
                    await self._cluster.delete(HOSTNAMES, SYSTEM_NAMESPACE, name)
                return
            tenant = self._inventory.tenant_of(first.metadata.namespace)
            member = tenant.metadata.name if tenant is not None else ""
            body: JSONObject = {
                "metadata": {
                    "name": name,
                    "namespace": SYSTEM_NAMESPACE,
                    "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_CHALLENGE: short_hash(host)},
                },
                "spec": {
                    "host": host,
                    "owner": {"member": member, "kind": "ManagedCertificate", "name": first.metadata.name},
                    "texts": texts,
                },
            }
            await self._cluster.apply(HOSTNAMES, body, manager=MANAGER_CERTIFICATES)

    def _texts(self, host: str) -> tuple[list[str], ManagedCertificate | None]:
        """Return the texts that open orders need at a name, sorted, and the certificate whose order is the oldest."""
        proven = host.removeprefix(_PREFIX)
        objects = {
            obj.key: obj for name in (proven, f"{WILDCARD}{proven}") for obj in self._managed.by_index("host", name)
        }
        needs = {key: _dns_challenges(obj).get(host, set()) for key, obj in objects.items() if not obj.deleting}
        keys = sorted((key for key in needs if needs[key]), key=lambda key: (_started(objects[key]), key))
        # The oldest orders first: the others are published as soon as these have ended.
        texts = list(dict.fromkeys(text for key in keys for text in sorted(needs[key])))[:_MOST_TEXTS]
        return sorted(texts), objects[keys[0]] if keys else None

    async def missing(self, obj: ManagedCertificate, challenge: OrderChallenge) -> str:
        """Return why a challenge is not answered yet, empty when it is."""
        if challenge.type == "dns-01":
            return await self._missing_text(challenge)
        return await self._missing_answer(obj, challenge)

    async def _missing_text(self, challenge: OrderChallenge) -> str:
        host = challenge_host(challenge.host)
        try:
            there = await self._cluster.get(HOSTNAMES, SYSTEM_NAMESPACE, _hostname_name(host))
        except NotFound:
            return f"there is no Hostname for {host} yet"
        programmed = condition_of(there.status.conditions, ConditionType.PROGRAMMED)
        if programmed is not None and programmed.status == "True":
            current = programmed.observed_generation >= there.metadata.generation
            return "" if current and challenge.content in there.spec.texts else f"{host} is not published yet"
        reason = programmed.message if programmed is not None else ""
        return f"{host} is not published: {reason or 'no DNSZone has taken it yet'}"

    async def _missing_answer(self, obj: ManagedCertificate, challenge: OrderChallenge) -> str:
        objects = self._inventory.intents[HTTP_LOAD_BALANCERS.kind]
        namespace, answered = obj.metadata.namespace, False
        for name in obj.spec.load_balancers:
            key = LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, namespace, name)
            load_balancer: HTTPLoadBalancer | None = objects.cache.get(namespace, name)
            addresses = load_balancer.status.addresses if load_balancer is not None else ()
            if not addresses:
                continue
            if not await self._acknowledged(key):
                return f"the proxies have not acknowledged the route of {challenge.host} yet"
            if silent := await silent_address(addresses, challenge):
                where = host_port(silent, CHALLENGE_PORT)
                return f"{where} does not answer the challenge of {challenge.host} yet"
            answered = True
        return "" if answered else f"no load balancer of {challenge.host} has an address yet"

    async def _acknowledged(self, key: LoadBalancerKey) -> bool:
        """Return whether every proxy of a load balancer has its newest state."""
        for runner in self._providers.values():
            if key in runner.tracker:
                observed = await observed_of(runner, key, None)
                return observed is not None and observed.programmed
        return False


def challenge_host(host: str) -> str:
    """Return the name whose TXT record proves ``host``; that of a wildcard is the one of the name behind its star."""
    return f"{_PREFIX}{host.removeprefix(WILDCARD).lower()}"


async def silent_address(addresses: Sequence[str], challenge: OrderChallenge) -> str:
    """Return the first address that does not answer a challenge, empty when all do.

    The authority may choose any address that the name resolves to. Those that this machine has no route to count only
    when it has a route to none.
    """
    for address in [each for each in addresses if has_route(each)] or addresses:
        place = (address, CHALLENGE_PORT, challenge.host, CHALLENGE_PATH + challenge.token)
        # Proxies behind another load balancer may take only connections that begin as that one begins them.
        if await fetched(*place) != challenge.content and await fetched_as_a_balancer(*place) != challenge.content:
            return address
    return ""


def has_route(address: str) -> bool:
    """Return whether this machine has a route to an address; a hub without IPv6 cannot ask at an IPv6 address."""
    family = family_of(address)
    if family is None:
        return True  # a host name, which the client resolves
    try:
        with socket.socket(socket.AF_INET6 if family == "IPv6" else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, CHALLENGE_PORT))  # sends nothing
    except OSError:
        return False
    return True


async def fetched(address: str, port: int, host: str, path: str) -> str:
    """Return what an address answers over HTTP, empty for anything but a 200 in time."""
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(
                f"http://{host_port(address, port)}{path}", headers={"Host": host}, allow_redirects=False
            ) as answer,
        ):
            if answer.status != 200:
                return ""
            body = b""
            # One read returns no more than what has come by then.
            while len(body) < _MOST_BYTES and (more := await answer.content.read(_MOST_BYTES - len(body))):
                body += more
    except (TimeoutError, aiohttp.ClientError, OSError):
        return ""
    return body.decode("utf-8", "replace")


async def fetched_as_a_balancer(address: str, port: int, host: str, path: str) -> str:
    """Return what an address answers to a request behind a PROXY header without addresses, empty as in ``fetched``."""
    request = f"PROXY UNKNOWN\r\nGET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(address, port, limit=_MOST_BYTES)
            try:
                writer.write(request.encode())
                head = await reader.readuntil(b"\r\n\r\n")
                body = b""
                while len(body) < _MOST_BYTES and (more := await reader.read(_MOST_BYTES)):
                    body += more
            finally:
                writer.close()
    except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return ""
    return body.decode("utf-8", "replace") if head.startswith(b"HTTP/1.1 200 ") else ""


def _dns_challenges(obj: ManagedCertificate) -> dict[str, set[str]]:
    """Return the texts that the order on record needs, by the name of their TXT record."""
    texts: dict[str, set[str]] = {}
    for challenge in obj.status.order.challenges if obj.status.order is not None else ():
        if challenge.type == "dns-01":
            texts.setdefault(challenge_host(challenge.host), set()).add(challenge.content)
    return texts


def _started(obj: ManagedCertificate) -> str:
    return obj.status.order.started if obj.status.order is not None else ""


def _hostname_name(host: str) -> str:
    return f"acme-challenge.{short_hash(host, size_bytes=10)}"
