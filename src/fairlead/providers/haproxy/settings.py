"""The settings of a load balancer at HAProxy: which HAProxy, and which of its backends.

In: a load balancer with its parameters. Out: ``HAProxySettings``; a mistake is a ``BadConfiguration`` that names the
field.

    socket             path of the Runtime API's unix socket, level admin
    backend            the backend of its configuration, when the load balancer has one listener, or with {port}
    backend.<port>     the same for one listener of several
    drainTimeout       how long sessions of a removed server may continue; default 30s
    address            what users connect to, shown in status, or one of each family after a comma; optional
    installation       a name for each hub, where several use one HAProxy
    allowedBackends    the backends that load balancers of this class may use, such as "shop_*, api"; default all

A backend's name may hold {member}, {hubNamespace}, {namespace}, {name} and {port}, so that one class serves many.
Never: opens the socket. Names are checked here because they become part of commands.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from fairlead.api.names import unknown_parameter
from fairlead.api.times import seconds_from_duration
from fairlead.errors import BadConfiguration
from fairlead.model.desired import FrontendSpec, ProxyProtocol
from fairlead.model.health import HealthCheck
from fairlead.model.keys import IPV4, ListenerKey, Protocol, in_order, requested_addresses
from fairlead.providers.haproxy.runtime_api import LONGEST_LINE

_BACKEND = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
#: The parameters that a BackendGroup may give to its backends.
BACKEND_PARAMETERS = frozenset({"weight"})
_PARAMETERS = ("socket", "backend", "drainTimeout", "address", "installation", "allowedBackends")
_OF_PORT = re.compile(r"backend\.[0-9]{1,5}")
_TAG_DIGITS = 6
#: sun_path of Linux, less its final zero byte.
_MAX_PATH_BYTES = 107
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
#: A bundle goes to the Runtime API in one line.
_MAX_BUNDLE_BYTES = LONGEST_LINE - 200


class HAProxySettings(msgspec.Struct, frozen=True):
    """The backends of one load balancer's servers, and how servers are added."""

    socket: str
    backends: dict[ListenerKey, str]
    drain_timeout_s: float
    health_check: HealthCheck | None
    proxy_protocol: ProxyProtocol
    addresses: tuple[str, ...]
    #: After so many failed connections in a row a server gets no more until it passes its check; 0 for any number.
    error_limit: int = 0
    #: Distinguishes our servers from those of another hub.
    installation: str = ""
    #: Backends by port ("" for any), also of listeners that are no longer there: their servers may have to go yet.
    named: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    #: Those of ``backends`` that are no longer wanted: they are kept until no server of ours is in them.
    retired: frozenset[ListenerKey] = frozenset()
    #: The options of servers without a tag in their names: those that its first servers were added with.
    first_options: str = ""

    @property
    def authority(self) -> str:
        """Return the bundle (PEM) of whom its HTTPS checks trust, empty without one and for other checks."""
        request = self.health_check.request if self.health_check is not None else None
        return request.ca_bundle if request is not None else ""

    def server_options(self, authority: str) -> str:
        """Return the options with which servers are added; ``authority`` is the name of the one for HTTPS checks."""
        options: list[str] = []
        if (check := self.health_check) is not None:
            # HAProxy has no timeout for checks but in its configuration file: a check is bounded by the interval.
            interval_ms = max(1, round(check.interval_s * 1000))
            options.append(
                f"check inter {interval_ms}ms fall {check.unhealthy_threshold} rise {check.healthy_threshold}"
            )
            if check.port:
                options.append(f"port {check.port}")
            if self.error_limit:
                options.append(f"observe layer4 error-limit {self.error_limit} on-error mark-down")
            if check.request is not None:
                options.append("check-ssl")
                options.append(f"verify required ca-file {authority}" if check.request.ca_bundle else "verify none")
                if check.request.host:
                    options.append(f"check-sni {check.request.host}")
                if check.request.host and check.request.ca_bundle:
                    options.append(f"verifyhost {check.request.host}")
        if self.proxy_protocol is not ProxyProtocol.NONE:
            options.append("send-proxy" if self.proxy_protocol is ProxyProtocol.V1 else "send-proxy-v2")
        return " ".join(options)

    @property
    def options_digest(self) -> str:
        """Return the digest of the options of its servers.

        The authority is left out: one that changes holds for members that come from then on.
        """
        return hashlib.blake2s(self.server_options("authority").encode()).hexdigest()[:_TAG_DIGITS]

    @property
    def tag(self) -> str:
        """Return what the names of its servers end with; empty while their options are the first ones."""
        return "" if self.options_digest == (self.first_options or self.options_digest) else self.options_digest

    def epoch(self, of_process: str) -> str:
        """Return the epoch: other options for its servers mean that all of them are registered again."""
        return f"{of_process}/{self.tag}" if self.tag and of_process else of_process

    def backend_of(self, listener: ListenerKey, *, removal: bool) -> str:
        """Return the backend of a listener, empty when it has none; removals reach former ones, too."""
        backend = self.backends.get(listener, "")
        if not backend and removal:
            backend = self.named.get(str(listener.port)) or self.named.get("", "")
        return backend.replace("{port}", str(listener.port))

    @property
    def places(self) -> frozenset[tuple[str, str]]:
        """Return the (socket, backend) of every listener."""
        return frozenset((self.socket, backend) for backend in self.backends.values())

    @property
    def info(self) -> dict[str, str]:
        """Return what is to be stored: the socket and backends, whatever its class may say later."""
        backends = {f"backend.{listener.port}": name for listener, name in self.backends.items()}
        # It is in every record, so what can be read from the spec on record is left out.
        first = {"options": self.first_options} if self.tag else {}
        return {"socket": self.socket, **first, **backends}

    def with_places(self, info: Mapping[str, str]) -> HAProxySettings:
        """Return these settings with the socket and backends that were stored in ``info``."""
        on_record = _backends_by_port(info)
        return replace(
            self,
            socket=info.get("socket", self.socket),
            backends={listener: on_record.get(str(listener.port), name) for listener, name in self.backends.items()},
            named={**self.named, **on_record},
            # None is stored while servers have the options of the spec on record.
            first_options=info.get("options") or self.options_digest,
        )

    def following(self, before: HAProxySettings | None) -> HAProxySettings:
        """Keep what is still true of the settings before: the first options, and listeners that are not empty yet."""
        if before is None or before.socket != self.socket:
            return replace(self, first_options=self.options_digest)
        retired = {listener: name for listener, name in before.backends.items() if listener not in self.backends}
        return replace(
            self,
            backends={**retired, **self.backends},
            retired=frozenset(retired),
            first_options=before.first_options or before.options_digest,
        )

    def without_retired(self, emptied: Collection[ListenerKey]) -> HAProxySettings:
        """Drop listeners without servers; a late removal still learns their place."""
        if not emptied:
            return self
        return replace(
            self,
            backends={listener: name for listener, name in self.backends.items() if listener not in emptied},
            named={**self.named, **{str(listener.port): self.backends[listener] for listener in emptied}},
            retired=self.retired - set(emptied),
        )


