"""Access logs: what a class asks for, and the loggers of Envoy that write it.

    accessLog       off, json (requests alone, all fields), or a JSON object with the fields of ``AccessLog``
    accessLogSink   stdout, file:/PATH, or otlp://HOST:PORT (OTLP over gRPC)

In: parameters of a class. Out: what is wrong with them; loggers for requests, connections and UDP sessions. Envoy drops
and counts what a sink does not take, so a dead sink delays no request.
Source: https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b

import msgspec

from fairlead.api.annotations import FIELDS, AccessLog, Kind, read_access_log
from fairlead.model.in_words import split_host_port, whole_number
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.resources import Fields, Schema, duration

ACCESS_LOG = "accessLog"
ACCESS_LOG_SINK = "accessLogSink"
#: Envoy compares each request with each of them.
MAX_ROUTE_LOGS = 16
_MILLION = 1_000_000


class LogSettings(msgspec.Struct, frozen=True):
    """The access log of a class; ``sink`` is as in its parameter. ``plain``: as ``accessLog: json`` has always been."""

    log: AccessLog
    sink: str = "stdout"
    plain: bool = False


def invalid_access_log(parameters: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the parameters."""
    text, sink = parameters.get(ACCESS_LOG, "off"), parameters.get(ACCESS_LOG_SINK, "stdout")
    kind, _, place = sink.partition(":")
    if kind == "otlp":
        host, port = split_host_port(place.removeprefix("//"))
        if not place.startswith("//") or not host or whole_number(port, least=1, most=65535) is None:
            yield f"{ACCESS_LOG_SINK} is {sink[:80]!r}; write it as otlp://HOST:PORT"
    elif not (sink == "stdout" or (kind == "file" and place.startswith("/"))):
        yield f"{ACCESS_LOG_SINK} is {sink[:80]!r}; choose stdout, file:/PATH or otlp://HOST:PORT"
    try:
        read_access_log(text)
    except ValueError as error:
        yield f"{ACCESS_LOG}: {error}"


def access_log_of(parameters: Mapping[str, str]) -> LogSettings | None:
    """Return what is to be logged, None for nothing; the parameters must have passed ``invalid_access_log``."""
    text, sink = parameters.get(ACCESS_LOG, "off"), parameters.get(ACCESS_LOG_SINK, "stdout")
    log = read_access_log(text)
    if log.format == "off" and sink == "stdout":
        return None
    return LogSettings(log, sink, plain=(text, sink) == ("json", "stdout"))


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
        own = None if settings.plain else _filter(settings.log, kind)
        others = [_of_others(schema, texts)] if texts else []
        loggers.append(_with_filter(_logger(schema, settings, kind, key), [own, *others]))
    sink = "stdout" if settings is None else settings.sink
    for text in texts:
        log = read_access_log(text)
        if log.format != "off":
            logger = _logger(schema, LogSettings(log, sink), kind, key)
            loggers.append(_with_filter(logger, [_filter(log, kind), _of_route(schema, text)]))
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
    if sink.startswith("otlp:"):
        values = fields if log.format == "json" else {}
        body = log.template if log.format == "template" else kind
        config: dict[str, object] = {
            "common_config": {
                "log_name": "fairlead",
                "transport_api_version": "V3",
                "grpc_service": {
                    "google_grpc": {"target_uri": sink.removeprefix("otlp://"), "stat_prefix": "access_log"},
                    "timeout": duration(5.0),
                },
            },
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


def _filter(log: AccessLog, kind: Kind) -> Fields | None:
    """Return which requests or connections are logged; None for all."""
    conditions: list[Fields] = []
    if log.min_status and kind == "request":
        conditions.append({"status_code_filter": {"comparison": _at_least(log.min_status, "status")}})
    if log.slower_than_ms:
        conditions.append({"duration_filter": {"comparison": _at_least(log.slower_than_ms, "duration")}})
    chosen = _joined("or_filter", conditions)
    share = round(log.sampling * _MILLION / 100)
    sampled: list[Fields] = [] if chosen is None else [chosen]
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
