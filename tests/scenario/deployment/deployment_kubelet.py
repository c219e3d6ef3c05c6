"""The kubelet of the hub's Deployment: its replicas as processes, with the arguments and the version that it names.

In: the Deployment at the API. Out: hubs that are replaced one by one when it has changed. Each works with
the rights of its service account.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deployment_city import Way
from deployment_run import command, kubeconfig
from deployment_world import World

from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.processes import wait_until

_DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM_NAMESPACE}/deployments/fairlead-hub"


class Kubelet:
    """Runs the hub. ``images``: the environment in which ``fairlead`` is of a version, by the tag of its image."""

    def __init__(
        self, world: World, directory: Path, *, authority: bytes, images: Mapping[str, Mapping[str, str]]
    ) -> None:
        #: With the port of each for proxies.
        self.hubs: dict[HubProcess, int] = {}
        self._world = world
        self._directory = directory
        self._authority = authority
        self._images = images
        #: The Service of the hub, for proxies.
        self._service = Way()
        self._started = 0

    async def open(self) -> None:
        """Make the Service."""
        await self._service.start()

    async def roll(self) -> None:
        """Replace each replica by one of the Deployment as it is now, and return when all are ready and one leads."""
        deployment = await self._world.raw(_DEPLOYMENT)
        old, count = list(self.hubs), int(deployment["spec"]["replicas"])
        for number in range(max(count, len(old))):
            if number < len(old):
                del self.hubs[old[number]]
                self._service.targets = list(self.hubs.values())
                await old[number].terminate()
            if number < count:
                await self._start(deployment)
        await wait_until(self._one_leads, "a hub leads")

    async def _start(self, deployment: dict[str, object]) -> None:
        self._started += 1
        name, port = f"hub-{self._started}", free_port()
        home = self._directory / name
        home.mkdir()
        given = command(
            [deployment],
            kubeconfig=str(await kubeconfig(self._world, self._authority, SYSTEM_NAMESPACE, "fairlead-hub")),
            data_dir=str(home / "data"),
            xds_listen=f"127.0.0.1:{port}",
            xds_address=f"localhost:{self._service.port}",
        )
        hub = HubProcess(name, given, envoy_directory=home / "data", log=self._directory / f"{name}.log")
        hub.environment.update(self._images[_tag_of(deployment)])
        await hub.start_ready()
        # Only now: a replica that is not ready gets no connections.
        self.hubs[hub] = port
        self._service.targets = list(self.hubs.values())

    async def _one_leads(self) -> bool:
        return sum([await hub.metric("fairlead_hub_leading") for hub in self.hubs]) == 1

    async def metric(self, name: str) -> float:
        """Return the sum of a metric over all hubs."""
        return sum([await hub.metric(name) for hub in self.hubs])

    async def close(self) -> None:
        """End everything."""
        for hub in self.hubs:
            await hub.terminate()
        await self._service.stop()


def _tag_of(deployment: dict[str, object]) -> str:
    spec: dict[str, dict[str, dict[str, list[dict[str, str]]]]] = deployment["spec"]  # type: ignore[assignment]
    return spec["template"]["spec"]["containers"][0]["image"].rpartition(":")[2]
