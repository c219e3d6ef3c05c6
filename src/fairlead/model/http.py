"""The configuration of an L7 load balancer: listeners, routes, rules, backends. Neutral of Ingress and Gateway API.

The values go unchanged from the member, where Ingress and Gateway API are translated into them, through the hub's
objects (``LoadBalancerRoute``) to the encoder of a provider. All names are those of Gateway API where it has one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from ipaddress import ip_address
from itertools import chain, compress, count
from operator import is_not
from typing import Annotated, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from fairlead.model.health import HealthCheckSettings, OutlierDetection
from fairlead.model.keys import Family

K = TypeVar("K", bound=Hashable)

#: What a listener accepts. HTTPS is terminated; TLS is passed through by SNI, or terminated for a TLS route.
ListenerProtocol = Literal["HTTP", "HTTPS", "TLS", "TCP", "UDP"]
#: The kind of the member's route, which decides what may match: an Ingress is an HTTP route.
RouteKind = Literal["HTTP", "GRPC", "TLS", "TCP", "UDP"]
#: How a backend is spoken to: HTTP1 is HTTP/1.1; HTTP2 is h2c, or h2 with ``tls``.
BackendProtocol = Literal["HTTP1", "HTTP2", "TCP", "UDP"]
#: The longest text of a certificate bundle in an object.
MAX_BUNDLE = 262_144
#: Of one route at one listener: routes of Gateway API have at most 16, and an Ingress is one route for each host.
MAX_HOSTNAMES = 64

#: What is printed or compared has no control characters.
PRINTABLE = r"^[^\x00-\x1f\x7f]*$"

#: The longest duration of Gateway API, 99999h four times, in seconds. Envoy ends at 292 years.
MAX_DURATION_S = 1_439_985_600
_INT32 = 2**31 - 1

Milliseconds = Annotated[int, Meta(ge=0, le=MAX_DURATION_S * 1000)]
Seconds = Annotated[int, Meta(ge=0, le=MAX_DURATION_S)]
PortNumber = Annotated[int, Meta(ge=1, le=65535)]
Text = Annotated[str, Meta(max_length=4096, pattern=PRINTABLE)]
Name = Annotated[str, Meta(min_length=1, max_length=512, pattern=PRINTABLE)]
Hostname = Annotated[str, Meta(max_length=253, pattern=PRINTABLE)]
#: How long a target that terminates keeps its connections; empty for no limit.
DrainTime = Annotated[str, Meta(max_length=16, pattern=r"^([0-9]{1,7}ms|[0-9]{1,4}s|[0-9]{1,2}m|[01]h)?$")]
#: How its connections are closed then; empty for graceful.
DrainClose = Literal["", "graceful", "reset"]
#: The most CIDRs of one list of client addresses.
MAX_SOURCES = 1000
#: Canonical CIDRs of client addresses.
Sources = Annotated[tuple[Annotated[str, Meta(max_length=64, pattern=PRINTABLE)], ...], Meta(max_length=MAX_SOURCES)]
#: All addresses.
EVERYONE = ("0.0.0.0/0", "::/0")


#: A token of HTTP: the name of a header or of a cookie.
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Where a message ends, and what belongs to one connection (RFC 9110, 7.6.1): a rule that sets these lets the body of
#: one request be read as the next one. Names that begin with proxy- are among them.
FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "trailers",
        "transfer-encoding",
        "upgrade",
    }
)
#: Clients write these themselves: their own pass where an external service sets none.
HEADERS_OF_CLIENTS = frozenset({"authorization", "cookie"})
_REQUEST_TARGET = re.compile(r"/[!-~]*")
_URI = re.compile(r"https?://[0-9A-Za-z._\[\]:-]+(/[!-~]*)?")
_CLAIM = re.compile(r"[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*")
_AUTHORITY = re.compile(r"[0-9A-Za-z._\[\]:-]*")


def hostname_problem(hostname: str) -> str:
    """Return the error in a hostname of a listener or route; empty if it is valid or means every host."""
    if hostname == "*" or "*" not in hostname.removeprefix("*.") != "" or not hostname:
        return ""
    return f"the hostname {hostname!r} is none; a star may stand for the first labels only, as in *.example.com"


class Value(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The base class of all values of this module, which are written unchanged into objects of the API."""


