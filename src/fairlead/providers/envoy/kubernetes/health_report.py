"""The health reports of one replica's proxies of a group, as text that the other replicas can read. Pure.

    cluster    digest of its targets    those that are unhealthy    those that wait for their first check

Only exceptions are listed, so that a report stays small while all is well. The digest says which targets were asked
about: a reader that knows others by now (a pod has come meanwhile) must not take silence for health.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

import msgspec

from fairlead.api.json_text import decode
from fairlead.api.names import short_hash
from fairlead.model.keys import TargetKey
from fairlead.model.observed import Seen

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
        """Return the names of clusters of which something else is reported than ``before``."""
        old: Mapping[str, ClusterReport] = before.report.clusters if before is not None else {}
        new = self.report.clusters
        return {name for name in (*old, *new) if old.get(name) != new.get(name)}


def cluster_report(
    targets: frozenset[TargetKey], unhealthy: Collection[TargetKey], waiting: Collection[TargetKey]
) -> ClusterReport:
    """Return what is reported of one cluster."""
    return ClusterReport(digest_of(targets), _listed(unhealthy, targets), _listed(waiting, targets))


def encode_report(report: GroupReport) -> str:
    """Return ``report`` as text; one that is too long is reduced to the names of its proxies."""
    text = msgspec.json.encode(report)
    if len(text) > MOST_BYTES:
        reduced = tuple(ProxyReport(proxy.node, {}, proxy.silent) for proxy in report.proxies)
        text = msgspec.json.encode(msgspec.structs.replace(report, proxies=reduced))
    return text.decode()


def decode_report(text: str) -> GroupReport | None:
    """Return the report that ``text`` is, None when a hub of another version has written something else."""
    try:
        return decode(text, GroupReport)
    except msgspec.DecodeError:
        return None


@lru_cache(maxsize=65_536)
def digest_of(targets: frozenset[TargetKey]) -> str:
    """Return what stands for a set of targets."""
    return short_hash(*sorted(map(str, targets)), size_bytes=6)


def _listed(some: Iterable[TargetKey], of_all: frozenset[TargetKey]) -> tuple[str, ...]:
    chosen = frozenset(some)
    return _ALL if chosen and chosen == of_all else tuple(sorted(map(str, chosen)))


def _names(listed: tuple[str, ...], target: TargetKey) -> bool:
    return listed == _ALL or str(target) in listed
