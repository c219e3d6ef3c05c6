"""The settings of one name: zone, host, DNS server, ownerId and credentials.

In: a load balancer whose parameters are those of a DNSZone. Out: ``NameSettings``; a mistake is a ``BadConfiguration``
that names the field. What every DNS provider has:

    zone, host, ownerId     from the DNSZone and the Hostname
    peerLeaseSeconds        from the DNSZone, when other hubs share its names
    server                  host:port of the authoritative server that is asked whether names resolve
    credentials             the Secret in the hub's namespace with the key
    timeout                 for one exchange with the server; default 5s
    maxRecords              the most records that one update changes; default 400
    txtPrefix, txtSuffix    as external-dns was given them in this zone, so that its registry is found
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Protocol

import msgspec

from fairlead.api.hostname import is_within
from fairlead.api.kubernetes import SECRETS, Secret
from fairlead.api.names import SYSTEM_NAMESPACE, short_hash, unknown_parameter
from fairlead.api.times import seconds_from_duration
from fairlead.errors import BadConfiguration, Forbidden, NotFound, Retry
from fairlead.kube.cluster import Cluster
from fairlead.model.desired import FrontendSpec
from fairlead.model.in_words import host_port, whole_number
from fairlead.providers.zones.plan import PREFIX_LENGTH, Holder, canonical_name
from fairlead.runtime.clock import Clock

PORT = 53
LONGEST_TIMEOUT_S = 60.0
LONGEST_NAME = 253
_GIVEN = frozenset({"zone", "host", "ownerId", "peerLeaseSeconds"})
_COMMON = ("server", "credentials", "timeout", "maxRecords", "txtPrefix", "txtSuffix")


class ServerSettings(msgspec.Struct, frozen=True):
    """One zone at one server; ``others`` are the parameters of its own kind of server."""

    zone: str
    host: str
    port: int
    credentials: str = ""
    timeout_s: float = 5.0
    max_records: int = 400
    others: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Return the server as messages name it."""
        return host_port(self.host, self.port)

    def other(self, name: str, default: str = "") -> str:
        """Return a parameter of its own kind of server."""
        return dict(self.others).get(name, default)


class NameSettings(msgspec.Struct, frozen=True):
    """One name in that zone."""

    server: ServerSettings
    name: str
    holder: Holder
    prefix: str = ""
    suffix: str = ""
    #: The duration of this hub's lease in the zone; 0: no other hub shares its names.
    lease_s: int = 0


def settings_from_spec(spec: FrontendSpec, *, own: frozenset[str]) -> NameSettings:
    """Read and check the parameters of ``spec``; ``own`` are those of this kind of server alone."""
    parameters = spec.parameters
    _check_names(spec, own)
    zone, name = (canonical_name(parameters.get(field, "")) for field in ("zone", "host"))
    if not zone or not name or not parameters.get("ownerId"):
        raise BadConfiguration(f"{spec.key}: this provider publishes names; only a DNSZone can use it")
    if not is_within(name, zone):
        raise BadConfiguration(f"{spec.key}: {name} is not in zone {zone}")
    if len(name) + PREFIX_LENGTH > LONGEST_NAME:
        raise BadConfiguration(f"{spec.key}: {name[:40]}… is longer than {LONGEST_NAME - PREFIX_LENGTH} characters")
    host, port = server_address(parameters.get("server", ""))
    return NameSettings(
        server=ServerSettings(
            zone,
            host,
            port,
            credentials=parameters.get("credentials", ""),
            timeout_s=_timeout_s(parameters.get("timeout", "5s")),
            max_records=_number("maxRecords", parameters.get("maxRecords", "400"), 4, 1000),
            others=tuple(sorted((field, parameters[field]) for field in own & parameters.keys())),
        ),
        name=name,
        holder=Holder(parameters["ownerId"], short_hash(*spec.key, size_bytes=8)),
        prefix=parameters.get("txtPrefix", "").lower(),
        suffix=parameters.get("txtSuffix", "").lower(),
        lease_s=_number("peerLeaseSeconds", parameters.get("peerLeaseSeconds", "0"), 0, 3600),
    )


