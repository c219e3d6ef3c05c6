"""Exchanges between hub replicas what their proxies report of the health of targets.

    each replica   what its own proxies see ──► one ConfigMap for each group of proxies, a second after a change
    each replica   the ConfigMaps of the others ──► what their proxies see

A proxy reports to the replica that it is connected to, and the one that leads writes the status for all. In: the health
streams of our own proxies; the ConfigMaps. Out: a ConfigMap of ours for each group; views of the other proxies. Idle
costs nothing: only what has changed is written. Never: counts what it cannot read as healthy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import structlog

from fairlead.api.kubernetes import CONFIG_MAPS
from fairlead.api.meta import JSONObject, KubeObject, Resource
from fairlead.api.names import (
    LABEL_MANAGED_BY,
    LABEL_PROXY_HEALTH,
    MANAGED_BY,
    MANAGER_HUB,
    SYSTEM_NAMESPACE,
    short_hash,
)
from fairlead.errors import FairleadError, NotFound
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.health_stream import HealthStream
from fairlead.providers.envoy.kubernetes.health_report import (
    GroupReport,
    ProxyReport,
    ReportedProxy,
    cluster_report,
    decode_report,
    encode_report,
)
from fairlead.runtime.clock import Clock

_EVERY_S = 1.0
_KEY = "report"

log = structlog.get_logger(__name__)


class _Report(KubeObject, frozen=True, gc=False):
    data: dict[str, str] | None = None


_RESOURCE = Resource(
    CONFIG_MAPS.group, CONFIG_MAPS.version, CONFIG_MAPS.kind, CONFIG_MAPS.plural, CONFIG_MAPS.namespaced, _Report
)


def report_name(replica: str, group: str) -> str:
    """Return the name of the ConfigMap in which a replica reports on a group."""
    return f"fairlead-health-{short_hash(replica, group, size_bytes=8)}"


class HealthExchange:
    """Reports on our own proxies, and reads what the other replicas report.

    ``streams`` returns the health streams of our own proxies by group; ``changed`` is called with the names of
    clusters of which another replica reports something else.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        replica: str,
        streams: Callable[[], Mapping[str, Sequence[HealthStream]]],
        changed: Callable[[Iterable[str]], None],
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._replica = replica
        self._streams = streams
        self._changed = changed
        self._clock = clock
        self._written: dict[str, tuple[object, str]] = {}
        self._received = ReceivedReports(replica)
        self._cache: WatchCache[_Report] = WatchCache(
            cluster, _RESOURCE, namespace=SYSTEM_NAMESPACE, label_selector=LABEL_PROXY_HEALTH
        )
        self._cache.on_change(self._read)

    async def run(self) -> None:
        """Write and read until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cache.run())
            group.create_task(self._write_changes())

    def of(self, group: str, nodes: Collection[str]) -> list[ReportedProxy | None]:
        """Return what each of ``nodes`` sees, None for one of which nothing is reported."""
        return self._received.of(group, nodes)

    async def drop(self, replica: str) -> None:
        """Delete the reports of a replica that is gone.

        Raises:
            FairleadError: the API server does not answer, or refuses.
        """
        # A copy: the watch takes out of the cache what is deleted while this waits.
        for report in list(self._cache.values()):
            if report.label(LABEL_PROXY_HEALTH) == replica:
                with contextlib.suppress(NotFound):
                    await self._cluster.delete(CONFIG_MAPS, SYSTEM_NAMESPACE, report.metadata.name)

    async def write(self) -> None:
        """Report the groups of which something has changed; what cannot be written now is tried again."""
        streams = {group: list(those) for group, those in self._streams().items() if those}
        for group in [*streams, *(gone for gone in list(self._written) if gone not in streams)]:
            mine = streams.get(group, [])
            revision = tuple((stream.node_id, id(stream), stream.revision) for stream in mine)
            known, text = self._written.get(group, (None, ""))
            if known == revision:
                continue
            new = encode_report(_report(self._replica, group, mine)) if mine else ""
            try:
                if new != text:
                    await self._store(group, new)
            except FairleadError as error:
                log.warning("health was not reported to the other replicas", group=group, error=error.sentence)
                continue
            if mine:
                self._written[group] = revision, new
            else:
                del self._written[group]

    async def _store(self, group: str, text: str) -> None:
        name = report_name(self._replica, group)
        if not text:
            with contextlib.suppress(NotFound):
                await self._cluster.delete(CONFIG_MAPS, SYSTEM_NAMESPACE, name)
            return
        labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_PROXY_HEALTH: self._replica}
        obj: JSONObject = {
            "metadata": {"namespace": SYSTEM_NAMESPACE, "name": name, "labels": labels},
            "data": {_KEY: text},
        }
        await self._cluster.apply(CONFIG_MAPS, obj, manager=MANAGER_HUB)

    async def _write_changes(self) -> None:
        while True:
            await self.write()
            await self._clock.sleep(_EVERY_S)

    def _read(self, old: _Report | None, new: _Report | None) -> None:
        if names := self._received.take(_text(old), _text(new)):
            self._changed(names)


def _text(config_map: _Report | None) -> str:
    return (config_map.data or {}).get(_KEY, "") if config_map is not None else ""


def _report(replica: str, group: str, streams: Sequence[HealthStream]) -> GroupReport:
    return GroupReport(replica, group, tuple(_proxy(stream) for stream in sorted(streams, key=lambda s: s.node_id)))


def _proxy(stream: HealthStream) -> ProxyReport:
    clusters = {name: cluster_report(*seen) for name, seen in sorted(stream.summary().items())}
    return ProxyReport(stream.node_id, clusters, stream.silent)


class ReceivedReports:
    """The proxies that the replicas other than ``replica`` report."""

    def __init__(self, replica: str) -> None:
        self._replica = replica
        self._proxies: dict[str, dict[str, ReportedProxy]] = {}
        #: Which replica has reported a proxy last, by group and node: a proxy may have moved.
        self._reporters: dict[tuple[str, str], str] = {}

    def of(self, group: str, nodes: Collection[str]) -> list[ReportedProxy | None]:
        """Return what each of ``nodes`` sees, None for one of which nothing is reported."""
        reported = self._proxies.get(group, {})
        return [reported.get(node) for node in sorted(nodes)]

    def take(self, old: str, new: str) -> set[str]:
        """Replace the report ``old`` by ``new``; an empty text is none. Returns the names of clusters that changed."""
        before, now = self._decode(old), self._decode(new)
        left = {proxy.node for proxy in now.proxies}
        changed: set[str] = set()
        for proxy in before.proxies:
            of_replica = self._reporters.get((before.group, proxy.node)) == before.replica
            if proxy.node not in left and of_replica:
                changed |= set(self._of(before.group).pop(proxy.node).report.clusters)
                del self._reporters[before.group, proxy.node]
        for proxy in now.proxies:
            known = self._of(now.group).get(proxy.node)
            self._of(now.group)[proxy.node] = reported = ReportedProxy(proxy, known)
            self._reporters[now.group, proxy.node] = now.replica
            changed |= reported.changed(known)
        return changed

    def _of(self, group: str) -> dict[str, ReportedProxy]:
        return self._proxies.setdefault(group, {})

    def _decode(self, text: str) -> GroupReport:
        report = decode_report(text)
        return _NONE if report is None or report.replica == self._replica else report


#: What a report counts as that is not there, our own, or of another version.
_NONE = GroupReport("", "")
