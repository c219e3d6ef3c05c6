"""The settings of a class: limits, PROXY protocol, access logs and traces; and the loggers and the tracer of Envoy.

    accessLog       off, json (requests alone, all fields), or a JSON object with the fields of ``AccessLog``
    accessLogSink   stdout, file:/PATH, or a collector
    tracing         off, or a JSON object with the fields of ``Tracing``
    tracingSink     a collector: otlp://HOST:PORT (OTLP over gRPC), http://HOST:PORT/PATH (OTLP over HTTP), or otlps://
                    and https:// over TLS
    collectorCA     the authorities of collectors over TLS, PEM; those of the proxy's system by default

In: ``FrontendSpec.parameters``; names that are not ours are left to others. Out: what is wrong with them; loggers for
requests, connections and UDP sessions; the tracer of requests. Envoy drops and counts what a sink does not take, so a
dead sink delays no request.
Source: https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from fairlead.api.annotations import (
    FIELDS,
    AcceptProxyProtocol,
    AccessLog,
    Fraction,
    Kind,
    Limits,
    accept_problem,
    connection_limits_problem,
    kib_per_second,
    read_accept_proxy_protocol,
    read_access_log,
    read_limits,
)
from fairlead.api.json_text import decode
from fairlead.model.in_words import split_host_port, whole_number
from fairlead.model.key_pair import readable_authorities
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.resources import Fields, Schema, duration

ACCESS_LOG = "accessLog"
ACCESS_LOG_SINK = "accessLogSink"
COLLECTOR_CA = "collectorCA"
#: Envoy compares each request with each of them.
MAX_ROUTE_LOGS = 16
_MILLION = 1_000_000


class LogSettings(msgspec.Struct, frozen=True):
    """The access log of a class; ``sink`` is as in its parameter. ``plain``: as ``accessLog: json`` has always been."""

    signal: ClassVar[str] = "logs"
    log: AccessLog
    sink: str = "stdout"
    plain: bool = False
    authorities: str = ""


def invalid_access_log(parameters: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the parameters."""
    text, sink = parameters.get(ACCESS_LOG, "off"), parameters.get(ACCESS_LOG_SINK, "stdout")
    kind, _, place = sink.partition(":")
    if kind in _SCHEMES:
        yield from _invalid_collector(ACCESS_LOG_SINK, sink)
    elif not (sink == "stdout" or (kind == "file" and place.startswith("/"))):
        yield f"{ACCESS_LOG_SINK} is {sink[:80]!r}; choose stdout, file:/PATH, {_COLLECTORS}"
    if problem := readable_authorities(parameters.get(COLLECTOR_CA, ""))[1]:
        yield f"{COLLECTOR_CA}: {problem}; write the authorities of the collector"
    try:
        read_access_log(text)
    except ValueError as error:
        yield f"{ACCESS_LOG}: {error}"


#: Schemes of collectors: whether each is over HTTP, and over TLS.
_SCHEMES = {"otlp": (False, False), "otlps": (False, True), "http": (True, False), "https": (True, True)}
_COLLECTORS = "otlp://HOST:PORT, http://HOST:PORT/PATH, or one of both with otlps or https for TLS"
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_PATH = re.compile(r"(?:/[A-Za-z0-9._~%-]*)*")


class Collector(msgspec.Struct, frozen=True):
    """A collector of OpenTelemetry as a sink names it."""

    over_http: bool
    tls: bool
    host: str
    port: str
    path: str


def collector_of(sink: str) -> Collector | None:
    """Return the collector that a sink names; None for other sinks, and for texts that name none."""
    scheme, _, rest = sink.partition("://")
    place, slash, path = rest.partition("/")
    host, port = split_host_port(place)
    over_http, tls = _SCHEMES.get(scheme, (False, False))
    valid = scheme in _SCHEMES and _HOST.fullmatch(host) and whole_number(port, least=1, most=65535) is not None
    if not valid or not _PATH.fullmatch(slash + path) or (slash and not over_http):
        return None
    return Collector(over_http, tls, host, port, slash + path)


