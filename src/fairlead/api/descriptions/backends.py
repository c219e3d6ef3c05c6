"""Descriptions of the fields of load balancers with objects of their own, backends and regions; by struct and name."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import ENSURE, INTENT_STATUS, MEMBERS_OBJECT, OBSERVED, PORT

BACKENDS: Mapping[str, Mapping[str, str]] = {
    "LoadBalancerSpec": {
        "className": "The LoadBalancerClass that makes or uses it; it can change, and is moved without a gap.",
        "existing": "What identifies a load balancer that exists already: it is used, and never deleted.",
        "parameters": "Settings of the provider that its class does not set.",
        "listeners": "Ports that clients connect to.",
        "attributes": "Attributes that the load balancer itself is to have.",
        "scope": "Other namespaces whose BackendGroups may use it; * is all of them.",
        "clusterName": "The Cluster of Cluster API, in this namespace, whose machines are behind it; it never changes.",
        "additional": "Whether it stands beside the one whose endpoint the Cluster has; its own is published nowhere.",
    },
    "LoadBalancerListener": {
        **PORT,
        "name": "Name by which BackendGroups mean it.",
        "targetPort": "Port of the machines behind it; 0 is the same port.",
    },
    "AcceptedFrontend": {
        "provider": "The provider that serves it.",
        "listeners": "Its ports.",
        "parameters": "Settings of the provider, those of its class included.",
        "attributes": "Attributes of the load balancer.",
    },
    "LoadBalancerObjectStatus": {
        **INTENT_STATUS,
        "accepted": "What proxies of the hub serve: when spec is refused, as it was accepted last.",
        "backends": "Registered backends of those expected, as in 2/3.",
        "targets": "How many objects the selector chooses.",
        "activeTargets": "How many of them take traffic: in state active, and seen unhealthy by no proxy; 0 while no "
        "proxy sees a healthy one.",
        "targetKind": "The kind of the members, as Machine.cluster.x-k8s.io.",
        "targetSelector": "The selector in force, as text.",
        "members": "The members and how far each has come; the first 100.",
    },
    "BackendPort": {**PORT, "port": "Port at which the backend takes traffic."},
    "PodLabels": {
        "selector": "Labels that a pod must have, all of them.",
        "except": "Names of pods that are left out.",
    },
    "PodBackends": {"ports": "Ports of each pod.", "byName": "Names of the pods."},
    "ServiceBackends": {
        "name": "Name of the NodePort Service in this namespace.",
        "nodeSelector": "Labels that a node must have, all of them; all nodes when empty.",
    },
    "DeregisterWebhook": {
        "className": "The LoadBalancerClass whose driver is asked.",
        "failurePolicy": "What holds while the driver does not answer.",
    },
    "BackendGroupSpec": {
        "loadBalancers": "LoadBalancers that get the backends: names, or namespace/name where their scope allows it.",
        "static": "Backends as address:port, for what no object stands for.",
        "draining": "Those of static that get no new connections, and keep those that they have.",
        "listBackends": "Whether the status lists each static backend with its state.",
        "listener": "Listener of the load balancers that the backends are behind; needed where there are several.",
        "parameters": "Settings that go to the provider with each backend, such as weight.",
        "deregisterPolicy": "When a pod is taken out: not ready, not running, or as a driver says.",
    },
    "BackendGroupStatus": {
        **OBSERVED,
        "loadBalancers": "The load balancers of the spec in one line.",
        "backends": "How many backends are expected.",
        "registeredBackends": "How many backends are registered.",
        "accepted": "What is served, by namespace/name of the load balancer.",
        "listed": "With listBackends: what is registered, or on its way in or out.",
        "listedGeneration": "The metadata.generation that listed is about, once it has taken effect.",
    },
    "ListedBackend": {"backend": "Its address:port.", "state": "How far it has come."},
    "AcceptedBackends": {
        "uid": "UID of the load balancer.",
        "parameters": "Settings that were accepted last.",
    },
    "RecordLoadBalancer": {
        "kind": "Kind of the object that asked for it.",
        "namespace": "Namespace of that object.",
        "name": "Name of that object.",
        "provider": "Name of the provider that has it.",
        "parameters": "Settings that the provider finds it with.",
        "attributes": "Attributes that were asked for.",
        "info": ENSURE["info"],
        "existing": "Whether others made it: then it is never deleted.",
        "uid": "UID of the object that asked for it.",
    },
    "RecordListener": {**PORT, "backend": "Backend by its name, of a load balancer of requests; the port is then 0."},
    "RecordOrigin": {
        **MEMBERS_OBJECT,
        "kind": "Pod or Service.",
        "namespace": "Namespace of the object.",
        "labels": "Its labels when the record was made.",
        "phase": "The pod's phase when the record was made.",
        "nodeName": "Node that it runs on, or is reached at.",
        "servicePort": "Port of the Service that is meant.",
        "nodeAddresses": "Addresses of the node.",
    },
    "NodeAddress": {"type": "Kind of the address, such as InternalIP.", "address": "The address."},
    "RecordTarget": {
        "address": "Address of the backend.",
        "port": "Port of the backend.",
        "weight": "Its share of the traffic, relative to the other backends.",
        "source": "The object behind it, as kind/namespace/name/uid.",
        "draining": "Whether it gets no new connections.",
        "name": "The object behind it in a few words.",
    },
    "BackendRecordSpec": {
        "owners": "Groups or Services that want it; it is removed with the last of them.",
        "parameters": "Settings that go to the provider with the backend.",
        "epoch": "Term of the leader that wrote it.",
    },
    "BackendRecordStatus": {
        "state": "Where it stands; the reference lists the states.",
        "reason": "Why it is in this state, in one word.",
        "message": "What the provider said last.",
        "since": "Since when it is in this state.",
        "generatedAddress": "The provider's own name for the backend.",
        "injectedInfo": "What the provider asked to be given back with every later call.",
    },
    "NodePoolSpec": {
        "nodeSelector": "Labels that a node of the pool has, all of them; none is selected when empty.",
        "region": "Name of the region; the pool's own name when empty.",
    },
    "PoolServiceSpec": {
        "nodepoolName": "The NodePool, which is the region.",
        "renewTime": "When something that concerns this region changed last.",
        "loadBalancerClass": "Which implementation has to act on it; all others leave it alone.",
    },
    "PoolServiceStatus": {
        **OBSERVED,
        "address": "The first address of the region's access point.",
        "targets": "Ready targets of all, as in 2/3.",
        "aggregateToAnnotations": "Shown on the Service as annotations aggregated.KEY.",
        "aggregateToLabels": "Shown on the Service as labels aggregated.KEY.",
    },
}  # fmt: skip
