"""The Service in front of a load balancer's ports on its group's proxies.

    families of the load balancer    ipFamilyPolicy      ipFamilies
    -------------------------------  ------------------  -----------------------------------------------
    none                             SingleStack         the cluster's choice
    one                              SingleStack         that one; refused where the cluster has it not
    both, one is enough              PreferDualStack     what the cluster has
    both                             RequireDualStack    both; refused where the cluster has one

Which of both is first is left to the cluster, since that can never change; addresses are shown in the order of the load
balancer. In: a FrontendSpec. Out: one manifest of type LoadBalancer. It is labelled as ours, so that no agent takes it
for a user's and exports it again, and carries where it comes from. Each label value is one that Kubernetes accepts;
whatever does not fit there is in the annotations in full.
"""

from __future__ import annotations

import re

from fairlead.api.names import (
    LABEL_MANAGED_BY,
    LABEL_ORIGIN_KIND,
    LABEL_ORIGIN_NAME,
    LABEL_ORIGIN_NAMESPACE,
    MANAGED_BY,
)
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import LoadBalancerKey, WantedFamilies
from fairlead.providers.envoy.kubernetes.deployment_manifests import DeploymentSettings
from fairlead.providers.envoy.kubernetes.manifests import GROUP_LABEL, Manifest, dns_label, group_name, hashed

#: ``parameters`` with this prefix become annotations of the Service, for a cloud's controller.
ANNOTATION_PARAMETER = "serviceAnnotation/"
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
        "ports": [_port(listener) for listener in spec.listeners],
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


def _port(listener: Listener) -> Manifest:
    return {
        "name": f"{listener.protocol.lower()}-{listener.port}",
        "protocol": listener.protocol.value,
        "port": listener.port,
        "targetPort": listener.bind_port,
    }
