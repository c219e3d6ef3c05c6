"""Settings that users write as text or JSON: CIDRs, access logs, traces, the PROXY protocol, and limits. Pure.

CIDRs are read as Kubernetes reads them in fields that exist since before its strict rules; this is the one parser for
source ranges, address pools and target ranges.

    10.0.0.0/24                 accepted
    10.0.0.5/24                 accepted as 10.0.0.0/24, with a warning: it may be meant as 10.0.0.5/32
    010.0.0.0/24, 10.0.0.0/024  accepted as 10.0.0.0/24, with a warning
    ::ffff:10.0.0.0/120         accepted as 10.0.0.0/24, with a warning
    10.0.0.5                    refused: no prefix length
    10.0.0.0/255.255.255.0      refused: the prefix length is a number of bits

Source: https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/4858-ip-cidr-validation

An access log has format strings with operators of Envoy. Envoy refuses a listener with a bad one as a whole, so all of
them are checked. Headers are logged only where they are listed; those with credentials never are.

A header of the PROXY protocol is required or optional. Any client could claim an address in one: with trusted sources,
connections from elsewhere are closed, and optional headers need them.

    requestsPerSecond    so many requests a second are answered; what is above that gets 429 with Retry-After
    burst                so many requests may come at once; by default as many as in a second
    key                  what has a limit of its own: empty for all requests together, ``client``, ``header:NAME``
    connections          so many connections are open at once; others are closed
    bandwidth            bytes a second of all requests, and of all responses, such as 10Mi

Each proxy counts alone, for each port. What a class sets is the most that is admitted, whatever users set.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from fairlead.api.json_text import decode
from fairlead.model.http import HEADER_NAME

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class Cidr(NamedTuple):
    """A CIDR: the network that it names, and what is ambiguous about its spelling."""

    network: IPNetwork
    warnings: tuple[str, ...] = ()


def parse_cidr(text: str) -> Cidr | None:
    """Return the CIDR in ``text``, None when it is not one; blanks around it do not count."""
    text = text.strip()
    written, slash, bits = text.partition("/")
    if not slash or not (bits.isascii() and bits.isdigit()) or len(bits) > 4 or "%" in written:
        return None
    try:
        address = ipaddress.ip_address(_without_leading_zeros(written))
        network = ipaddress.ip_network((address, int(bits)), strict=False)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if address.version == 6 else None
    if mapped is not None and network.prefixlen >= 96:
        address, network = mapped, ipaddress.ip_network((mapped, network.prefixlen - 96), strict=False)
    warnings: list[str] = []
    if address != network.network_address:
        alone = f"{address}/{address.max_prefixlen}"
        warnings.append(f'CIDR value "{text}" is ambiguous in this context (should be "{network}" or "{alone}"?)')
    if mapped is not None or _without_leading_zeros(written) != written or str(int(bits)) != bits:
        warnings.append(
            f'non-standard CIDR value "{text}" will be considered invalid in a future Kubernetes release: '
            f'use "{network}"'
        )
    elif not warnings and address.version == 6 and str(network) != text:
        warnings.append(f'IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{network}")')
    return Cidr(network, tuple(warnings))


def parse_network(text: str) -> IPNetwork | None:
    """Return the network of a CIDR, or of an address alone; None when it is neither."""
    if "/" in text:
        cidr = parse_cidr(text)
        return cidr.network if cidr is not None else None
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError:
        return None


def exact_network(text: str) -> IPNetwork | str:
    """Return the network of a CIDR or address whose meaning is certain, else what is wrong with it."""
    text = text.strip()
    if "/" not in text:
        network = parse_network(text) if "%" not in text else None
        if network is None:
            return f"{text[:60]!r} is not an IP address or a CIDR such as 192.0.2.0/24"
        address = network.network_address
        if address.version == 6 and address.ipv4_mapped is not None:
            return f"{text!r} is an IPv4 address in the form of IPv6: use {str(address.ipv4_mapped)!r}"
        return network
    cidr = parse_cidr(text)
    if cidr is None:
        return f"{text[:60]!r} is not a CIDR such as 192.0.2.0/24"
    ambiguous = next((warning for warning in cidr.warnings if not warning.startswith("IPv6")), "")
    return ambiguous or cidr.network


def uncertain_network(texts: Iterable[str]) -> str:
    """Return what is wrong with the first CIDR or address whose meaning is not certain; empty when nothing is."""
    return next((network for network in map(exact_network, texts) if isinstance(network, str)), "")


def _without_leading_zeros(address: str) -> str:
    """Return an address whose IPv4 part is decimal, as Kubernetes reads ``010`` as 10."""
    head, colon, quad = address.rpartition(":")
    if quad.count(".") != 3:
        return address
    octets = [part.lstrip("0") or "0" if part.isascii() and part.isdigit() else part for part in quad.split(".")]
    return f"{head}{colon}{'.'.join(octets)}"


#: What is logged: a request, a connection, or a session of UDP.
Kind = Literal["request", "connection", "session"]
#: The longest text of a setting.
MAX_ACCESS_LOG = 4096

_REQUEST = {
    "start_time": "%START_TIME%",
    "method": "%REQ(:METHOD)%",
    "path": "%REQ(:PATH)%",
    "protocol": "%PROTOCOL%",
    "authority": "%REQ(:AUTHORITY)%",
    "response_code": "%RESPONSE_CODE%",
    "response_flags": "%RESPONSE_FLAGS%",
    "response_code_details": "%RESPONSE_CODE_DETAILS%",
    "bytes_received": "%BYTES_RECEIVED%",
    "bytes_sent": "%BYTES_SENT%",
    "duration_ms": "%DURATION%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "route": "%ROUTE_NAME%",
    "upstream_cluster": "%UPSTREAM_CLUSTER%",
    "upstream_host": "%UPSTREAM_HOST%",
    "user_agent": "%REQ(USER-AGENT)%",
    "request_id": "%REQ(X-REQUEST-ID)%",
    "server_name": "%REQUESTED_SERVER_NAME%",
}
_CONNECTION = {
    "start_time": "%START_TIME%",
    "response_flags": "%RESPONSE_FLAGS%",
    "bytes_received": "%BYTES_RECEIVED%",
    "bytes_sent": "%BYTES_SENT%",
    "duration_ms": "%DURATION%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "upstream_cluster": "%UPSTREAM_CLUSTER%",
    "upstream_host": "%UPSTREAM_HOST%",
    "server_name": "%REQUESTED_SERVER_NAME%",
}
_UDP = "%DYNAMIC_METADATA(udp.proxy.session:{0})%"
_SESSION = {
    "start_time": "%START_TIME%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "upstream_cluster": _UDP.format("cluster_name"),
    "upstream_host": "%UPSTREAM_HOST%",
    **{
        name: _UDP.format(name)
        for name in ("bytes_received", "bytes_sent", "datagrams_received", "datagrams_sent", "errors_received")
    },
}
#: The fields that name the member and its load balancer: only Fairlead writes them.
IDENTITY = ("kind", "member", "load_balancer")
FIELDS: Mapping[Kind, Mapping[str, str]] = {"request": _REQUEST, "connection": _CONNECTION, "session": _SESSION}
#: Headers with credentials: no field and no template has them.
_SECRET = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie"})
_OPERATOR = re.compile(r"%([A-Z_0-9]+)(?:\(([A-Za-z0-9:?._ -]*)\))?(:[0-9]{1,5})?%")
#: A header of a request or answer, and the one that is logged without it.
_HEADERS = re.compile(r":?[A-Za-z0-9._-]+(?:\?:?[A-Za-z0-9._-]+)?")
_HEADERS_OF = frozenset({"REQ", "RESP", "TRAILER"})
_OPERATORS = frozenset(
    {
        "START_TIME", "DURATION", "REQUEST_DURATION", "RESPONSE_DURATION", "PROTOCOL", "RESPONSE_CODE",
        "RESPONSE_CODE_DETAILS", "RESPONSE_FLAGS", "RESPONSE_FLAGS_LONG", "BYTES_RECEIVED", "BYTES_SENT", "ROUTE_NAME",
        "UPSTREAM_CLUSTER", "UPSTREAM_HOST", "UPSTREAM_REQUEST_ATTEMPT_COUNT", "UPSTREAM_TRANSPORT_FAILURE_REASON",
        "DOWNSTREAM_REMOTE_ADDRESS", "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_LOCAL_ADDRESS",
        "DOWNSTREAM_LOCAL_PORT", "DOWNSTREAM_TLS_VERSION", "DOWNSTREAM_PEER_SUBJECT", "REQUESTED_SERVER_NAME",
        "CONNECTION_ID", "CONNECTION_TERMINATION_DETAILS", *_HEADERS_OF,
    }
)  # fmt: skip
_HEADER = re.compile(r"[A-Za-z0-9!#$&'*+.^_`|~-]{1,128}")
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m)")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
#: The parts of a filter: a subset of CEL that Envoy accepts as a whole.
_LITERAL = r"'[ -&(-\[\]-~]*'"
_PART = re.compile(
    r"\s*(?:(?P<condition>"
    r"(?:request\.(?:method|path|url_path|host|useragent|protocol)|request\.headers\['(?P<header>[A-Za-z0-9_-]+)'\])"
    rf"(?:\s*[=!]=\s*{_LITERAL}|\.(?:startsWith|endsWith|contains)\(\s*{_LITERAL}\s*\))"
    r"|(?:response\.code|request\.total_size|response\.total_size)\s*(?:[=!<>]=|[<>])\s*[0-9]{1,9}(?![0-9A-Za-z.])"
    r")|(?P<open>!?\()|(?P<operator>&&|\|\|)|(?P<close>\)))\s*"
)
_MOST_CONDITIONS, _DEEPEST = 32, 16


class AccessLog(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The settings of an access log.

    With ``min_status`` or ``slower_than``, a request that meets one of them is logged, if it also meets ``filter``.
    ``sampling`` is the share of these in percent; ``keep_errors`` logs each answer from 500, and each failed
    connection, besides. ``headers`` are those of requests that become fields.
    """

    format: Literal["json", "template", "off"] = "json"
    template: Annotated[str, Meta(max_length=4096)] = ""
    add_fields: Annotated[dict[str, str], Meta(max_length=64)] = {}
    remove_fields: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    headers: Annotated[tuple[str, ...], Meta(max_length=32)] = ()
    min_status: Annotated[int, Meta(ge=0, le=599)] = 0
    slower_than: Annotated[str, Meta(max_length=32)] = ""
    filter: Annotated[str, Meta(max_length=1024)] = ""
    sampling: Annotated[float, Meta(ge=0, le=100)] = 100
    keep_errors: bool = False

    @property
    def slower_than_ms(self) -> int:
        """Return ``slower_than`` in milliseconds, 0 for none."""
        return _milliseconds(self.slower_than) or 0


