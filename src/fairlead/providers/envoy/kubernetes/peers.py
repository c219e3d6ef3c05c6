"""The proxies that are connected to other hub replicas, and whether they are in sync.

A proxy is connected to one replica; the one that leads writes the status for all. In: the ConfigMap in which every
replica reports its proxies. Out: which of a group are elsewhere, which of those are in sync, and where all answer for
their statistics.
Never: counts a proxy that is connected here as well, or believes what it cannot read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from fairlead.api.json_text import decode
from fairlead.api.kubernetes import CONFIG_MAPS
from fairlead.api.meta import KubeObject, Resource
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.naming import replica_key
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.kubernetes.proxy_traffic import Place

REPORTS = "fairlead-proxies"
_IN_SYNC = "SYNCED"


class _Reports(KubeObject, frozen=True, gc=False):
    data: dict[str, str] | None = None


class _Proxy(msgspec.Struct, frozen=True):
    node: str = ""
    group: str = ""
    state: str = ""
    statistics: str = ""


class _Report(msgspec.Struct, frozen=True):
    proxies: list[_Proxy] = []


_RESOURCE = Resource(
    CONFIG_MAPS.group, CONFIG_MAPS.version, CONFIG_MAPS.kind, CONFIG_MAPS.plural, CONFIG_MAPS.namespaced, _Reports
)


class Peers:
    """The proxies of the other replicas; ``changed`` is called with each group whose proxies have changed."""

    def __init__(self, *, cluster: Cluster, identity: str, changed: Callable[[str], None]) -> None:
        self._own = replica_key(identity)
        self._changed = changed
        self._proxies: dict[str, dict[str, bool]] = {}
        #: Where the proxies of the other replicas answer for their statistics, by node.
        self.places: dict[str, Place] = {}
        self._cache: WatchCache[_Reports] = WatchCache(
            cluster, _RESOURCE, namespace=SYSTEM_NAMESPACE, field_selector=f"metadata.name={REPORTS}"
        )
        self._cache.on_change(self._read)

    async def run(self) -> None:
        """Keep reading until cancelled."""
        await self._cache.run()

    def of(self, group: str, *, here: Collection[str]) -> dict[str, bool]:
        """Return the proxies of ``group`` that are elsewhere and not ``here``, and whether each of them is in sync."""
        return {node: synced for node, synced in self._proxies.get(group, {}).items() if node not in here}

    def _read(self, _old: _Reports | None, new: _Reports | None) -> None:
        proxies: dict[str, dict[str, bool]] = {}
        self.places = {}
        for identity, text in sorted((new.data or {}).items() if new is not None else ()):
            if identity == self._own:
                continue
            try:
                report = decode(text, _Report)
            except msgspec.DecodeError:
                continue  # of a hub of another version
            for proxy in report.proxies:
                proxies.setdefault(proxy.group, {})[proxy.node] = proxy.state == _IN_SYNC
                self.places[proxy.node] = Place(proxy.group, proxy.statistics)
        changed = [group for group in {*proxies, *self._proxies} if proxies.get(group) != self._proxies.get(group)]
        self._proxies = proxies
        for group in changed:
            self._changed(group)
