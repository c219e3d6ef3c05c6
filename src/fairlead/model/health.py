"""Health checks and outlier detection that users set, in place of those of the class.

    annotations  fairlead.dev/health-check: '{"type": "http", "path": "/healthz"}', or one annotation for each field,
                 such as fairlead.dev/health-check-path; the single ones count before the JSON
    objects      spec.healthCheck, and the backends of routes

What is left out is as the class has it. A path alone means HTTP, and a service alone gRPC.
In: values of objects. Out: what is wrong with them, and the check that they come to. Pure.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from fairlead.model.in_words import whole_number


class HealthRequest(msgspec.Struct, frozen=True, gc=False):
    """A check that asks for ``path`` and wants a status code from the first to the last of ``expected``.

    ``expected`` None: 200, and any other code makes a target unhealthy at once, whatever the threshold. ``ca_bundle``
    (PEM) is whom the certificate must come from, empty: any authority. ``host``: the name that is asked for, and that
    the certificate must have when ``ca_bundle`` is given; empty: no name is checked. ``grpc``: asks for the health of
    the gRPC service ``path``, of the whole server when that is empty. ``http2``: the target speaks nothing else.
    """

    path: str = "/readyz"
    host: str = ""
    ca_bundle: str = ""
    expected: tuple[int, int] | None = None
    tls: bool = True
    grpc: bool = False
    http2: bool = False


class HealthCheck(msgspec.Struct, frozen=True, gc=False):
    """Active health checks, of the connection or of ``request``; times in seconds. UDP listeners have none.

    ``port`` is where a target is checked; 0: where it takes traffic.
    """

    interval_s: float = 2.0
    timeout_s: float = 1.0
    unhealthy_threshold: int = 2
    healthy_threshold: int = 1
    request: HealthRequest | None = None
    port: int = 0


CheckType = Literal["", "tcp", "http", "grpc", "none"]

#: Bounds of the schema only: what another version has let in is still read, and refused with a sentence.
_DURATION = {"pattern": "^([0-9]+(ms|s|m|h))?$"}
_PORT_NUMBER = {"minimum": 1, "maximum": 65535}
_THRESHOLD = {"minimum": 1, "maximum": 10}
_RANGE = {"pattern": "^([1-5][0-9]{2}(-[1-5][0-9]{2})?)?$"}

CheckDuration = Annotated[str, Meta(extra_json_schema={**_DURATION, "maxLength": 16})]
Expected = Annotated[str, Meta(extra_json_schema={**_RANGE, "maxLength": 16})]
CheckName = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9._:/-]*$", "maxLength": 253})]
CheckPort = Annotated[int, Meta(extra_json_schema=_PORT_NUMBER)]
Threshold = Annotated[int, Meta(extra_json_schema=_THRESHOLD)]


class HealthCheckSettings(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The health check of the targets; what is left out is as the class has it.

    port and host are those of the check, not of the traffic. service is that of a gRPC check; empty: the whole server.
    expected is a status code of HTTP, or a range such as 200-399. tls: the check speaks TLS; unset: as the traffic.
    """

    type: CheckType = ""
    path: Annotated[str, Meta(extra_json_schema={"pattern": "^(/[!-~]*)?$", "maxLength": 1024})] = ""
    host: CheckName = ""
    service: CheckName = ""
    port: CheckPort | None = None
    interval: CheckDuration = ""
    timeout: CheckDuration = ""
    healthy: Threshold | None = None
    unhealthy: Threshold | None = None
    expected: Expected = ""
    tls: bool | None = None

    @property
    def kind(self) -> CheckType:
        """Return the type, also where only other fields say it; empty for that of the class."""
        if self.type:
            return self.type
        return "grpc" if self.service else "http" if self.path or self.expected else ""


class OutlierDetection(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """When a target gets no new connections for a time because of what clients see of it; 0 errors: not counted.

    consecutive5xx counts answers 5xx, or for a load balancer of connections those that fail. maxEjectionPercent 0
    ejects nothing.
    """

    consecutive_5xx: Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": 1000})] = msgspec.field(
        default=0, name="consecutive5xx"
    )
    consecutive_gateway_errors: Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": 1000})] = 0
    ejection_time: CheckDuration = ""
    max_ejection_percent: Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": 100})] | None = None


class SettingProblem(NamedTuple):
    """One wrong field, and the rest of the sentence about it."""

    field: str
    text: str


def single_annotations(annotation: str, settings: type[HealthCheckSettings | OutlierDetection]) -> dict[str, str]:
    """Return the annotations for single fields, with the field of each."""
    return {f"{annotation}-{_dashed(field)}": field for field in settings.__struct_encode_fields__}


def _dashed(field: str) -> str:
    return re.sub(r"[A-Z]", lambda match: f"-{match[0].lower()}", field).replace("consecutive5xx", "consecutive-5xx")


def shown(value: object) -> str:
    """Return a value as it is quoted in sentences."""
    return repr(value if isinstance(value, str) else msgspec.json.encode(value).decode())[:80]


# --- validation ------------------------------------------------------------------------------------------------------

