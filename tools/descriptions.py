"""Descriptions for the reference: a sentence for each condition, reason, Event and name without one in the source.

The generator fails when a description is missing, or when the source no longer has what is described.
"""

from __future__ import annotations

CONDITIONS = {
    "Accepted": (
        "The object is valid, and its present version is served. When False, the last accepted version is still served."
    ),
    "ResolvedRefs": "Every object that the object refers to exists, and the object has usable backends.",
    "Programmed": "Every connected proxy has acknowledged the load balancer, and the load balancer has an address.",
    "Serving": (
        "Every proxy has a healthy target behind every port. Unknown when nothing checks the targets, or not yet."
    ),
    "Conflicted": "Another object has what this object asks for.",
    "Stale": "The served version is older than the present state of the cluster; it is still served.",
    "Paused": "The object is paused by annotation.",
    "Drifted": "The state at the provider differs from what was recorded.",
    "Guarded": "Removals are held back; the message says which and why.",
    "Protected": "The object was deleted; its label keeps the load balancer with all its backends.",
    "InUse": "On a LoadBalancerClass: load balancers or records use it, so it is not deleted.",
    "Ready": "The object is in service: no other condition that should be True is False or awaits an answer. On a "
    "Tenant: its agent is alive by the hub's clock, and its namespace and rights at the hub exist.",
    "Stalled": "The object does not become Ready until its spec, or what it names, is corrected. Absent otherwise.",
    "ChecksSlowed": (
        "The member asks for more health checks than `spec.maxChecksPerSecond` of its Tenant allows: all its targets "
        "are checked less often. The message has both numbers."
    ),
    "Draining": (
        "On a Tenant that is being removed: no backend gets new connections; its load balancers are deleted afterwards."
    ),
    "Exists": "Of a load balancer of a Cluster: the provider has the load balancer.",
    "MatchesConfig": "Of a load balancer of a Cluster: others have changed nothing of it.",
    "EndpointPublished": "Of a load balancer of a Cluster: the Cluster has its endpoint, which is served.",
    "IsReachable": (
        "Of a load balancer of a Cluster: the last probe reached its endpoint. This condition blocks nothing."
    ),
    "MembersResolved": "Of a load balancer of a Cluster: its selector is valid, and every member has an address.",
    "Healthy": "Of a load balancer of a Cluster: every member takes traffic.",
    "ControlPlaneInitialized": "Of a Cluster without a control-plane provider: a kubeconfig exists.",
    "ControlPlaneReady": "Of a Cluster without a control-plane provider: its /readyz answers.",
    "HostnamesAccepted": "In `status.names`: no host name of the object belongs to others. Absent: none ever did.",
    "HostnamesPublished": "In `status.names`: the records of its host names are written. Absent: none ever failed.",
    "ClockSkewed": "On a Tenant: the clock of its agent's machine is wrong, and is not used for decisions. On a "
    "ManagedCertificate: the clocks of hub and authority differ by too much; synchronize them with NTP. On a "
    "ProxyMachine: the clock of the machine differs from that of the hub.",
    "Announcing": "On a ProxyMachine: it announces every address that it should. False while others announce all.",
}