def _invalid_collector(name: str, sink: str) -> Iterator[str]:
    if collector_of(sink) is None:
        yield f"{name} is {sink[:80]!r}; write it as {_COLLECTORS}"


def access_log_of(parameters: Mapping[str, str]) -> LogSettings | None:
    """Return what is to be logged, None for nothing; the parameters must have passed ``invalid_access_log``."""
    text, sink = parameters.get(ACCESS_LOG, "off"), parameters.get(ACCESS_LOG_SINK, "stdout")
    log = read_access_log(text)
    if log.format == "off" and sink == "stdout":
        return None
    plain = (text, sink) == ("json", "stdout")
    return LogSettings(log, sink, plain=plain, authorities=parameters.get(COLLECTOR_CA, ""))


def access_logs(
    schema: Schema, settings: LogSettings | None, kind: Kind, key: LoadBalancerKey, of_routes: Iterable[str] = ()
) -> list[Fields]:
    """Build the loggers of a listener, none where nothing is to be logged.

    ``of_routes`` are the texts of routes with a log of their own, which go to the same sink; those above the limit have
    the log of the listener.
    """
    texts = sorted(of_routes)[:MAX_ROUTE_LOGS]
    loggers: list[Fields] = []
    if settings is not None and settings.log.format != "off" and not (settings.plain and kind != "request"):
        own = None if settings.plain else _filter(schema, settings.log, kind)
        others = [_of_others(schema, texts)] if texts else []
        loggers.append(_with_filter(_logger(schema, settings, kind, key), [own, *others]))
    of_class = settings or LogSettings(AccessLog())
    for text in texts:
        log = read_access_log(text)
        if log.format != "off":
            logger = _logger(schema, msgspec.structs.replace(of_class, log=log, plain=False), kind, key)
            loggers.append(_with_filter(logger, [_filter(schema, log, kind), _of_route(schema, text)]))
    return loggers