_PATH = re.compile(r"/[!-~]*")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?")
_SERVICE = re.compile(r"[A-Za-z0-9_./-]+")
_EXPECTED = re.compile(r"([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?")
_PART = re.compile(r"([0-9]{1,9})(ms|s|m|h)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SHORTEST_S, _SHORTEST_TIMEOUT_S, _LONGEST_S = 1.0, 0.1, 300.0


def problem_of(settings: HealthCheckSettings | OutlierDetection | None) -> SettingProblem | None:
    """Return the first wrong field; None if all fields are valid."""
    if settings is None:
        return None
    if isinstance(settings, OutlierDetection):
        outlier = settings
        for field, number in (
            ("consecutive5xx", outlier.consecutive_5xx),
            ("consecutiveGatewayErrors", outlier.consecutive_gateway_errors),
        ):
            if not 0 <= number <= 1000:
                return SettingProblem(field, f"is {number}: it must be from 0 to 1000")
        if outlier.ejection_time and not _SHORTEST_S <= _seconds(outlier.ejection_time) <= 3600:
            text = f"is {shown(outlier.ejection_time)}: it must be a duration from 1s to 1h"
            return SettingProblem("ejectionTime", text)
        percent = outlier.max_ejection_percent
        if percent is not None and not 0 <= percent <= 100:
            return SettingProblem("maxEjectionPercent", f"is {percent}: it must be from 0 to 100")
        return None
    return _value_problem(settings) or _unfit_problem(settings)


def _value_problem(check: HealthCheckSettings) -> SettingProblem | None:
    if check.path and not _PATH.fullmatch(check.path):
        must = "begin with a slash, and have no spaces"
        return SettingProblem("path", f"is {shown(check.path)}: it must {must}")
    for field, text, form, must in (
        ("host", check.host, _HOST, "a host name"),
        ("service", check.service, _SERVICE, "the name of a gRPC service"),
    ):
        if text and not form.fullmatch(text):
            return SettingProblem(field, f"is {shown(text)}: it must be {must}")
    for field, number, most in (
        ("port", check.port, 65535),
        ("healthy", check.healthy, 10),
        ("unhealthy", check.unhealthy, 10),
    ):
        if number is not None and not 1 <= number <= most:
            return SettingProblem(field, f"is {number}: it must be from 1 to {most}")
    if check.interval and not _SHORTEST_S <= _seconds(check.interval) <= _LONGEST_S:
        return SettingProblem("interval", f"is {shown(check.interval)}: it must be a duration from 1s to 5m")
    if check.timeout and not _SHORTEST_TIMEOUT_S <= _seconds(check.timeout) <= _LONGEST_S:
        return SettingProblem("timeout", f"is {shown(check.timeout)}: it must be a duration from 100ms to 5m")
    if check.expected and expected_range(check.expected) is None:
        text = f"is {shown(check.expected)}: it must be a status code such as 204, or a range such as 200-399"
        return SettingProblem("expected", text)
    return None


def _unfit_problem(check: HealthCheckSettings) -> SettingProblem | None:
    """Return a field that does not apply to the type of the check."""
    kind = check.kind
    if kind == "none":
        given = next((field for field in check.__struct_fields__ if field != "type" and getattr(check, field)), "")
        return SettingProblem(given, "has no effect with type none; remove it") if given else None
    for field, value, kinds in (
        ("path", check.path, ("http",)),
        ("expected", check.expected, ("http",)),
        ("service", check.service, ("grpc",)),
        ("host", check.host, ("http", "grpc")),
        ("tls", check.tls, ("http", "grpc")),
    ):
        if value and kind not in kinds:
            return SettingProblem(field, f"needs type {' or '.join(kinds)}, not {kind or 'tcp'}; correct the type")
    return None


def _seconds(text: str) -> float:
    """Return a duration in seconds; 0 for an invalid one."""
    match = _PART.fullmatch(text)
    return (whole_number(match[1]) or 0) * _UNITS_S[match[2]] if match is not None else 0.0


def expected_range(text: str) -> tuple[int, int] | None:
    """Return the first and the last status code of ``text``; None if it is invalid."""
    match = _EXPECTED.fullmatch(text)
    if match is None:
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    return (first, last) if first <= last else None


# --- the resulting check ---------------------------------------------------------------------------------------------

#: What counts as an answer of a healthy target where a user asks for HTTP, as for a probe of the kubelet.
_EXPECTED_BY_DEFAULT = (200, 399)


def check_with(
    base: HealthCheck | None,
    settings: HealthCheckSettings | None,
    *,
    tls: bool = False,
    http2: bool = False,
    slowdown: int = 1,
) -> HealthCheck | None:
    """Return ``base``, the check of the class, with what ``settings`` change; None: targets are not checked.

    ``tls`` and ``http2`` are how traffic speaks to the targets. A check at the same port does the same unless
    ``settings`` say otherwise; one at another port speaks HTTP/1.1 in plain text. ``slowdown``: how many times less
    often targets are checked than ``settings`` ask for.
    """
    if settings is None:
        return base
    kind = settings.kind
    if kind == "none":
        return None
    base = base or HealthCheck()
    request = None
    if kind in {"http", "grpc"}:
        grpc, same_port = kind == "grpc", settings.port is None
        request = HealthRequest(
            path=settings.service if grpc else settings.path or "/",
            host=settings.host,
            expected=None if grpc else expected_range(settings.expected) or _EXPECTED_BY_DEFAULT,
            tls=(tls and same_port) if settings.tls is None else settings.tls,
            grpc=grpc,
            http2=grpc or (http2 and same_port),
        )
    return HealthCheck(
        interval_s=max(_SHORTEST_S, _seconds(settings.interval)) * slowdown if settings.interval else base.interval_s,
        timeout_s=max(_SHORTEST_TIMEOUT_S, _seconds(settings.timeout)) if settings.timeout else base.timeout_s,
        unhealthy_threshold=settings.unhealthy or base.unhealthy_threshold,
        healthy_threshold=settings.healthy or base.healthy_threshold,
        request=request,
        port=settings.port or 0,
    )


def ejection_seconds(outlier: OutlierDetection) -> float:
    """Return how long a target is ejected; 0 for the default."""
    return _seconds(outlier.ejection_time)
