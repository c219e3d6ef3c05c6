"""Descriptions of the fields of the part for Cluster API."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import OBSERVED

CLUSTERS: Mapping[str, Mapping[str, str]] = {
    "Endpoint": {"host": "IP address or DNS name.", "port": "Port that clients connect to."},
    "TargetKind": {"apiGroup": "API group of the kind.", "kind": "Kind of objects with status.addresses."},
    "InfrastructureReference": {
        "apiGroup": "API group of the kind.",
        "kind": "Kind of the other provider's load balancer object.",
        "name": "Name of the object.",
    },
    "SelectorTerm": {
        "key": "Label key.",
        "operator": "In, NotIn, Exists or DoesNotExist.",
        "values": "Values of the label.",
    },
    "TargetSelector": {
        "matchLabels": "Labels that a member must have.",
        "matchExpressions": "Requirements that a member must meet.",
    },
    "RequestCheck": {
        "disabled": "Whether the health check of the class is used instead.",
        "path": "Path of the request.",
        "host": "Host header; the certificate must be valid for this name when set.",
        "caBundle": "PEM certificate authority that verifies members; any certificate is accepted when empty.",
        "interval": "Time between two checks; that of the class when unset.",
        "timeout": "Time limit of a check; that of the class when unset.",
        "unhealthyThreshold": "Number of failed checks after which a member gets no traffic.",
        "healthyThreshold": "Number of successful checks after which a member gets traffic again.",
    },
    "AskedRequest": {
        "path": "Path of the request.",
        "host": "Host header of the request.",
        "caBundle": "PEM certificate authority that verifies members.",
    },
    "ClusterLoadBalancerPolicySpec": {
        "className": "LoadBalancerClass of the created load balancers.",
        "clusterSelector": "Selects Clusters by label; all Clusters of the namespace when empty.",
        "infrastructureKinds": "Selects Clusters by the kind of spec.infrastructureRef; all kinds when empty.",
        "parameters": "Parameters of the created load balancers.",
        "listeners": "Ports of the created load balancers; 6443 when empty.",
    },
    "ClusterLoadBalancerPolicyStatus": {
        **OBSERVED,
        "loadBalancers": "Number of LoadBalancers that the policy created.",
    },
    "MemberStatus": {
        "name": "Name of the member.",
        "addresses": "Addresses of the member.",
        "state": "adding, active, disabling, disabled, removing or removed.",
        "reason": "Reason for the state.",
        "since": "Time of the last change of state.",
    },
}