def read_access_log(text: str) -> AccessLog:
    """Return the access log that ``off``, ``json`` or a JSON object asks for.

    Raises:
        ValueError: names the field, and what is wrong with it.
    """
    if text in {"off", "json"}:
        return AccessLog(format="off" if text == "off" else "json")
    if not text.startswith("{"):
        raise ValueError(f"{text[:40]!r} is unknown; choose off, json or a JSON object")
    try:
        log = decode(text, AccessLog)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    if problem := next(_invalid_parts(log), ""):
        raise ValueError(problem)
    return log


def _invalid_parts(log: AccessLog) -> Iterator[str]:
    if (log.format == "template") != bool(log.template):
        yield "template and format: template belong together"
    for name, value in log.add_fields.items():
        if not _FIELD.fullmatch(name):
            yield f"addFields: {name[:60]!r} is not a valid name of a field"
        if name in IDENTITY:
            yield f"addFields: field {name} is written by Fairlead; choose another name"
        yield from (f"addFields.{name[:60]}: {problem}" for problem in _invalid_format(value))
    yield from (f"template: {problem}" for problem in _invalid_format(log.template))
    known = set[str]().union(*FIELDS.values())
    for name in log.remove_fields:
        if name not in known:
            yield f"removeFields: {name[:60]!r} is not a field; the fields are {', '.join(sorted(known))}"
    for name in log.headers:
        if not _HEADER.fullmatch(name):
            yield f"headers: {name[:60]!r} is not a valid name of a header"
        elif name.lower() in _SECRET:
            yield f"headers: {name} holds credentials and is never logged"
    if log.slower_than and _milliseconds(log.slower_than) is None:
        yield f"slowerThan: {log.slower_than!r} is not a duration such as 500ms or 2s"
    if log.filter and (problem := _filter_problem(log.filter)):
        yield f"filter: {problem}"


