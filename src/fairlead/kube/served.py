"""The kinds of a group that an API serves now, and their versions. Polled, since kinds come and go.

    not served ──served──► its cache runs ──another version──► the same cache, by that version
        ▲                      │
        └─────not served───────┘ what the cache holds stays

In: the API's discovery, which needs no right. Out: caches that run while their kind is served. Never: drops an object
because a kind is not served. Deleting a kind deletes its objects one by one, and the watch shows each of them; a kind
that is only not served (a version switched off, an API server that starts) has not lost any.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#discovery-api
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from fairlead.api.meta import KubeObject, Resource
from fairlead.errors import FairleadError, NotServed
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import served_kinds, served_versions
from fairlead.kube.event_reader import EventReader
from fairlead.runtime.background import keep

T = TypeVar("T", bound=KubeObject)

#: How often discovery is asked, in seconds.
LOOK_S = 3.0


class OptionalCache(WatchCache[T]):
    """A cache of a kind that the API may not serve; while it does not, what was read last stays."""

    def __init__(self, cluster: Cluster, resource: Resource[T], **options: Any) -> None:
        super().__init__(cluster, resource, **options)
        self._transform = options.get("transform")
        self.served = False
        self._switched = asyncio.Event()

    def serve(self, version: str) -> None:
        """Set the version in which the kind is served; empty: not served."""
        if self.served == bool(version) and version in {"", self.resource.version}:
            return
        self.served = bool(version)
        if version and version != self.resource.version:
            self.resource = msgspec.structs.replace(self.resource, version=version)
            self._reader = EventReader(self.cluster, self.resource, namespace=self.namespace, transform=self._transform)
        self._read_anew()
        self.problem = ""
        self._switched.set()

    @property
    def settled(self) -> bool:
        """Return whether the cache is complete: it is synced, or the kind is not served."""
        return self.synced or not self.served

    def _read_anew(self) -> None:
        """Have the next state read as a whole, and compared with what is held: a watch would show no deletion."""
        self._version, self._resumes = "", False

    def _report(self, error: FairleadError) -> None:
        if isinstance(error, NotServed):
            self.problem = error.sentence  # discovery is about to notice: no news for the log
        else:
            super()._report(error)

    async def run(self, *, end_when_restored: bool = False) -> None:
        """Keep the copy current while the kind is served, until cancelled.

        Raises:
            Restored: see ``WatchCache.run``.
        """
        while True:
            self._switched.clear()
            tasks: list[asyncio.Task[object]] = [asyncio.create_task(self._switched.wait())]
            if self.served:
                follow = super().run(end_when_restored=end_when_restored)
                tasks.append(asyncio.create_task(follow, name=f"follow-{self.resource.plural}"))
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
            finally:
                for each in tasks:
                    each.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            # The watch that has just ended may have taken a state after the switch.
            self._read_anew()


class Discovery:
    """Polls discovery for the kinds of one group.

    ``caches`` have their versions, the preferred one first. ``looked`` is called after each answer.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        caches: Mapping[OptionalCache[Any], Sequence[str]],
        *,
        looked: Callable[[], None] = lambda: None,
        look_s: float = LOOK_S,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._caches = caches
        self._looked = looked
        self._look_s = look_s
        self.asked = False
        self.problem = ""
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.kube.served").bind(
            cluster=cluster.name, group=group
        )

    async def run(self) -> None:
        """Poll discovery until cancelled; a failure changes nothing."""
        await keep("discovery", self._run, clock=self._cluster.clock)

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
                self.problem = ""
            except FairleadError as error:
                if error.sentence != self.problem:
                    self._log.warning("discovery failed", sentence=error.sentence, detail=error.detail)
                self.problem = error.sentence
            await self._cluster.clock.sleep(self._look_s)

    async def look(self) -> None:
        """Poll discovery once.

        Raises:
            FairleadError: the API does not answer.
        """
        wanted = {version for versions in self._caches.values() for version in versions}
        found_versions = {
            version: {each.name for each in await served_kinds(self._cluster, self._group, version)}
            for version in await served_versions(self._cluster, self._group)
            if version in wanted
        }
        for cache, versions in self._caches.items():
            plural = cache.resource.plural
            version = next((each for each in versions if plural in found_versions.get(each, ())), "")
            if cache.served != bool(version) or version not in {"", cache.resource.version}:
                self._log.info("served" if version else "not served", kind=cache.resource.full_name, version=version)
                if not version and len(cache):
                    self._log.warning("kind no longer served; keeping the objects that were read", held=len(cache))
            cache.serve(version)
        self.asked = True
        self._looked()
