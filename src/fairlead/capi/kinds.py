"""Kinds that objects reference: each is polled by discovery until it is served, and watched from then on.

In: a cluster; kinds, as they are asked for. Out: caches by kind, and why there is none yet. Never: takes a kind that is
not served for objects that are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from fairlead.api.capiside import TargetKind
from fairlead.api.meta import KubeObject, Resource
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import OptionalCache, find_kind

T = TypeVar("T", bound=KubeObject)

log = structlog.get_logger(__name__)


class NamedKinds(Generic[T]):
    """The caches of kinds that are named in ``field``; ``make`` returns a cache of one.

    ``looked`` is called when more is known of a kind: that it is not served, or all of its objects.
    """

    def __init__(
        self,
        cluster: Cluster,
        type_: type[T],
        *,
        field: str,
        make: Callable[[TargetKind, Resource[T]], OptionalCache[T]],
        looked: Callable[[], None],
        look_s: float,
    ) -> None:
        self._cluster = cluster
        self._type = type_
        self._field = field
        self._make = make
        self._looked = looked
        self._look_s = look_s
        self.caches: dict[TargetKind, OptionalCache[T]] = {}
        self._missing: dict[TargetKind, str] = {}
        self._wanted: asyncio.Queue[TargetKind] = asyncio.Queue()

    def incomplete(self, kind: TargetKind) -> str:
        """Return why objects of ``kind`` are not known, empty when they are; what is not followed yet will be."""
        cache = self.caches.get(kind)
        if cache is None:
            if kind not in self._missing:
                self._missing[kind] = f"{self._field}: {kind} has not been discovered yet"
                self._wanted.put_nowait(kind)
            return self._missing[kind]
        return "" if cache.synced else cache.problem or f"{kind} has not been read yet"

    async def run(self) -> None:
        """Watch the referenced kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._follow(await self._wanted.get(), group))

    async def _follow(self, kind: TargetKind, group: asyncio.TaskGroup) -> None:
        """Poll for a kind until it is served, then watch its objects."""
        while True:
            try:
                resource = await find_kind(self._cluster, kind.api_group, kind.kind, self._type)
                self._missing[kind] = f"{self._field}: {self._cluster.name} does not serve {kind}; install it"
                if resource is not None:
                    break
            except FairleadError as error:
                self._missing[kind] = f"{self._field}: {error.sentence}"
                log.warning("a kind cannot be discovered", kind=str(kind), field=self._field, sentence=error.sentence)
            self._looked()
            await self._cluster.clock.sleep(self._look_s)
        cache = self.caches[kind] = self._make(kind, resource)
        cache.serve(resource.version)
        group.create_task(cache.run())
        await cache.wait_synced()
        self._looked()
