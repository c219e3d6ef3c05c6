"""Pods, ConfigMaps and Nodes, reduced to the fields that are needed to be a kubelet."""

from __future__ import annotations

import msgspec

from fairlead.api.meta import KubeObject, Resource, Wire


class FieldRef(Wire, frozen=True, gc=False):
    """A field of the pod, such as ``metadata.name``."""

    field_path: str = ""


class ValueFrom(Wire, frozen=True, gc=False):
    """Where the value of a variable comes from."""

    field_ref: FieldRef | None = None


class Variable(Wire, frozen=True, gc=False):
    """One variable of the environment."""

    name: str = ""
    value: str = ""
    value_from: ValueFrom | None = None


class Mount(Wire, frozen=True, gc=False):
    """Where a volume is in a container."""

    name: str = ""
    mount_path: str = ""


class ContainerSpec(Wire, frozen=True, gc=False):
    """One container."""

    name: str = ""
    image: str = ""
    env: list[Variable] | None = None
    volume_mounts: list[Mount] | None = None


class KeyToPath(Wire, frozen=True, gc=False):
    """One key of a volume's source, and its file."""

    key: str = ""
    path: str = ""


class SecretSource(Wire, frozen=True, gc=False):
    """A volume with the keys of a Secret."""

    secret_name: str = ""
    items: list[KeyToPath] | None = None
    optional: bool = False


class ConfigMapSource(Wire, frozen=True, gc=False):
    """A volume with the keys of a ConfigMap."""

    name: str = ""
    items: list[KeyToPath] | None = None
    optional: bool = False


class Volume(Wire, frozen=True, gc=False):
    """One volume; those of other kinds are left empty."""

    name: str = ""
    secret: SecretSource | None = None
    config_map: ConfigMapSource | None = None


class SchedulingGate(Wire, frozen=True, gc=False):
    """Why a pod is not to be bound yet."""

    name: str = ""


class RunnablePodSpec(Wire, frozen=True, gc=False):
    """The pods to run, and their addresses."""

    node_name: str = ""
    containers: list[ContainerSpec] | None = None
    volumes: list[Volume] | None = None
    scheduling_gates: list[SchedulingGate] | None = None


class RunnablePodStatus(Wire, frozen=True, gc=False):
    """Whether it runs."""

    phase: str = ""


class RunnablePod(KubeObject, frozen=True, gc=False):
    """A Pod with all that is needed to run it."""

    spec: RunnablePodSpec = RunnablePodSpec()
    status: RunnablePodStatus = msgspec.field(default_factory=RunnablePodStatus)


class MountedConfigMap(KubeObject, frozen=True, gc=False):
    """A ConfigMap with its data."""

    data: dict[str, str] | None = None


RUNNABLE_PODS = Resource("", "v1", "Pod", "pods", True, RunnablePod)
MOUNTED_CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps", True, MountedConfigMap)
PLAIN_NODES = Resource("", "v1", "Node", "nodes", False, KubeObject)
