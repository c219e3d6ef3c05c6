"""Descriptions of the fields of the part for Cluster API."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import OBSERVED

CLUSTERS: Mapping[str, Mapping[str, str]] = {
    "Endpoint": {"host": "IP address or DNS name.", "port": "Port that clients connect to."},
    "TargetKind": {"apiGroup": "API group of the kind.", "kind": "The kind; its objects have status.addresses."},
    "InfrastructureReference": {
        "apiGroup": "API group of the kind.",
        "kind": "Kind of the other provider's load balancer.",
        "name": "Its name.",
    },
    "SelectorTerm": {
        "key": "Label.",
        "operator": "In, NotIn, Exists or DoesNotExist.",
        "values": "Values of the label.",
    },
    "TargetSelector": {"matchLabels": "Labels that a member must have.", "matchExpressions": "Terms that must hold."},
    "RequestCheck": {
        "disabled": "Whether members are checked as the class says instead.",
        "path": "Path of the request.",
        "host": "Name that is asked for, and that the certificate must have when it is given.",
        "caBundle": "Authority that the certificate must come from, PEM; empty: any certificate will do.",
        "interval": "Time between two checks; that of the class when it is left out.",
        "timeout": "How long an answer may take; that of the class when it is left out.",
        "unhealthyThreshold": "Failed checks until a member gets no traffic.",
        "healthyThreshold": "Good checks until it does again.",
    },
    "AskedRequest": {
        "path": "Path of the request.",
        "host": "Name that is asked for.",
        "caBundle": "Authority that the certificate must come from, PEM.",
    },
    "ClusterLoadBalancerPolicySpec": {
        "className": "LoadBalancerClass of what is made.",
        "clusterSelector": "Labels of the Clusters that are meant; empty: all of the namespace.",
        "infrastructureKinds": "Kinds of spec.infrastructureRef that are meant; empty: all.",
        "parameters": "Parameters of what is made.",
        "listeners": "Ports of what is made; 6443 when there are none.",
    },
    "ClusterLoadBalancerPolicyStatus": {**OBSERVED, "loadBalancers": "How many LoadBalancers it has made."},
    "MemberStatus": {
        "name": "Name of the member.",
        "addresses": "Its addresses.",
        "state": "adding, active, disabling, disabled, removing or removed.",
        "reason": "Why, in a few words.",
        "since": "When it came to this state.",
    },
}
