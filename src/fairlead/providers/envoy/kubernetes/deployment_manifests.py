"""The Kubernetes objects that run the proxies of one group.

In: the group's name and ``DeploymentSettings``. Out: manifests (plain JSON values), the same for the same input: a
ServiceAccount, a ConfigMap with the bootstrap, a Deployment, a PodDisruptionBudget and a NetworkPolicy.
It never talks to Kubernetes; ``objects`` does, and ``service_manifests`` makes the Services in front.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from fairlead.api.names import PROXIES_NAMESPACE
from fairlead.providers.envoy.bootstrap import ENVOY_FLAGS, Bootstrap, TlsFiles, bootstrap_json, secret_files
from fairlead.providers.envoy.kubernetes.manifests import (
    GROUP_LABEL,
    Manifest,
    group_labels,
    group_name,
    hashed,
    is_of_clusters,
)

_CONFIG_DIR = "/etc/envoy"
_TLS_DIR = "/etc/fairlead-tls"
_RUN_DIR = "/run/envoy"


class DeploymentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of proxies, the same for all groups.

    ``namespace`` empty: each group has the one it is named after (a tenant's own), and those of Clusters have
    ``clusters_namespace``: beside the Clusters are Secrets that are none of the hub's. Each group's proxies have their
    own client certificate (``tls.crt``, ``tls.key``, ``ca.crt``), whose SPIFFE URI ends in ``/group/<group>``, in a
    Secret that is named like everything else of the group. ``proxy_ports`` is the range the hub allocates from.
    """

    namespace: str = ""
    clusters_namespace: str = PROXIES_NAMESPACE
    image: str = "envoyproxy/envoy:v1.40.0"
    replicas: int = 2
    concurrency: int = 2
    cpu_request: str = "100m"
    memory_request: str = "128Mi"
    memory_limit: str = "1Gi"
    max_connections: int = 50_000
    xds_host: str = "fairlead-hub.fairlead-system.svc"
    xds_port: int = 18_000
    readiness_port: int = 8002
    statistics_port: int = 8003
    proxy_ports: tuple[int, int] = (10_000, 60_000)
    drain_s: int = 15

    def namespace_of(self, group: str) -> str:
        """Return where the objects of a group are."""
        return self.namespace or (self.clusters_namespace if is_of_clusters(group) else group)


def group_manifests(group: str, settings: DeploymentSettings) -> list[Manifest]:
    """Build everything that runs a group's proxies, in the order in which it is to be applied."""
    files = {"bootstrap.json": _bootstrap(group, settings), **secret_files(_tls_files(settings))}
    data = {name: msgspec.json.encode(file, order="deterministic").decode() for name, file in files.items()}
    return [
        hashed(manifest)
        for manifest in (
            {**_head("v1", "ServiceAccount", group, settings), "automountServiceAccountToken": False},
            {**_head("v1", "ConfigMap", group, settings), "data": data},
            {**_head("apps/v1", "Deployment", group, settings), "spec": _deployment(group, settings, data)},
            {**_head("policy/v1", "PodDisruptionBudget", group, settings), "spec": _disruption_budget(group)},
            {
                **_head("networking.k8s.io/v1", "NetworkPolicy", group, settings),
                "spec": _network_policy(group, settings),
            },
        )
    ]


def _head(api_version: str, kind: str, group: str, settings: DeploymentSettings) -> dict[str, object]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": group_name(group),
            "namespace": settings.namespace_of(group),
            "labels": group_labels(group),
            "annotations": {"fairlead.dev/group": group},
        },
    }


def _bootstrap(group: str, settings: DeploymentSettings) -> Mapping[str, object]:
    return bootstrap_json(
        Bootstrap(
            node_id="",  # the pod's name, by a flag
            group=group,
            xds_address=settings.xds_host,
            xds_port=settings.xds_port,
            admin_socket=f"{_RUN_DIR}/admin.sock",
            max_connections=settings.max_connections,
            tls=_tls_files(settings),
            readiness_port=settings.readiness_port,
            statistics_port=settings.statistics_port,
        )
    )