def settings_from_spec(spec: FrontendSpec, *, installation: str = "") -> HAProxySettings:
    """Read and check the parameters of ``spec``; ``installation`` counts where they name none."""
    parameters = spec.parameters
    if problem := _problem_of_names(parameters) or _problem_of_socket(parameters):
        raise BadConfiguration(f"{spec.key}: {problem}")
    _check_health_settings(spec)
    try:
        drain_timeout_s = _drain_timeout_s(parameters)
    except ValueError as error:
        raise BadConfiguration(f"{spec.key}: parameters.drainTimeout: {error}") from error
    addresses = requested_addresses(parameters.get("address", "")) or spec.addresses
    return HAProxySettings(
        socket=parameters["socket"],
        backends={listener.key: _backend(spec, listener.key) for listener in spec.listeners},
        drain_timeout_s=drain_timeout_s,
        health_check=spec.health_check,
        proxy_protocol=spec.proxy_protocol,
        addresses=in_order(addresses, spec.families.families or (IPV4,)),
        error_limit=_error_limit(spec),
        installation=parameters.get("installation", "") or installation,
        named={
            key.removeprefix("backend").removeprefix("."): name
            for key, text in parameters.items()
            if (key == "backend" or key.startswith("backend."))
            and _BACKEND.fullmatch((name := _filled(spec, text)).replace("{port}", "0"))
        },
    )


def settings_on_record(spec: FrontendSpec, info: Mapping[str, str], *, installation: str = "") -> HAProxySettings:
    """Return where the servers of a load balancer are by ``info``, as ``HAProxySettings.info`` was stored.

    What its parameters say otherwise is left aside: they may be wrong by now.
    """
    by_port = _backends_by_port(info)
    listeners = [listener.key for listener in spec.listeners if str(listener.port) in by_port]
    try:
        drain_timeout_s = _drain_timeout_s(spec.parameters)
    except ValueError:
        drain_timeout_s = _drain_timeout_s({})
    return HAProxySettings(
        socket=info.get("socket", ""),
        backends={listener: by_port[str(listener.port)] for listener in listeners},
        drain_timeout_s=drain_timeout_s,
        health_check=spec.health_check,
        proxy_protocol=spec.proxy_protocol,
        addresses=(),
        error_limit=_error_limit(spec),
        installation=spec.parameters.get("installation", "") or installation,
        named=by_port,
        first_options=info.get("options", ""),
    )


def _backends_by_port(info: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix("backend."): value for name, value in info.items() if _OF_PORT.fullmatch(name)}


def class_problem(parameters: Mapping[str, str]) -> str:
    """Return what is wrong with the parameters of a class, whatever load balancer uses it; empty when nothing is."""
    if problem := _problem_of_names(parameters) or _problem_of_socket(parameters):
        return problem
    try:
        _drain_timeout_s(parameters)
    except ValueError as error:
        return f"parameters.drainTimeout: {error}"
    for field, text in sorted(parameters.items()):
        if field == "backend" or _OF_PORT.fullmatch(field):
            # Each placeholder is replaced by valid parts of names.
            name = re.sub(r"\{(member|hubNamespace|namespace|name|port)\}", "x", text)
            if problem := _problem_of_backend(field, name):
                return problem
    return ""