REASONS = {
    "Accepted": "The object is valid.",
    "ResolvedRefs": "All references were found.",
    "Programmed": "Every proxy, or the provider, has the desired configuration.",
    "Pending": "The change is in progress; no action is needed.",
    "Invalid": "A field has a value that cannot be served; the message names field and value.",
    "NoSuchClass": "The hub has no such LoadBalancerClass, or does not run its provider.",
    "NoSuchZone": (
        "No DNSZone holds the host of a Hostname. Unknown, and not a problem, while there is no DNSZone at all."
    ),
    "DryRun": "The DNSZone is set to dry run: nothing is written, and fairlead plan shows what would be.",
    "UnsupportedProtocol": "Fairlead balances TCP and UDP, and the class may know only one of them.",
    "UnsupportedAddressFamily": "The object asks for IPv6 where only IPv4 is served.",
    "UnsupportedService": "A Service of this type cannot have a load balancer (ExternalName, headless, ClusterIP).",
    "NodePortMissing": "The backends are nodes, and a port has no nodePort.",
    "PortConflict": "The port is in use at that address, or is listed twice.",
    "AddressNotAssigned": "There is no address yet, or the hub has no address pool.",
    "AddressNotUsable": "The requested address is not an address, or not in the hub's pool.",
    "AddressPoolExhausted": "All addresses, or all proxy ports of the member, are in use.",
    "QuotaExceeded": (
        "A limit is reached: load balancers, ports or host names of the Tenant, 100,000 endpoints, or the "
        "listeners of a proxy."
    ),
    "RoutesRefused": "Some routes of an HTTPLoadBalancer are not served (see `status.refused`); all others are.",
    "RejectedByProxy": "Envoy rejected the configuration; the message is Envoy's, and the last valid one stays.",
    "NoProxyConnected": "No proxy is connected to the hub.",
    "BackendNotFound": "Backends are missing, or have addresses that are not allowed; the message names them.",
    "AllNodesNotReady": "No node of the member is Ready, listed or has an address; the last known ones stay in use.",
    "MemberLost": "The member's agent has been silent since the time in the message; its last state is still served.",
    "RemovalsHeld": "The guard holds removals back; the message has its reason.",
    "PausedByUser": "The annotation fairlead.dev/paused is set.",
    "ProviderFailed": "A call of the provider failed; the message is the provider's, and the call is repeated.",
    "Quarantined": (
        "The provider rejects a backend permanently; the backend is quarantined with the provider's message."
    ),
    "Drifted": "The state at the provider differs from what was recorded; the message says how.",
    "NoSuchLoadBalancer": "A LoadBalancer that the object names does not exist.",
    "OutOfScope": "The `spec.scope` of a LoadBalancer does not admit this namespace.",
    "Deleting": "The object is being deleted, with everything that was created for it.",
    "ClassDraining": "The LoadBalancerClass is draining or being deleted: it accepts nothing new.",
    "ClassNotUsable": "The LoadBalancerClass is not for this member, or is for several and does not keep them apart.",
    "RefusedByProvider": "The provider, or its driver, rejects the object; the message is the provider's.",
    "ParametersDiffer": "Two BackendGroups have one address with different parameters; the message names the one used.",
    "DoNotDelete": "The label fairlead.dev/do-not-delete is set; remove it to have the object deleted.",
    "NoSuchProvider": "This hub does not run the provider that the class names.",
    "InUse": "Load balancers use the deleted class, so it is kept; the message counts them and names the first.",
    "NoMachines": "The ProxyGroup has no machine. What serves is not changed.",
    "Ready": "The Tenant works, the machine serves, or the ProxyGroup has machines.",
    "ClockSkew": "The clock differs from that of the hub's API; the message says by how much.",
    "Unused": "Nothing uses the class; it may be deleted.",
    "Serving": "Connections reach healthy targets; the message counts them when some are not.",
    "NoTargets": "A port has no target: no endpoint is ready, or no node takes traffic. Connections fail.",
    "NoHealthyTargets": "All targets of a port fail their health checks, as every proxy sees it. Connections fail.",
    "UnreachableFromSomeProxies": "Some proxies see no healthy target: look at the network in between.",
    "NotProgrammed": (
        "The targets are healthy, but the load balancer is not served as requested; Programmed has the reason."
    ),
    "ProxiesSilent": "A proxy no longer reports the health of its targets: it hangs, or is cut off. Look at its node.",
    "WaitingForFirstCheck": "No proxy has finished its first check of the targets; no action is needed.",
    "NotChecked": "Nothing checks the targets (UDP, DNS names, checks that are off); the message says why.",
    "SomeBackendsUnhealthy": (
        "Requests to the backends in the message fail: none of them is healthy. All others are served."
    ),
    "Exists": "The provider has the load balancer.",
    "MatchesConfig": "Others have changed nothing of the load balancer.",
    "EndpointPublished": "The Cluster has this endpoint.",
    "EndpointConflict": "Cluster and LoadBalancer have different endpoints; neither is changed.",
    "EndpointClaimed": "An older LoadBalancer claims the endpoint of the same Cluster.",
    "NotPublished": "Additional load balancer; its endpoint is not published.",
    "Reachable": "The endpoint was reached.",
    "NotReachable": "No connection to the endpoint was possible; the message has the reason.",
    "NameNotResolved": "The name of the endpoint has no address yet.",
    "NoSuchCluster": "There is no Cluster of this name in the namespace yet.",
    "SelectorNotValid": "The selector is invalid; nothing is added or removed until it is corrected.",
    "OtherClusters": "The selector also matches objects of another Cluster; they are not members.",
    "MembersUnknown": "Members have no address, or no longer an object; registered members are kept.",
    "Healthy": "All members take traffic.",
    "SomeMembersDown": "Some members take no traffic; the message counts them.",
    "HostnamesAccepted": "Every host name of the object is its member's.",
    "HostnamesPublished": "The records of every host name of the object are written.",
    "HostnameNotPublished": (
        "Records of a host name have not been written for 30 seconds; the hub retries automatically."
    ),
    "SecretTaken": "The Secret of a certificate belongs to an older certificate, or was not written by Fairlead.",
    "HostnameTaken": "A host name has another owner, so it does not point here. Its requests are served here.",
    "HostnameInvalid": "A host name is not a DNS name; the message has the next step.",
    "DomainReserved": "A host name is in a domain that is reserved for others, so it does not point here.",
    "WildcardNotGranted": (
        "A wildcard for a top-level domain or a DNSZone needs its domain in `spec.domains` of the Tenant."
    ),
    "ShiftStopped": "More errors than spec.shift.stopOn allows: the shift went back a step and ended.",
    "Withdrawn": "The load balancer does not serve, so its records are withdrawn while other hubs answer the name.",
    "DrillStarted": "A drill has taken a member out of service until a time.",
    "DrillPassed": "A drill has ended at its time; `fairlead drill history NAME` prints the report.",
    "DrillFailed": "A drill ended before its time; the message says why, and the member serves again.",
    "DrillInconclusive": "A drill ended at its time, and no traffic was measured; the message says why.",
    "DrillRefused": "A drill did not begin; the message says why.",
    "Flapping": "The targets change between healthy and unhealthy; Serving is True again once they stay healthy.",
    "Issued": "The certificate exists, and is renewed automatically.",
    "NoSuchIssuer": "No CertificateIssuer has the requested name: correct the annotation.",
    "NotAllowed": "This member may not have a certificate for these names from this issuer; the message says why.",
    "ChallengeNotAnswered": "Neither load balancer nor zone answers the challenge; the message has the reason.",
    "AuthorityRefused": "The certificate authority refused the order; the message has its text and the next step.",
    "AuthorityUnreachable": "The certificate authority is unavailable; the hub retries the order automatically.",
    "Unreachable": (
        "The hub has not heard from the machine for 20 seconds. The machine may still serve, so nothing was moved."
    ),
    "ProxyDown": "Envoy does not run on the machine.",
    "DuplicateMachine": "Two machines report with one identity: one is a copy with the state directory of the other.",
    "ReportsProblem": "The machine reports a problem; the message has the next step.",
    "Announcing": "The machine announces all its addresses.",
    "Standby": "Other machines announce all addresses; this machine takes over when they fail.",
    "NothingToAnnounce": "No address is to be announced by this machine.",
    "Drained": "The machine is drained: it announces nothing.",
    "Contested": "Another machine answers for an address; the message has both MAC addresses.",
    "SessionDown": "Sessions with the router are down; the message counts them and has the first reason.",
    "NotAnnounced": "An address is not announced although it should be; the message has the reason.",
}

