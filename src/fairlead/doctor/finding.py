"""The result of a check: the object at fault, what is wrong with it, and the command that fixes it.

In: the values of one fault. Out: ``Finding``; the table of checks adds its name. Never: a finding without a next step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

import msgspec

from fairlead.doctor.facts import Facts


class Severity(StrEnum):
    """error: something does not work. warning: it works, and will not for ever. unknown: it could not be checked."""

    ERROR = "error"
    WARNING = "warning"
    UNKNOWN = "unknown"


class Finding(msgspec.Struct, frozen=True):
    """One fault. ``object`` is KIND/NAMESPACE/NAME, or what else is at fault; ``fix`` is the command that fixes it."""

    severity: Severity
    object: str
    fault: str
    fix: str
    check: str = ""


class Check(msgspec.Struct, frozen=True):
    """One check: its name, the question that it answers, and the function that finds what is wrong.

    ``side`` is the cluster for which its commands are: hub or member.
    """

    name: str
    question: str
    run: Callable[[Facts], Iterator[Finding]]
    side: str = "hub"


#: Verbs of ours that read the cluster of ``--kubeconfig``.
_READING = ("drift", "explain", "names", "plan", "repair", "resume", "route", "status")


def pasteable(fix: str, flags: str) -> str:
    """Return a fix that a shell takes as it is: for the cluster that was looked at, and with its hint as a comment.

    Checks write the hint after three spaces; ``flags`` are the options that name the kubeconfig, if any.
    """
    command, _, hint = fix.partition("   ")
    program, _, rest = command.partition(" ")
    # Which member it is that a check of the hub names is not known here.
    if flags and "--kubeconfig" not in command and not hint.startswith("in member"):
        if program == "kubectl":
            command = f"kubectl {flags} {rest}"
        elif program == "fairlead" and rest.partition(" ")[0] in _READING:
            command = f"{command} {flags}"
    return f"{command}   # {hint}" if hint else command


def error(object_: str, fault: str, fix: str) -> Finding:
    """Return a fault that keeps something from working."""
    return Finding(Severity.ERROR, object_, fault, fix)


def warning(object_: str, fault: str, fix: str) -> Finding:
    """Return a fault that will keep something from working."""
    return Finding(Severity.WARNING, object_, fault, fix)


def unknown(object_: str, fault: str, fix: str) -> Finding:
    """Return what could not be checked."""
    return Finding(Severity.UNKNOWN, object_, fault, fix)
