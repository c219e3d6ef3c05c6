"""Labels, annotations, finalizers and field managers, and the rules by which names of objects are made."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache

GROUP = "fairlead.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

# --- what a user writes on a Service ---------------------------------------------------------------------------
#: ``kubelb`` or ``fairlead``: take action for this Service although its type or cluster would not ask for it.
ANNOTATION_SERVICE_CLASS = "kubernetes.io/service.class"
SERVICE_CLASS_VALUES = frozenset({"kubelb", "fairlead"})
#: ``v1`` or ``v2``: send the PROXY protocol header to the targets.
ANNOTATION_PROXY_PROTOCOL = "fairlead.dev/proxy-protocol"
#: On a Service, IngressClass or Gateway: connections begin with a header of the PROXY protocol: ``required``, or a JSON
#: object with mode (``required`` or ``optional``) and trustedSources, the only sources of connections.
ANNOTATION_ACCEPT_PROXY_PROTOCOL = "fairlead.dev/accept-proxy-protocol"
#: How long an endpoint that terminates keeps its connections, as ``30s``: from 0s to 1h. They are closed after that.
ANNOTATION_DRAIN = "fairlead.dev/drain"
#: How connections are closed after that: ``graceful`` (the default) ends them at both ends, ``reset`` aborts them.
ANNOTATION_DRAIN_CLOSE = "fairlead.dev/drain-close"
#: ``Node`` or ``Pod``: which targets, for this Service only.
ANNOTATION_TARGET = "fairlead.dev/target"
#: On a namespace, a Service or a pod, with the value ``enabled``: pods are ready only once they are served.
LABEL_READINESS_GATE = "fairlead.dev/readiness-gate"
READINESS_GATE_ENABLED = "enabled"
#: On a namespace of a member: the sub-tenant that it belongs to. Agents copy it to what they publish for the namespace.
LABEL_SUBTENANT = "fairlead.dev/subtenant"
#: On a pod: the LoadBalancer Service of its namespace with whose address its connections leave the cluster.
LABEL_EGRESS = "fairlead.dev/egress"
#: The condition of a pod that its readiness gate names: every proxy of its load balancers has it healthy.
CONDITION_SERVING = "fairlead.dev/serving"
#: On a Service: how its endpoints are checked, also behind routes: a JSON object with any of the fields type (``tcp``,
#: ``http``, ``grpc``, ``none``), path, host, service, port, interval, timeout, healthy, unhealthy, expected and tls; or
#: one annotation for each, such as ``fairlead.dev/health-check-path``.
ANNOTATION_HEALTH_CHECK = "fairlead.dev/health-check"
#: On a Service whose targets are pods: ``true`` checks them as the readiness probe of the pods says; an exec probe, and
#: pods with different probes, are checked by connecting.
ANNOTATION_FOLLOW_READINESS_PROBE = "fairlead.dev/follow-readiness-probe"
#: On a Service: when a failing endpoint is left out for a time: a JSON object with any of the fields consecutive5xx,
#: consecutiveGatewayErrors, ejectionTime and maxEjectionPercent; or one annotation for each, such as
#: ``fairlead.dev/outlier-detection-ejection-time``.
ANNOTATION_OUTLIER_DETECTION = "fairlead.dev/outlier-detection"
#: On an Ingress, HTTPRoute or GRPCRoute: so many requests a second each of its rules takes at each proxy; what is above
#: that is answered 429.
ANNOTATION_REQUESTS_PER_SECOND = "fairlead.dev/requests-per-second"
#: On a Service, IngressClass or Gateway: limits of its load balancer: a JSON object with any of the fields
#: requestsPerSecond, burst, key, connections and bandwidth. A Service has connections alone.
ANNOTATION_LIMITS = "fairlead.dev/limits"
#: On an Ingress: the service that is asked whether a request may pass: a JSON object with the fields service, port,
#: protocol, path, allowedHeaders, allowedResponseHeaders, maxSize and failOpen. On an HTTPRoute: ``failOpen``: requests
#: pass while the service of its filters ExternalAuth does not answer.
ANNOTATION_EXTERNAL_AUTH = "fairlead.dev/external-auth"
#: On an Ingress, IngressClass, Gateway, HTTPRoute or GRPCRoute: the service (``ext_proc`` of Envoy) that inspects
#: requests, such as a web application firewall: ``off``, or a JSON object with the fields service, port, namespace,
#: maxSize, timeout, failureMode and, on an IngressClass or Gateway, allowOff.
ANNOTATION_EXTERNAL_PROCESSOR = "fairlead.dev/external-processor"
#: On an Ingress, HTTPRoute or GRPCRoute: the issuers whose tokens (JWT) requests must have, a JSON object.
ANNOTATION_JWT = "fairlead.dev/jwt"
#: On an Ingress or Service: how its backends are reached over TLS, a JSON object with the fields secret, hostname,
#: subjectAltNames and wellKnownCACertificates.
ANNOTATION_BACKEND_TLS = "fairlead.dev/backend-tls"
#: On a Gateway: the ConfigMap of its namespace with error pages, whose keys are status codes such as 404 or 5xx.
ANNOTATION_ERROR_PAGES = "fairlead.dev/error-pages"
#: On a Service, Gateway, IngressClass, Ingress, HTTPRoute or GRPCRoute: what of it is logged, as in parameter
#: ``accessLog`` of a LoadBalancerClass: ``off``, ``json`` or a JSON object.
ANNOTATION_ACCESS_LOG = "fairlead.dev/access-log"
#: On an Ingress, HTTPRoute or GRPCRoute: the share of its requests that is traced: ``off``, or a JSON object with
#: ``samplingRate`` as in parameter ``tracing`` of a LoadBalancerClass.
ANNOTATION_TRACING = "fairlead.dev/tracing"
#: On a Gateway, IngressClass, Ingress, HTTPRoute or GRPCRoute: CIDRs or addresses, with commas, of the only clients
#: that are served; others are answered 403. On a Gateway, a dot and the name of a listener may follow: for that
#: listener alone.
ANNOTATION_ALLOWED_SOURCES = "fairlead.dev/allowed-sources"
#: On the same objects: CIDRs or addresses of clients that are answered 403, even if they are allowed.
ANNOTATION_DENIED_SOURCES = "fairlead.dev/denied-sources"
#: On an Ingress: the annotations of ingress-nginx that keep requests out (``auth-url, auth-type``) and may be
#: ignored here. An Ingress with others of them is not served.
ANNOTATION_IGNORED_ANNOTATIONS = "fairlead.dev/ignored-annotations"
#: On an Ingress or Gateway: the CertificateIssuer of the hub that issues what its TLS sections name and the member does
#: not have. On a LoadBalancerClass: the one for all that ask for none.
ANNOTATION_CERTIFICATE_ISSUER = "fairlead.dev/certificate-issuer"
#: An address that the user would like to have; ``spec.loadBalancerIP`` does the same.
ANNOTATION_REQUESTED_ADDRESS = "fairlead.dev/address-request"
#: On a Service: the GlobalService at the hub that it joins.
ANNOTATION_GLOBAL = "fairlead.dev/global"
#: On an IngressClass or Gateway: IP families of the load balancer's addresses, such as ``IPv4,IPv6``.
ANNOTATION_IP_FAMILIES = "fairlead.dev/ip-families"
#: On a Gateway: ``false`` publishes no DNS records for the wildcards of its listeners, only for hosts of its routes.
ANNOTATION_WILDCARD_RECORDS = "fairlead.dev/wildcard-records"
#: On a Service: the DNS names that are to resolve to its load balancer, separated by commas; ``generate`` asks for a
#: name in the member's domain.
ANNOTATION_HOSTNAME = "fairlead.dev/hostname"
#: On a LoadBalancer Service with a class: which NodePools it is to have an access point in, as a label selector.
ANNOTATION_NODEPOOL_SELECTOR = "fairlead.dev/nodepool-selector"
#: A Service's ``loadBalancerClass`` is ours when it starts with this; the rest is the LoadBalancerClass's name.
LOAD_BALANCER_CLASS_PREFIX = "fairlead.dev/"

#: ``spec.controller`` of the IngressClasses that are ours.
INGRESS_CONTROLLER = "fairlead.dev/ingress-controller"
#: The name that the IngressClass and the GatewayClass of Fairlead usually have.
USUAL_CLASS = "fairlead"
#: ``spec.controllerName`` of the GatewayClasses that are ours, and in the status of routes.
GATEWAY_CONTROLLER = "fairlead.dev/gateway-controller"

# --- what we write on a user's Service -------------------------------------------------------------------------
#: The address, where ``status.loadBalancer`` is not ours to write (NodePort, or a cloud's own load balancer).
ANNOTATION_ADDRESS = "fairlead.dev/address"

#: The name that the hub made for the Service.
ANNOTATION_GENERATED_HOSTNAME = "fairlead.dev/generated-hostname"
#: On a Service with access points in several regions: which region has which address, as JSON.
ANNOTATION_ACCESS_POINTS = "fairlead.dev/access-points"
#: Before the key of a label or annotation that regions ask to have shown on their Service.
AGGREGATED_PREFIX = "aggregated."
#: On a Service: its PoolServices must be gone before it may go.
FINALIZER_POOL_SERVICES = "fairlead.dev/pool-services"

# --- what we write on our own objects --------------------------------------------------------------------------
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "fairlead"
#: EndpointSlices of ours carry this so that no controller of the cluster takes them for its own.
LABEL_SLICE_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
SLICE_MANAGED_BY = "fairlead.dev"
#: The same on EndpointSlices of imported Services, which are not targets of load balancers.
IMPORT_SLICE_MANAGED_BY = "imports.fairlead.dev"
#: The TCPLoadBalancer that an EndpointSlice belongs to, as ``label_value`` of its name.
LABEL_LOAD_BALANCER = "fairlead.dev/load-balancer"
#: The member's Service whose endpoints an EndpointSlice holds, for the backends of routes; see ``backend_label``.
LABEL_BACKEND = "fairlead.dev/backend"
#: On an EndpointSlice at the hub: the exported Service whose endpoints it holds; see ``backend_label``.
LABEL_EXPORT = "fairlead.dev/export"
#: On an EndpointSlice at the hub that the hub wrote: the imported Service whose endpoints it holds. On a Service that
#: the agent made for a ClusterSetIP: the ServiceImport that it is for.
LABEL_IMPORT = "fairlead.dev/import"
#: On a Service that the agent made for a ClusterSetIP: since when there is no ServiceImport; empty while there is one.
ANNOTATION_UNUSED_SINCE = "fairlead.dev/unused-since"
#: On a Service of type NodePort that the agent has made: the Service that it is the copy of, as ``label_value``.
LABEL_COPY_OF = "fairlead.dev/copy-of"
#: On an EndpointSlice: it holds the IPv4 addresses of a member's nodes, for all load balancers of that member.
LABEL_NODES = "fairlead.dev/nodes"
#: The same for their IPv6 addresses: a label of its own, since hubs of version 0.1 take all slices with the other one.
LABEL_NODES_IPV6 = "fairlead.dev/nodes-ipv6"
#: On the copy of a Secret at the hub: the digest of its certificate and key.
ANNOTATION_DIGEST = "fairlead.dev/digest"
#: On what the hub makes for another controller of its cluster (``provider: ingress`` or ``gateway``): the load balancer
#: that it is for, as ``label_value`` of its name; the annotation of the same name has kind, namespace and name.
LABEL_MADE_FOR = "fairlead.dev/made-for"
#: On a Service and its slices that the hub makes for another controller: the backend by its name.
ANNOTATION_BACKEND = "fairlead.dev/backend-name"
#: On what the hub makes for another controller: the digest of what was applied.
ANNOTATION_APPLIED = "fairlead.dev/applied-digest"
#: On a DNSEndpoint that the hub made: whose each of its records is, as JSON by type.
ANNOTATION_MARKS = "fairlead.dev/marks"
LABEL_TENANT = "fairlead.dev/tenant"
LABEL_ORIGIN_NAMESPACE = "fairlead.dev/origin-namespace"
LABEL_ORIGIN_NAME = "fairlead.dev/origin-name"
#: The uid of the Service whose endpoints a slice lists: those of an earlier Service of its name are not served.
LABEL_ORIGIN_UID = "fairlead.dev/origin-uid"
LABEL_ORIGIN_KIND = "fairlead.dev/origin-kind"
ANNOTATION_ORIGIN = "fairlead.dev/origin"
#: On a nodes EndpointSlice: why its endpoints are older than the member's state, in one sentence.
ANNOTATION_STALE = "fairlead.dev/stale"
#: On the agent's Lease: the Services that the agent refuses, each with the reason, as JSON; the first of many.
ANNOTATION_REFUSED = "fairlead.dev/refused"
#: On a load balancer, written by ``fairlead repair``: put back once what others changed of ours at its provider. Each
#: new value asks once; the hub answers in ``status.repaired``.
ANNOTATION_REPAIR = "fairlead.dev/repair"
#: On a load balancer or route: the user that changed it last. The embedded API writes it; elsewhere, clients may.
ANNOTATION_CHANGED_BY = "fairlead.dev/changed-by"
#: On a load balancer or a class: freeze everything but what is already programmed. Any value but "false".
ANNOTATION_PAUSED = "fairlead.dev/paused"
#: On a TCPLoadBalancer: the addresses of the pods that leave with its address, after commas.
ANNOTATION_EGRESS_PODS = "fairlead.dev/egress-pods"
#: On a load balancer at the hub: the names of the proxy machines that serve it, after commas, the owner first.
ANNOTATION_MACHINES = "fairlead.dev/machines"
#: On an HTTPLoadBalancer: count the requests of each of its routes, which costs proxies memory for each. Any value but
#: "false".
ANNOTATION_ROUTE_FIGURES = "fairlead.dev/route-figures"
#: On an HTTPLoadBalancer, written by ``fairlead maintenance``: the hosts in maintenance with their pages, as JSON.
ANNOTATION_MAINTENANCE = "fairlead.dev/maintenance"
#: The value of the pause annotation when it is there because a Cluster of Cluster API is paused.
PAUSED_BY_CAPI = "cluster-api"
#: On a LoadBalancer, TCPLoadBalancer or BackendGroup, with any value: deleted or not, it stays until the label goes.
LABEL_DO_NOT_DELETE = "fairlead.dev/do-not-delete"
#: On a ConfigMap in the hub's namespace: the ConfigMap holds the history of a load balancer.
LABEL_HISTORY = "fairlead.dev/history"
#: On a ConfigMap: usage of load balancers. ``open``: the present hour, and what each proxy had counted; ``hours`` and
#: ``days``: a month; ``held``: the addresses and certificates that load balancers had and have.
LABEL_USAGE = "fairlead.dev/usage"

#: On a ConfigMap in the hub's namespace: target health as one hub replica's proxies see it; the value is the replica.
LABEL_PROXY_HEALTH = "fairlead.dev/proxy-health"
#: On a ProxyMachine: serial number and time of its first certificate. No earlier one is accepted.
ANNOTATION_FIRST_CERTIFICATE = "fairlead.dev/first-certificate"
#: On the ProxyMachine of a node of the hub's cluster: Kubernetes says who it is, so it may join again.
LABEL_NODE_MACHINE = "fairlead.dev/node"
#: On a Lease in the hub's namespace: its renewTime is that of the last report of a proxy machine. Heartbeats of agents
#: have another label, so that one of a machine does not wake the hub's list of members.
LABEL_PROXY_MACHINE = "fairlead.dev/proxy-machine"
#: On the Hostname of a challenge: the ManagedCertificate that it is for, as a hash of namespace and name.
LABEL_CHALLENGE = "fairlead.dev/challenge-of"
#: On a Secret that the hub wrote for a ManagedCertificate: the order that it came from.
ANNOTATION_ORDER = "fairlead.dev/order"

FINALIZER_CLEANUP = "fairlead.dev/cleanup"
#: On a BackendRecord: its backend may still be registered.
FINALIZER_DEREGISTER = "fairlead.dev/deregister"
#: On a Tenant that is to go although it serves: drain it and stop. Any value but "false".
ANNOTATION_STOP_SERVING = "fairlead.dev/stop-serving"
#: On a LoadBalancerClass: something uses it. On a Tenant: its removal has not ended.
FINALIZER_IN_USE = "fairlead.dev/in-use"
#: On a BackendGroup that is labelled ``fairlead.dev/do-not-delete``.
FINALIZER_PROTECTED = "fairlead.dev/protected"

# --- what layer 1 writes on a PoolService -----------------------------------------------------------------------
#: The Service that it belongs to, as canonical JSON without status and without what has no meaning outside.
ANNOTATION_SERVICE = "fairlead.dev/service"
#: The backends of this pool, as canonical JSON.
ANNOTATION_BACKENDS = "fairlead.dev/backends"
#: The finalizer of our own layer 2, on PoolServices of our classes.
FINALIZER_LOAD_BALANCER = "fairlead.dev/load-balancer"

# --- Cluster API ------------------------------------------------------------------------------------------------
#: On a LoadBalancer with spec.clusterName: its members may still carry our hooks.
FINALIZER_MEMBERS = "fairlead.dev/members"
#: On a Cluster: the LoadBalancerClass of the LoadBalancer that it is to get; ``none``: nothing of any policy.
ANNOTATION_WANTED_CLASS = "fairlead.dev/load-balancer-class"
#: On a LoadBalancer that a ClusterLoadBalancerPolicy has made: the name of that.
LABEL_POLICY = "fairlead.dev/policy"
#: On a LoadBalancer of a Cluster: the digest of the CA bundle that was copied from the Cluster, and follows it.
ANNOTATION_AUTHORITY = "fairlead.dev/cluster-authority"
#: On a LoadBalancer whose Cluster is in another cluster: the uid of that Cluster, with which it goes.
ANNOTATION_TIED_TO = "fairlead.dev/cluster-uid"
#: On the same: the uid of the namespace kube-system of the cluster that its Cluster is in.
ANNOTATION_TIED_IN = "fairlead.dev/management-cluster-uid"
#: On a BackendGroup that is made from the members of a LoadBalancer: the name of that.
LABEL_MEMBERS_OF = "fairlead.dev/members-of"
#: On such a BackendGroup: which member each backend is of, as JSON.
ANNOTATION_MEMBERS = "fairlead.dev/backends-of-members"
#: On a Drill: the DrillSchedule that it is of.
LABEL_DRILL_SCHEDULE = "fairlead.dev/drill-schedule"

# --- who writes -----------------------------------------------------------------------------------------------
MANAGER_AGENT = "fairlead-agent"
MANAGER_HUB = "fairlead-hub"
#: Owns ``status.allocation`` and ``status.accepted`` alone, and which entry of ``status.provisioned`` serves.
MANAGER_RECORD = "fairlead-hub-record"
#: Owns, with the name of a provider after it, the entry of that provider in ``status.provisioned`` alone.
MANAGER_LEDGER = "fairlead-hub-ledger"
#: Owns the spec of Hostnames, ``status.waiting`` of them, and ``status.names`` of what asks for names.
MANAGER_NAMES = "fairlead-hub-names"
#: Owns ``status.placement`` of load balancers alone.
MANAGER_PLACEMENT = "fairlead-hub-placement"
#: Owns ``status.egress`` of TCPLoadBalancers alone.
MANAGER_EGRESS = "fairlead-hub-egress"
#: Owns ``status.certificate`` of Hostnames alone.
MANAGER_CERTIFICATES = "fairlead-hub-certificates"
#: Owns ``status.shift`` of GlobalServices alone.
MANAGER_SHIFT = "fairlead-hub-shift"
MANAGER_CLI = "fairlead-cli"
#: What viewers of the page change with their own tokens.
MANAGER_PAGE = "fairlead-page"
MANAGER_REGIONS = "fairlead-regions"
MANAGER_BALANCER = "fairlead-balancer"
MANAGER_CAPI = "fairlead-capi"

# --- where things are -----------------------------------------------------------------------------------------
SYSTEM_NAMESPACE = "fairlead-system"
#: Where Envoys run that serve Clusters of Cluster API.
PROXIES_NAMESPACE = "fairlead-proxies"
HUB_LEASE = "fairlead-hub"
REGIONS_LEASE = "fairlead-regions"
CAPI_LEASE = "fairlead-capi"
#: In the tenant's namespace at the hub; renewed by the agent as long as it is alive and its caches are synced.
AGENT_LEASE = "fairlead-agent"
#: In the member; so that two agents of one member never write at the same time.
AGENT_LEADER_LEASE = "fairlead-agent-leader"
AGENT_SERVICE_ACCOUNT = "fairlead-agent"
TENANT_NAMESPACE_PREFIX = "tenant-"
#: The class of a load balancer that names none; the hub creates it when it is missing.
DEFAULT_CLASS = "envoy"
#: The provider whose load balancers the kernels of proxy machines forward.
KERNEL_PROVIDER = "kernel"
#: The providers whose load balancers are placed on proxy machines, and whose state the hub serves.
MACHINE_PROVIDERS = frozenset({DEFAULT_CLASS, KERNEL_PROVIDER})
#: The addresses of load balancers where the command line gives none: only this machine reaches them.
DEFAULT_POOL = "127.200.0.0/16"

#: What the verbs of the command line call our kinds.
COMMAND_NAMES = {
    "LoadBalancer": "lb",
    "TCPLoadBalancer": "tcplb",
    "HTTPLoadBalancer": "httplb",
    "GlobalService": "gsvc",
    "Hostname": "hostname",
    "LoadBalancerClass": "class",
}

# --- Kubernetes' own ------------------------------------------------------------------------------------------
LABEL_SERVICE_NAME = "kubernetes.io/service-name"
LABEL_EXCLUDE_NODE = "node.kubernetes.io/exclude-from-external-load-balancers"
TAINT_TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"

# --- OpenYurt's -------------------------------------------------------------------------------------------------
#: The pool that a node is in; https://openyurt.io/docs/core-concepts/yurt-manager
LABEL_OPENYURT_NODEPOOL = "apps.openyurt.io/nodepool"
#: Its own spelling of our annotation; read when ours is absent.
ANNOTATION_OPENYURT_SELECTOR = "service.openyurt.io/nodepool-labelselector"
LABEL_POOL_SERVICE_SERVICE = "openyurt.io/service-name"
LABEL_POOL_SERVICE_POOL = "openyurt.io/pool-name"
LABEL_POOL_SERVICE_MANAGED_BY = "poolservice.openyurt.io/managed-by"
POOL_SERVICE_MANAGED_BY = "load-balancer-set-controller"


_LABEL_VALUE_MAX = 63
_LABEL = "[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?"
_NAME_MAX = 253
_NAME_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_NAME_LABEL}(\.{_NAME_LABEL})*")
_REGION = re.compile(rf"{_LABEL}(\.{_LABEL})*")


def short_hash(*parts: str, size_bytes: int = 5) -> str:
    """Hash ``parts`` to lower-case hex, unambiguous about where one part ends and the next begins."""
    digest = hashlib.blake2b(digest_size=size_bytes)
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(4, "big"))
        digest.update(raw)
    return digest.hexdigest()


def fit(name: str, *, limit: int = _LABEL_VALUE_MAX, identity: tuple[str, ...] = ()) -> str:
    """Return ``name`` when it is short enough, else its head with a hash of the whole ``identity``."""
    if len(name) <= limit:
        return name
    suffix = short_hash(*(identity or (name,)), size_bytes=8)
    head = name[: limit - len(suffix) - 1].rstrip("-._")
    return f"{head}-{suffix}"


def hub_name(namespace: str, name: str) -> str:
    """Name a hub object after its origin; neither part can hold a dot, so no two origins share a name."""
    return f"{namespace}.{name}"


def label_value(name: str) -> str:
    """Return the label value for an object's name, which may be longer than a label value."""
    return fit(name)


