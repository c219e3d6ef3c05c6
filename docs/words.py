"""What the reference says in words: a sentence for each condition, reason, Event and name that has none in the source.

The generator fails when one is missing here, or when one is here that the source no longer knows.
"""

from __future__ import annotations

CONDITIONS = {
    "Accepted": "The object is valid and is served as it stands. When False, the last accepted version is served on.",
    "ResolvedRefs": "Everything that the object refers to was found: targets that may be used.",
    "Programmed": "Every connected proxy has acknowledged it, and it has an address.",
    "Conflicted": "Somebody else has what this object asks for.",
    "Stale": "What is served is older than the truth; it is served on.",
    "Paused": "Somebody has frozen the object by annotation.",
    "Drifted": "The provider holds something else than what was recorded.",
    "Guarded": "Removals are held back; the message says which and why.",
    "Protected": "It was deleted, and its label holds it with all that it serves.",
    "InUse": "On a LoadBalancerClass: something uses it, and while that is so it cannot vanish.",
}

REASONS = {
    "Accepted": "Nothing is wrong with the object.",
    "ResolvedRefs": "All references were found.",
    "Programmed": "It works.",
    "Pending": "It is on its way; nothing has to be done.",
    "Invalid": "A field has a value that cannot be served; the message names field and value.",
    "NoSuchClass": "There is no such LoadBalancerClass at the hub, or this hub does not run its provider.",
    "UnsupportedProtocol": "Fairlead balances TCP and UDP, and the class may know only one of them.",
    "UnsupportedAddressFamily": "It asks for IPv6 where only IPv4 is served.",
    "UnsupportedService": "A Service of this type cannot have a load balancer (ExternalName, headless, ClusterIP).",
    "NodePortMissing": "Targets are nodes, and a port has no nodePort.",
    "PortConflict": "The port is taken at that address, or is there twice.",
    "AddressNotAssigned": "No address is there yet, or the hub has no pool to take one from.",
    "AddressNotUsable": "The address that was asked for is not an address, or not one of the hub's pool.",
    "AddressPoolExhausted": "All addresses, or all proxy ports of the member, are taken.",
    "QuotaExceeded": "The Tenant allows no more load balancers, or a proxy has no room for more listeners.",
    "RejectedByProxy": "Envoy refused the configuration; the message is its own, and the last good one stays.",
    "NoProxyConnected": "No proxy is connected to the hub.",
    "BackendNotFound": "Targets are missing, or have addresses that may not be targets; the message names them.",
    "AllNodesNotReady": "No node of the member is Ready, listed or has an address; the last known ones stay in use.",
    "MemberLost": "The member's agent has not been heard for a while; its last state is served on.",
    "RemovalsHeld": "The guard holds removals back; the message is its reason.",
    "PausedByUser": "The annotation fairlead.dev/paused is set.",
    "ProviderFailed": "The provider gave an error; the message is its own, and it is tried again.",
    "Quarantined": "The provider refuses one target for good; it is set aside with its message, the others go on.",
    "Drifted": "The provider holds something else than what was recorded; the message says what.",
    "NoSuchLoadBalancer": "A LoadBalancer that the object names is not there.",
    "OutOfScope": "The `spec.scope` of a LoadBalancer does not admit this namespace.",
    "Deleting": "The object is going, and so is what was made for it.",
    "ClassDraining": "Its LoadBalancerClass is draining or being deleted: what lives goes on, nothing new is taken.",
    "RefusedByProvider": "The provider, or its driver, refuses it; the message is its own.",
    "ParametersDiffer": "Two BackendGroups want one address with different parameters; the message says whose count.",
    "DoNotDelete": "The label fairlead.dev/do-not-delete is set; remove it to let the object go.",
    "NoSuchProvider": "This hub does not run the provider that the class names.",
    "InUse": "Load balancers, or records of backends, are of this class; the message counts them and names the first.",
    "Unused": "Nothing uses the class; it may be deleted.",
}

#: Reasons that are Events only, as (on what, type, sentence); conditions' reasons are Events too.
EVENTS = {
    "EnsuredLoadBalancer": ("Service", "Normal", "The load balancer answers at this address."),
    "UnknownAnnotation": ("Service", "Warning", "An annotation is misspelt or means nothing; the nearest is named."),
    "AffinityTimeoutIgnored": (
        "Service",
        "Warning",
        "Session affinity by hash has no timeout; the value has no effect.",
    ),
    "Conflicted": ("Service", "Warning", "An object at the hub that is not ours stands in the way; it is left alone."),
    "StatusOwnedByAnother": (
        "Service",
        "Warning",
        "Another controller writes this Service's status; it is left to it.",
    ),
}

#: Names of ``api/names.py`` that have no comment of their own.
NAMES = {
    "app.kubernetes.io/managed-by": "`fairlead` on everything that Fairlead makes; such a Service is never exported.",
    "fairlead.dev/tenant": "The Tenant that an object belongs to.",
    "fairlead.dev/origin-namespace": "Namespace of the user's object that this one is for.",
    "fairlead.dev/origin-name": "Name of the user's object that this one is for.",
    "fairlead.dev/origin-kind": "Kind of the user's object that this one is for.",
    "fairlead.dev/origin": "The user's object that this one is for, as member/namespace/name.",
    "fairlead.dev/cleanup": "Finalizer on hub objects: what was made for them is taken away first.",
    "kubernetes.io/service-name": "Kubernetes' own: the Service that an EndpointSlice belongs to.",
    "node.kubernetes.io/exclude-from-external-load-balancers": "Kubernetes' own: a node with it gets no traffic.",
    "ToBeDeletedByClusterAutoscaler": "Taint: the node is about to go, and gets no new connections.",
    "openyurt.io/service-name": "On a PoolService: its Service.",
    "openyurt.io/pool-name": "On a PoolService: its region.",
    "poolservice.openyurt.io/managed-by": "On a PoolService: who manages it.",
}

#: Names that stand elsewhere in the source than in ``api/names.py``, as module: constants.
NAMES_ELSEWHERE = {
    "fairlead.agent.service_options": {
        "ANNOTATION_SOURCE_RANGES": (
            "Kubernetes' older spelling of `spec.loadBalancerSourceRanges`; counts when that is empty."
        )
    },
    "fairlead.agent.heartbeat": {
        "ANNOTATION_REGION": "On the agent's Lease: the region that the agent was started with.",
        "ANNOTATION_VERSION": "On the agent's Lease: the agent's version.",
        "ANNOTATION_LAST_SYNC": "On the agent's Lease: when the member was last seen in full.",
        "ANNOTATION_MEMBER_UID": (
            "On the agent's Lease: uid of the member's kube-system namespace; another cluster may not write."
        ),
    },
}

EXIT_CODES = {
    "OK": "Done; also when it ran until Ctrl-C or SIGTERM told it to stop.",
    "FAILED": (
        "It failed, `status` found something unhealthy, `drift` something changed, `gc` orphans that are left, or a "
        "request of the demo failed."
    ),
    "USAGE": (
        "A flag, a kubeconfig, a credential or an address pool is wrong, the sentence says which; "
        "or `plan` found something that would change."
    ),
    "UNREACHABLE": "The API server does not answer; starting again later may help.",
    "INTERRUPTED": "Ctrl-C before it was done.",
}
