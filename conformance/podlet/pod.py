"""One pod: its address, its files, its servers and its logs, from its creation to its end.

created ──volumes there──► servers listen ──► Running and Ready ──deleted──► closed, and deleted at the API
"""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from conformance.podlet.objects import RUNNABLE_PODS, ContainerSpec, RunnablePod
from conformance.podlet.servers import Servers
from conformance.podlet.volumes import WaitingError, write_volumes
from fairlead.api.meta import JSONObject
from fairlead.errors import Conflict, FairleadError, NotFound
from fairlead.kube.cluster import Cluster

LOG_LINES = 20_000
_AGAIN_S, _FAILED_AGAIN_S = 0.3, 1.0

log = logging.getLogger("podlet")


def now() -> str:
    """Return the time as Kubernetes writes it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def delete_now(cluster: Cluster, pod: RunnablePod) -> None:
    """Delete a pod at the API without grace, if it is still the one that is meant."""
    body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
    path = RUNNABLE_PODS.path(pod.metadata.namespace, pod.metadata.name)
    try:
        await cluster.raw("DELETE", path, body=msgspec.json.encode(body))
    except (NotFound, Conflict):
        return
    except FairleadError as error:
        log.warning("%s is not deleted: %s", pod.key, error)


class PodRun:
    """A pod that runs at the first of ``ips`` on the node at ``node_ip``."""

    def __init__(
        self, cluster: Cluster, pod: RunnablePod, *, ips: tuple[str, ...], node_ip: str, directory: Path
    ) -> None:
        self.pod = pod
        self.ip = ips[0]
        self.logs: dict[str, collections.deque[tuple[float, str]]] = {}
        self._ips = ips
        self._cluster = cluster
        self._node_ip = node_ip
        self._directory = directory
        self._servers = Servers(self.ip, directory)
        self._started = now()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End it, and delete it at the API."""
        self._task.cancel()
        self._servers.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        await delete_now(self._cluster, self.pod)

    async def _run(self) -> None:
        reported = ""
        while True:
            try:
                await write_volumes(self._cluster, self.pod, self._directory)
                for container in self.pod.spec.containers or ():
                    await self._servers.start(container, self._env(container), self._log_of(container))
                await self._report(ready=True)
            except WaitingError as reason:
                if str(reason) != reported:
                    reported = str(reason)
                    log.info("%s waits: %s", self.pod.key, reason)
                    await self._report(ready=False, message=reported)
                await asyncio.sleep(_AGAIN_S)
            except NotFound:
                return  # deleted meanwhile
            except (FairleadError, OSError, ValueError) as error:
                log.warning("%s: %s", self.pod.key, error)
                self._servers.close()
                await asyncio.sleep(_FAILED_AGAIN_S)
            else:
                log.info("%s is ready at %s", self.pod.key, self.ip)
                return

    def _log_of(self, container: ContainerSpec) -> Callable[[str], None]:
        lines = self.logs.setdefault(container.name, collections.deque(maxlen=LOG_LINES))

        def write(text: str) -> None:
            lines.append((time.time(), text))

        return write

    def _env(self, container: ContainerSpec) -> dict[str, str]:
        fields = {
            "metadata.name": self.pod.metadata.name,
            "metadata.namespace": self.pod.metadata.namespace,
            "metadata.uid": self.pod.metadata.uid,
            "status.podIP": self.ip,
            "status.podIPs": ",".join(self._ips),
            "status.hostIP": self._node_ip,
            "spec.nodeName": self.pod.spec.node_name,
        }
        env: dict[str, str] = {}
        for entry in container.env or ():
            ref = entry.value_from.field_ref if entry.value_from is not None else None
            env[entry.name] = fields.get(ref.field_path, "") if ref is not None else entry.value
        return env

    async def _report(self, *, ready: bool, message: str = "") -> None:
        truth = "True" if ready else "False"
        conditions = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": truth, "Ready": truth}
        state: JSONObject = (
            {"running": {"startedAt": self._started}}
            if ready
            else {"waiting": {"reason": "ContainerCreating", "message": message}}
        )
        status: JSONObject = {
            "phase": "Running" if ready else "Pending",
            "hostIP": self._node_ip,
            "hostIPs": [{"ip": self._node_ip}],
            "podIP": self.ip,
            "podIPs": [{"ip": ip} for ip in self._ips],
            "startTime": self._started,
            "conditions": [
                {"type": kind, "status": value, "lastTransitionTime": now()} for kind, value in conditions.items()
            ],
            "containerStatuses": [
                {
                    "name": container.name,
                    "image": container.image,
                    "imageID": container.image,
                    "containerID": f"podlet://{self.pod.metadata.uid}/{container.name}",
                    "ready": ready,
                    "started": ready,
                    "restartCount": 0,
                    "state": state,
                }
                for container in self.pod.spec.containers or ()
            ],
        }
        meta = self.pod.metadata
        await self._cluster.merge_patch(
            RUNNABLE_PODS, meta.namespace, meta.name, {"status": status}, subresource="status"
        )