def _tls_files(settings: DeploymentSettings) -> TlsFiles:
    return TlsFiles(
        certificate=f"{_TLS_DIR}/tls.crt",
        key=f"{_TLS_DIR}/tls.key",
        ca=f"{_TLS_DIR}/ca.crt",
        server_name=settings.xds_host,
        watched_directory=_TLS_DIR,
        secrets_directory=_CONFIG_DIR,
    )


def _selector(group: str) -> Manifest:
    return {"matchLabels": {GROUP_LABEL: group_name(group)}}


def _deployment(group: str, settings: DeploymentSettings, data: Mapping[str, str]) -> Manifest:
    # Pods are replaced when their bootstrap changes: Envoy reads it once.
    checksum = blake2b(msgspec.json.encode(data, order="deterministic"), digest_size=8).hexdigest()
    return {
        "replicas": settings.replicas,
        "selector": _selector(group),
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {
            "metadata": {"labels": group_labels(group), "annotations": {"fairlead.dev/bootstrap-hash": checksum}},
            "spec": _pod(group, settings),
        },
    }


def _pod(group: str, settings: DeploymentSettings) -> Manifest:
    spread = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": _selector(group)}
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": _selector(group)}
    return {
        "serviceAccountName": group_name(group),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": settings.drain_s + 45,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65_532,
            "runAsGroup": 65_532,
            "fsGroup": 65_532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]
            }
        },
        "topologySpreadConstraints": [{**spread, "topologyKey": "topology.kubernetes.io/zone"}],
        "containers": [_container(settings)],
        "volumes": [
            {"name": "bootstrap", "configMap": {"name": group_name(group)}},
            {
                "name": "tls",
                "secret": {"secretName": group_name(group), "defaultMode": 0o440},
            },
            {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ],
    }


def _container(settings: DeploymentSettings) -> Manifest:
    flags = ["--service-node", "$(POD_NAME)", "--concurrency", str(settings.concurrency), "--disable-hot-restart"]
    return {
        "name": "envoy",
        "image": settings.image,
        "command": ["envoy"],
        "args": ["-c", f"{_CONFIG_DIR}/bootstrap.json", *flags, *ENVOY_FLAGS],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [
            {"name": "readiness", "containerPort": settings.readiness_port, "protocol": "TCP"},
            {"name": "statistics", "containerPort": settings.statistics_port, "protocol": "TCP"},
        ],
        # No liveness probe: a proxy that waits for its first configuration is not broken, and a broken one exits.
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": "readiness"},
            "periodSeconds": 2,
            "failureThreshold": 2,
        },
        # Traffic is led away before the process ends.
        "lifecycle": {"preStop": {"sleep": {"seconds": settings.drain_s}}},
        "resources": {
            "requests": {"cpu": settings.cpu_request, "memory": settings.memory_request},
            "limits": {"memory": settings.memory_limit},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "bootstrap", "mountPath": _CONFIG_DIR, "readOnly": True},
            {"name": "tls", "mountPath": _TLS_DIR, "readOnly": True},
            {"name": "run", "mountPath": _RUN_DIR},
        ],
    }


def _disruption_budget(group: str) -> Manifest:
    return {"maxUnavailable": 1, "selector": _selector(group)}


def _network_policy(group: str, settings: DeploymentSettings) -> Manifest:
    first, last = settings.proxy_ports
    listeners = [{"protocol": protocol, "port": first, "endPort": last} for protocol in ("TCP", "UDP")]
    # Who may read statistics is decided by the certificate: the hub need not run in this cluster.
    own = [{"protocol": "TCP", "port": port} for port in (settings.readiness_port, settings.statistics_port)]
    return {"podSelector": _selector(group), "policyTypes": ["Ingress"], "ingress": [{"ports": [*listeners, *own]}]}
