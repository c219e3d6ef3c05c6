"""Descriptions of the fields of load balancers of requests and their routes; by struct, then by wire name."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import INTENT_STATUS, NAME_AND_VALUE, PATH

REQUESTS: Mapping[str, Mapping[str, str]] = {
    "CertificateRef": {
        "name": "Name of a Secret of type kubernetes.io/tls in this namespace.",
        "digest": "Which version of the Secret is meant.",
    },
    "HTTPLoadBalancerSpec": {
        "listeners": "Ports, with the hosts that each of them serves.",
        "className": "The LoadBalancerClass that it asks for.",
        "certificates": "Secrets in this namespace that listeners and backends name.",
        "targets": "What traffic is sent to: nodes at the node port, or pods.",
        "address": "Address that it asks for, or one of each family after a comma; the hub chooses one when empty.",
        "ipFamilies": "Families of which it gets an address each, in this order; one address when empty.",
        "ipFamilyPolicy": "RequireDualStack serves it with both families or not at all; else one is enough.",
        "wildcardRecords": "Whether DNS records are published for the wildcards of listeners.",
        "region": "Region of the hub that serves it; a hub without a region serves all.",
    },
    "HTTPLoadBalancerStatus": {
        **INTENT_STATUS,
        "routes": "How many LoadBalancerRoutes name it.",
        "refused": "Parts that the proxies do not serve while they serve the rest; the first 50.",
        "failingRoutes": "Routes with a backend that has no healthy target, while others serve; the first 200.",
    },
    "FailingRoute": {
        "name": "Name of the LoadBalancerRoute.",
        "kind": "Kind of the member's object.",
        "namespace": "Namespace of the member's object.",
        "object": "Name of the member's object.",
        "hosts": "Hosts of the route; every host when empty.",
        "backends": "Backends without a healthy target.",
    },
    "RefusedPart": {"kind": "What it is: a route, rule, listener, backend or certificate.",
                    "name": "Its name; of a rule that of its route.", "reason": "Why it is not served."},
    "L7Listener": {
        "name": "Name that routes refer to; unique within the load balancer.",
        "port": "Port that clients connect to; listeners with different hosts may share it.",
        "protocol": "What it accepts; HTTPS is terminated here.",
        "hostname": "Host that it serves; every host when empty.",
        "passthrough": "Whether TLS is passed through to the backend, chosen by server name.",
        "certificates": "Names of the certificates that it presents; the first one by default.",
    },
    "ClientValidation": {
        "caBundle": "Authorities (PEM) that client certificates are verified with.",
        "optional": "Whether clients without a certificate, or with another one, pass as well.",
    },
    "LoadBalancerRouteSpec": {
        "loadBalancer": "The HTTPLoadBalancer in this namespace that serves it.",
        "kind": "Kind of the member's route, which decides what may match.",
        "attachments": "Listeners that take the route, and the hosts at which they do.",
        "rules": "Which requests go where.",
        "backends": "Backends that rules name.",
        "created": "When the member's object was created; older routes go before younger ones.",
    },
    "Attachment": {
        "listener": "Name of the listener.",
        "hostnames": "Hosts at which the listener takes the route; all when empty.",
        "oneLabel": "Whether a leading * stands for exactly one label, as in an Ingress.",
    },
    "Rule": {
        "name": "Name of the rule.",
        "matches": "The rule is for requests that fulfil one of these; for all when empty.",
        "backends": "Where requests go, by weight.",
        "requestsPerSecond": "Most requests a second of each proxy and listener, apart for HTTP/3; 0 for no limit.",
        "requestTimeoutMs": "Milliseconds that a request may take with all its tries.",
        "backendTimeoutMs": "Milliseconds that each try may take.",
    },
    "RequestMatch": {
        "method": "HTTP method; any when empty.",
        "headers": "Headers that the request must have, all of them.",
        "queryParams": "Query parameters that the request must have, all of them.",
    },
    "PathMatch": PATH,
    "PathModifier": PATH,
    "ValueMatch": {**NAME_AND_VALUE, "type": "Whether value is the text or a regular expression."},
    "HeaderValue": NAME_AND_VALUE,
    "HeaderModifier": {
        "set": "Headers that are replaced, or added where they are missing.",
        "add": "Headers that are added beside those of the same name.",
        "remove": "Names of headers that are removed.",
    },
    "Redirect": {
        "scheme": "Scheme of the new address; that of the request when empty.",
        "hostname": "Host of the new address; that of the request when empty.",
        "port": "Port of the new address; 0: that of the scheme, or of the listener.",
        "statusCode": "Status code of the answer.",
    },
    "Rewrite": {"hostname": "Host header that the backend gets; unchanged when empty."},
    "Filters": {"mirrors": "Backends that get a copy of requests; their answers are ignored."},
    "Mirror": {
        "backend": "Name of the backend; empty where the member's object names none that exists.",
        "numerator": "So many of denominator requests are copied.",
        "denominator": "Of so many requests.",
    },
    "Cors": {
        "allowOrigins": "Origins that may ask; * stands for any characters.",
        "allowMethods": "Methods that they may use.",
        "allowHeaders": "Headers that they may send.",
        "exposeHeaders": "Headers of the answer that they may read.",
        "allowCredentials": "Whether they may send credentials.",
        "maxAge": "Seconds that a browser may keep the answer.",
    },
    "BackendRef": {
        "backend": "Name of the backend; empty where it could not be resolved: its share is answered with 500.",
        "weight": "Its share, relative to the other backends of the rule.",
    },
    "Retry": {
        "codes": "Status codes after which a request of any method is tried again; a match by method limits it.",
        "attempts": "How often it is tried again at the most.",
        "backoffMs": "Milliseconds between tries; 0: the proxy's own.",
    },
    "SessionPersistence": {
        "type": "Whether a cookie or a header says which session it is.",
        "name": "Name of the cookie or header; made up when empty.",
        "absoluteTimeoutS": "Seconds after which a session ends; 0: with the browser.",
    },
    "Backend": {
        "name": "Name that rules refer to; unique within the load balancer.",
        "service": "The Service in the member, as namespace/name.",
        "portName": "Name of its port in the EndpointSlices at the hub.",
        "nodePort": "Port at which nodes take its traffic, with nodes as targets.",
        "ipFamilies": "Families in which nodes take it: those of the Service, in its order; empty for IPv4 alone.",
        "protocol": "How the backend is spoken to.",
    },
    "BackendTls": {
        "serverName": "Server name that is sent, and verified unless subjectAltNames has others.",
        "caBundle": "Authorities (PEM) that the backend's certificate is verified with.",
        "systemCa": "Whether it is verified with the authorities of the proxy's system.",
        "subjectAltNames": "Names of which the backend's certificate must have one.",
        "clientCertificate": "Certificate of the load balancer that is presented to the backend.",
    },
    "SubjectAltName": {"type": "What kind of name it is.", "value": "The name."},
}  # fmt: skip
