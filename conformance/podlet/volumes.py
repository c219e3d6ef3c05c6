"""The files that a pod sees: its Secrets and ConfigMaps, written below a directory of its own.

In: the pod's spec, and a directory that only its owner may enter. Out: files. Volumes of other kinds are left out:
no echo server reads them.
"""

from __future__ import annotations

import base64
from pathlib import Path

from conformance.podlet.objects import MOUNTED_CONFIG_MAPS, ContainerSpec, KeyToPath, RunnablePod, Volume
from fairlead.api.kubernetes import SECRETS
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster


class WaitingError(Exception):
    """Something that the pod needs is not there yet."""


async def write_volumes(cluster: Cluster, pod: RunnablePod, directory: Path) -> None:
    """Write all files.

    Raises:
        WaitingError: a Secret, a ConfigMap or a key of it is missing; suites create them late.
    """
    for volume in pod.spec.volumes or ():
        data, items, source = await _data(cluster, pod.metadata.namespace, volume)
        for item in items or [KeyToPath(key=key, path=key) for key in data]:
            if item.key not in data:
                raise WaitingError(f"{source} has no {item.key}")
            file = directory / volume.name / item.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data[item.key])


def path_outside(directory: Path, container: ContainerSpec, path: str) -> Path:
    """Return where a path inside the container lies."""
    for mount in container.volume_mounts or ():
        prefix = mount.mount_path.rstrip("/") + "/"
        if path.startswith(prefix):
            return directory / mount.name / path.removeprefix(prefix)
    return Path(path)


async def _data(cluster: Cluster, namespace: str, volume: Volume) -> tuple[dict[str, bytes], list[KeyToPath], str]:
    if volume.secret is not None:
        name, source = volume.secret.secret_name, volume.secret
        try:
            secret = await cluster.get(SECRETS, namespace, name)
        except NotFound:
            return _absent(f"Secret {name}", optional=source.optional)
        data = {key: base64.b64decode(value) for key, value in (secret.data or {}).items()}
        return data, source.items or [], f"Secret {name}"
    if volume.config_map is not None:
        name, source = volume.config_map.name, volume.config_map
        try:
            config_map = await cluster.get(MOUNTED_CONFIG_MAPS, namespace, name)
        except NotFound:
            return _absent(f"ConfigMap {name}", optional=source.optional)
        data = {key: value.encode() for key, value in (config_map.data or {}).items()}
        return data, source.items or [], f"ConfigMap {name}"
    return {}, [], ""


def _absent(source: str, *, optional: bool) -> tuple[dict[str, bytes], list[KeyToPath], str]:
    if optional:
        return {}, [], source
    raise WaitingError(f"{source} is not there")