def backend_label(service: str) -> str:
    """Return the label value for a Service of a member, given as "namespace/name"."""
    return label_value(service.replace("/", "."))


def name_problem(text: str) -> str:
    """Return why no object that a user names can have the name ``text``; empty when one can."""
    if len(text) <= _NAME_MAX and _NAME.fullmatch(text):
        return ""
    return (
        f"{text!r} is not a valid name. Use at most {_NAME_MAX} lower-case letters, digits, dashes and dots. Begin and "
        "end with a letter or digit."
    )


def region_problem(region: str) -> str:
    """Return why ``--region`` cannot be ``region``, empty when it can: the name of a hub's Lease is made of it."""
    if len(region) <= _LABEL_VALUE_MAX and _REGION.fullmatch(region):
        return ""
    return (
        f"--region: {region!r} is not a valid region name. Use at most {_LABEL_VALUE_MAX} letters, digits, dashes and "
        "dots, with a letter or digit at both ends and on both sides of each dot."
    )


@lru_cache
def hub_lease(region: str) -> str:
    """Return the name of the Lease of the hub of ``region``; empty: of the hub without a region."""
    return fit(f"{HUB_LEASE}-{region.lower()}") if region else HUB_LEASE


def replica_key(identity: str) -> str:
    """Return the key of a ConfigMap's data, or label value, under which a hub replica of this identity reports."""
    return fit(re.sub(r"[^-._a-zA-Z0-9]", "_", identity))