def log_mark(text: str) -> str:
    """Return the mark that the routes with this log have in their metadata."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


#: Where Envoy keeps the mark of a route.
_MARKS = "xds.route_metadata.filter_metadata"


def _of_route(schema: Schema, text: str) -> Fields:
    """Return what chooses the requests of routes with this log."""
    return _expression(schema, f"{_MARKS}['fairlead']['log'] == '{log_mark(text)}'")


def _of_others(schema: Schema, texts: Sequence[str]) -> Fields:
    """Return what chooses all other requests, those without a route too."""
    marks = ", ".join(f"'{log_mark(text)}'" for text in texts)
    return _expression(
        schema,
        f"!has(xds.route_metadata) || !('fairlead' in {_MARKS}) || !('log' in {_MARKS}['fairlead']) || "
        f"!({_MARKS}['fairlead']['log'] in [{marks}])",
    )


def _expression(schema: Schema, expression: str) -> Fields:
    kind = "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter"
    return {"extension_filter": schema.extension("cel", kind, {"expression": expression})}


def _with_filter(logger: Fields, filters: Iterable[Fields | None]) -> Fields:
    chosen = _joined("and_filter", [rule for rule in filters if rule is not None])
    return logger if chosen is None else {**logger, "filter": chosen}


def _logger(schema: Schema, settings: LogSettings, kind: Kind, key: LoadBalancerKey) -> Fields:
    log, sink = settings.log, settings.sink
    fields = dict(FIELDS["request"]) if settings.plain else _fields(log, kind, key)
    if collector_of(sink) is not None:
        values = fields if log.format == "json" else {}
        body = log.template if log.format == "template" else kind
        config: dict[str, object] = {
            **_exporter(settings, key, "access_log"),
            "stat_prefix": "access_log.",
            "body": {"string_value": body},
            "attributes": {
                "values": [{"key": name, "value": {"string_value": value}} for name, value in values.items()]
            },
        }
        kind_of = "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig"
        return schema.extension("envoy.access_loggers.open_telemetry", kind_of, config)
    written: Fields = {"json_format": fields}
    if log.format == "template":
        written = {"text_format_source": {"inline_string": f"{log.template}\n"}}
    if sink.startswith("file:"):
        kind_of = "envoy.extensions.access_loggers.file.v3.FileAccessLog"
        config = {"path": sink.removeprefix("file:"), "log_format": written}
        return schema.extension("envoy.access_loggers.file", kind_of, config)
    kind_of = "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"
    return schema.extension("envoy.access_loggers.stdout", kind_of, {"log_format": written})


def _exporter(settings: LogSettings | TraceSettings, key: LoadBalancerKey, stat_prefix: str) -> Fields:
    """Return the fields that lead to the collector of the settings."""
    sink, authorities = settings.sink, settings.authorities
    collector, is_log = collector_of(sink), isinstance(settings, LogSettings)
    if collector is not None and collector.over_http:
        uri = sink if collector.path.strip("/") else f"{sink.rstrip('/')}/v1/{settings.signal}"
        target = {"uri": uri, "cluster": collector_name(key, settings.signal), "timeout": duration(5.0)}
        name = {"values": [{"key": "log_name", "value": {"string_value": "fairlead"}}]}
        return {"http_service": {"http_uri": target}, **({"resource_attributes": name} if is_log else {})}
    client: dict[str, object] = {"target_uri": sink.partition("://")[2], "stat_prefix": stat_prefix}
    if collector is not None and collector.tls:
        roots = {"root_certs": {"inline_bytes": readable_authorities(authorities)[0].encode()}} if authorities else {}
        client["channel_credentials"] = {"ssl_credentials": roots}
    service = {"google_grpc": client, "timeout": duration(5.0)}
    if not is_log:
        return {"grpc_service": service}
    common = {"log_name": "fairlead", "transport_api_version": "V3", "grpc_service": service}
    return {"common_config": common}


def collector_name(key: LoadBalancerKey, signal: str) -> str:
    """Name the cluster of a collector over HTTP: of logs, or traces."""
    return f"{key}/collector/{signal}"


def _fields(log: AccessLog, kind: Kind, key: LoadBalancerKey) -> dict[str, str]:
    fields = {
        "kind": kind,
        "member": key.namespace.removeprefix("tenant-"),
        "load_balancer": str(key).replace("%", "%%"),
        **FIELDS[kind],
    }
    fields |= {name: value for name, value in log.add_fields.items() if kind == "request" or "%REQ(" not in value}
    if kind == "request":
        fields |= {f"header_{name.lower().replace('-', '_')}": f"%REQ({name.upper()})%" for name in log.headers}
    return {name: value for name, value in fields.items() if name not in log.remove_fields}


def _filter(schema: Schema, log: AccessLog, kind: Kind) -> Fields | None:
    """Return which requests or connections are logged; None for all."""
    conditions: list[Fields] = []
    if log.min_status and kind == "request":
        conditions.append({"status_code_filter": {"comparison": _at_least(log.min_status, "status")}})
    if log.slower_than_ms:
        conditions.append({"duration_filter": {"comparison": _at_least(log.slower_than_ms, "duration")}})
    chosen = _joined("or_filter", conditions)
    share = round(log.sampling * _MILLION / 100)
    sampled: list[Fields] = [] if chosen is None else [chosen]
    if log.filter and kind == "request":
        sampled.append(_expression(schema, log.filter))
    if share < _MILLION:
        sampled.append(
            {
                "runtime_filter": {
                    "runtime_key": "fairlead.access_log.sampling",
                    "percent_sampled": {"numerator": share, "denominator": "MILLION"},
                    "use_independent_randomness": True,
                }
            }
        )
    both = _joined("and_filter", sampled)
    if both is None or not log.keep_errors:
        return both
    failed: Fields = {"response_flag_filter": {}}
    if kind == "request":
        failed = {"status_code_filter": {"comparison": _at_least(500, "errors")}}
    return _joined("or_filter", [failed, both])


def _joined(name: str, filters: list[Fields]) -> Fields | None:
    if len(filters) < 2:
        return filters[0] if filters else None
    return {name: {"filters": filters}}


def _at_least(value: int, name: str) -> Fields:
    return {"op": "GE", "value": {"default_value": value, "runtime_key": f"fairlead.access_log.{name}"}}


# --- traces ----------------------------------------------------------------------------------------------------------

TRACING = "tracing"
TRACING_SINK = "tracingSink"
#: The name, in the metadata of a route, of the text that the request IDs of its sampled requests are below.
TRACED_BELOW = "traced-below"
_SAMPLERS = "envoy.extensions.tracers.opentelemetry.samplers.v3"
_SAMPLER_NAMES = "envoy.tracers.opentelemetry.samplers"


class ParentBasedSampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the sampling decision in ``traceparent`` of a request counts; at the edge, clients write it."""

    mode: Literal["Enabled", "Disabled"] = "Disabled"


