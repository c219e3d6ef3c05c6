"""Descriptions of the fields of tenants, classes and of what every kind has; by struct, then by wire name."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import CHECK, OBSERVED

TENANTS: Mapping[str, Mapping[str, str]] = {
    "WireCondition": {
        "type": "Type of the condition, such as Programmed.",
        "status": "True, False or Unknown.",
        "reason": "Reason in one word, for programs.",
        "message": "Explanation and next step, for people.",
        "observedGeneration": "The metadata.generation that the condition describes.",
        "lastTransitionTime": "Time of the last change of status.",
    },
    "TenantSpec": {
        "namespace": "Namespace at the hub for the objects of this member; tenant-NAME when empty.",
        "region": "Region of the member. A hub of a region serves only the load balancers of its members.",
        "domain": "Domain of the names that the hub generates for the member; NAME in the hub's --domain when empty.",
        "domains": "Domains that belong only to this member, including subdomains.",
        "keepFormerDomain": "How long names in a former domain are kept after those in the new domain resolve, such as "
        "24h. 1h when empty; 0s removes them immediately.",
        "maxLoadBalancers": "Maximum number of load balancers; 0 means no limit.",
        "maxPorts": "Maximum number of ports of all load balancers together; 0 means the hub's --tenant-ports. "
        "Ports that the hub opens for generated names and challenges do not count.",
        "maxHostnames": "Maximum number of host names, including generated ones; 0 means 2000. Existing names are "
        "kept.",
        "targetRanges": "CIDR ranges that traffic may be sent to; when empty, all except loopback, link-local and "
        "multicast ranges.",
        "hostNameTargets": "Whether endpoints may be host names if the proxies share the hub's machine. Such a name "
        "may resolve to a loopback address of that machine.",
        "drainWhenLost": "Time after which the targets of a silent agent are taken out of service, such as 10m. When "
        "empty, the last state is served without a time limit.",
    },
    "TenantStatus": {
        **OBSERVED,
        "namespace": "Namespace at the hub for the objects of this member.",
        "domain": "Domain of the names that the hub generates; empty for none.",
        "formerDomains": "Former domains whose names are still kept.",
        "state": "State of the agent: Engaged, Stale (silent for 40 s), Lost (5 minutes) or Pending (never reported).",
        "lastSyncTime": "Last report of the agent at the time of the last change of state, by the API server's clock.",
    },
    "FormerDomain": {
        "domain": "Former domain.",
        "until": "Time until which the names are kept; unset while names in the current domain do not resolve.",
    },
    "AddressPoolSpec": {
        "addresses": "CIDRs, ranges such as 192.0.2.10-192.0.2.20, and single addresses, for IPv4 and IPv6.",
        "avoid": "CIDRs, ranges and addresses within addresses that are never allocated.",
        "classes": "LoadBalancerClasses that may use the pool; all when empty.",
        "tenants": "Tenants that may use the pool; all when empty.",
        "maxPerTenant": "Maximum number of addresses of each IP family per Tenant; 0 means no limit.",
        "reservations": "Addresses that are reserved for one Tenant or one load balancer.",
        "region": "Region of the hub that allocates the addresses; empty for a hub without a region.",
    },
    "Reservation": {
        "address": "Reserved address.",
        "tenant": "Tenant of the reservation; empty for a load balancer of the hub's own cluster.",
        "loadBalancer": "Object that gets the address without a request, as namespace/name or by its name at the hub. "
        "When empty, any load balancer of the tenant may request it.",
    },
    "AddressPoolStatus": {
        **OBSERVED,
        "size": "Number of addresses.",
        "used": "Number of allocated addresses.",
        "reserved": "Number of addresses that are reserved for a load balancer and not allocated.",
        "free": "Number of free addresses.",
        "freeIPv4": "Number of free IPv4 addresses; absent if the pool has no IPv4.",
        "freeIPv6": "Number of free IPv6 addresses, at most 9007199254740991; absent if the pool has no IPv6.",
        "outside": "Number of allocated addresses that are no longer in spec.addresses. Load balancers keep them.",
        "acceptedAddresses": "Ranges of the last valid spec. Other pools cannot use them while spec is invalid.",
    },
    "EnsurePolicy": {
        "policy": "IfNotSucc keeps and reports changes by others; Always repairs Fairlead's entries.",
        "minPeriod": "Minimum time between two repairs, such as 60s.",
    },
    "Guard": {
        "maxRemovalPercent": "Maximum percentage of backends that one run may remove.",
        "minBackends": "Minimum number of backends to keep, regardless of the percentage.",
    },
    "ClassHealthCheck": CHECK,
    "LoadBalancerClassSpec": {
        "provider": "Name of the provider, such as envoy or haproxy. Immutable.",
        "parameters": "Provider settings; a load balancer cannot override them.",
        "targets": "Default destination of traffic: nodes or pods.",
        "drain": "Time between the last new connection of a removed backend and its deregistration, such as 30s.",
        "draining": "Whether the class accepts no new load balancers; existing ones are still served.",
        "tenants": "Names of the Tenants that may use the class; all when empty.",
    },
    "LoadBalancerClassStatus": {**OBSERVED, "loadBalancers": "Number of load balancers that use the class."},
}  # fmt: skip