class HeaderValue(Value, frozen=True, gc=False):
    """One header with its value."""

    name: Annotated[str, Meta(min_length=1, max_length=256, pattern=PRINTABLE)]
    value: Text = ""


class ValueMatch(Value, frozen=True, gc=False):
    """A header or query parameter that a request must have; header names are matched without regard to case."""

    name: Annotated[str, Meta(min_length=1, max_length=256, pattern=PRINTABLE)]
    value: Text = ""
    type: Literal["Exact", "RegularExpression"] = "Exact"


class PathMatch(Value, frozen=True, gc=False):
    """The path that a request must have; Prefix is by path element, so /v2 does not match /v2x.

    PathPrefix with the value / matches every path.
    """

    type: Literal["Exact", "PathPrefix", "RegularExpression"] = "PathPrefix"
    value: Annotated[str, Meta(max_length=1024, pattern=PRINTABLE)] = "/"


class RequestMatch(Value, frozen=True, gc=False):
    """Conditions that must all hold; for a gRPC method the path is /service/method. Empty method: any."""

    path: PathMatch = PathMatch()
    method: Annotated[str, Meta(max_length=32)] = ""
    headers: tuple[ValueMatch, ...] = ()
    query_params: tuple[ValueMatch, ...] = ()


class HeaderModifier(Value, frozen=True, gc=False):
    """Headers to set (replace or add), to add (append), and to remove."""

    set: tuple[HeaderValue, ...] = ()
    add: tuple[HeaderValue, ...] = ()
    remove: tuple[Text, ...] = ()


class PathModifier(Value, frozen=True, gc=False):
    """Replace the whole path, or the prefix that was matched."""

    type: Literal["ReplaceFullPath", "ReplacePrefixMatch"]
    value: Annotated[str, Meta(max_length=1024, pattern=PRINTABLE)] = ""


class Redirect(Value, frozen=True, gc=False):
    """Answer with a redirect. Without scheme and port, the port is that of the listener.

    With a scheme and no port, it is the well-known port of the scheme.
    """

    scheme: Literal["", "http", "https"] = ""
    hostname: Hostname = ""
    path: PathModifier | None = None
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    status_code: Literal[301, 302, 303, 307, 308] = 302


class Rewrite(Value, frozen=True, gc=False):
    """Change Host header or path before the request goes to the backend."""

    hostname: Hostname = ""
    path: PathModifier | None = None


class Mirror(Value, frozen=True, gc=False):
    """Send a copy of ``numerator`` of ``denominator`` requests to a backend as well; its answers are ignored.

    An empty ``backend`` could not be resolved in the member: nothing is mirrored.
    """

    backend: Text = ""
    numerator: Annotated[int, Meta(ge=0, le=_INT32)] = 100
    denominator: Annotated[int, Meta(ge=1, le=_INT32)] = 100


class Cors(Value, frozen=True, gc=False):
    """Answer preflight requests here. In an origin, * matches any characters, including dots; times in seconds."""

    allow_origins: tuple[Text, ...] = ()
    allow_methods: tuple[Text, ...] = ()
    allow_headers: tuple[Text, ...] = ()
    expose_headers: tuple[Text, ...] = ()
    allow_credentials: bool = False
    max_age: Annotated[int, Meta(ge=-1, le=_INT32)] = 5


#: The largest body of a request that an external service is shown, in bytes.
MAX_AUTH_BODY = 10_485_760


class ExternalAuth(Value, frozen=True, gc=False):
    """Ask a service whether a request may pass: with HTTP, status 200 lets it pass, and any other is the answer.

    ``path`` is put before that of the request. ``allowed_headers`` of the request are shown to the service; of several
    with one name, service and backend get the first. ``allowed_response_headers`` of the answer go to the backend; all
    of them when empty. Clients cannot write the latter. ``max_size`` is how large a body is shown, 0 for none; larger
    ones are answered 413. If the service does not answer: 503, or with ``fail_open`` the request passes. An empty
    ``backend`` could not be resolved: 500.
    """

    backend: Text = ""
    protocol: Literal["HTTP", "GRPC"] = "HTTP"
    path: Annotated[str, Meta(max_length=1024, pattern=PRINTABLE)] = ""
    allowed_headers: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    allowed_response_headers: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    max_size: Annotated[int, Meta(ge=0, le=MAX_AUTH_BODY)] = 0
    fail_open: bool = False