#: Reasons that are Events only, as (on what, type, sentence); conditions' reasons are Events too.
EVENTS = {
    "EnsuredLoadBalancer": (
        "Service, Ingress",
        "Normal",
        "The load balancer answers at this address, or has the address.",
    ),
    "NoTargets": (
        "Service, Ingress",
        "Warning",
        "The load balancer has an address and no target: connections fail. The message names what a Service lacks.",
    ),
    "ServingStopped": (
        "Service, Ingress",
        "Warning",
        "No healthy target is left, or not for all proxies: connections fail.",
    ),
    "NotServing": (
        "Service, Ingress",
        "Warning",
        "The same, for a load balancer that this agent has not seen serving before.",
    ),
    "UnknownAnnotation": ("Service", "Warning", "An annotation is unknown; the message names the nearest known one."),
    "AffinityTimeoutIgnored": (
        "Service",
        "Warning",
        "Session affinity by hash has no timeout; the value has no effect.",
    ),
    "ProbesNotRead": (
        "Service",
        "Warning",
        "The agent may not read the readiness probes that the Service follows; targets are checked by connecting.",
    ),
    "SourceRangeAmbiguous": (
        "Service",
        "Warning",
        "A source range is ambiguous; the message names the range that is used.",
    ),
    "Conflicted": ("Service", "Warning", "An object of this name at the hub is not Fairlead's; it is not changed."),
    "ReferenceNotRead": (
        "objects of the member",
        "Warning",
        "An object that this one depends on exists and cannot be read. What is served stays as it is until it can.",
    ),
    "StatusRefused": (
        "objects of the member",
        "Warning",
        "The API server, or a webhook there, rejects the status that Fairlead writes. What is served is not affected.",
    ),
    "TenantRemoved": (
        "Service",
        "Warning",
        "The cluster is being removed from the hub; the address stops answering, and then leaves the status.",
    ),
    "StatusOwnedByAnother": (
        "Service",
        "Warning",
        "Another controller writes this Service's status, so Fairlead does not.",
    ),
    "AnnotationsIgnored": (
        "Ingress",
        "Warning",
        "Annotations of ingress-nginx have no effect on an Ingress of Fairlead's class; the message has the command "
        "that converts the Ingress to Gateway API.",
    ),
}

