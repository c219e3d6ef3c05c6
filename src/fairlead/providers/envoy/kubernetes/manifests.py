"""The Kubernetes objects of the proxies: those that run one group, and the Service in front of each load balancer.

A group has a ServiceAccount, a ConfigMap with the bootstrap, a Deployment, a PodDisruptionBudget and a NetworkPolicy.
Each object carries a hash of itself, and labels that name its owner. The Service in front has these families:

    families of the load balancer    ipFamilyPolicy      ipFamilies
    -------------------------------  ------------------  -----------------------------------------------
    none                             SingleStack         the cluster's choice
    one                              SingleStack         that one; rejected by a cluster without it
    both, one is enough              PreferDualStack     what the cluster has
    both                             RequireDualStack    both; rejected by a cluster that has one

The cluster chooses which of both is first, because that can never change; addresses are shown in the order of the load
balancer. The Service is labelled as ours, so that no agent exports it. Label values are those that Kubernetes accepts;
longer ones are in the annotations in full.
In: the name of a group, ``DeploymentSettings`` or a FrontendSpec. Out: plain JSON values, the same for the same input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import cast

import msgspec

from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.names import (
    LABEL_MANAGED_BY,
    LABEL_ORIGIN_KIND,
    LABEL_ORIGIN_NAME,
    LABEL_ORIGIN_NAMESPACE,
    MANAGED_BY,
    PROXIES_NAMESPACE,
)
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import LoadBalancerKey, Protocol, WantedFamilies
from fairlead.providers.envoy.bootstrap import ENVOY_FLAGS, Bootstrap, TlsFiles, bootstrap_json, secret_files
from fairlead.providers.envoy.http.names import http3_ports
from fairlead.providers.envoy.settings import ANNOTATION_PARAMETER

Manifest = Mapping[str, object]

GROUP_LABEL = "fairlead.dev/envoy-group"
HASH_ANNOTATION = "fairlead.dev/applied-hash"

#: What no namespace is named like: the load balancers of Clusters have proxies of their own, since the hub writes
#: nothing into the namespaces of Clusters.
_OF_CLUSTERS = "clusters."

_NOT_A_LABEL_CHARACTER = re.compile(r"[^a-z0-9-]+")


class ManifestRef(msgspec.Struct, frozen=True):
    """The identity of a Kubernetes object."""

    api_version: str
    kind: str
    namespace: str
    name: str


def ref_of(manifest: Manifest) -> ManifestRef:
    """Return the identity of a manifest."""
    metadata = cast("Mapping[str, str]", manifest["metadata"])
    return ManifestRef(str(manifest["apiVersion"]), str(manifest["kind"]), metadata["namespace"], metadata["name"])


def dns_label(prefix: str, name: str, *, unique: str) -> str:
    """Make a DNS-1035 label of at most 63 characters, readable by ``name`` and unique by a hash of ``unique``."""
    tail = blake2b(unique.encode(), digest_size=5).hexdigest()
    readable = _NOT_A_LABEL_CHARACTER.sub("-", name.lower()).strip("-")
    return f"{prefix}-{readable[: 63 - len(prefix) - len(tail) - 2].strip('-')}-{tail}".replace("--", "-")


def group_of(key: LoadBalancerKey, own: str = "") -> str:
    """Return the group that serves a load balancer: that of Clusters, or its ``own``, by default its namespace."""
    return f"{_OF_CLUSTERS}{key.namespace}" if key.kind == LOAD_BALANCERS.kind else own or key.namespace


def group_name(group: str) -> str:
    """Name the objects of a group."""
    return dns_label("envoy", group, unique=group)


def group_labels(group: str) -> dict[str, str]:
    """Return the labels of everything that belongs to a group; the second one selects its pods."""
    return {LABEL_MANAGED_BY: MANAGED_BY, "app.kubernetes.io/name": "fairlead-envoy", GROUP_LABEL: group_name(group)}


def hashed(manifest: Manifest) -> Manifest:
    """Add an annotation with the hash of the rest, so that a writer sees without a diff that nothing has changed."""
    digest = blake2b(msgspec.json.encode(manifest, order="deterministic"), digest_size=8).hexdigest()
    metadata = cast("Mapping[str, object]", manifest["metadata"])
    annotations = {**_annotations(manifest), HASH_ANNOTATION: digest}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def hash_of(manifest: Manifest) -> str:
    """Return the hash that ``hashed`` has added."""
    return _annotations(manifest)[HASH_ANNOTATION]


def _annotations(manifest: Manifest) -> Mapping[str, str]:
    return cast("Mapping[str, Mapping[str, str]]", manifest["metadata"]).get("annotations", {})


_CONFIG_DIR = "/etc/envoy"
_TLS_DIR = "/etc/fairlead-tls"
_RUN_DIR = "/run/envoy"


class DeploymentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of proxies, the same for all groups.

    ``namespace`` empty: each group has the one it is named after (a tenant's own), and those of Clusters have
    ``clusters_namespace``: the namespaces of Clusters have other Secrets. Each group's proxies have their
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
        """Return the namespace of a group's objects."""
        return self.namespace or (self.clusters_namespace if group.startswith(_OF_CLUSTERS) else group)


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
            {
                **_head("policy/v1", "PodDisruptionBudget", group, settings),
                "spec": {"maxUnavailable": 1, "selector": _selector(group)},
            },
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
            {"name": "tls", "secret": {"secretName": group_name(group), "defaultMode": 0o440}},
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
        # Traffic is moved to other pods before the process ends.
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