#: How long an external processor may take for one message, in milliseconds, and the longest that users can choose.
PROCESSOR_MS, MAX_PROCESSOR_MS = 50, 10_000
#: Smaller limits of bodies are not exact: a proxy holds as much of a connection anyway.
MIN_PROCESSOR_BODY = 32_768


class ExternalProcessor(Value, frozen=True, gc=False):
    """Have a service (gRPC, ``envoy.service.ext_proc.v3``) inspect requests: it may answer them, or change headers.

    ``max_size`` is how large a body it is shown, 0 for none; larger ones are answered 413. If it does not answer within
    ``timeout_ms`` for headers, and again for a body: an error, or with ``fail_open`` the request passes. An empty
    ``backend`` could not be resolved: 500.
    """

    backend: Text = ""
    max_size: Annotated[int, Meta(ge=0, le=MAX_AUTH_BODY)] = 0
    timeout_ms: Annotated[int, Meta(ge=1, le=MAX_PROCESSOR_MS)] = PROCESSOR_MS
    fail_open: bool = False


class ClaimToHeader(Value, frozen=True, gc=False):
    """A claim of a token that the backend gets as a header; clients cannot write it."""

    claim: Annotated[str, Meta(min_length=1, max_length=256, pattern=PRINTABLE)]
    header: Annotated[str, Meta(min_length=1, max_length=256, pattern=PRINTABLE)]


class RequiredClaim(Value, frozen=True, gc=False):
    """A claim that must be, or contain, one of ``values``; a dot in its name leads into a claim that is an object."""

    name: Annotated[str, Meta(min_length=1, max_length=256, pattern=PRINTABLE)]
    values: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=64)]


#: The longest set of keys in an object.
MAX_JWKS = 16_384


class JWTProvider(Value, frozen=True, gc=False):
    """An issuer of tokens (JWT), and where its keys come from: ``jwks``, or ``uri`` at ``backend``.

    A token is for one of ``audiences``, unless there are none. Proxies read the keys again after ``cache_seconds``, and
    keep the last ones while the backend does not answer. With neither: the backend could not be resolved.
    """

    issuer: Annotated[str, Meta(min_length=1, max_length=1024, pattern=PRINTABLE)]
    audiences: Annotated[tuple[Text, ...], Meta(max_length=32)] = ()
    backend: Text = ""
    uri: Annotated[str, Meta(max_length=1024, pattern=PRINTABLE)] = ""
    cache_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 300
    jwks: Annotated[str, Meta(max_length=MAX_JWKS)] = ""
    claim_to_headers: Annotated[tuple[ClaimToHeader, ...], Meta(max_length=32)] = ()
    required_claims: Annotated[tuple[RequiredClaim, ...], Meta(max_length=32)] = ()


JWTProviders = Annotated[tuple[JWTProvider, ...], Meta(max_length=8)]


class Filters(Value, frozen=True, gc=False):
    """Changes to a request and its response; redirect and rewrite exclude each other."""

    request_headers: HeaderModifier | None = None
    response_headers: HeaderModifier | None = None
    redirect: Redirect | None = None
    rewrite: Rewrite | None = None
    mirrors: tuple[Mirror, ...] = ()
    cors: Cors | None = None
    auth: ExternalAuth | None = None


class BackendRef(Value, frozen=True, gc=False):
    """A share of a rule's requests. An empty ``backend`` could not be resolved: its share is answered 500.

    A gRPC client gets UNAVAILABLE instead.
    """

    backend: Text = ""
    weight: Annotated[int, Meta(ge=0, le=1_000_000)] = 1
    filters: Filters = Filters()


class RetryRule(Value, frozen=True, gc=False):
    """Try again on these status codes, ``attempts`` times at most; ``backoff_ms`` between tries, 0 for the default."""

    codes: tuple[Annotated[int, Meta(ge=400, le=599)], ...] = ()
    attempts: Annotated[int, Meta(ge=0, le=100)] = 1
    backoff_ms: Milliseconds = 0


class SessionPersistence(Value, frozen=True, gc=False):
    """Keep the requests of one session at one backend.

    ``absolute_timeout_s`` 0: until the browser closes; ``idle_timeout_s`` 0: however long no request comes.
    """

    type: Literal["Cookie", "Header"] = "Cookie"
    name: Annotated[str, Meta(max_length=128)] = ""
    absolute_timeout_s: Seconds = 0
    idle_timeout_s: Seconds = 0