def failure_domain(parameters: Mapping[str, str]) -> str:
    """Return the zone at its server: what answers, or hangs, as one."""
    return f"{parameters.get('server', '')} {canonical_name(parameters.get('zone', ''))}"


def _check_names(spec: FrontendSpec, own: frozenset[str]) -> None:
    names = spec.parameters.keys() - _GIVEN
    if problem := unknown_parameter(names, sorted({*_COMMON, *own}), "the provider of the DNSZone"):
        raise BadConfiguration(problem)


def server_address(server: str) -> tuple[str, int]:
    """Return host and port of parameter server; ``BadConfiguration`` when it is invalid."""
    host, colon, port = server.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host, port = server, str(PORT)
    host = host.strip("[]")
    number = whole_number(port, least=1, most=65_535)
    if not host or number is None or any(char.isspace() for char in host):
        raise BadConfiguration(
            "parameters.server of the DNSZone must be host:port of the authoritative DNS server, such as 192.0.2.53:53"
        )
    return host, number


def _timeout_s(text: str) -> float:
    try:
        seconds = seconds_from_duration(text)
    except ValueError as error:
        raise BadConfiguration(f"parameters.timeout of the DNSZone: {error}") from error
    if not 0 < seconds <= LONGEST_TIMEOUT_S:
        raise BadConfiguration(f"parameters.timeout of the DNSZone must be at most {LONGEST_TIMEOUT_S:g}s")
    return seconds


def _number(field: str, text: str, low: int, high: int) -> int:
    number = whole_number(text, least=low, most=high)
    if number is None:
        raise BadConfiguration(f"parameters.{field} of the DNSZone must be a number from {low} to {high}")
    return number


_FRESH_S = 30.0


class Secrets(Protocol):
    """The source of keys."""

    async def entry(self, name: str, entry: str) -> str:
        """Return one entry of a Secret as text; ``Retry`` says what is missing."""
        ...


class HubSecrets:
    """The Secrets of the hub's namespace."""

    def __init__(self, cluster: Cluster | None, *, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._read: dict[str, tuple[float, Mapping[str, str]]] = {}

    async def entry(self, name: str, entry: str) -> str:
        """Return one entry of a Secret as text."""
        data = await self._data(name)
        where = f"Secret {SYSTEM_NAMESPACE}/{name}, which the DNSZone's parameters.credentials names,"
        if entry not in data:
            raise Retry(f"{where} has no entry {entry}; add it", reason="CredentialsMissing")
        try:
            text = base64.b64decode(data[entry], validate=True).decode("ascii").strip()
        except (binascii.Error, UnicodeDecodeError):
            raise Retry(
                f"{where} has an entry {entry} that is not text; replace it", reason="CredentialsWrong"
            ) from None
        if not text:
            raise Retry(f"{where} has an empty entry {entry}; fill it", reason="CredentialsMissing")
        return text

    async def _data(self, name: str) -> Mapping[str, str]:
        at_s, data = self._read.get(name, (0.0, {}))
        now_s = self._clock.monotonic()
        if data and now_s - at_s < _FRESH_S:
            return data
        if self._cluster is None:
            raise Retry("this process has no cluster to read Secrets from", reason="CredentialsMissing")
        try:
            secret: Secret = await self._cluster.get(SECRETS, SYSTEM_NAMESPACE, name)
        except (NotFound, Forbidden) as error:
            raise Retry(
                f"Secret {SYSTEM_NAMESPACE}/{name} is missing, or the hub may not read it; create it, or correct "
                "parameters.credentials of the DNSZone",
                detail=error.sentence,
                reason="CredentialsMissing",
            ) from error
        data = secret.data or {}
        self._read[name] = (now_s, data)
        return data