def _network_policy(group: str, settings: DeploymentSettings) -> Manifest:
    first, last = settings.proxy_ports
    listeners = [{"protocol": protocol, "port": first, "endPort": last} for protocol in ("TCP", "UDP")]
    # Who may read statistics is decided by the certificate: the hub need not run in this cluster.
    own = [{"protocol": "TCP", "port": port} for port in (settings.readiness_port, settings.statistics_port)]
    return {"podSelector": _selector(group), "policyTypes": ["Ingress"], "ingress": [{"ports": [*listeners, *own]}]}


#: The load balancer of the Service, as ``str(LoadBalancerKey)``.
LOAD_BALANCER_ANNOTATION = "fairlead.dev/load-balancer"

_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def service_name(key: LoadBalancerKey) -> str:
    """Name the Service: DNS-1035, at most 63 characters, never the same for two load balancers."""
    return dns_label("fl", f"{key.namespace}-{key.name}", unique=str(key))


def service_manifest(spec: FrontendSpec, settings: DeploymentSettings) -> Manifest:
    """Build the Service."""
    origin = {
        LOAD_BALANCER_ANNOTATION: str(spec.key),
        "fairlead.dev/origin-member": spec.owner.member,
        LABEL_ORIGIN_KIND: spec.owner.kind,
        LABEL_ORIGIN_NAMESPACE: spec.owner.namespace,
        LABEL_ORIGIN_NAME: spec.owner.name,
        "fairlead.dev/origin-uid": spec.owner.uid,
    }
    labels = {name: value for name, value in origin.items() if _LABEL_VALUE.fullmatch(value)}
    annotations = {
        name.removeprefix(ANNOTATION_PARAMETER): value
        for name, value in spec.parameters.items()
        if name.startswith(ANNOTATION_PARAMETER)
    }
    service: dict[str, object] = {
        "type": "LoadBalancer",
        "selector": {GROUP_LABEL: group_name(spec.group)},
        "ports": [*map(_port, spec.listeners), *_http3(spec)],
        "externalTrafficPolicy": "Local" if spec.local_traffic_only else "Cluster",
        "ipFamilyPolicy": _policy(spec.families),
    }
    if len(spec.families.families) == 1:
        service["ipFamilies"] = list(spec.families.families)
    if spec.parameters.get("loadBalancerClass"):
        service["loadBalancerClass"] = spec.parameters["loadBalancerClass"]
    if spec.address:
        service["loadBalancerIP"] = spec.address
    if spec.source_ranges:
        service["loadBalancerSourceRanges"] = list(spec.source_ranges)
    return hashed(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": service_name(spec.key),
                "namespace": settings.namespace_of(spec.group),
                "labels": {**labels, LABEL_MANAGED_BY: MANAGED_BY, GROUP_LABEL: group_name(spec.group)},
                "annotations": {**annotations, **{name: value for name, value in origin.items() if value}},
            },
            "spec": service,
        }
    )


def _policy(wanted: WantedFamilies) -> str:
    if len(wanted.families) < 2:
        return "SingleStack"
    return "RequireDualStack" if wanted.all_required else "PreferDualStack"


def _http3(spec: FrontendSpec) -> Iterator[Manifest]:
    """Yield a UDP port for each HTTPS listener; proxies listen on the same number for both protocols."""
    ports = http3_ports(spec)
    for listener in spec.listeners:
        if listener.port in ports and listener.protocol is Protocol.TCP:
            yield {**_port(listener), "name": f"http3-{listener.port}", "protocol": Protocol.UDP.value}


def _port(listener: Listener) -> Manifest:
    return {
        "name": f"{listener.protocol.lower()}-{listener.port}",
        "protocol": listener.protocol.value,
        "port": listener.port,
        "targetPort": listener.bind_port,
    }