class Rule(Value, frozen=True, gc=False):
    """Requests that fulfil one of ``matches`` go to the backends by weight; no match: all requests.

    No backend and no redirect: 500. ``requests_per_second`` is the most that each proxy takes, 0 for no limit: what is
    above it is answered 429. Clients in ``denied_sources``, or outside of ``allowed_sources`` unless that is empty, are
    answered 403. With ``jwt``, a request needs a valid token of one of these issuers: 401 without one, 403 if an
    audience or a claim does not fit. ``processor`` inspects requests before that. ``request_timeout_ms`` None is none;
    ``backend_timeout_ms`` is for each try. TCP, UDP and TLS rules have backends only.
    """

    name: Annotated[str, Meta(max_length=253)] = ""
    matches: tuple[RequestMatch, ...] = ()
    filters: Filters = Filters()
    backends: tuple[BackendRef, ...] = ()
    request_timeout_ms: Milliseconds | None = None
    backend_timeout_ms: Milliseconds | None = None
    retry: RetryRule | None = None
    session: SessionPersistence | None = None
    requests_per_second: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    allowed_sources: Sources = ()
    denied_sources: Sources = ()
    jwt: JWTProviders = ()
    processor: ExternalProcessor | None = None

    @property
    def checks_sources(self) -> bool:
        """Return whether the address of a client decides."""
        return bool(self.allowed_sources or self.denied_sources)

    @property
    def is_guarded(self) -> bool:
        """Return whether a request may be refused by filters that only listeners with guarded routes have."""
        return self.checks_sources or bool(self.jwt) or self.processor is not None

    @property
    def is_undecided(self) -> bool:
        """Return whether requests cannot be checked, since what decides about them could not be resolved."""
        services = (self.filters.auth, self.processor)
        return any(service is not None and not service.backend for service in services) or any(
            not (provider.backend or provider.jwks) for provider in self.jwt
        )


def unsafe_parts(rule: Rule) -> Iterator[str]:
    """Yield what no proxy may do for a rule: change the framing of messages, or send what is not a request target.

    Each sentence names the field and the next step. A provider refuses such a rule alone, and serves the others.
    """
    yield from _unsafe_filters(rule.filters)
    if rule.filters.auth is not None:
        yield from _unsafe_auth(rule.filters.auth)
    if rule.processor is not None and 0 < rule.processor.max_size < MIN_PROCESSOR_BODY:
        yield f"external processor: maxSize is {rule.processor.max_size}; use 0, or {MIN_PROCESSOR_BODY} or more"
    for provider in rule.jwt:
        yield from _unsafe_jwt(provider)
    for backend in rule.backends:
        for problem in _unsafe_filters(backend.filters):
            yield f"backend {backend.backend or '(unresolved)'}: {problem}"
    if rule.session is not None and rule.session.name:
        if not HEADER_NAME.fullmatch(rule.session.name):
            yield f"session persistence: {rule.session.name!r} is not a valid name of a header or cookie"
        elif rule.session.type == "Header":
            yield from _unsafe_header("session persistence", rule.session.name)


def _unsafe_filters(filters: Filters) -> Iterator[str]:
    for what, modifier in (
        ("request headers", filters.request_headers),
        ("response headers", filters.response_headers),
    ):
        if modifier is not None:
            names = (*(header.name for header in (*modifier.set, *modifier.add)), *modifier.remove)
            for name in dict.fromkeys(names):
                yield from _unsafe_header(what, name)
    for what, change in (("redirect", filters.redirect), ("rewrite", filters.rewrite)):
        if change is None:
            continue
        if not _AUTHORITY.fullmatch(change.hostname):
            yield f"{what}: {change.hostname!r} is not a valid hostname; use letters, digits, hyphens and dots"
        if change.path is not None:
            value = change.path.value
            if value and not _REQUEST_TARGET.fullmatch(value):
                yield (
                    f"{what}: path {value!r} is not a valid path; begin it with a slash, and percent-encode spaces, "
                    "control characters and all that is not ASCII"
                )
            elif what == "rewrite" and ("?" in value or "#" in value):
                yield f"{what}: path {value!r} has a ? or a #; a rewrite keeps the query parameters of the request"