class TraceAttribute(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An attribute of every span."""

    name: Annotated[str, Meta(min_length=1, max_length=253)]
    literal_value: Annotated[str, Meta(max_length=253)]
    type: Literal["Literal"] = "Literal"


class Tracing(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The traces of a class; the names are those of TelemetryPolicy in GEP-4768."""

    sampling_rate: Fraction = Fraction(1)
    parent_based_sampling: ParentBasedSampling = ParentBasedSampling()
    service_name: Annotated[str, Meta(min_length=1, max_length=253)] = "fairlead"
    attributes: Annotated[tuple[TraceAttribute, ...], Meta(max_length=16)] = ()


class TraceSettings(msgspec.Struct, frozen=True):
    """The traces of a class, and where they go."""

    signal: ClassVar[str] = "traces"
    tracing: Tracing
    sink: str
    authorities: str = ""


def _read_tracing(text: str) -> Tracing | None:
    if text == "off":
        return None
    tracing = decode(text, Tracing)
    if problem := tracing.sampling_rate.problem:
        raise ValueError(f"samplingRate: {problem}")
    return tracing


def invalid_tracing(parameters: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the parameters."""
    try:
        tracing = _read_tracing(parameters.get(TRACING, "off"))
    except ValueError as error:
        yield f'{TRACING}: {error}; write off, or a JSON object such as {{"samplingRate": {{"numerator": 5}}}}'
        return
    sink = parameters.get(TRACING_SINK, "")
    if tracing is not None or sink:
        yield from _invalid_collector(TRACING_SINK, sink)


def tracing_of(parameters: Mapping[str, str]) -> TraceSettings | None:
    """Return the traces of a class, None for none; the parameters must have passed ``invalid_tracing``."""
    tracing = _read_tracing(parameters.get(TRACING, "off"))
    if tracing is None:
        return None
    return TraceSettings(tracing, parameters[TRACING_SINK], parameters.get(COLLECTOR_CA, ""))


def tracer(schema: Schema, settings: TraceSettings, key: LoadBalancerKey) -> Fields:
    """Build the tracer of a listener; its spans have the names of routes."""
    tracing = settings.tracing
    expression = {"cel_expr_parsed": {"expr": _is_sampled(tracing.sampling_rate)}}
    sampler = schema.extension(f"{_SAMPLER_NAMES}.cel", f"{_SAMPLERS}.CELSamplerConfig", {"expression": expression})
    if tracing.parent_based_sampling.mode == "Enabled":
        kind = f"{_SAMPLERS}.ParentBasedSamplerConfig"
        sampler = schema.extension(f"{_SAMPLER_NAMES}.parent_based", kind, {"wrapped_sampler": sampler})
    config = {**_exporter(settings, key, "tracing"), "service_name": tracing.service_name, "sampler": sampler}
    tags = {
        **{attribute.name: attribute.literal_value for attribute in tracing.attributes},
        "fairlead.member": key.namespace.removeprefix("tenant-"),
        "fairlead.load_balancer": str(key),
    }
    return {
        # The sampler decides: Envoy's own shares would ignore what a request says about the trace.
        "client_sampling": {"value": 100.0},
        "random_sampling": {"value": 100.0},
        "overall_sampling": {"value": 100.0},
        "operation": "%ROUTE_NAME%",
        "custom_tags": [{"tag": name, "literal": {"value": value}} for name, value in tags.items()],
        "provider": schema.extension(
            "envoy.tracers.opentelemetry", "envoy.config.trace.v3.OpenTelemetryConfig", config
        ),
    }


def traced_below(rate: Fraction) -> str:
    """Return the text that this share of the request IDs is below, as they begin with 8 random hexadecimal digits."""
    share = (rate.numerator << 32) // rate.denominator
    return f"{share:08x}" if share < 1 << 32 else "g"


def _is_sampled(rate: Fraction) -> Fields:
    """Return the expression that samples this share of the requests, and of those of some routes another one.

    The proxy makes the ID of each request: an ID of a trace would let clients choose what is sampled.
    """
    route = _field("xds", "route_metadata")
    marks = _field("xds", "route_metadata", "filter_metadata")
    own = _call("_[_]", marks, _text("fairlead"))
    has_own = _call(
        "_&&_",
        {"select_expr": {**route["select_expr"], "test_only": True}},
        _call("_&&_", _call("@in", _text("fairlead"), marks), _call("@in", _text(TRACED_BELOW), own)),
    )
    below = _call("_?_:_", has_own, _call("_[_]", own, _text(TRACED_BELOW)), _text(traced_below(rate)))
    return _call("_<_", _field("request", "id"), below)


def _field(name: str, *fields: str) -> dict[str, dict[str, object]]:
    expression: dict[str, dict[str, object]] = {"ident_expr": {"name": name}}
    for field in fields:
        expression = {"select_expr": {"operand": expression, "field": field}}
    return expression


def _call(function: str, *arguments: Fields) -> Fields:
    return {"call_expr": {"function": function, "args": list(arguments)}}


def _text(value: str) -> Fields:
    return {"const_expr": {"string_value": value}}


TRUSTED_HOPS = "trustedHops"
ESCAPED_SLASHES = "escapedSlashes"
ACCEPT_PROXY_PROTOCOL = "acceptProxyProtocol"
#: Of load balancers of connections; that of a class holds for requests alone.
CONNECTIONS_ACCEPT = f"connections.{ACCEPT_PROXY_PROTOCOL}"
HTTP3 = "http3"
REQUESTS_PER_SECOND = "requestsPerSecond"
CONNECTIONS = "connections"
BANDWIDTH = "bandwidth"
LIMITS = "limits"
#: Begins parameters with annotations for the Services of Envoys in a cluster.
ANNOTATION_PARAMETER = "serviceAnnotation/"
#: Parameters that a class may set; the last two concern Envoys in a cluster.
SETTINGS = (
    ACCESS_LOG, ACCESS_LOG_SINK, TRACING, TRACING_SINK, COLLECTOR_CA, TRUSTED_HOPS, ESCAPED_SLASHES,
    ACCEPT_PROXY_PROTOCOL, REQUESTS_PER_SECOND, BANDWIDTH, LIMITS, CONNECTIONS, HTTP3, "address", "loadBalancerClass",
)  # fmt: skip
_ESCAPED_SLASHES = {"redirect": "UNESCAPE_AND_REDIRECT", "reject": "REJECT_REQUEST", "keep": "KEEP_UNCHANGED"}
_BOOLEAN = {"true": True, "false": False}
_MAX_HOPS = 16
_MAX_LIMIT = 10_000_000


class HttpSettings(msgspec.Struct, frozen=True):
    """The settings of HTTP listeners.

    ``trusted_hops``: so many proxies in front of us write X-Forwarded-For; 0: what a client writes there is removed.
    ``requests_per_second`` and ``connections`` are the most that one proxy admits at a listener, 0 for no limit. No
    setting of a user raises them.
    """

    access_log: LogSettings | None = None
    tracing: TraceSettings | None = None
    trusted_hops: int = 0
    #: Envoy's name of what is done with %2F and %5C in a path.
    escaped_slashes: str = "UNESCAPE_AND_REDIRECT"
    accept_proxy_protocol: AcceptProxyProtocol | None = None
    http3: bool = False
    requests_per_second: int = 0
    connections: int = 0
    #: Of requests, and of responses, in KiB a second.
    bandwidth_kib: int = 0
    #: What users set within these.
    limits: Limits = Limits()


def invalid_settings(parameters: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the parameters; empty when nothing is."""
    reasons = [*invalid_access_log(parameters), *invalid_tracing(parameters)]
    if parameters.get(ESCAPED_SLASHES, "redirect") not in _ESCAPED_SLASHES:
        choices = ", ".join(_ESCAPED_SLASHES)
        reasons.append(f"{ESCAPED_SLASHES} is {parameters[ESCAPED_SLASHES]!r}; choose one of {choices}")
    reasons += [
        f"{name} is {parameters[name]!r}; choose true or false"
        for name in (HTTP3,)
        if parameters.get(name, "false") not in _BOOLEAN
    ]
    if problem := accept_problem(parameters.get(ACCEPT_PROXY_PROTOCOL, "")):
        reasons.append(f"{ACCEPT_PROXY_PROTOCOL}: {problem}")
    try:
        read_limits(parameters.get(LIMITS, ""))
    except ValueError as error:
        reasons.append(f"{LIMITS}: {error}")
    if kib_per_second(parameters.get(BANDWIDTH, "")) is None:
        reasons.append(f"{BANDWIDTH} is {parameters[BANDWIDTH][:40]!r}; give bytes a second such as 10Mi")
    limits = {TRUSTED_HOPS: _MAX_HOPS, REQUESTS_PER_SECOND: _MAX_LIMIT, CONNECTIONS: _MAX_LIMIT}
    return reasons + [problem for name, most in limits.items() for problem in _number(parameters, name, most)]


def invalid_connections(parameters: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the parameters that hold for load balancers of connections, too."""
    reasons = [*invalid_access_log(parameters), *_number(parameters, CONNECTIONS, _MAX_LIMIT)]
    if problem := accept_problem(parameters.get(CONNECTIONS_ACCEPT, "")):
        reasons.append(f"{ACCEPT_PROXY_PROTOCOL}: {problem}")
    if problem := connection_limits_problem(parameters.get(LIMITS, "")):
        reasons.append(f"{LIMITS}: {problem}")
    return reasons


def _number(parameters: Mapping[str, str], name: str, most: int) -> Iterator[str]:
    number = parameters.get(name, "0")
    if whole_number(number, most=most) is None:
        yield f"{name} is {number[:40]!r}; give a number from 0 to {most}"


def connections_of(parameters: Mapping[str, str]) -> int:
    """Return the most connections of a listener, of whatever protocol; 0 for no limit.

    Users may set fewer than their class.
    """
    of_class = whole_number(parameters.get(CONNECTIONS, "0"), most=_MAX_LIMIT) or 0
    return least_limit(of_class, read_limits(parameters.get(LIMITS, "")).connections)


def least_limit(*limits: int) -> int:
    """Return the lowest of several limits, 0 for none."""
    return min((limit for limit in limits if limit), default=0)


def http_settings(parameters: Mapping[str, str]) -> HttpSettings:
    """Read the settings; they must have passed ``invalid_settings``."""
    return HttpSettings(
        access_log=access_log_of(parameters),
        tracing=tracing_of(parameters),
        trusted_hops=int(parameters.get(TRUSTED_HOPS, "0")),
        escaped_slashes=_ESCAPED_SLASHES[parameters.get(ESCAPED_SLASHES, "redirect")],
        accept_proxy_protocol=read_accept_proxy_protocol(parameters.get(ACCEPT_PROXY_PROTOCOL, "")),
        http3=_BOOLEAN[parameters.get(HTTP3, "false")],
        requests_per_second=int(parameters.get(REQUESTS_PER_SECOND, "0")),
        connections=connections_of(parameters),
        bandwidth_kib=least_limit(
            kib_per_second(parameters.get(BANDWIDTH, "")) or 0, read_limits(parameters.get(LIMITS, "")).bandwidth_kib
        ),
        limits=read_limits(parameters.get(LIMITS, "")),
    )
