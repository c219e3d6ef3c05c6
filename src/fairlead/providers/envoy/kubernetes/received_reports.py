"""Reports of the other hub replicas about their proxies, merged report by report. Pure.

In: the text of a report before and after a change. Out: the proxies of a group, and the names of clusters of which
something else is reported. Never: believes our own report, or one that cannot be read.
"""

from __future__ import annotations

from collections.abc import Collection

from fairlead.providers.envoy.kubernetes.health_report import GroupReport, ReportedProxy, decode_report


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