def _filter_problem(text: str) -> str:
    """Return what is wrong with a filter, empty for nothing."""
    at = depth = conditions = 0
    complete = False
    while at < len(text):
        part = _PART.match(text, at)
        kind = part.lastgroup if part is not None else None
        if part is None or complete is (kind in {"condition", "open"}) or depth < (kind == "close"):
            example = "request.path.startsWith('/api') && response.code >= 400"
            return f"{text[at : at + 40]!r} is not supported there; write a filter such as {example}"
        if (header := part["header"]) and header.lower() in _SECRET:
            return f"header {header} holds credentials; choose another one"
        depth += (kind == "open") - (kind == "close")
        conditions += kind == "condition"
        complete = kind in {"condition", "close"}
        at = part.end()
        if depth > _DEEPEST or conditions > _MOST_CONDITIONS:
            return f"more than {_MOST_CONDITIONS} conditions, or {_DEEPEST} nested parentheses; write a shorter one"
    return "" if complete and not depth else "the end is missing: a condition, or a parenthesis"


def _invalid_format(text: str) -> Iterator[str]:
    for match in _OPERATOR.finditer(text):
        operator, argument = match[1], match[2] or ""
        if operator not in _OPERATORS:
            yield f"operator {operator} is not supported; use one of {', '.join(sorted(_OPERATORS))}"
        elif operator in _HEADERS_OF:
            if any(name.strip() in _SECRET for name in argument.lower().split("?")):
                yield f"{match[0]} holds credentials, which are never logged"
            elif not _HEADERS.fullmatch(argument):
                yield f"{operator} needs the name of a header, or of two, as in %{operator}(X-NAME?X-OTHER)%"
        elif match[3]:
            yield f"operator {operator} takes no length"
        elif argument and operator != "START_TIME":
            yield f"operator {operator} takes no argument"
    if "%" in _OPERATOR.sub("", text):
        yield "a % that begins no operator; write operators as in %RESPONSE_CODE%"


