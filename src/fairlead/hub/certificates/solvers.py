"""Answers to challenges by HTTP-01 and DNS-01, and whether an answer is served already.

    http-01   the load balancers of the certificate answer by a route of their own, which is in their translation as
              soon as the order is on record; asked here at their own addresses
    dns-01    the texts of a Hostname for _acme-challenge.NAME, which is published by the DNS provider

In: challenges on record. Out: why one is not answered yet; Hostnames, made and removed. Never: has an authority
check what is not answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import aiohttp

from fairlead.api.conditions import condition_of
from fairlead.api.hostname import HOSTNAMES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, HTTPLoadBalancer
from fairlead.api.managedcertificate import ManagedCertificate, OrderChallenge
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_CHALLENGE, LABEL_MANAGED_BY, MANAGED_BY, MANAGER_CERTIFICATES, SYSTEM_NAMESPACE
from fairlead.api.naming import short_hash
from fairlead.errors import NotFound
from fairlead.hub.certificates.leadership import check_leads
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.observe import observed_of
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.kube.cluster import Cluster
from fairlead.model.condition import ConditionType
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.challenges import CHALLENGE_PATH, CHALLENGE_PORT

_ANSWER_S = 10.0
_MOST_BYTES = 4096


class Solvers:
    """Both solvers."""

    def __init__(
        self, *, cluster: Cluster, inventory: Inventory, providers: ProviderRegistry, leading: Callable[[], bool]
    ) -> None:
        self._leading = leading
        self._cluster = cluster
        self._inventory = inventory
        self._providers = providers

    async def prepare(self, obj: ManagedCertificate, member: str) -> None:
        """Make what the challenges on record need beside the translation of load balancers: TXT records."""
        for host, texts in _texts(obj).items():
            name = _hostname_name(host)
            body: JSONObject = {
                "metadata": {
                    "name": name,
                    "namespace": SYSTEM_NAMESPACE,
                    "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_CHALLENGE: short_hash(*obj.key)},
                },
                "spec": {
                    "host": host,
                    "owner": {"member": member, "kind": "ManagedCertificate", "name": obj.metadata.name},
                    "texts": sorted(texts),
                },
            }
            check_leads(self._leading, f"Hostname {SYSTEM_NAMESPACE}/{name}")
            await self._cluster.apply(HOSTNAMES, body, manager=MANAGER_CERTIFICATES)

    async def withdraw(self, namespace: str, name: str) -> None:
        """Remove the TXT records of the challenges of a certificate."""
        label = f"{LABEL_CHALLENGE}={short_hash(namespace, name)}"
        for there in await self._cluster.list(HOSTNAMES, SYSTEM_NAMESPACE, label_selector=label):
            check_leads(self._leading, f"Hostname {there.key}")
            with suppress(NotFound):
                await self._cluster.delete(HOSTNAMES, SYSTEM_NAMESPACE, there.metadata.name)

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
            address = load_balancer.status.address if load_balancer is not None else ""
            if not address:
                continue
            if not await self._acknowledged(key):
                return f"the proxies have not acknowledged the route of {challenge.host} yet"
            place = (address, CHALLENGE_PORT, challenge.host, CHALLENGE_PATH + challenge.token)
            # Proxies behind another load balancer may take only connections that begin as that one begins them.
            if await fetched(*place) != challenge.content and await fetched_as_a_balancer(*place) != challenge.content:
                return f"{address}:{CHALLENGE_PORT} does not answer the challenge of {challenge.host} yet"
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
    return f"_acme-challenge.{host.removeprefix('*.')}"


async def fetched(address: str, port: int, host: str, path: str) -> str:
    """Return what an address answers over HTTP, empty for anything but a 200 in time."""
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://{address}:{port}{path}", headers={"Host": host}, allow_redirects=False) as answer,
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


def _texts(obj: ManagedCertificate) -> Mapping[str, set[str]]:
    texts: dict[str, set[str]] = {}
    challenges: Iterable[OrderChallenge] = obj.status.order.challenges if obj.status.order is not None else ()
    for each in challenges:
        if each.type == "dns-01":
            texts.setdefault(challenge_host(each.host), set()).add(each.content)
    return texts


def _hostname_name(host: str) -> str:
    return f"acme-challenge.{short_hash(host, size_bytes=10)}"