_CHECKS = ("type", "path", "host", "service", "port", "interval", "timeout", "healthy", "unhealthy", "expected", "tls")
_OUTLIERS = ("consecutive-5xx", "consecutive-gateway-errors", "ejection-time", "max-ejection-percent")
#: How the endpoints of a Service are checked, and left out: the settings in one annotation, or one for each field.
HEALTH_ANNOTATIONS = (
    ANNOTATION_HEALTH_CHECK,
    *(f"{ANNOTATION_HEALTH_CHECK}-{field}" for field in _CHECKS),
    ANNOTATION_OUTLIER_DETECTION,
    *(f"{ANNOTATION_OUTLIER_DETECTION}-{field}" for field in _OUTLIERS),
)
#: What a user may write on a Service, plus what we write there.
SERVICE_ANNOTATIONS = (
    ANNOTATION_BACKEND_TLS,
    ANNOTATION_ACCESS_LOG,
    ANNOTATION_LIMITS,
    ANNOTATION_ACCEPT_PROXY_PROTOCOL,
    *HEALTH_ANNOTATIONS,
    ANNOTATION_FOLLOW_READINESS_PROBE,
    ANNOTATION_ADDRESS,
    ANNOTATION_PROXY_PROTOCOL,
    ANNOTATION_GLOBAL,
    ANNOTATION_REQUESTED_ADDRESS,
    ANNOTATION_TARGET,
    ANNOTATION_DRAIN,
    ANNOTATION_DRAIN_CLOSE,
    ANNOTATION_HOSTNAME,
    ANNOTATION_GENERATED_HOSTNAME,
    ANNOTATION_NODEPOOL_SELECTOR,
    ANNOTATION_ACCESS_POINTS,
)


