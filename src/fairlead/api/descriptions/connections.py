"""Descriptions of the fields of load balancers of connections and of their status; by struct, then by wire name."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import CHECK, ENSURE, INTENT_STATUS, MEMBERS_OBJECT, OLD_FRONTEND, PORT

CONNECTIONS: Mapping[str, Mapping[str, str]] = {
    "LoadBalancerPort": {**PORT, "port": "Port that clients connect to."},
    "Origin": MEMBERS_OBJECT,
    "AskedOwner": {**MEMBERS_OBJECT, "member": "Name of the Tenant; empty for objects at the hub."},
    "TCPLoadBalancerSpec": {
        "ports": "Ports that clients connect to.",
        "className": "The LoadBalancerClass that it asks for.",
        "targets": "What traffic is sent to: nodes at the node port, or pods.",
        "externalTrafficPolicy": "Local sends traffic only to nodes with a pod; Cluster to all of them.",
        "sessionAffinity": "ClientIP keeps the connections of a client at one target.",
        "loadBalancerSourceRanges": "The only ranges (CIDR) that clients may come from; all when empty.",
        "proxyProtocol": "Version of the PROXY protocol that targets expect; none when empty.",
        "address": "Address that it asks for, or one of each family after a comma; the hub chooses one when empty.",
        "ipFamilies": "Families of which it gets an address each, in this order; IPv4 when empty.",
        "ipFamilyPolicy": "RequireDualStack serves it with both families or not at all; else one is enough.",
        "region": "Region of the hub that serves it; a hub without a region serves all.",
        "hostnames": "DNS names that are to resolve to it.",
        "generateHostname": "Whether the hub is to make a name for it in the member's domain.",
    },
    "NamesStatus": {"hostname": "The name that the hub made for the object; empty for none.",
                    "conditions": "HostnamesAccepted, HostnamesPublished: whether its host names are its member's, and "
                    "have records."},
    "Provisioned": {
        **ENSURE,
        "provider": "Name of the provider.",
        "state": "Ensuring while the provider is asked, Ensured when it has answered; empty: it was asked for nothing.",
        "serving": "Whether this provider serves it.",
    },
    "Asked": {
        "group": "Proxies that it is put onto, where the provider has several groups of them.",
        "listeners": "Open ports.",
        "address": "Address that was asked for; empty where the provider chooses.",
        "secondAddress": "That of the other family, of a load balancer with both.",
        "ipFamilies": "Families of which it was to have an address each; empty where any would do.",
        "dualStackRequired": "Whether one of two families was not enough.",
        "sourceRanges": "The only ranges (CIDR) that clients may come from; all when empty.",
        "affinity": "ClientIP where the connections of a client are kept at one target.",
        "proxyProtocol": "Version of the PROXY protocol to targets; none when empty.",
        "parameters": "Settings of the provider, those of the class and of the load balancer together.",
        "attributes": "Attributes of the load balancer itself, as its spec asks for them.",
        "existing": "Whether others made it: then it is never deleted.",
        "localTrafficOnly": "Whether only nodes with a pod of their own take its traffic.",
    },
    "AskedListener": PORT,
    "AskedHealthCheck": CHECK,
    "Frontend": OLD_FRONTEND,
    "LoadBalancerStatus": {"ingress": "Addresses at which it answers, as a Service has them."},
    "Ingress": {
        "ip": "IP address; empty where there is a host name.",
        "hostname": "Host name; empty where there is an IP address.",
        "ipMode": "Proxy: traffic comes from a proxy, so nodes must not short-cut it.",
        "ports": "What became of each port at this address.",
    },
    "PortStatus": PORT,
    "Allocation": {
        "address": "Address of the hub's pool that is kept for it.",
        "pool": "AddressPool that the address is of; empty for --address-pool.",
        "secondAddress": "Address of the other family that is kept for it.",
        "secondPool": "AddressPool that secondAddress is of; empty for --address-pool.",
        "ports": "Ports of the shared proxies that are kept for it.",
        "limitsConnections": "Its proxies limit its connections; not where release 0.1 gave the address.",
    },
    "ProxyPort": PORT,
    "HeldChange": {
        "action": "What would be done.",
        "reason": "Why it would be done.",
        "heldBy": "What holds it back.",
        "owners": "The Services or BackendGroups that listed the target.",
        "message": "Why it is held, and the next step.",
        "protocol": "Protocol of the listener.",
        "port": "Port of the listener.",
        "address": "Address of the backend.",
        "backendPort": "Port of the backend.",
        "source": "The object behind the backend, as kind/namespace/name/uid.",
        "backend": "Backend by its name, of a load balancer of requests; the port is then 0.",
    },
    "TCPLoadBalancerStatus": {
        **INTENT_STATUS,
        "provider": "Deprecated: the provider that serves it; see provisioned.",
        "frontends": "Deprecated: what each provider was asked for; see provisioned.",
    },
}  # fmt: skip
