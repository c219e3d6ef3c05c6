"""The options that several commands share, and help without the names of Python's types.

In: the parameters of a command. Out: options with one name and one explanation everywhere; in ``--help`` a flag takes
no value, and an argument's placeholder says what it takes. Never changes what a parameter accepts.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from fairlead.cli.run import epilog_of, set_verbose


class LogFormat(StrEnum):
    """Formats of the log on stderr."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """From which level on the log says something."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Output(StrEnum):
    """Formats of results."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def is_data(self) -> bool:
        """Return whether the whole answer is printed, for programs."""
        return self in (Output.JSON, Output.YAML)


def _verbose(value: bool) -> bool:
    set_verbose(on=value)
    return value


def directory(text: str | Path) -> Path:
    """Return the directory that was typed; nothing at all would be the working directory, which is never meant."""
    if not str(text).strip():
        raise typer.BadParameter("the value is empty, often an unset variable; name a directory, such as ./hub")
    return Path(text)


def _stop_on(text: str) -> str:
    from fairlead.api.globalservice import STOP_ON

    if not re.fullmatch(STOP_ON, text):
        raise typer.BadParameter(
            f"{text!r} is not a limit such as '5xx>1%' or 'failed>0.5%', with quotes for the shell"
        )
    return text


StopOnOption = Annotated[
    str,
    typer.Option(
        "--stop-on",
        metavar="LIMIT",
        help="Stop when errors exceed this limit: '5xx>1%', or 'failed>1%' for connections without HTTP.",
        callback=_stop_on,
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the detail behind errors.", callback=_verbose, show_default=False)
]
Level = Annotated[
    LogLevel,
    typer.Option("--log-level", metavar="LEVEL", help="Lowest level logged on stderr: debug, info, warning or error."),
]
Format = Annotated[
    LogFormat,
    typer.Option("--log-format", metavar="FORMAT", help="text, json, or auto: text on a terminal, else JSON."),
]
OutputOption = Annotated[
    Output,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="table, wide (all columns), json, yaml, or name (KIND/NAME of each, as verbs take it).",
    ),
]
#: How a verb is given what it is about; ``selection.ObjectOptions`` has all three.
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help="Namespace of KIND/NAME, else default; without KIND/NAME: only this one, at the hub or in a member.",
        show_default=False,
    ),
]
OnlyNamespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NS", help="Only this namespace, at the hub or in a member.")
]
Labels = Annotated[
    str,
    typer.Option(
        "--selector",
        "-l",
        metavar="SELECTOR",
        help="Only objects with these labels at the hub, such as app=web,tier!=test.",
    ),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Keep running, and print again on every change.")]
Metrics = Annotated[
    str, typer.Option("--metrics", metavar="HOST:PORT", help="Serve /readyz and /metrics there; empty: off.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="File with a token of the hub's API, if the page requires one."),
]
HubMetrics = Annotated[
    str, typer.Option("--metrics", metavar="HOST:PORT", help="Serve the page, /readyz and /metrics there; empty: off.")
]
MachinesAt = Annotated[
    str, typer.Option("--machines", metavar="HOST:PORT", help="Serve proxy machines here; empty: off.")
]
Announce = Annotated[bool, typer.Option("--announce", help="Announce addresses by ARP or BGP; root.")]
StopProxy = Annotated[
    bool, typer.Option("--stop-proxy", help="End the local Envoy on a clean exit; by default it keeps serving.")
]
AddressPool = Annotated[
    str, typer.Option("--address-pool", metavar="CIDRS", help="Comma-separated address ranges for load balancers.")
]
Domain = Annotated[
    str,
    typer.Option(
        "--domain", metavar="DOMAIN", help="Ingresses and Gateways get names in TENANT.DOMAIN, such as lb.example.com."
    ),
]
Listen = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Where the API listens; port 0: any free one.")
]
DataDir = Annotated[
    Path,
    typer.Option("--data-dir", metavar="DIR", parser=directory, help="Directory for all state; created if missing."),
]
OptionalDataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", parser=directory, help="Directory for all state; created if missing."),
]
HubDir = Annotated[
    Path, typer.Option("--data-dir", metavar="DIR", parser=directory, help="Envoy's files and this hub's identity.")
]

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        parser=directory,
        help="Keeps the lease identity, to lead again at once after a crash; "
        "default: ~/.local/state/fairlead, or fairlead in XDG_STATE_HOME.",
    ),
]
Identity = Annotated[
    str, typer.Option("--identity", metavar="NAME", help="Unique identity in the lease; default: generated.")
]
DemoDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", parser=directory, help="Working directory; default: a new temporary one."
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="Print lines instead of a live table.")]


def kubeconfig_help(what: str) -> str:
    """Say where a kubeconfig comes from when the option is not given."""
    return f"{what}; default: $KUBECONFIG, ~/.kube/config, then the pod's service account."


#: Every verb that reads a kubeconfig of the hub takes these two, and hands them to ``connect.connect``.
Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", metavar="FILE", help=kubeconfig_help("The hub's API"))]
Context = Annotated[
    str, typer.Option("--context", metavar="NAME", help="Context of --kubeconfig; default: its current one.")
]
ValidFor = Annotated[
    str,
    typer.Option("--valid-for", metavar="DURATION", help="Lifetime of the token, such as 24h; the agent renews it."),
]
ValidDays = Annotated[
    int | None, typer.Option("--valid-days", min=1, max=3650, hidden=True, help="Earlier name of --valid-for, in days.")
]
MemberName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the member.", show_default=False)]
AnyMember = Annotated[str, typer.Argument(metavar="NAME", help="Only this member; default: all.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="FILE", help="Write the agent's kubeconfig to this file (mode 0600); default: stdout."
    ),
]
HubAddress = Annotated[
    str, typer.Option("--server", metavar="URL", help="URL of the hub for the agent; default: as in --kubeconfig.")
]


@dataclass(frozen=True)
class OptionGroup:
    """Options that a command takes as one parameter; ``takes_groups`` declares them on the command line."""


@dataclass(frozen=True)
class HubApi(OptionGroup):
    """Where the hub's API is, for every verb that reads it."""

    kubeconfig: Kubeconfig = None
    context: Context = ""
    verbose: Verbose = False