def _unsafe_auth(auth: ExternalAuth) -> Iterator[str]:
    if auth.path and (not _REQUEST_TARGET.fullmatch(auth.path) or "?" in auth.path or "#" in auth.path):
        yield f"external auth: path {auth.path!r} is not a valid path; begin it with a slash"
    for name in auth.allowed_headers:
        # A percent sign begins an operator of Envoy.
        if not HEADER_NAME.fullmatch(name) or "%" in name:
            yield f"external auth: {name!r} is not a valid name of a header"
        elif name.lower() in FRAMING or name.lower().startswith("proxy-"):
            # The question has another body: its connection would carry the end of one question into the next one.
            yield f"external auth: {name} is about the request of the client only; remove it from allowedHeaders"
    both = {name.lower() for name in auth.allowed_headers} & {name.lower() for name in auth.allowed_response_headers}
    for name in sorted(both - HEADERS_OF_CLIENTS):
        yield (
            f"external auth: {name} is in allowedHeaders and allowedResponseHeaders. A client could write it; "
            "remove it from one of them"
        )
    for name in auth.allowed_response_headers:
        yield from _unsafe_header("external auth", name)
    if auth.protocol == "GRPC" and auth.allowed_headers:
        yield "external auth: a gRPC service gets all headers, so allowedHeaders must be empty"


def _unsafe_jwt(provider: JWTProvider) -> Iterator[str]:
    if provider.uri and (problem := _uri_problem(provider.uri)):
        yield f"JWT: remoteJWKS.uri {provider.uri!r} {problem}"
    for mapping in provider.claim_to_headers:
        yield from _unsafe_header("JWT", mapping.header)
        if not _CLAIM.fullmatch(mapping.claim):
            yield f"JWT: claim {mapping.claim!r} cannot become a header; use letters, digits, dots, dashes, underscores"


def _uri_problem(uri: str) -> str:
    """Return why keys cannot be read from a URI: loopback would be the proxy's own."""
    try:
        parts = urlsplit(uri)
        host, _ = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "is not a valid URI"
    if parts.scheme not in {"http", "https"} or not host or "@" in parts.netloc or not _URI.fullmatch(uri):
        return "is not a valid URI; use one such as https://login.example.com/keys"
    try:
        address = ip_address(host)
    except ValueError:
        local = host == "localhost" or host.endswith(".localhost") or host.replace(".", "").isdigit()
    else:
        mapped = getattr(address, "ipv4_mapped", None) or address
        local = mapped.is_loopback or mapped.is_link_local or mapped.is_unspecified or mapped.is_multicast
    return "names the proxy itself or its link; name the host of the identity provider" if local else ""


def _unsafe_header(what: str, name: str) -> Iterator[str]:
    # Backends of the CGI family read an underscore as a hyphen.
    lower = name.lower().replace("_", "-")
    if not HEADER_NAME.fullmatch(name):
        yield f"{what}: {name!r} is not a valid name of a header"
    elif lower == "host":
        yield f"{what}: {name} cannot be changed as a header; use a rewrite of the hostname"
    elif lower in FRAMING or lower.startswith("proxy-"):
        yield f"{what}: {name} belongs to the connection between proxies and cannot be changed; remove it from the rule"


class SubjectAltName(Value, frozen=True, gc=False):
    """A name that a backend's certificate may have."""

    type: Literal["Hostname", "URI"]
    value: Text


class BackendTls(Value, frozen=True, gc=False):
    """Speak TLS to a backend, and verify it.

    ``server_name`` is sent as SNI, and verified unless ``subject_alt_names`` has others. ``ca_bundle`` is PEM; empty
    with ``system_ca`` means the system's authorities. ``client_certificate`` names a certificate of the load balancer.
    """

    server_name: Hostname = ""
    ca_bundle: Annotated[str, Meta(max_length=MAX_BUNDLE)] = ""
    system_ca: bool = False
    subject_alt_names: Annotated[
        tuple[SubjectAltName, ...], Meta(extra_json_schema={"x-kubernetes-list-type": "atomic"})
    ] = ()
    client_certificate: Annotated[str, Meta(max_length=253)] = ""