def _drain_timeout_s(parameters: Mapping[str, str]) -> float:
    return seconds_from_duration(parameters.get("drainTimeout", "30s"))


def _problem_of_names(parameters: Mapping[str, str]) -> str:
    names = (name for name in parameters if not _OF_PORT.fullmatch(name))
    return unknown_parameter(names, (*_PARAMETERS, "backend.<port>"), "provider haproxy")


def _check_health_settings(spec: FrontendSpec) -> None:
    """Refuse what HAProxy cannot do in a check over HTTPS, or when connections to a server fail."""
    request = spec.health_check.request if spec.health_check is not None else None
    if request is not None and request.host and not _HOST.fullmatch(request.host):
        raise BadConfiguration(f"{spec.key}: spec.healthCheck.host: {request.host[:60]!r} is not a host name")
    if request is not None and len(request.ca_bundle.encode()) > _MAX_BUNDLE_BYTES:
        raise BadConfiguration(
            f"{spec.key}: spec.healthCheck.caBundle has more than {_MAX_BUNDLE_BYTES} bytes, the most that HAProxy "
            "accepts at run time. Name only the authority that signs the members' certificates"
        )
    outlier = spec.outlier_detection
    if outlier is None or outlier.max_ejection_percent == 0:
        return
    unsupported = {
        "consecutiveGatewayErrors": bool(outlier.consecutive_gateway_errors),
        "ejectionTime": bool(outlier.ejection_time),
        "maxEjectionPercent": outlier.max_ejection_percent is not None,
    }
    if field := next((name for name, is_set in unsupported.items() if is_set), ""):
        raise BadConfiguration(
            f"{spec.key}: spec.outlierDetection: {field} has no meaning at HAProxy, where a server gets no connections "
            "until it passes its check; use consecutive5xx alone"
        )
    if _error_limit(spec) and spec.health_check is None:
        raise BadConfiguration(
            f"{spec.key}: spec.outlierDetection: HAProxy needs health checks to end it; turn them on, or remove it"
        )


def _error_limit(spec: FrontendSpec) -> int:
    outlier = spec.outlier_detection
    return outlier.consecutive_5xx if outlier is not None and outlier.max_ejection_percent != 0 else 0


def _problem_of_socket(parameters: Mapping[str, str]) -> str:
    path = parameters.get("socket", "")
    if not path:
        return "parameters.socket is missing: its class must name HAProxy's Runtime API socket"
    if not path.startswith("/") or len(path.encode()) > _MAX_PATH_BYTES or "\0" in path:
        return f"parameters.socket must be an absolute path of at most {_MAX_PATH_BYTES} bytes"
    return ""


def _problem_of_backend(field: str, name: str) -> str:
    """Return what is wrong with the name of a backend whose placeholders have been filled in."""
    if unknown := _PLACEHOLDER.search(name):
        return (
            f"parameters.{field}: {unknown[0][:40]!r} is unknown; a backend's name may hold {{member}}, "
            "{hubNamespace}, {namespace}, {name} and {port}"
        )
    if not _BACKEND.fullmatch(name):
        return f"parameters.{field}: {name[:40]!r} cannot be the name of a HAProxy backend"
    return ""


def _backend(spec: FrontendSpec, listener: ListenerKey) -> str:
    if listener.protocol is not Protocol.TCP:
        raise BadConfiguration(f"{spec.key}: listener {listener}: HAProxy balances TCP only; remove it")
    field = f"backend.{listener.port}"
    name = spec.parameters.get(field, "")
    common = spec.parameters.get("backend", "")
    if not name and (len(spec.listeners) == 1 or "{port}" in common):
        name, field = common, "backend"
    if not name:
        field = "backend" if len(spec.listeners) == 1 else field
        # What a user may write is on the object itself only where the object is theirs.
        where = f"existing.{field}" if spec.key.kind == "LoadBalancer" else f"parameters.{field} of the class"
        raise BadConfiguration(
            f"{spec.key}: {where} is missing: name the HAProxy backend of listener {listener}; backends are made in "
            "HAProxy's own configuration, not at run time"
        )
    name = _filled(spec, name).replace("{port}", str(listener.port))
    if problem := _problem_of_backend(field, name):
        raise BadConfiguration(f"{spec.key}: {problem}")
    allowed = spec.parameters.get("allowedBackends", "*").split(",")
    if not any(fnmatchcase(name, pattern.strip()) for pattern in allowed):
        raise BadConfiguration(
            f"{spec.key}: backend {name} is not among the class's parameters.allowedBackends; name one that is, or ask "
            "the operator to add it there"
        )
    return name


def _filled(spec: FrontendSpec, text: str) -> str:
    """Fill in whose it is, as the hub knows it; ``{port}`` is filled in for each listener."""
    owner = spec.owner
    values = {"member": owner.member, "hubNamespace": spec.key.namespace, "namespace": owner.namespace}
    for name, value in {**values, "name": owner.name}.items():
        text = text.replace(f"{{{name}}}", value)
    return text
