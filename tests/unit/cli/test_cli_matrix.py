"""Every verb that reads or acts on objects takes the same options; what one does not take has a reason here."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from fairlead.cli.main import app
from fairlead.cli.options import Output
from fairlead.cli.verbs import UsageOutput

#: What is asked of each verb: a name, a namespace, labels, a context, a format, and to go on.
OPTIONS = ("NAME", "--namespace", "--selector", "--context", "--output", "--watch")

_ACTS = "it changes something once; fairlead status --watch shows what comes of it"
_TENANT = "a Tenant has no namespace: it is one"
_KEY = "its --output FILE is where the key of the agent is written; it prints nothing else"
_ONE = "it is of one member, by its name: a key, or an end, is not handed out by labels"
_MACHINE = "a machine has no namespace"
_ENDED = "a drill that has ended does not change"
_WAITS = "--for, the default, waits to the end"
_DRAINED = "machines leave one after another, so that their addresses have somewhere to go"
#: What a verb does not take, and why.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "status": {},
    "explain": {},
    "plan": {},
    "drift": {},
    "names": {},
    "route": {"NAME": "the request is what it is about; --lb names a load balancer"},
    "top": {"--watch": "it is live by itself; --once ends it"},
    "usage": {
        "--selector": "it is also of load balancers that were deleted, of which no labels are known",
        "--watch": "it is a report of what was; fairlead top is live",
    },
    "audit": {
        "--selector": "it is also of load balancers that were deleted, of which no labels are known",
        "--watch": "it is a report of what was",
    },
    "doctor": {"NAME": "a fault may have no object of ours; -n and -l, or explain NAME"},
    "gc": {"--watch": _ACTS},
    "pause": {"--watch": _ACTS},
    "resume": {"--watch": _ACTS},
    "repair": {"--watch": _ACTS},
    "collect": {
        "NAME": "a bug report is about all of an installation",
        "--namespace": "a bug report is about all of an installation",
        "--selector": "a bug report is about all of an installation",
        "--output": "its --output FILE is the file that it writes",
        "--watch": "it writes one file",
    },
    "convert": {"--watch": "it reads Ingresses once, from files too"},
    "member drain": {"--namespace": _TENANT, "--selector": _ONE, "--watch": _ACTS},
    "member undrain": {"--namespace": _TENANT, "--selector": _ONE, "--watch": _ACTS},
    "shift": {"--selector": _ONE, "--watch": _ACTS, "--namespace": "the GlobalService is given as namespace/name"},
    "drill member": {"--namespace": _TENANT, "--selector": _ONE, "--watch": "it waits to the end"},
    "drill history": {"--namespace": "a Drill has no namespace", "--selector": "it lists all", "--watch": _ENDED},
    "drill stop": {
        "--namespace": "a Drill has no namespace",
        "--selector": "one drill runs at a time",
        "--watch": _ACTS,
    },
    "maintenance on": {"--selector": "it closes the hosts of one object", "--watch": _ACTS},
    "maintenance off": {"--selector": "it opens the hosts of one object", "--watch": _ACTS},
    "proxy token": {
        "NAME": "the machine names itself when it joins",
        "--namespace": _MACHINE,
        "--selector": "a token is for one machine",
        "--watch": "it writes one token",
    },
    "proxy list": {"--namespace": _MACHINE},
    "proxy drain": {"--namespace": _MACHINE, "--selector": _DRAINED, "--watch": _WAITS},
    "proxy undrain": {"--namespace": _MACHINE, "--selector": _DRAINED, "--watch": _ACTS},
    "proxy upgrade": {
        "NAME": "one machine after another is upgraded, up to the first that fails; --group limits which",
        "--namespace": _MACHINE,
        "--selector": "--group is what machines are upgraded by",
        "--watch": _WAITS,
    },
    "proxy remove": {"--namespace": _MACHINE, "--selector": _DRAINED, "--watch": _WAITS},
    "tenant list": {"--namespace": _TENANT},
    "tenant usage": {"--namespace": _TENANT},
    "tenant add": {"--namespace": _TENANT, "--selector": _ONE, "--watch": _ACTS},
    "tenant rotate": {"--namespace": _TENANT, "--selector": _ONE, "--watch": _ACTS},
    "tenant remove": {"--namespace": _TENANT, "--selector": _ONE, "--watch": "--wait, the default, goes on to the end"},
}
#: Commands that run something, print something of this program, or show an example: they are about no object.
WITHOUT_OBJECTS = {
    "run", "standalone", "hub", "agent", "egress-node", "regions", "capi", "apiserver", "crds", "version",
    "demo", "demo global", "demo http", "demo machines", "demo names", "demo cluster-api", "demo regions",
    "demo rollout",
    "proxy join", "proxy run",
}  # fmt: skip
#: --output of these is a FILE.
WITH_FILES = {"collect", "tenant add", "tenant rotate"}


def commands() -> dict[str, Any]:
    root: Any = typer.main.get_command(app)
    there: dict[str, Any] = {}
    for name, command in root.commands.items():
        there |= {f"{name} {inner}": each for inner, each in getattr(command, "commands", {}).items()}
        if not hasattr(command, "commands") or command.invoke_without_command:
            there[name] = command
    return there


def taken(command: Any) -> set[str]:
    """Return which of the options a command takes, by their long names."""
    options = {name for each in command.params if each.param_type_name == "option" for name in each.opts}
    arguments = {"NAME"} if any(each.param_type_name == "argument" for each in command.params) else set[str]()
    return arguments | (options & set(OPTIONS))


def test_every_command_is_in_the_matrix() -> None:
    assert set(commands()) == set(EXCEPTIONS) | WITHOUT_OBJECTS


@pytest.mark.parametrize("verb", EXCEPTIONS)
def test_a_verb_takes_every_option_but_those_with_a_reason(verb: str) -> None:
    takes = taken(commands()[verb])
    if verb in WITH_FILES:
        takes.discard("--output")
    reasons = EXCEPTIONS[verb] | ({"--output": _KEY} if verb in WITH_FILES else {})
    if verb == "route":
        takes.discard("NAME")  # METHOD and URL
    assert takes == set(OPTIONS) - set(reasons)


@pytest.mark.parametrize("verb", EXCEPTIONS)
def test_an_option_is_short_and_explained_the_same_everywhere(verb: str) -> None:
    shorts = {"--namespace": "-n", "--selector": "-l", "--watch": "-w"}
    for each in commands()[verb].params:
        for long, short in shorts.items():
            if long in each.opts:
                assert each.opts == [long, short]
        if "--watch" in each.opts:
            assert each.help == "Keep running, and print again on every change."
        if "--output" in each.opts and verb not in WITH_FILES:
            assert each.opts == ["--output", "-o"]
            # Usage has one format more, csv.
            assert isinstance(each.default, Output | UsageOutput)
            assert set(map(str, Output)) < set(map(str, UsageOutput))


def test_no_short_option_means_two_things() -> None:
    meanings: dict[str, set[str]] = {}
    for command in commands().values():
        for each in command.params:
            for short in (opt for opt in each.opts if len(opt) == 2):
                meanings.setdefault(short, set()).add(next(opt for opt in each.opts if opt.startswith("--")))
    assert {short: longs for short, longs in meanings.items() if len(longs) > 1} == {}