class Backend(Value, frozen=True, gc=False):
    """Where traffic goes: the ready endpoints of one port of a Service of the member.

    ``name`` is unique within the load balancer: the same Service port with other TLS settings is another backend.
    ``service`` is the member's namespace/name; the EndpointSlices at the hub carry it. ``port_name`` is the name of
    the port in these slices (empty for the unnamed one). With nodes as targets, ``node_port`` is where they take it, at
    their addresses of ``ip_families``: those of the Service, empty for IPv4 alone. ``health_check``,
    ``outlier_detection``, ``drain`` and ``drain_close`` are what annotations of the Service set.
    """

    name: Name
    service: Annotated[str, Meta(max_length=320, pattern=PRINTABLE)] = ""
    port_name: Annotated[str, Meta(max_length=63)] = ""
    node_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    ip_families: Annotated[tuple[Family, ...], Meta(max_length=2)] = ()
    protocol: BackendProtocol = "HTTP1"
    tls: BackendTls | None = None
    health_check: HealthCheckSettings | None = None
    outlier_detection: OutlierDetection | None = None
    drain: DrainTime = ""
    drain_close: DrainClose = ""


class Attachment(Value, frozen=True, gc=False):
    """A listener that takes the route, with the hostnames at which it does: the intersection of both sides.

    Empty ``hostnames``: all hosts. A name may begin with ``*.``. ``one_label``: such a star matches exactly one
    label (Ingress) and not several (Gateway API).
    """

    listener: Name
    hostnames: Annotated[tuple[Hostname, ...], Meta(max_length=MAX_HOSTNAMES)] = ()
    one_label: bool = False


class ClientValidation(Value, frozen=True, gc=False):
    """Which client certificates a terminating listener asks for; ``ca_bundle`` is PEM.

    ``optional``: a certificate is asked for, and none or any other passes as well.
    """

    ca_bundle: Annotated[str, Meta(max_length=MAX_BUNDLE)] = ""
    optional: bool = False


class L7Listener(Value, frozen=True, gc=False):
    """One listener: several with different hostnames share a port. ``name`` is unique within the load balancer.

    ``hostname`` empty: every host; a listener with a more specific hostname keeps its requests for itself.
    ``certificates`` name Secrets of type kubernetes.io/tls in the namespace of the hub's object; the first is default.
    Clients in ``denied_sources``, or outside of ``allowed_sources`` unless that is empty, are answered 403, or their
    connections are closed. Rules can only narrow this.
    """

    name: Name
    port: PortNumber
    protocol: ListenerProtocol = "HTTP"
    hostname: Hostname = ""
    passthrough: bool = False
    certificates: tuple[Annotated[str, Meta(max_length=253)], ...] = ()
    client_validation: ClientValidation | None = None
    allowed_sources: Sources = ()
    denied_sources: Sources = ()

    @property
    def checks_sources(self) -> bool:
        """Return whether the address of a client decides."""
        return bool(self.allowed_sources or self.denied_sources)


class Route(msgspec.Struct, frozen=True, dict=True):
    """One route with everything that decides its precedence: age, then ``namespace/name``, then the order of rules.

    ``created`` is RFC 3339, as the member's API server wrote it; empty sorts last. ``access_log`` takes the place of
    that of the load balancer, and ``tracing`` the place of the sampling rate of the class, unless they are empty.
    """

    name: str
    kind: RouteKind
    attachments: tuple[Attachment, ...]
    rules: tuple[Rule, ...]
    created: str = ""
    origin: str = ""
    access_log: str = ""
    tracing: str = ""

    @cached_property
    def answering(self) -> frozenset[str]:
        """Return the backends that answer requests: those with a share of a rule."""
        return frozenset(share.backend for rule in self.rules for share in rule.backends if share.weight)


