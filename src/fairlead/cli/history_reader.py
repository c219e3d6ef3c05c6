"""Read the history of a load balancer: what the hub has stored at its API, and what a running hub has in memory.

In: a connection to the hub's API, and the address of a hub's HTTP endpoint where one is given. Out: its entries.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from fairlead.api.json_text import decode
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.cli.history_rows import merged
from fairlead.cli.traffic_reader import token_header
from fairlead.errors import BadConfiguration, NotFound, Unauthorized, Unreachable
from fairlead.kube.cluster import Cluster
from fairlead.ledger.history import HISTORY_MAPS, entries_of, map_name
from fairlead.model.history import HistoryEntry
from fairlead.model.keys import LoadBalancerKey

_TIMEOUT_S = 5.0


class _KeyState(msgspec.Struct):
    """The part that is read of a hub's answer at /debug/keys."""

    history: list[HistoryEntry]


async def read_history(
    cluster: Cluster, key: LoadBalancerKey, hub_url: str = "", token_file: Path | None = None
) -> list[HistoryEntry]:
    """Return the stored entries and, with ``hub_url``, those in that hub's memory; oldest first."""
    stored = await _stored(cluster, key)
    return merged(stored, await _in_memory(hub_url, key, token_file)) if hub_url else merged(stored)


async def _stored(cluster: Cluster, key: LoadBalancerKey) -> list[HistoryEntry]:
    try:
        return entries_of(await cluster.get(HISTORY_MAPS, SYSTEM_NAMESPACE, map_name(key)))
    except NotFound:
        return []


async def _in_memory(hub_url: str, key: LoadBalancerKey, token_file: Path | None) -> list[HistoryEntry]:
    import aiohttp

    url = f"{hub_url.rstrip('/')}/debug/keys/{key.kind}/{key.namespace}/{key.name}"
    timeout, headers = aiohttp.ClientTimeout(total=_TIMEOUT_S), await token_header(token_file)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, headers=headers) as response:
            if response.status == 404:
                return []
            if response.status in (401, 403):
                raise Unauthorized(f"{url}: {(await response.text()).strip()}; give it with --token-file")
            if response.status != 200:
                raise Unreachable(f"{url} answers with HTTP {response.status}")
            return decode(await response.read(), _KeyState).history
    except aiohttp.InvalidURL as error:
        raise BadConfiguration(f"--hub-url: {hub_url!r} is not a URL such as http://127.0.0.1:9090") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unreachable(f"No hub answers at {url}; --hub-url is where it was started with --metrics") from error
    except msgspec.DecodeError as error:
        raise BadConfiguration(f"--hub-url: what {url} serves is not a history of a hub") from error
