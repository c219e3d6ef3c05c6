"""Descriptions of the fields of load balancers with objects of their own, backends and regions; by struct and name."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import ENSURE, INTENT_STATUS, MEMBERS_OBJECT, OBSERVED, PORT

BACKENDS: Mapping[str, Mapping[str, str]] = {
    "LoadBalancerSpec": {
        "className": "LoadBalancerClass that serves the load balancer. A change moves it without an interruption.",
        "existing": "Identifies a load balancer that already exists. Fairlead uses it and never deletes it.",
        "parameters": "Provider settings that the class does not set.",
        "listeners": "Ports that clients connect to.",
        "attributes": "Attributes of the load balancer itself.",
        "scope": "Other namespaces whose BackendGroups may use the load balancer; * allows all.",
        "clusterName": "Cluster of Cluster API in this namespace whose machines are the backends. Immutable.",
        "additional": "Secondary load balancer; its endpoint is not published.",
    },
    "LoadBalancerListener": {
        **PORT,
        "name": "Name that BackendGroups refer to.",
        "targetPort": "Port of the backend machines; 0 means the same port.",
    },
    "AcceptedFrontend": {
        "provider": "Provider that serves the load balancer.",
        "listeners": "Ports of the load balancer.",
        "parameters": "Provider settings, including those of the class.",
        "attributes": "Attributes of the load balancer.",
    },
    "LoadBalancerObjectStatus": {
        **INTENT_STATUS,
        "accepted": "Configuration that the hub's proxies serve: the last accepted one while spec is rejected.",
        "backends": "Registered and expected backends, such as 2/3.",
        "targets": "Number of objects that the selector matches.",
        "activeTargets": "Number of members that take traffic: active, and not unhealthy for any proxy. 0 while no "
        "proxy sees a healthy member.",
        "targetKind": "Kind of the members, such as Machine.cluster.x-k8s.io.",
        "targetSelector": "Selector in force, as text.",
        "members": "First 100 members with their states.",
    },
    "BackendPort": {**PORT, "port": "Port of the backend."},
    "PodLabels": {
        "selector": "Labels that a pod must have.",
        "except": "Names of pods to exclude.",
    },
    "PodBackends": {"ports": "Ports of each pod.", "byName": "Names of the pods."},
    "ServiceBackends": {
        "name": "Name of the NodePort Service in this namespace.",
        "nodeSelector": "Labels that a node must have; all nodes when empty.",
    },
    "DeregisterWebhook": {
        "className": "LoadBalancerClass whose driver decides.",
        "failurePolicy": "Decision while the driver does not answer.",
    },
    "BackendGroupSpec": {
        "loadBalancers": "LoadBalancers of the backends: name, or namespace/name if their scope allows it.",
        "static": "Backends without an object in the cluster, as address:port.",
        "draining": "Static backends that get no new connections and keep existing ones.",
        "listBackends": "Whether the status lists each static backend with its state.",
        "listener": "Listener of the load balancers; required when they have more than one.",
        "parameters": "Settings for the provider, sent with each backend, such as weight.",
        "deregisterPolicy": "When a pod is deregistered: not ready, not running, or by decision of a driver.",
    },
    "BackendGroupStatus": {
        **OBSERVED,
        "loadBalancers": "Load balancers of the spec in one line.",
        "backends": "Number of expected backends.",
        "registeredBackends": "Number of registered backends.",
        "accepted": "Accepted settings, by namespace/name of the load balancer.",
        "listed": "Static backends and their states, if listBackends is set.",
        "listedGeneration": "The metadata.generation that listed describes, once it has taken effect.",
    },
    "ListedBackend": {"backend": "Backend as address:port.", "state": "State of the backend."},
    "AcceptedBackends": {
        "uid": "UID of the load balancer.",
        "parameters": "Settings that were accepted last.",
    },
    "RecordLoadBalancer": {
        "kind": "Kind of the object that requested the load balancer.",
        "namespace": "Namespace of that object.",
        "name": "Name of that object.",
        "provider": "Name of the provider.",
        "parameters": "Settings with which the provider finds the load balancer.",
        "attributes": "Requested attributes.",
        "info": ENSURE["info"],
        "existing": "Whether the load balancer was created by others; Fairlead then never deletes it.",
        "uid": "UID of the object that requested the load balancer.",
    },
    "RecordListener": {**PORT, "backend": "Backend name of an HTTP load balancer; the port is then 0."},
    "RecordOrigin": {
        **MEMBERS_OBJECT,
        "kind": "Pod or Service.",
        "namespace": "Namespace of the object.",
        "labels": "Labels of the object when the record was created.",
        "phase": "Phase of the pod when the record was created.",
        "nodeName": "Node that the pod runs on, or that receives its traffic.",
        "servicePort": "Port of the Service.",
        "nodeAddresses": "Addresses of the node.",
    },
    "NodeAddress": {"type": "Kind of the address, such as InternalIP.", "address": "The address."},
    "RecordTarget": {
        "address": "Address of the backend.",
        "port": "Port of the backend.",
        "weight": "Share of the traffic, relative to the other backends.",
        "source": "Object of the backend, as kind/namespace/name/uid.",
        "draining": "Whether the backend gets no new connections.",
        "name": "Short name of the backend's object.",
    },
    "BackendRecordSpec": {
        "owners": "BackendGroups or Services that list the backend. The record is removed with the last owner.",
        "parameters": "Settings for the provider, sent with the backend.",
        "epoch": "Term of the leader that wrote the record.",
    },
    "BackendRecordStatus": {
        "state": "State of the backend; the reference lists the states.",
        "reason": "Reason for the state, in one word.",
        "message": "Last message of the provider.",
        "since": "Time of the last change of state.",
        "generatedAddress": "The provider's own name for the backend.",
        "injectedInfo": "Data that the provider returned and gets with every later call.",
    },
    "NodePoolSpec": {
        "nodeSelector": "Labels that a node of the pool must have; no node is selected when empty.",
        "region": "Name of the region; the name of the pool when empty.",
    },
    "PoolServiceSpec": {
        "nodepoolName": "Name of the NodePool, which defines the region.",
        "renewTime": "Time of the last change that concerns this region.",
        "loadBalancerClass": "Implementation that acts on the object; all others ignore it.",
    },
    "PoolServiceStatus": {
        **OBSERVED,
        "address": "First address of the region's access point.",
        "targets": "Ready and total targets, such as 2/3.",
        "aggregateToAnnotations": "Copied to the Service as annotations aggregated.KEY.",
        "aggregateToLabels": "Copied to the Service as labels aggregated.KEY.",
    },
}  # fmt: skip