#: Names of ``api/names.py`` that have no comment of their own.
NAMES = {
    "app.kubernetes.io/managed-by": "`fairlead` on objects that Fairlead creates; such a Service is never exported.",
    "fairlead.dev/tenant": "The Tenant that an object belongs to.",
    "fairlead.dev/origin-namespace": "Namespace of the user's object that this one is for.",
    "fairlead.dev/origin-name": "Name of the user's object that this one is for.",
    "fairlead.dev/origin-kind": "Kind of the user's object that this one is for.",
    "fairlead.dev/origin": "The user's object that this one is for, as member/namespace/name.",
    "fairlead.dev/cleanup": "Finalizer on hub objects: what was created for them is deleted first.",
    "kubernetes.io/service-name": "Kubernetes' own: the Service that an EndpointSlice belongs to.",
    "node.kubernetes.io/exclude-from-external-load-balancers": "Kubernetes' own: a node with it gets no traffic.",
    "ToBeDeletedByClusterAutoscaler": "Taint: the node is about to be removed, and gets no new connections.",
    "openyurt.io/service-name": "On a PoolService: its Service.",
    "openyurt.io/pool-name": "On a PoolService: its region.",
    "poolservice.openyurt.io/managed-by": "On a PoolService: who manages it.",
}

#: Names that are defined outside ``api/names.py``, as module: constants.
NAMES_ELSEWHERE = {
    "fairlead.publish.objects": {
        "ANNOTATION_SOURCE_RANGES": (
            "Kubernetes' older spelling of `spec.loadBalancerSourceRanges`; counts when that is empty."
        )
    },
    "fairlead.agent.term": {
        "ANNOTATION_REGION": "On the agent's Lease: the region that the agent was started with.",
        "ANNOTATION_VERSION": "On the agent's Lease: the agent's version.",
        "ANNOTATION_LAST_SYNC": "On the agent's Lease: when the member was last seen in full.",
        "ANNOTATION_MEMBER_UID": (
            "On the agent's Lease: uid of the member's kube-system namespace; another cluster may not write."
        ),
    },
}