#: The longest text of a setting.
MAX_TRACING = 512


class Fraction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of all requests."""

    numerator: Annotated[int, Meta(ge=0)]
    denominator: Annotated[int, Meta(ge=1, le=1_000_000)] = 100

    @property
    def problem(self) -> str:
        """Return what is wrong with it, empty for nothing."""
        if self.numerator <= self.denominator:
            return ""
        return f"numerator {self.numerator} is above denominator {self.denominator}"


class _RouteTracing(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    sampling_rate: Fraction


def read_route_tracing(text: str) -> Fraction:
    """Return the share of a route's requests that ``off``, or a JSON object, has sampled.

    Raises:
        ValueError: names the field, and what is wrong with it.
    """
    if text == "off":
        return Fraction(0)
    example = '{"samplingRate": {"numerator": 5}}'
    if not text.startswith("{"):
        raise ValueError(f"{text[:40]!r} is unknown; choose off, or a JSON object such as {example}")
    try:
        rate = decode(text, _RouteTracing).sampling_rate
    except msgspec.DecodeError as error:
        raise ValueError(f"{error}; write off, or a JSON object such as {example}") from error
    if rate.problem:
        raise ValueError(f"samplingRate: {rate.problem}")
    return rate


def _milliseconds(text: str) -> int | None:
    """Return a duration such as 500ms or 2s in milliseconds; None for anything else."""
    match = _DURATION.fullmatch(text)
    return None if match is None else int(match[1]) * {"ms": 1, "s": 1000, "m": 60_000}[match[2]]


#: The longest text of a setting.
MAX_ACCEPT = 4096
_MOST_SOURCES = 100


class AcceptProxyProtocol(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The setting; ``trusted_sources`` are canonical CIDRs, empty for all."""

    mode: Literal["required", "optional"] = "required"
    trusted_sources: Annotated[tuple[str, ...], Meta(max_length=_MOST_SOURCES)] = ()