class Certificate(msgspec.Struct, frozen=True, eq=False):
    """A certificate chain with its key, both PEM. Two are equal when their ``digest`` is; the key is never shown."""

    name: str
    digest: str
    chain: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Certificate({self.name!r}, {self.digest!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Certificate) and (self.name, self.digest) == (other.name, other.digest)

    def __hash__(self) -> int:
        return hash((self.name, self.digest))


class FixedAnswer(msgspec.Struct, frozen=True):
    """What the load balancer answers itself, over HTTP at port 80, before any route: one path of one name."""

    hostname: str
    path: str
    content: str


#: The longest page, and all error pages of a load balancer together, in bytes of UTF-8.
MAX_PAGE_BYTES = 65_536
MAX_PAGES_BYTES = 262_144
#: The status codes that an error page is for: one, or all of a class.
PAGE_STATUS = re.compile(r"4(?:[0-9]{2}|xx)|5(?:[0-9]{2}|xx)")


class Maintenance(Value, frozen=True, gc=False, forbid_unknown_fields=True):
    """The answer to requests of a host, or of every host (empty), instead of its routes, until a time (RFC 3339).

    Clients in ``allowed_sources`` reach the routes all the same. ``retry_after_s`` 0 sends no Retry-After.
    """

    host: Hostname = ""
    status: Annotated[int, Meta(ge=400, le=599)] = 503
    retry_after_s: Annotated[int, Meta(ge=0, le=31_536_000)] = 0
    allowed_sources: Sources = ()
    page: Annotated[str, Meta(max_length=MAX_PAGE_BYTES)] = ""
    until: Annotated[str, Meta(max_length=64)] = ""


class L7Config(msgspec.Struct, frozen=True):
    """The HTTP configuration of a load balancer; backends' addresses are targets, by backend name.

    ``listeners`` are in order of precedence, ``routes`` and ``backends`` ordered by name. ``route_figures``: the
    requests of each route are counted. ``maintenance`` is in effect now, at most one for each host.
    ``error_pages`` are for errors that the proxy itself answers, by status: 404, 4xx.
    """

    listeners: tuple[L7Listener, ...]
    routes: tuple[Route, ...] = ()
    backends: tuple[Backend, ...] = ()
    certificates: Mapping[str, Certificate] = msgspec.field(default_factory=dict[str, Certificate])
    answers: tuple[FixedAnswer, ...] = ()
    route_figures: bool = False
    maintenance: tuple[Maintenance, ...] = ()
    error_pages: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


class IdleBackends:
    """The backends of one load balancer that answer no request: they get copies only, or no share of any rule."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self._routes: Sequence[Route] = ()
        self._backends: Sequence[Backend] = ()
        self._listed: frozenset[str] = frozenset()
        #: How many routes have requests answered by each backend.
        self._answering: Counter[str] = Counter()

    def update(self, config: L7Config | None) -> frozenset[str]:
        """Take over a configuration, and return its idle backends; a changed route costs its own backends."""
        routes, backends = (config.routes, config.backends) if config is not None else ((), ())
        if routes is self._routes and backends is self._backends:
            return self.names
        old, new = differing_part(self._routes, routes)
        for route in routes[new]:
            self._answering.update(route.answering)
        for name in chain.from_iterable(route.answering for route in self._routes[old]):
            self._answering[name] -= 1
            if not self._answering[name]:
                del self._answering[name]
        if backends is not self._backends:
            self._listed = frozenset([backend.name for backend in backends])
        self._routes, self._backends = routes, backends
        self.names = self._listed.difference(self._answering)
        return self.names


def differing_part(before: Sequence[object], after: Sequence[object]) -> tuple[slice, slice]:
    """Return the part of each of two sequences in which they differ: what begins and ends with the same objects is not.

    Thousands of routes are compared without a look at any of them.
    """
    least = min(len(before), len(after))
    start = least if before is after else next(compress(count(), map(is_not, before, after)), least)
    if start == len(before) == len(after):
        return slice(start, start), slice(start, start)
    end = min(next(compress(count(), map(is_not, reversed(before), reversed(after))), least), least - start)
    return slice(start, len(before) - end), slice(start, len(after) - end)


def differing_keys(before: Mapping[K, object], after: Mapping[K, object]) -> set[K]:
    """Return the keys at which two mappings do not have the same object.

    Where both have the same keys in the same order, as nearly always, no key is looked up.
    """
    old, new = differing_part(before_keys := tuple(before), after_keys := tuple(after))
    was, now = tuple(before.values()), tuple(after.values())
    behind = len(after_keys) - new.stop
    changed = {*compress(after_keys[: new.start], map(is_not, was, now))}
    if behind:
        changed |= {*compress(after_keys[-behind:], map(is_not, was[-behind:], now[-behind:]))}
    moved = {*before_keys[old], *after_keys[new]}
    return changed | {key for key in moved if key not in before or key not in after or before[key] is not after[key]}
