"""The report of a hub replica about its proxies, as it is stored in the hub's API. Pure."""

from __future__ import annotations

import msgspec


class ProxyRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One proxy: its name, the load balancers' group it serves, SYNCED or STALE, and how much it refuses now.

    ``statistics``: where it answers the hub for its statistics, "address:port"; empty for one on the hub's machine.
    """

    node: str
    group: str
    state: str
    refused: int = 0
    statistics: str = ""


class ReplicaReport(msgspec.Struct, frozen=True, gc=False):
    """The proxies of one hub replica, and since when (RFC 3339)."""

    since: str
    proxies: list[ProxyRow]