@dataclass(frozen=True)
class ReplicaOptions(OptionGroup):
    """The options of one replica of a process."""

    identity: Identity = ""
    data_dir: StateDir = None
    metrics: Metrics = ""


@dataclass(frozen=True)
class LogOptions(OptionGroup):
    """How a process logs."""

    log_level: Level = LogLevel.INFO
    log_format: Format = LogFormat.AUTO
    verbose: Verbose = False

    def start(self) -> None:
        """Log on stderr from here on."""
        start_logging(self.log_level, self.log_format)


@dataclass(frozen=True)
class QuietLogOptions(LogOptions):
    """How a process for people logs: only from warnings on."""

    log_level: Level = LogLevel.WARNING


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose option groups are options of their own on the command line."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, OptionGroup)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name not in groups:
            typed = parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
            parameters.append(typed)
            continue
        options = get_type_hints(groups[parameter.name], include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=options[field.name]
            )
            for field in fields(groups[parameter.name])
        ]

    @functools.wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name, field.default) for field in fields(group)})
        command(**values)

    vars(call)["__signature__"] = inspect.Signature(parameters)
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def host_and_port(text: str, flag: str) -> tuple[str, int]:
    """Read ``host:port``; ``BadConfiguration`` names the flag."""
    from fairlead.errors import BadConfiguration
    from fairlead.model.in_words import whole_number

    host, colon, port = text.strip().rpartition(":")
    number = whole_number(port, most=65_535)
    if not colon or number is None:
        raise BadConfiguration(f"{flag}: {text!r} is not HOST:PORT such as 127.0.0.1:6443; the port is 0 to 65535")
    return host.strip("[]") or "127.0.0.1", number


def metrics_at(text: str) -> tuple[str, int] | None:
    """Read --metrics; None where it is off."""
    return host_and_port(text, "--metrics") if text else None


def machines_at(text: str) -> tuple[str, int] | None:
    """Read --machines; None where it is off."""
    return host_and_port(text, "--machines") if text else None


def duration_s(text: str, flag: str) -> float:
    """Read a duration such as 90s, or a number of seconds; ``BadConfiguration`` names the flag."""
    from fairlead.api.times import seconds_from_duration
    from fairlead.errors import BadConfiguration

    plain = text.strip()
    try:
        return float(plain) if plain.isascii() and plain.isdecimal() else seconds_from_duration(plain)
    except (ValueError, KeyError) as error:
        raise BadConfiguration(f"{flag}: {text!r} is not a duration such as 90s or 10m") from error


def page_urls(metrics: str) -> str:
    """Return where a browser finds the page that is served at HOST:PORT: of an address that means all, one of them."""
    from fairlead.model.in_words import host_port

    host, port = host_and_port(metrics, "--metrics")
    here = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host)
    if here is None:
        return f"http://{host_port(host, port)}"
    return f"http://{here}:{port}  (from elsewhere: port {port} of any address of this machine)"


def start_logging(level: LogLevel, form: LogFormat) -> None:
    """Log on stderr from here on."""
    from fairlead.runtime.logs import configure_logging

    configure_logging(level.value, None if form is LogFormat.AUTO else form is LogFormat.JSON)


class PlainCommand(TyperCommand):
    """A command whose help names no types, and breaks its lines where the terminal ends."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.help = flowing(self.help or "")

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, without their types."""
        return without_types(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group of commands whose help names no types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, without their types."""
        return without_types(super().get_params(ctx))


class CommandGroup(typer.Typer):
    """Commands with a first word in common, such as ``tenant``; ``verb`` declares one of them."""

    def __init__(self, word: str, about: str) -> None:
        super().__init__(cls=PlainGroup, no_args_is_help=True, help=about)
        self._word = word

    def verb(self, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Declare a command, which may take groups of options."""
        declare = self.command(name, cls=PlainCommand, epilog=epilog_of(f"{self._word} {name}"))
        return lambda command: declare(takes_groups(command))


def flowing(text: str) -> str:
    """Return ``text`` with one line for each paragraph: where a docstring breaks its lines says nothing."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def without_types(params: list[Any]) -> list[Any]:
    """Return ``params``; flags and arguments show nothing in the column of types, and defaults are in the text."""
    for param in params:
        if param.param_type_name == "argument":
            # Typer asks the parameter itself, and has no setting for it.
            vars(param)["display_type_rich"] = _nothing
            if param.required:
                vars(param)["_usage_display_name"] = lambda name=param.metavar: name
        elif param.is_flag:
            param.metavar = ""
        else:
            # A range would take its width from the texts of all options; the error for another number names it.
            vars(param)["_get_number_range_help_str"] = str
            if param.show_default and param.help and param.default not in (None, ""):
                # Typer gives the default a line of its own.
                default = getattr(param.default, "value", param.default)
                param.help = f"{param.help.rstrip('.')}; default: {default}."
                param.show_default = False
    return params


def _nothing(ctx: Any) -> None:
    """Take the place of Typer's method; there is nothing to show."""
