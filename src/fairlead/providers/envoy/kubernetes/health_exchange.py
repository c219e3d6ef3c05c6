"""Exchange between hub replicas of what their proxies report about the health of targets.

    each replica   what its own proxies see ──► one ConfigMap for each group of proxies, a second after a change
    each replica   the ConfigMaps of the others ──► what their proxies see

A proxy reports to the replica that it is connected to, and the leader writes the status for all. In: the health
streams of our own proxies; the ConfigMaps. Out: a ConfigMap of ours for each group; views of the other proxies. Only
changes are written.

    cluster    digest of its targets    those that are unhealthy    those that wait for their first check

A report lists exceptions only, so that it stays small while all is well. The digest says which targets were checked: a
reader that knows other targets by now must not take silence for health. Never: counts an unreadable report as healthy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec
import structlog
from msgspec.structs import replace

from fairlead.api.json_text import decode
from fairlead.api.kubernetes import CONFIG_MAPS, CONFIG_MAPS_WITH_DATA, ConfigMap
from fairlead.api.meta import JSONObject
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
from fairlead.model.keys import TargetKey
from fairlead.model.observed import Seen
from fairlead.providers.envoy.health_board import HealthStream
from fairlead.runtime.clock import Clock

#: A ConfigMap holds 1 MiB. A report that is longer says nothing of the targets, and they count as not known.
MOST_BYTES = 900_000
#: In place of the names of all targets of a cluster.
_ALL = ("*",)


class ClusterReport(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, array_like=True):
    """The health of one cluster as one proxy sees it."""

    digest: str
    unhealthy: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


class ProxyReport(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one proxy sees of all clusters of its group, by their names; ``silent``: it has stopped to report."""

    node: str
    clusters: dict[str, ClusterReport]
    silent: bool = False


class GroupReport(msgspec.Struct, frozen=True, gc=False):
    """The reports of the proxies of one group that are connected to one replica."""

    replica: str
    group: str
    proxies: tuple[ProxyReport, ...] = ()


class ReportedProxy:
    """A proxy of another replica, as that one has reported it last. ``targets`` returns those of a cluster by now."""

    def __init__(self, report: ProxyReport, before: ReportedProxy | None = None) -> None:
        self.report = report
        #: The targets of each cluster that the proxy was asked about, as far as we have known the same ones.
        self.asked: dict[str, frozenset[TargetKey]] = dict(before.asked) if before is not None else {}

    def seen(self, name: str, target: TargetKey, targets: frozenset[TargetKey]) -> Seen:
        """Return what it sees of one of the ``targets`` of the cluster ``name``."""
        if self.report.silent:
            return Seen.SILENT
        cluster = self.report.clusters.get(name)
        if cluster is None:
            return Seen.WAITING
        if cluster.digest == digest_of(targets):
            self.asked[name] = targets
        if target not in self.asked.get(name, ()) or _names(cluster.waiting, target):
            return Seen.WAITING
        return Seen.UNHEALTHY if _names(cluster.unhealthy, target) else Seen.HEALTHY

    def changed(self, before: ReportedProxy | None) -> set[str]:
        """Return the names of clusters whose report differs from ``before``."""
        old: Mapping[str, ClusterReport] = before.report.clusters if before is not None else {}
        new = self.report.clusters
        return {name for name in (*old, *new) if old.get(name) != new.get(name)}


def cluster_report(
    targets: frozenset[TargetKey], unhealthy: Collection[TargetKey], waiting: Collection[TargetKey]
) -> ClusterReport:
    """Return the report on one cluster."""
    return ClusterReport(digest_of(targets), _listed(unhealthy, targets), _listed(waiting, targets))


def encode_report(report: GroupReport) -> str:
    """Return ``report`` as text; one that is too long is reduced to the names of its proxies."""
    text = msgspec.json.encode(report)
    if len(text) > MOST_BYTES:
        reduced = tuple(ProxyReport(proxy.node, {}, proxy.silent) for proxy in report.proxies)
        text = msgspec.json.encode(replace(report, proxies=reduced))
    return text.decode()


def decode_report(text: str) -> GroupReport | None:
    """Return the report in ``text``; None if a hub of another version wrote another format."""
    try:
        return decode(text, GroupReport)
    except msgspec.DecodeError:
        return None


@lru_cache(maxsize=65_536)
def digest_of(targets: frozenset[TargetKey]) -> str:
    """Return the digest of a set of targets."""
    return short_hash(*sorted(map(str, targets)), size_bytes=6)


def _listed(some: Iterable[TargetKey], of_all: frozenset[TargetKey]) -> tuple[str, ...]:
    chosen = frozenset(some)
    return _ALL if chosen and chosen == of_all else tuple(sorted(map(str, chosen)))


def _names(listed: tuple[str, ...], target: TargetKey) -> bool:
    return listed == _ALL or str(target) in listed


_EVERY_S = 1.0
_KEY = "report"

log = structlog.get_logger(__name__)


def report_name(replica: str, group: str) -> str:
    """Return the name of the ConfigMap in which a replica reports on a group."""
    return f"fairlead-health-{short_hash(replica, group, size_bytes=8)}"


class HealthExchange:
    """Reports on our own proxies, and reads what the other replicas report.

    ``streams`` returns the health streams of our own proxies by group; ``changed`` is called with the names of
    clusters with a changed report of another replica.
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
        self._cache: WatchCache[ConfigMap] = WatchCache(
            cluster, CONFIG_MAPS_WITH_DATA, namespace=SYSTEM_NAMESPACE, label_selector=LABEL_PROXY_HEALTH
        )
        self._cache.on_change(self._read)

    async def run(self) -> None:
        """Write and read until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cache.run())
            group.create_task(self._write_changes())

    def of(self, group: str, nodes: Collection[str]) -> list[ReportedProxy | None]:
        """Return the report of each of ``nodes``; None for a node without one."""
        return self._received.of(group, nodes)

    async def drop(self, replica: str) -> None:
        """Delete the reports of a replica that no longer exists.

        Raises:
            FairleadError: the API server does not answer, or refuses.
        """
        # A copy: the watch takes out of the cache what is deleted while this waits.
        for report in list(self._cache.values()):
            if report.label(LABEL_PROXY_HEALTH) == replica:
                with contextlib.suppress(NotFound):
                    await self._cluster.delete(CONFIG_MAPS, SYSTEM_NAMESPACE, report.metadata.name)

    async def write(self) -> None:
        """Report the changed groups; failed writes are retried."""
        streams = {group: list(those) for group, those in self._streams().items() if those}
        for group in [*streams, *(gone for gone in list(self._written) if gone not in streams)]:
            mine = streams.get(group, [])
            revision = tuple((stream.node_id, id(stream), stream.revision) for stream in mine)
            known, text = self._written.get(group, (None, ""))
            if known == revision:
                continue
            proxies = tuple(map(_proxy, sorted(mine, key=lambda stream: stream.node_id)))
            new = encode_report(GroupReport(self._replica, group, proxies)) if mine else ""
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

    def _read(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        if names := self._received.take(_text(old), _text(new)):
            self._changed(names)


def _text(config_map: ConfigMap | None) -> str:
    return (config_map.data or {}).get(_KEY, "") if config_map is not None else ""


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
        """Return the report of each of ``nodes``; None for a node without one."""
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


#: The default for a report that is missing, our own, or of another version.
_NONE = GroupReport("", "")