def read_accept_proxy_protocol(text: str) -> AcceptProxyProtocol | None:
    """Return what ``required`` or a JSON object sets, None for an empty text; a class says true and false, too.

    Raises:
        ValueError: names the field, and what is wrong with it.
    """
    if text in ("", "false"):
        return None
    if text in ("true", "required"):
        return AcceptProxyProtocol()
    if not text.startswith("{"):
        raise ValueError(f"{text[:40]!r} is unknown; choose required or a JSON object with mode and trustedSources")
    try:
        accepted = decode(text, AcceptProxyProtocol)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    if problem := uncertain_network(accepted.trusted_sources):
        raise ValueError(f"trustedSources: {problem}")
    networks = dict.fromkeys(str(exact_network(source)) for source in accepted.trusted_sources)
    if accepted.mode == "optional" and not networks:
        raise ValueError("mode optional needs trustedSources: without them any client can claim any address")
    if accepted.mode == "optional" and any(network.endswith("/0") for network in networks):
        raise ValueError(
            "mode optional needs narrower trustedSources: with a network of prefix 0 any client is trusted"
        )
    return AcceptProxyProtocol(accepted.mode, tuple(networks))


def accept_problem(text: str) -> str:
    """Return what is wrong with the setting of a user; empty when nothing is."""
    try:
        read_accept_proxy_protocol(text)
    except ValueError as error:
        return str(error)
    return ""


#: The longest text of a setting.
MAX_LIMITS = 1024
_CLIENT, _HEADER_KEY = "client", "header:"
_BANDWIDTH = re.compile(r"([1-9][0-9]{0,9})(Ki|Mi|Gi)")
_KIB = {"Ki": 1, "Mi": 1024, "Gi": 1024 * 1024}
#: What Envoy can count: 4 TiB a second.
_MOST_KIB = 2**32 - 1
_Count = Annotated[int, Meta(ge=0, le=10_000_000)]


class Limits(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The limits; 0 and empty mean none."""

    requests_per_second: _Count = 0
    burst: _Count = 0
    key: Annotated[str, Meta(max_length=135)] = ""
    connections: _Count = 0
    bandwidth: Annotated[str, Meta(max_length=16)] = ""

    @property
    def header(self) -> str:
        """Return the header whose values have a limit each; empty when it is none."""
        return self.key.removeprefix(_HEADER_KEY).lower() if self.key.startswith(_HEADER_KEY) else ""

    @property
    def by_client(self) -> bool:
        """Return whether each client address has a limit of its own."""
        return self.key == _CLIENT

    @property
    def bandwidth_kib(self) -> int:
        """Return ``bandwidth`` in KiB a second, 0 for none."""
        return kib_per_second(self.bandwidth) or 0


def kib_per_second(text: str) -> int | None:
    """Return a number of bytes such as 10Mi in KiB; 0 for an empty text, None for anything else."""
    match = _BANDWIDTH.fullmatch(text)
    if match is None or (kib := int(match[1]) * _KIB[match[2]]) > _MOST_KIB:
        return None if text else 0
    return kib


def read_limits(text: str) -> Limits:
    """Return the limits in a JSON object; empty: none.

    Raises:
        ValueError: names the field, and what is wrong with it.
    """
    try:
        limits = decode(text or "{}", Limits)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    if limits.key and not limits.by_client and not HEADER_NAME.fullmatch(limits.header):
        raise ValueError(f"key is {limits.key[:60]!r}; choose client, or header: and the name of a header")
    if kib_per_second(limits.bandwidth) is None:
        raise ValueError(f"bandwidth is {limits.bandwidth!r}; write the bytes of a second as 512Ki, 10Mi or 1Gi")
    if (limits.burst or limits.key) and not limits.requests_per_second:
        raise ValueError("burst and key need requestsPerSecond")
    if limits.burst and limits.burst < limits.requests_per_second:
        raise ValueError(f"burst is {limits.burst}, less than requestsPerSecond; give as many requests at least")
    return limits


def connection_limits_problem(text: str) -> str:
    """Return what is wrong with the limits of a load balancer of connections; empty when nothing is."""
    try:
        limits = read_limits(text)
    except ValueError as error:
        return str(error)
    if limits != Limits(connections=limits.connections):
        return "only connections can be limited here; for requests and bandwidth, use an Ingress or a Gateway"
    return ""
