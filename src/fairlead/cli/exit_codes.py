"""The exit codes of every command, and how its help lists them: the only place where they are."""

from __future__ import annotations

OK, FAILED, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130
#: It was done, and says that something needs attention; the others are the answers of ``status`` alone.
ATTENTION, NOT_SERVING, NOT_KNOWN = 4, 5, 6
#: By the worst trouble of a status (``status/rows.py``).
EXIT_CODE_OF = {
    "Serving": OK,
    "Idle": OK,
    "NeedsAttention": ATTENTION,
    "NotServing": NOT_SERVING,
    "NotKnown": NOT_KNOWN,
}

EXIT_CODES = (
    "[bold]Exit codes[/bold]: 0 ok, also when asked to stop · 1 failed or unhealthy · 2 bad usage or configuration · "
    "3 API unreachable · 130 interrupted before it was done"
)
PLAN_EXIT_CODES = EXIT_CODES.replace("1 failed or unhealthy", "1 failed").replace(
    "130 ", f"{ATTENTION} something would change · 130 "
)
STATUS_EXIT_CODES = EXIT_CODES.replace("1 failed or unhealthy", "1 failed").replace(
    "130 ",
    f"{ATTENTION} all serve, and something needs attention · {NOT_SERVING} something does not serve · "
    f"{NOT_KNOWN} no hub leads, so what is shown may be old · 130 ",
)
CONVERT_EXIT_CODES = EXIT_CODES.replace("1 failed or unhealthy", "1 failed").replace(
    "130 ", f"{ATTENTION} something could not be converted · 130 "
)
DOCTOR_EXIT_CODES = (
    EXIT_CODES.replace("0 ok, also when asked to stop", "0 nothing is wrong")
    .replace("1 failed or unhealthy", "1 something is wrong")
    .replace("3 API unreachable · ", f"{ATTENTION} warnings only, or something could not be checked · ")
)
