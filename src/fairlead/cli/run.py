"""End a command: one clear sentence on stderr and a documented exit code, never a traceback.

In: a command's coroutine, or the whole app. Out: exit codes; this is their only table, from which each help and
docs/reference are written. 0, 4, 5 and 6 are answers, 1 to 3 are failures. A ``Bug`` and any other exception keep their
traceback behind ``--verbose``, and say how to get it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from fairlead.errors import BadConfiguration, FairleadError, Unauthorized, Unreachable, first_of
from fairlead.runtime.file_limit import raise_file_limit


class _Verbosity:
    """Whether errors print their detail; set by the options of whichever command runs."""

    on = False


def set_verbose(*, on: bool) -> None:
    """Have errors printed with all their detail."""
    _Verbosity.on = _Verbosity.on or on


def code_of(error: BaseException) -> int:
    """Return the exit code of ``error``."""
    match error:
        case KeyboardInterrupt() | asyncio.CancelledError():
            return INTERRUPTED
        case BadConfiguration() | Unauthorized():
            return USAGE
        case Unreachable():
            return UNREACHABLE
        case _:
            return FAILED


def sentence_of(error: BaseException, *, verbose: bool = False) -> str:
    """Return what to print for ``error``: its sentence, and with ``verbose`` its detail."""
    from fairlead.runtime.logs import legible  # it brings structlog, which help does not need

    match error:
        case FairleadError():
            detail = f"\n  detail: {legible(error.detail)}" if verbose and error.detail else ""
            return _finished(_without_retry(legible(error.sentence))) + detail
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            return _finished(legible(f"{where}{os.strerror(error.errno) if error.errno else error}"))
        case _:
            hint = "" if verbose else " Run it again with --verbose to see where."
            return f"{type(error).__name__}: {legible(str(error))}. This is a bug in Fairlead.{hint}"


def run_async(main: Callable[[], Awaitable[Any]]) -> None:
    """Run a command's coroutine; what it raises reaches ``run_app`` unwrapped."""
    # Most of what lives long are structs that the collector does not track; looking for cycles less often keeps
    # bulk loads fast and pauses out of the way of changes.
    gc.set_threshold(20_000, 20, 50)
    raise_file_limit()
    try:
        asyncio.run(_awaited(main))
    except BaseExceptionGroup as group:
        raise first_of(group) from group


def run_check(main: Callable[[], Awaitable[bool]]) -> None:
    """Run a command's coroutine; exit with ``FAILED`` when it returns False."""

    async def check() -> int:
        return OK if await main() else FAILED

    run_for_code(check)


def run_for_code(main: Callable[[], Awaitable[int]]) -> None:
    """Run a command's coroutine; exit with the code that it returns."""
    codes: list[int] = []

    async def answer() -> None:
        codes.append(await main())

    run_async(answer)
    if any(codes):
        raise typer.Exit(codes[0])


def program_name(arguments: Sequence[str]) -> str:
    """Return what a person types to run the program whose ``sys.argv`` this is: its own name, or that of a plugin.

    A completion that a shell is to keep is that of the program: kubectl asks for its plugins' in another way.
    """
    as_plugin = Path(arguments[0]).stem == "kubectl-fairlead" if arguments else False
    completes = any(argument.startswith(("--install-completion", "--show-completion")) for argument in arguments)
    return "kubectl fairlead" if as_plugin and not completes else "fairlead"


def run_app(app: typer.Typer) -> int:
    """Run the command line; return the exit code."""
    try:
        result = app(prog_name=program_name(sys.argv), standalone_mode=False)
    except (KeyboardInterrupt, asyncio.CancelledError):
        # The second is how SIGTERM ends a command that was not done.
        return INTERRUPTED
    except BrokenPipeError:
        close_stdout()
        return OK
    except SystemExit as ended:
        # Typer ends like that when the reader has closed the pipe; nothing else here does.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        close_stdout()
        return OK
    except Exception as error:  # noqa: BLE001 - the last door of the process: whatever it is becomes a sentence
        return _report(_named(error))
    return result if isinstance(result, int) else OK


def close_stdout() -> None:
    """Print nothing more: the reader has closed the pipe (``| head``), and what is buffered must not raise at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: Exception) -> int:
    usage_code = getattr(error, "exit_code", None)
    show = getattr(error, "show", None)
    if isinstance(usage_code, int):
        # Typer's own: a bad flag shows itself; Exit only carries a code; Abort is Ctrl-C at a prompt.
        if callable(show):
            # Take the name of the exception out of the message of a bad flag: validators put it before the sentence.
            message = getattr(error, "message", None)
            if isinstance(message, str):
                vars(error)["message"] = message.removeprefix("Value error, ")
            show()
        return usage_code
    if type(error).__name__ == "Abort":
        return INTERRUPTED
    if _Verbosity.on and not isinstance(error, FairleadError | OSError):
        import traceback

        traceback.print_exception(error)
    sys.stderr.write(f"{program_name(sys.argv)}: {sentence_of(error, verbose=_Verbosity.on)}\n")
    return code_of(error)


#: Packages that the extra ``standalone`` installs, and what each is for.
_EXTRA = {"podless": "the embedded Kubernetes API", "fairlead_demo": "the demo"}


def _named(error: Exception) -> Exception:
    """Return an error that names the extra when a package of it is missing."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package not in _EXTRA:
        return error
    return BadConfiguration(
        f"This command needs {_EXTRA[package]}, which is not installed: pip install 'fairlead[standalone]'"
    )


async def _awaited(main: Callable[[], Awaitable[Any]]) -> None:
    await main()


def _without_retry(sentence: str) -> str:
    """Return a sentence without the word that a process which ends here will try again."""
    text = sentence.removesuffix(" Retrying.")
    return sentence if text == sentence else f"{text} Try again; if that does not help, the server's log says more."


def _finished(sentence: str) -> str:
    # A URL, a path, the name of a file or field, or KIND/NAME at the beginning is left as it can be typed.
    first = sentence.partition(" ")[0]
    is_name = first.endswith(":") or any(mark in first[:-1] for mark in "/.")
    text = sentence if is_name else sentence[:1].upper() + sentence[1:]
    return text if text.endswith((".", "!", "?", ")")) else f"{text}."


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
    INTERRUPTED: "interrupted",
}
_A_REQUEST_FAILED = {FAILED: "failed, or a request failed"}
#: What a code means for one command, where that is more than above; without a text the command never ends with it.
OF_COMMANDS: dict[str, dict[int, str]] = {
    "status": {
        ATTENTION: "no outage, but something needs attention",
        NOT_SERVING: "something does not serve",
        NOT_KNOWN: "no hub leads, so the rows may be old",
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
    "tenant usage": {ATTENTION: "a member uses 80 % of a limit or more"},
    "proxy upgrade": {ATTENTION: "a machine failed, and the upgrade stopped"},
    "proxy drain": {ATTENTION: "drained, and still gets new connections"},
    "proxy remove": {ATTENTION: "removed, and still got new connections"},
    "drill member": {ATTENTION: "the drill failed or measured no traffic, or with --preview would be refused"},
    "drill history": {ATTENTION: "the newest drill, or the one that is named, failed or measured no traffic"},
    "convert": {ATTENTION: "something could not be converted"},
    "demo": _A_REQUEST_FAILED,
    "demo cluster-api": _A_REQUEST_FAILED,
    "demo global": _A_REQUEST_FAILED,
    "demo http": _A_REQUEST_FAILED,
    "demo machines": {FAILED: "failed, or a limit was missed"},
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
