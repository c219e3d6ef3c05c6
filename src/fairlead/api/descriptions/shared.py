"""Descriptions of fields that several kinds have, by wire name."""

from __future__ import annotations

OBSERVED = {
    "observedGeneration": "The metadata.generation of the spec that this status is about.",
    "conditions": "What is true of the object now, one entry for each type; the reference lists types and reasons.",
}
MEMBERS_OBJECT = {
    "kind": "Kind of the object.",
    "namespace": "Namespace of the object, in the member.",
    "name": "Name of the object.",
    "uid": "UID of the object; another one means that it was deleted and made again.",
}
ENSURE = {
    "addresses": "IP addresses or host names that the provider gave it.",
    "info": "The provider's own identity of the load balancer; it is given back to the provider with every call.",
    "epoch": "The provider's own life in which the backends were registered; another one means that it lost its state.",
}
INTENT_STATUS = {
    **OBSERVED,
    "provisioned": "What each provider has, or may have, of this load balancer.",
    "address": "The first address at which it answers; empty while it has none.",
    "held": "Changes that a pause or a guard holds back, and why; the first 16.",
    "heldTotal": "How many changes are held back.",
    "repaired": "The value of the annotation fairlead.dev/repair that was carried out last.",
    "unhealthyTargets": "Targets that are not healthy as the data plane sees them, as address:port "
    "(listener or backend); the first 50.",
    "targets": "Ready targets of all, as in 2/3; with the word healthy where the data plane reports their health.",
    "accepted": "The version of spec that is served: when spec is refused, the last one that was not.",
}
OLD_FRONTEND = {
    "provider": "Deprecated: name of the provider.",
    "state": "Deprecated: what was asked of the provider.",
    "ensured": "Deprecated: what the provider was asked for, encoded.",
    "info": "Deprecated: the provider's own identity of the load balancer.",
    "addresses": "Deprecated: addresses that the provider gave it.",
    "epoch": "Deprecated: the provider's own life.",
}
PORT = {
    "port": "Number of the port.",
    "name": "Name of the port.",
    "protocol": "Transport protocol of the port.",
    "proxyPort": "Port of the shared proxies that stands for it; 0 where there is none.",
    "nodePort": "Port at which every node of the member takes its traffic; 0 where there is none.",
    "listener": "Name of the load balancer's listener that it belongs to; needed where there are several.",
    "error": "Why this port does not work; absent where it does.",
}
CHECK = {
    "disabled": "Whether targets are not checked at all.",
    "interval": "Time between two checks of a target, such as 5s.",
    "timeout": "Time after which a check has failed, such as 1s.",
    "intervalSeconds": "Seconds between two checks of a target.",
    "timeoutSeconds": "Seconds after which a check has failed.",
    "unhealthyThreshold": "So many failed checks in a row make a target unhealthy.",
    "healthyThreshold": "So many successful checks in a row make it healthy again.",
}
NAME_AND_VALUE = {"name": "Name of the header or query parameter.", "value": "Its value."}
PATH = {"type": "How the path is compared or replaced.", "value": "The path, or the prefix of it."}
