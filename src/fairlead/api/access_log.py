"""Access logs: which requests, connections and UDP sessions are logged, and with which fields.

A field is a format string with operators of Envoy. Envoy refuses a listener with a bad one as a whole, so all of them
are checked here. Headers are logged only where they are listed; those with credentials never are. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.json_text import decode

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


class AccessLog(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The settings of an access log.

    With ``min_status`` or ``slower_than``, a request that meets one of them is logged. ``sampling`` is the share of
    these in percent; ``keep_errors`` logs each answer from 500, and each failed connection, besides. ``headers`` are
    those of requests that become fields.
    """

    format: Literal["json", "template", "off"] = "json"
    template: Annotated[str, Meta(max_length=4096)] = ""
    add_fields: Annotated[dict[str, str], Meta(max_length=64)] = {}
    remove_fields: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    headers: Annotated[tuple[str, ...], Meta(max_length=32)] = ()
    min_status: Annotated[int, Meta(ge=0, le=599)] = 0
    slower_than: Annotated[str, Meta(max_length=32)] = ""
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


def _milliseconds(text: str) -> int | None:
    """Return a duration such as 500ms or 2s in milliseconds; None for anything else."""
    match = _DURATION.fullmatch(text)
    return None if match is None else int(match[1]) * {"ms": 1, "s": 1000, "m": 60_000}[match[2]]
