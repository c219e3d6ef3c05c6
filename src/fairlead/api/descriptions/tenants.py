"""Descriptions of the fields of tenants, classes and of what every kind has; by struct, then by wire name."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import CHECK, OBSERVED

TENANTS: Mapping[str, Mapping[str, str]] = {
    "WireCondition": {
        "type": "What the condition is about, such as Programmed.",
        "status": "True, False or Unknown.",
        "reason": "Why, in one word for programs.",
        "message": "Why, and the next step, in a sentence for people.",
        "observedGeneration": "The metadata.generation that it is about.",
        "lastTransitionTime": "When status changed last.",
    },
    "TenantSpec": {
        "namespace": "Namespace at the hub that holds everything of this member; tenant-NAME when empty.",
        "region": "Region that the member is in; a hub of a region serves its load balancers only.",
        "domain": "Domain that the hub makes the names of its objects in; NAME in the hub's --domain when empty.",
        "domains": "Domains that belong to this member alone, with all names below them.",
        "keepFormerDomain": "For how long names in a former domain are kept once those in the new one resolve, such as "
        "24h; 1h when empty, 0s drops them at once.",
        "maxLoadBalancers": "The most load balancers that it may have; 0: any number.",
        "maxPorts": "The most ports that its load balancers may have together; 0: as the hub's --tenant-ports says. "
        "Ports that the hub opens for generated names and challenges do not count.",
        "maxHostnames": "The most host names that it may have, generated ones among them; 0: 2000. Names that it has "
        "already stay.",
        "targetRanges": "The only ranges (CIDR) that its traffic may be sent to; when empty, all but loopback, "
        "link-local and multicast ones.",
        "hostNameTargets": "Its endpoints may be host names also where the proxies are on the hub's machine and are "
        "reached from others: such a name may lead to what listens on loopback there.",
        "drainWhenLost": "Take its targets out of service after its agent was silent that long, as in 10m; when empty, "
        "its last state is served for ever.",
    },
    "TenantStatus": {
        **OBSERVED,
        "namespace": "Namespace at the hub that holds everything of this member.",
        "domain": "Domain that the hub makes the names of its objects in; empty for none.",
        "formerDomains": "Domains whose names are kept, since domain has changed.",
        "state": "State of its agent: Engaged, Stale (silent for 40 s), Lost (5 minutes), Pending (never reported).",
        "lastSyncTime": "When its agent was heard, as of the last change of state, by the API server's clock.",
    },
    "FormerDomain": {
        "domain": "The domain.",
        "until": "Until when its names are kept; unset while those in the present domain do not resolve.",
    },
    "AddressPoolSpec": {
        "addresses": "CIDRs, ranges such as 192.0.2.10-192.0.2.20, and single addresses, of IPv4 and IPv6.",
        "avoid": "CIDRs, ranges and addresses that are never given, though they are in addresses.",
        "classes": "LoadBalancerClasses whose load balancers may get an address of it; all when empty.",
        "tenants": "Tenants whose load balancers may get an address of it; all when empty.",
        "maxPerTenant": "The most addresses of each family of it that one Tenant may have; 0: any number.",
        "reservations": "Addresses that only one Tenant, or only one load balancer, may get.",
        "region": "Region of the hub that gives its addresses away; empty for a hub without a region.",
    },
    "Reservation": {
        "address": "Address that is kept.",
        "tenant": "Tenant that it is kept for; empty for a load balancer of the hub's own cluster.",
        "loadBalancer": "Object that gets it without asking, as namespace/name, or its name at the hub; when empty, "
        "any load balancer of the tenant that asks for it.",
    },
    "AddressPoolStatus": {
        **OBSERVED,
        "size": "How many addresses it has.",
        "used": "How many of them load balancers have.",
        "reserved": "How many are reserved for a load balancer that does not have them (yet).",
        "free": "How many any load balancer that it serves may still get.",
        "freeIPv4": "How many of these are IPv4; missing where the pool has none.",
        "freeIPv6": "How many of these are IPv6, 9007199254740991 at the most; missing where the pool has none.",
        "outside": "How many that were given are not in spec.addresses any more; their load balancers keep them.",
        "acceptedAddresses": "The ranges of the spec that was valid last; while it is not, no other pool gets them.",
    },
    "EnsurePolicy": {
        "policy": "IfNotSucc lets what others changed stand and shows it; Always repairs our own entries.",
        "minPeriod": "The least time between two repairs, such as 60s.",
    },
    "Guard": {
        "maxRemovalPercent": "The most backends, in percent, that one run may remove.",
        "minBackends": "So many backends are kept, whatever the percentage allows.",
    },
    "ClassHealthCheck": CHECK,
    "LoadBalancerClassSpec": {
        "provider": "Name of the provider that makes its load balancers, such as envoy or haproxy; never changes.",
        "parameters": "Settings of the provider; a load balancer cannot override them.",
        "targets": "What traffic is sent to where a Service does not say: nodes or pods.",
        "drain": "How long a backend that is removed gets no new connections before it is deregistered, such as 30s.",
        "draining": "Whether the class accepts nothing new; what uses it is served on.",
        "tenants": "Names of the Tenants whose Services may use it; all when empty.",
    },
    "LoadBalancerClassStatus": {**OBSERVED, "loadBalancers": "How many load balancers name the class."},
}  # fmt: skip
