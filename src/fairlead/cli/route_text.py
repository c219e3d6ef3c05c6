"""Print what ``fairlead route`` has built, as lines for people.

In: answers. Out: for each the load balancer, the way through it, what is done, where it ends, and why not elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.cli.route_request import TypedRequest
from fairlead.cli.route_rows import PassedRow, RouteAnswer, RoutedBackend, RouteOutcome
from fairlead.model.in_words import counted
from fairlead.status.formatting import columns

#: Of the rules that a request does not go by, so many are shown without ``-o wide``.
_MOST_PASSED = 5


def lines_of(rows: Sequence[RouteAnswer], typed: TypedRequest, *, wide: bool) -> list[str]:
    """Return the lines of all answers."""
    lines = [typed.title]
    if not rows:
        return [*lines, "No HTTPLoadBalancer takes requests at this hub: kubectl get httplb -A"]
    if len(rows) > 1:
        how = "take" if rows[0].taken else "do not take"
        lines.append(f"{len(rows)} load balancers {how} it; its address decides: --address ADDRESS, or --lb httplb/...")
    for row in rows:
        lines += ["", *_answer(row, wide=wide)] if len(rows) > 1 else _answer(row, wide=wide)
    return lines


def _answer(row: RouteAnswer, *, wide: bool) -> Iterator[str]:
    address = f", address {row.address}" if row.address else ", no address yet"
    of = f" ({row.origin})" if row.origin else ""
    yield from columns([("load balancer", f"{row.load_balancer}{of}{address}"), ("member", row.member), *_way(row)])
    yield _end(row)
    if row.backends:
        yield from columns(
            [("BACKEND", "WEIGHT", "READY", "UNHEALTHY", "SERVICE"), *(_backend(each) for each in row.backends)]
        )
    yield from (f"    {each.backend}: {text}" for each in row.backends for text in each.actions)
    yield from _others("Not by these, which come before:" if row.rule >= 0 else "Nearest rules:", row.passed, wide)
    yield from _others("These fit too, and come later:", row.outranked, wide)
    yield from (f"Note: {text}" for text in row.notes)
    if row.next_step:
        yield f"Next: {row.next_step}"


def _way(row: RouteAnswer) -> Iterator[tuple[str, str]]:
    if row.listener:
        yield "listener", row.listener
    if row.route:
        yield "host", row.hostname
        yield "route", f"{row.origin_of_route} ({row.route})"
        yield "rule", f"{row.rule}, match {row.match}: {row.condition}"
    yield from (("then", action) for action in row.actions)


def _end(row: RouteAnswer) -> str:
    if row.outcome is RouteOutcome.FORWARDED:
        return "Goes to a backend:"
    if row.outcome is RouteOutcome.REDIRECTED:
        return "Is redirected." if row.rule >= 0 else f"Is redirected with {row.status}: {row.reason}."
    if row.outcome is RouteOutcome.CLOSED:
        return f"Gets no answer: {row.reason}."
    return f"Is answered {row.status}: {row.reason}."


def _backend(row: RoutedBackend) -> tuple[str, str, str, str, str]:
    draining = f" (+{row.draining} draining)" if row.draining else ""
    weight = f"{row.weight} ({row.percent:g} %)"
    unhealthy = ", ".join(row.unhealthy) or "-"
    return row.backend or "(not resolved)", weight, f"{row.ready}{draining}", unhealthy, row.service or "-"


def _others(title: str, rows: Sequence[PassedRow], wide: bool) -> Iterator[str]:
    shown = rows if wide else rows[:_MOST_PASSED]
    if shown:
        yield title
        yield from columns([(f"{row.origin} rule {row.rule}", row.condition, row.reason) for row in shown])
    if len(shown) < len(rows):
        yield f"  and {counted(len(rows) - len(shown), 'other')}; see all with -o wide"
