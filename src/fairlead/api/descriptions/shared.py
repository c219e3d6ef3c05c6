"""Descriptions of fields that several kinds have, by wire name."""

from __future__ import annotations

OBSERVED = {
    "observedGeneration": "The metadata.generation of the spec that this status describes.",
    "conditions": "Current conditions of the object, by type. The reference lists types and reasons.",
}
MEMBERS_OBJECT = {
    "kind": "Kind of the object.",
    "namespace": "Namespace of the object, in the member.",
    "name": "Name of the object.",
    "uid": "UID of the object; a different UID means that the object was deleted and created again.",
}
ENSURE = {
    "addresses": "IP addresses or host names from the provider.",
    "info": "Provider's identity of the load balancer, sent to the provider with every call.",
    "epoch": "Provider epoch of the registered backends; a different epoch means that the provider lost its state.",
}
INTENT_STATUS = {
    **OBSERVED,
    "provisioned": "Parts of the load balancer that each provider has, or may have.",
    "address": "First address of the load balancer; empty while there is none.",
    "held": "First 16 changes that a pause or a guard holds back, with reasons.",
    "heldTotal": "Number of held changes.",
    "repaired": "Last handled value of the annotation fairlead.dev/repair.",
    "unhealthyTargets": "First 50 targets that the data plane reports as not healthy, as address:port "
    "(listener or backend).",
    "targets": "Ready and total targets, such as 2/3, or healthy and total if the data plane reports health.",
    "accepted": "Served version of spec: the last accepted one while spec is rejected.",
}
OLD_FRONTEND = {
    "provider": "Deprecated: name of the provider.",
    "state": "Deprecated: state of the request to the provider.",
    "ensured": "Deprecated: request to the provider, encoded.",
    "info": "Deprecated: provider's identity of the load balancer.",
    "addresses": "Deprecated: addresses from the provider.",
    "epoch": "Deprecated: provider epoch.",
}
PORT = {
    "port": "Number of the port.",
    "name": "Name of the port.",
    "protocol": "Transport protocol of the port.",
    "proxyPort": "Port of the shared proxies that serves this port; 0 for none.",
    "nodePort": "Node port on every node of the member; 0 for none.",
    "listener": "Listener of the load balancer; required when it has several.",
    "error": "Reason why this port does not work; absent if it works.",
}
CHECK = {
    "disabled": "Whether health checks are disabled.",
    "interval": "Time between two checks of a target, such as 5s.",
    "timeout": "Time limit of a check, such as 1s.",
    "intervalSeconds": "Seconds between two checks of a target.",
    "timeoutSeconds": "Time limit of a check, in seconds.",
    "unhealthyThreshold": "Number of consecutive failed checks that make a target unhealthy.",
    "healthyThreshold": "Number of consecutive successful checks that make a target healthy.",
}
NAME_AND_VALUE = {"name": "Name of the header or query parameter.", "value": "Value of the header or query parameter."}
PATH = {"type": "How the path is compared or replaced.", "value": "Path or path prefix."}
