"""Descriptions of the fields of TCP and UDP load balancers and their status; by struct, then by wire name."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import CHECK, ENSURE, INTENT_STATUS, MEMBERS_OBJECT, OLD_FRONTEND, PORT

CONNECTIONS: Mapping[str, Mapping[str, str]] = {
    "LoadBalancerPort": {**PORT, "port": "Port that clients connect to."},
    "Origin": MEMBERS_OBJECT,
    "AskedOwner": {**MEMBERS_OBJECT, "member": "Name of the Tenant; empty for objects at the hub."},
    "TCPLoadBalancerSpec": {
        "ports": "Ports that clients connect to.",
        "className": "Requested LoadBalancerClass.",
        "targets": "Destination of traffic: nodes at the node port, or pods.",
        "externalTrafficPolicy": "Local sends traffic only to nodes with a pod; Cluster sends it to all nodes.",
        "sessionAffinity": "ClientIP sends all connections of a client to the same target.",
        "loadBalancerSourceRanges": "CIDR ranges that clients may connect from; all when empty.",
        "proxyProtocol": "Version of the PROXY protocol that targets expect; none when empty.",
        "address": "Requested address, or one of each family, separated by a comma. The hub chooses when empty.",
        "ipFamilies": "IP families in order; the load balancer gets an address of each. IPv4 when empty.",
        "ipFamilyPolicy": "RequireDualStack requires both families; any other value accepts one.",
        "region": "Region of the hub that serves the load balancer. A hub without a region serves all.",
        "hostnames": "DNS names that resolve to the load balancer.",
        "generateHostname": "Whether the hub generates a DNS name in the member's domain.",
    },
    "NamesStatus": {"hostname": "DNS name that the hub generated for the object; empty for none.",
                    "conditions": "HostnamesAccepted (ownership of the names) and HostnamesPublished (DNS records)."},
    "Provisioned": {
        **ENSURE,
        "provider": "Name of the provider.",
        "state": "Ensuring while a request is in progress, Ensured once the provider has answered; else empty.",
        "serving": "Whether this provider serves the load balancer.",
    },
    "Asked": {
        "group": "Group of proxies that serves the load balancer, if the provider has several.",
        "listeners": "Open ports.",
        "address": "Requested address; the provider chooses when empty.",
        "secondAddress": "Address of the other family, for a dual-stack load balancer.",
        "ipFamilies": "Requested IP families; any when empty.",
        "dualStackRequired": "Whether both IP families are required.",
        "sourceRanges": "CIDR ranges that clients may connect from; all when empty.",
        "affinity": "ClientIP if all connections of a client go to the same target.",
        "proxyProtocol": "Version of the PROXY protocol that targets expect; none when empty.",
        "parameters": "Provider settings of the class and the load balancer.",
        "attributes": "Requested attributes of the load balancer itself.",
        "existing": "Whether the load balancer was created by others; Fairlead then never deletes it.",
        "localTrafficOnly": "Whether traffic goes only to nodes with a pod of the Service.",
    },
    "AskedListener": PORT,
    "AskedHealthCheck": CHECK,
    "Frontend": OLD_FRONTEND,
    "LoadBalancerStatus": {"ingress": "Addresses of the load balancer, in the format of a Service."},
    "Ingress": {
        "ip": "IP address; empty if the load balancer has a host name.",
        "hostname": "Host name; empty if the load balancer has an IP address.",
        "ipMode": "Proxy: traffic arrives from a proxy, so nodes must not bypass it.",
        "ports": "Status of each port at this address.",
    },
    "PortStatus": PORT,
    "Allocation": {
        "address": "Address that is allocated from the hub's pools.",
        "pool": "AddressPool of the address; empty for --address-pool.",
        "secondAddress": "Allocated address of the other family.",
        "secondPool": "AddressPool of secondAddress; empty for --address-pool.",
        "ports": "Allocated ports of the shared proxies.",
        "limitsConnections": "Whether proxies limit connections; false if release 0.1 allocated the address.",
    },
    "ProxyPort": PORT,
    "HeldChange": {
        "action": "Held action.",
        "reason": "Reason for the action.",
        "heldBy": "Pause or guard that holds the change.",
        "owners": "Services or BackendGroups that listed the target.",
        "message": "Reason for the hold, and the next step.",
        "protocol": "Protocol of the listener.",
        "port": "Port of the listener.",
        "address": "Address of the backend.",
        "backendPort": "Port of the backend.",
        "source": "Object of the backend, as kind/namespace/name/uid.",
        "backend": "Backend name of an HTTP load balancer; the port is then 0.",
    },
    "TCPLoadBalancerStatus": {
        **INTENT_STATUS,
        "provider": "Deprecated: provider of the load balancer; see provisioned.",
        "frontends": "Deprecated: requests to each provider; see provisioned.",
    },
}  # fmt: skip
