"""A Kubernetes cluster for the fleet of Deployments, without any API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from fairlead.errors import Unreachable
from fairlead.providers.envoy.kubernetes.fleet import ServiceAddresses
from fairlead.providers.envoy.kubernetes.manifests import Manifest, ManifestRef, ref_of


class FakeKube:
    """``KubeObjects`` in a dictionary: what the fleet wants is there at once."""

    def __init__(self) -> None:
        self.objects: dict[ManifestRef, Manifest] = {}
        self.writes = 0
        self.broken = ""
        self._notify: list[Callable[[ServiceAddresses], None]] = []

    async def apply(self, manifest: Manifest) -> None:
        if self.objects.get(ref_of(manifest)) != manifest:
            self.writes += 1
            self.objects[ref_of(manifest)] = manifest

    async def certify(self, ref: ManifestRef, *, group: str, labels: Mapping[str, str]) -> None:
        self.objects.setdefault(ref, {"group": group, "labels": labels})

    async def delete(self, ref: ManifestRef) -> None:
        await asyncio.sleep(0)  # others run meanwhile, as they would
        if ref.kind == self.broken:
            raise Unreachable("the API server is away")
        self.objects.pop(ref, None)

    async def owned(self) -> Sequence[ManifestRef]:
        return list(self.objects)

    def on_service_addresses(self, notify: Callable[[ServiceAddresses], None]) -> None:
        self._notify.append(notify)

    def assign(self, name: str, *addresses: str, udp: Mapping[int, str] = {}) -> None:
        for notify in self._notify:
            notify(ServiceAddresses("a", name, addresses, udp=udp))

    def refuse(self, name: str, problem: str) -> None:
        for notify in self._notify:
            notify(ServiceAddresses("a", name, (), problem))

    def kinds(self) -> list[str]:
        return sorted(ref.kind for ref in self.objects)
