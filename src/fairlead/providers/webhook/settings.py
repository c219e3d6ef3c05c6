"""The settings of a driver: its URL, and how it may be called.

In: the parameters of a class (merged with those of the load balancer). Out: ``DriverSettings``, and what is left:
the ``lbSpec`` that the driver gets. Every mistake is a ``BadConfiguration`` that names the parameter.

    url                  https://driver.example:8443/prefix   (http only to loopback when a token is sent)
    credentials          folder of the credentials directory: ca.crt, tls.crt + tls.key, token; each as needed
    timeout              for every hook; default 10s, at most 60s          timeout.<hook>    for one hook
    parallel             calls at once to this driver, 1 to 64; default 8
    acceptDryRunCall     "true": the driver is called in a dry run too, with dryRun
    verify               "true": the driver has the hook listBackends, and effects are read back
    backendHealth        "true": the driver has the hook backendHealth, and is asked every few seconds
    ipFamilies           "true": the driver reads ipFamilies and ipFamilyPolicy, and gets them
Never: opens a file or a connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec

from fairlead.api.times import seconds_from_duration
from fairlead.errors import BadConfiguration
from fairlead.model.in_words import whole_number
from fairlead.providers.webhook.protocol import Hook

DEFAULT_TIMEOUT_S = 10.0
LONGEST_TIMEOUT_S = 60.0
_MOST_PARALLEL = 64
_FOLDER = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9_-]|\.(?!\.)){0,62}$")
_FAIRLEAD_PARAMETERS = frozenset(
    {"url", "credentials", "timeout", "parallel", "acceptDryRunCall", "verify", "backendHealth", "ipFamilies"}
)

#: What only a class may set: where the driver is, our credentials, and how often it may be called.
CLASS_PARAMETERS = _FAIRLEAD_PARAMETERS | {"timeout."}


class DriverSettings(msgspec.Struct, frozen=True):
    """One driver, as a class describes it."""

    url: str
    credentials: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S
    hook_timeouts_s: tuple[tuple[str, float], ...] = ()
    parallel: int = 8
    accept_dry_run: bool = False
    verify: bool = False
    health: bool = False
    families: bool = False

    @property
    def name(self) -> str:
        """Return how messages name the driver."""
        return f"driver {self.url}"

    def timeout_of(self, hook: Hook) -> float:
        """Return the timeout of one call of ``hook``, in seconds."""
        return dict(self.hook_timeouts_s).get(hook, self.timeout_s)


def settings_from_parameters(parameters: Mapping[str, str]) -> DriverSettings:
    """Read and check what concerns the driver itself."""
    url = _checked_url(parameters.get("url", ""))
    credentials = parameters.get("credentials", "")
    if credentials and not _FOLDER.match(credentials):
        raise BadConfiguration(
            f"parameters.credentials {credentials!r} is not the name of a folder in the credentials directory"
        )
    hook_timeouts: list[tuple[str, float]] = []
    for key, value in sorted(parameters.items()):
        if key.startswith("timeout."):
            hook = key.removeprefix("timeout.")
            if hook not in tuple(Hook):
                raise BadConfiguration(f"parameters.{key} is not the name of a hook; valid are {', '.join(Hook)}")
            hook_timeouts.append((hook, _timeout(key, value)))
    return DriverSettings(
        url=url,
        credentials=credentials,
        timeout_s=_timeout("timeout", parameters.get("timeout", "10s")),
        hook_timeouts_s=tuple(hook_timeouts),
        parallel=_parallel(parameters.get("parallel", "8")),
        accept_dry_run=_flag(parameters, "acceptDryRunCall"),
        verify=_flag(parameters, "verify"),
        health=_flag(parameters, "backendHealth"),
        families=_flag(parameters, "ipFamilies"),
    )


def readable_settings(parameters: Mapping[str, str]) -> DriverSettings | None:
    """Return the settings of those parameters that can be read, None when there is no driver that could be called."""
    url = parameters.get("url", "")
    try:
        settings_from_parameters({"url": url})
    except BadConfiguration:
        return None
    kept = {"url": url}
    for name, value in parameters.items():
        with suppress(BadConfiguration):
            settings_from_parameters({"url": url, name: value})
            kept[name] = value
    return settings_from_parameters(kept)


def class_problem(parameters: Mapping[str, str]) -> str:
    """Return what is wrong with the parameters of a class, empty when nothing is."""
    try:
        settings_from_parameters(parameters)
    except BadConfiguration as error:
        return error.sentence
    return ""


def lb_spec(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that are passed on to the driver."""
    return {
        key: value
        for key, value in parameters.items()
        if key not in _FAIRLEAD_PARAMETERS and not key.startswith("timeout.")
    }


def _checked_url(url: str) -> str:
    if not url:
        raise BadConfiguration("parameters.url is missing: a webhook class needs the base URL of its driver")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
        parts = urlsplit("")
    if not usable or any(char.isspace() for char in url):
        raise BadConfiguration("parameters.url is not an http or https URL with a host")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        # Not repeated in the message: this is where people put secrets.
        raise BadConfiguration(
            "parameters.url must not contain a user, password, query or fragment; put secrets into "
            "parameters.credentials"
        )
    # A scheme is the same in capital letters (RFC 3986, 3.1), and decides about TLS and tokens.
    return parts.scheme + url[len(parts.scheme) :].rstrip("/")


def _timeout(key: str, value: str) -> float:
    try:
        seconds = seconds_from_duration(value)
    except ValueError as error:
        raise BadConfiguration(f"parameters.{key}: {error}") from error
    if not 0 < seconds <= LONGEST_TIMEOUT_S:
        raise BadConfiguration(f"parameters.{key} {value} must be more than 0 and at most {LONGEST_TIMEOUT_S:g}s")
    return seconds


def _parallel(value: str) -> int:
    number = whole_number(value, least=1, most=_MOST_PARALLEL)
    if number is None:
        raise BadConfiguration(f"parameters.parallel {value[:20]!r} is not a number from 1 to {_MOST_PARALLEL}")
    return number


def _flag(parameters: Mapping[str, str], key: str) -> bool:
    value = parameters.get(key, "false").lower()
    if value not in ("true", "false"):
        raise BadConfiguration(f'parameters.{key} must be "true" or "false"')
    return value == "true"
