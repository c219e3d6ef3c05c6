"""The exit codes of every command: the only table of them, from which each help and docs/reference are written.

The code alone says whether a command has its answer: 0, 4, 5 and 6 are answers, 1 to 3 are failures.
"""

from __future__ import annotations

OK, FAILED, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130
#: It was done, and the answer is that something needs attention, does not serve, or cannot be known.
ATTENTION, NOT_SERVING, NOT_KNOWN = 4, 5, 6
#: By the worst trouble of a status (``status/rows.py``).
EXIT_CODE_OF = {
    "Serving": OK,
    "Idle": OK,
    "NotKnownYet": ATTENTION,
    "NeedsAttention": ATTENTION,
    "NotServing": NOT_SERVING,
    "NotKnown": NOT_KNOWN,
}

#: What a code means wherever it can be; a code with no text is only of the commands in ``OF_COMMANDS``.
MEANINGS = {
    OK: "ok, also when asked to stop",
    FAILED: "failed",
    USAGE: "bad usage, configuration or credential",
    UNREACHABLE: "API unreachable",
    ATTENTION: "",
    NOT_SERVING: "",
    NOT_KNOWN: "",
    INTERRUPTED: "interrupted before it was done",
}
_A_REQUEST_FAILED = {FAILED: "failed, or a request failed"}
#: What a code means for one command, where that is more than above; without a text the command never ends with it.
OF_COMMANDS: dict[str, dict[int, str]] = {
    "status": {
        ATTENTION: "none is known not to serve, and something needs attention",
        NOT_SERVING: "something does not serve",
        NOT_KNOWN: "no hub leads, so what is shown may be old",
    },
    "doctor": {
        OK: "nothing is wrong",
        UNREACHABLE: "",
        ATTENTION: "warnings only, or something could not be checked",
        NOT_SERVING: "errors",
    },
    "plan": {ATTENTION: "something would change"},
    "route": {ATTENTION: "nothing takes the request"},
    "names": {
        FAILED: "failed, or a zone's server could not be asked",
        ATTENTION: "a name is not published, or does not resolve to what it should",
    },
    "drift": {FAILED: "failed, or something could not be read back", ATTENTION: "an entry of ours was changed"},
    "repair": {FAILED: "failed, or something still differs or could not be read back"},
    "gc": {FAILED: "failed, or something could not be read back", ATTENTION: "orphans are left"},
    "convert": {ATTENTION: "something could not be converted"},
    "demo": _A_REQUEST_FAILED,
    "demo cluster-api": _A_REQUEST_FAILED,
    "demo http": _A_REQUEST_FAILED,
    "demo names": _A_REQUEST_FAILED,
    "demo regions": _A_REQUEST_FAILED,
}


def codes_of(command: str) -> dict[int, str]:
    """Return the codes that ``command`` can end with, such as ``tenant add``, each with its meaning."""
    meant = MEANINGS | OF_COMMANDS.get(command, {})
    return {code: text for code, text in meant.items() if text}


def epilog_of(command: str) -> str:
    """Return the last line of the help of ``command``."""
    return "[bold]Exit codes[/bold]: " + " · ".join(f"{code} {text}" for code, text in codes_of(command).items())
