"""Reads the statistics of proxies that run as Deployments.

    proxy   connects for xDS ──► its address, and in its node metadata the port of its statistics
    hub     while figures are looked at: GET /stats there, over mutual TLS ──► as an Envoy of this machine answers

In: where the proxies are, ours and those of the other replicas. Out: a reading for each. The hub accepts an answer from
a proxy of the group alone, and of that group's load balancers alone; the proxy answers the hub alone.
Never: asks while figures are not looked at. Why the hub asks: docs/adr/0026.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import aiohttp
import msgspec

from fairlead.model.keys import LoadBalancerKey
from fairlead.model.traffic import Reading
from fairlead.providers.envoy.identity import ServerCertificate
from fairlead.providers.envoy.kubernetes.certificates import proxy_name
from fairlead.providers.envoy.traffic import EnvoyTraffic
from fairlead.runtime.tls import client_context

_ANSWER_S = 3.0
#: So many are asked at the same time.
_AT_ONCE = 16
_UNKNOWN = "does not say where its statistics are: it was started by an older version"


class Place(NamedTuple):
    """Where the statistics of a proxy are, ``address:port``; empty when it does not say. ``group``: whom it serves."""

    group: str
    address: str = ""


class ProxyTraffic:
    """Reads the counts of all proxies.

    ``proxies`` returns their places by node id, ``group_of`` the group that serves a load balancer, None when there is
    none. ``files`` are the hub's own certificate, and the authority of both.
    """

    def __init__(
        self,
        *,
        proxies: Callable[[], Mapping[str, Place]],
        group_of: Callable[[LoadBalancerKey], str | None],
        files: ServerCertificate,
    ) -> None:
        self._proxies = proxies
        self._group_of = group_of
        self._files = files
        self._readers: dict[tuple[str, Place], EnvoyTraffic] = {}
        self._context: tuple[tuple[bytes, ...], ssl.SSLContext] | None = None
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def read(self) -> Sequence[Reading]:
        """Return the load balancers whose counts have changed, by proxy."""
        proxies = self._proxies()
        for gone in self._readers.keys() - proxies.items():
            del self._readers[gone]
        return await asyncio.gather(*(self._read(node, place) for node, place in proxies.items()))

    async def _read(self, node: str, place: Place) -> Reading:
        name = f"proxy {node} of group {place.group}"
        if not place.address:
            return Reading(name, problem=f"{name} {_UNKNOWN}; restart its Deployment")

        async def get(path: str) -> tuple[int, str]:
            return await self._get(place, path)

        reader = self._readers.setdefault((node, place), EnvoyTraffic(get, name=name))
        async with self._free:
            (reading,) = await reader.read()
        if reading.problem:
            return msgspec.structs.replace(reading, problem=f"{reading.problem} at {place.address}")
        its = {
            counted: totals
            for counted, totals in reading.totals.items()
            if self._group_of(counted.load_balancer) == place.group
        }
        return Reading(name, its, gone=reading.gone)

    async def _get(self, place: Place, path: str) -> tuple[int, str]:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        try:
            context = self._tls()
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(
                    f"https://{place.address}{path}", ssl=context, server_hostname=proxy_name(place.group)
                ) as answer,
            ):
                return answer.status, await answer.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return 0, str(error)

    def _tls(self) -> ssl.SSLContext:
        """Return what the hub proves itself with; made anew when its certificate has been renewed."""
        files = (self._files.certificate, self._files.key, self._files.client_ca)
        content = tuple(file.read_bytes() for file in files)
        if self._context is None or self._context[0] != content:
            context = client_context(content[2])
            context.load_cert_chain(self._files.certificate, self._files.key)
            self._context = content, context
        return self._context[1]
