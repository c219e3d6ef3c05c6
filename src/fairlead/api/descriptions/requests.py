"""Descriptions of the fields of HTTP load balancers and their routes; by struct, then by wire name."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import INTENT_STATUS, NAME_AND_VALUE, PATH

REQUESTS: Mapping[str, Mapping[str, str]] = {
    "CertificateRef": {
        "name": "Name of a Secret of type kubernetes.io/tls in this namespace.",
        "digest": "Version of the Secret.",
    },
    "HTTPLoadBalancerSpec": {
        "listeners": "Ports, each with the hosts that it serves.",
        "className": "Requested LoadBalancerClass.",
        "certificates": "Secrets in this namespace that listeners and backends refer to.",
        "targets": "Destination of traffic: nodes at the node port, or pods.",
        "address": "Requested address, or one of each family, separated by a comma. The hub chooses when empty.",
        "ipFamilies": "IP families in order; the load balancer gets an address of each. One address when empty.",
        "ipFamilyPolicy": "RequireDualStack requires both families; any other value accepts one.",
        "wildcardRecords": "Whether DNS records are published for the wildcards of listeners.",
        "region": "Region of the hub that serves the load balancer. A hub without a region serves all.",
    },
    "HTTPLoadBalancerStatus": {
        **INTENT_STATUS,
        "routes": "Number of LoadBalancerRoutes that refer to the load balancer.",
        "refused": "First 50 parts that the proxies do not serve.",
        "failingRoutes": "First 200 routes with a backend that has no healthy target.",
    },
    "FailingRoute": {
        "name": "Name of the LoadBalancerRoute.",
        "kind": "Kind of the member's object.",
        "namespace": "Namespace of the member's object.",
        "object": "Name of the member's object.",
        "hosts": "Hosts of the route; every host when empty.",
        "backends": "Backends without a healthy target.",
    },
    "RefusedPart": {"kind": "Kind of part: route, rule, listener, backend or certificate.",
                    "name": "Name of the part; for a rule, the name of the route.",
                    "reason": "Reason why the part is not served."},
    "L7Listener": {
        "name": "Name that routes refer to; unique within the load balancer.",
        "port": "Port that clients connect to; listeners with different hosts may share it.",
        "protocol": "Protocol that the listener accepts. HTTPS is terminated at the load balancer.",
        "hostname": "Host that the listener serves; every host when empty.",
        "passthrough": "Whether TLS is passed through to the backend, chosen by server name.",
        "certificates": "Names of the certificates to present; the first one is the default.",
    },
    "ClientValidation": {
        "caBundle": "PEM certificate authorities that verify client certificates.",
        "optional": "Whether clients without a valid certificate are accepted.",
    },
    "LoadBalancerRouteSpec": {
        "loadBalancer": "HTTPLoadBalancer in this namespace that serves the route.",
        "kind": "Kind of the member's route, which defines the allowed matches.",
        "attachments": "Listeners that accept the route, with the accepted hosts.",
        "rules": "Rules that assign requests to backends.",
        "backends": "Backends that rules refer to.",
        "created": "Creation time of the member's object; older routes take precedence.",
    },
    "Attachment": {
        "listener": "Name of the listener.",
        "hostnames": "Hosts of the route at this listener; all when empty.",
        "oneLabel": "Whether a leading * matches exactly one label, as in an Ingress.",
    },
    "Rule": {
        "name": "Name of the rule.",
        "matches": "Matches; a request must meet one of them. All requests when empty.",
        "backends": "Backends of the rule, by weight.",
        "requestsPerSecond": "Requests per second of each proxy and listener, separate for HTTP/3; 0: no limit.",
        "requestTimeoutMs": "Time limit of a request with all retries, in milliseconds.",
        "backendTimeoutMs": "Time limit of each attempt, in milliseconds.",
    },
    "RequestMatch": {
        "method": "HTTP method; any when empty.",
        "headers": "Headers that the request must have.",
        "queryParams": "Query parameters that the request must have.",
    },
    "PathMatch": PATH,
    "PathModifier": PATH,
    "ValueMatch": {**NAME_AND_VALUE, "type": "Whether value is an exact text or a regular expression."},
    "HeaderValue": NAME_AND_VALUE,
    "HeaderModifier": {
        "set": "Headers to set, replacing existing ones.",
        "add": "Headers to add, keeping existing ones of the same name.",
        "remove": "Names of headers to remove.",
    },
    "Redirect": {
        "scheme": "Scheme of the new address; that of the request when empty.",
        "hostname": "Host of the new address; that of the request when empty.",
        "port": "Port of the new address; 0 means that of the scheme or the listener.",
        "statusCode": "Status code of the response.",
    },
    "Rewrite": {"hostname": "Host header that the backend gets; unchanged when empty."},
    "Filters": {"mirrors": "Backends that get a copy of each request. Their responses are ignored."},
    "Mirror": {
        "backend": "Name of the backend; empty if it does not exist in the member.",
        "numerator": "Number of requests to copy out of denominator.",
        "denominator": "Total of the fraction of copied requests.",
    },
    "Cors": {
        "allowOrigins": "Allowed origins; * matches any characters.",
        "allowMethods": "Allowed methods.",
        "allowHeaders": "Allowed request headers.",
        "exposeHeaders": "Response headers that scripts may read.",
        "allowCredentials": "Whether requests may include credentials.",
        "maxAge": "Time that a browser may cache the response, in seconds.",
    },
    "BackendRef": {
        "backend": "Name of the backend. Empty if it could not be resolved; its share gets a 500 response.",
        "weight": "Share of the requests, relative to the other backends of the rule.",
    },
    "Retry": {
        "codes": "Status codes that cause a retry, for every method. A match by method limits this.",
        "attempts": "Maximum number of retries.",
        "backoffMs": "Milliseconds between attempts; 0 means the default of the proxy.",
    },
    "SessionPersistence": {
        "type": "Whether a cookie or a header identifies the session.",
        "name": "Name of the cookie or header; generated when empty.",
        "absoluteTimeoutS": "Seconds after which a session expires; 0 means when the browser closes.",
    },
    "Backend": {
        "name": "Name that rules refer to; unique within the load balancer.",
        "service": "Service in the member, as namespace/name.",
        "portName": "Name of the Service port in the EndpointSlices at the hub.",
        "nodePort": "Node port of the backend, if nodes are the targets.",
        "ipFamilies": "IP families of the Service, in order; IPv4 only when empty.",
        "protocol": "Protocol of the backend.",
    },
    "BackendTls": {
        "serverName": "Server name to send; also verified unless subjectAltNames is set.",
        "caBundle": "PEM certificate authorities that verify the backend's certificate.",
        "systemCa": "Whether the proxy's system authorities verify the certificate.",
        "subjectAltNames": "Names; the backend's certificate must contain one of them.",
        "clientCertificate": "Certificate that the load balancer presents to the backend.",
    },
    "SubjectAltName": {"type": "Type of the name.", "value": "Name."},
}  # fmt: skip