def near_names(value: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """Return the known names that are near, the nearest first, without regard to case."""
    lower = {candidate.lower(): candidate for candidate in known}
    return [lower[match] for match in get_close_matches(value.strip().lower(), sorted(lower), n=most, cutoff=0.6)]


def did_you_mean(value: str, known: Iterable[str], *, most: int = 1) -> str:
    """Return `` Did you mean ...?`` (with its leading space), or nothing when no known value is near."""
    matches = near_names(value, known, most=most)
    return f" Did you mean {' or '.join(map(repr, matches))}?" if matches else ""


def unknown_parameter(names: Iterable[str], valid: Sequence[str], whose: str) -> str:
    """Return which of ``names`` is not among ``valid``, with a hint; empty when all are. ``whose``: who reads them."""
    for name in sorted(set(names).difference(valid)):
        near = near_names(name, valid, most=1)
        hint = f"did you mean {near[0]}?" if near else f"valid are {', '.join(valid)}"
        return f"parameters.{name[:60]} is unknown to {whose}; {hint}"
    return ""


def near_annotation(key: str) -> str:
    """Suggest by what follows the slash: the group, which all of ours share, makes any two of them look alike."""
    by_short_name = {name.removeprefix(f"{GROUP}/"): name for name in SERVICE_ANNOTATIONS}
    nearest = near_names(key.removeprefix(f"{GROUP}/"), by_short_name, most=1)
    return f" Did you mean {by_short_name[nearest[0]]!r}?" if nearest else ""
