"""``fairlead status`` is green only when everything serves, and its exit code says what is not well."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from fairlead.api.meta import WireCondition
from fairlead.cli.run import EXIT_CODE_OF
from fairlead.cli.status import print_status
from fairlead.status.fleet import FleetStatus, Trouble
from tests.fleet_objects import GOOD, condition, fleet_of, load_balancer, many, status


def text_of(fleet: FleetStatus, **how: Any) -> str:
    out = io.StringIO()
    print_status(fleet, Console(file=out, width=200), **how)
    return out.getvalue()


@pytest.mark.req("X-1", "X-3", "X-18")
@pytest.mark.parametrize(
    ("also", "trouble", "code"),
    [
        (condition("Serving", "False"), Trouble.NOT_SERVING, 5),
        (condition("ResolvedRefs", "False"), Trouble.ATTENTION, 4),
        (condition("Stale", "True"), Trouble.ATTENTION, 4),
        (condition("Drifted", "True"), Trouble.ATTENTION, 4),
        (condition("Guarded", "True"), Trouble.ATTENTION, 4),
        (condition("Paused", "True"), Trouble.ATTENTION, 4),
        (condition("Conflicted", "True"), Trouble.ATTENTION, 4),
        (condition("Protected", "True"), Trouble.ATTENTION, 4),
        (condition("Serving", "Unknown", "WaitingForFirstCheck"), Trouble.UNCONFIRMED, 4),
        (condition("Serving", "Unknown", "Pending"), Trouble.UNCONFIRMED, 4),
        (condition("Serving", "Unknown", "ProxiesSilent"), Trouble.UNCONFIRMED, 4),
        (condition("Serving", "True"), Trouble.NONE, 0),
        (condition("Serving", "Unknown", "NotChecked"), Trouble.NONE, 0),
        (condition("Drifted", "False"), Trouble.NONE, 0),
        (condition("InUse", "True"), Trouble.NONE, 0),
        (condition("OfALaterRelease", "True"), Trouble.NONE, 0),
    ],
    ids=lambda value: f"{value.type}-{value.status}" if isinstance(value, WireCondition) else "",
)
def test_each_condition_counts_for_what_it_says(also: WireCondition, trouble: Trouble, code: int) -> None:
    fleet = status(lb=load_balancer(*GOOD, also))
    assert (fleet.state, EXIT_CODE_OF[fleet.state], fleet.healthy) == (trouble, code, not code)
    assert fleet.problems == ([] if fleet.healthy else ["load balancer east/default/web: the message"])
    assert fleet.load_balancers[0].programmed, "it is programmed all the same"
    assert ("✓ everything serves; east/default/web has 2 of 3 backends ready" in text_of(fleet)) is fleet.healthy


@pytest.mark.req("X-1")
def test_unchecked_parts_are_shown_without_a_problem() -> None:
    unknown = text_of(status(lb=load_balancer(*GOOD, condition("Serving", "Unknown", "NotChecked"))))
    assert "SERVING" in unknown
    assert "Unknown" in unknown
    assert "SERVING" not in text_of(status())


@pytest.mark.req("X-2")
@pytest.mark.parametrize(
    ("targets", "others", "sentence"),
    [
        ("0/0", [], "no backends yet"),
        ("0/2", [], "none of 2 backends is ready"),
        ("0/2", [condition("Guarded", "True")], ""),
        ("0/0", [condition("Guarded", "True")], ""),
        ("0/0", [condition("Stale", "True")], "no backends yet"),
        ("0/2 healthy", [condition("Serving", "True")], ""),
        ("1/2", [], ""),
        ("", [], ""),
    ],
)
def test_an_address_without_a_backend_does_not_serve(targets: str, others: list[WireCondition], sentence: str) -> None:
    lb = load_balancer(*GOOD, *others)
    fleet = status(lb=msgspec.structs.replace(lb, status=msgspec.structs.replace(lb.status, targets=targets)))
    expected = Trouble.NOT_SERVING if sentence else Trouble.ATTENTION if "Guarded" in str(others) else Trouble.NONE
    assert fleet.state is expected
    if sentence:
        assert fleet.problems[0].startswith(f"load balancer east/default/web: {sentence}; ")


def test_unreadable_backends_kept_by_proxies_are_not_called_absent() -> None:
    serving = condition("Serving", "Unknown", "Pending", "its targets cannot all be read; its proxies keep those")
    lb = load_balancer(*GOOD, serving)
    fleet = status(lb=msgspec.structs.replace(lb, status=msgspec.structs.replace(lb.status, targets="0/0")))
    assert (fleet.state, len(fleet.problems)) == (Trouble.UNCONFIRMED, 1)
    assert "cannot all be read" in fleet.problems[0]


def test_only_accepted_versions_keep_serving() -> None:
    refused = condition("Accepted", "False", "PortConflict", "port 80 is taken")
    assert status(lb=load_balancer(refused, GOOD[1])).state is Trouble.ATTENTION
    never = status(lb=load_balancer(refused, condition("Programmed", "False", "PortConflict", "port 80 is taken")))
    assert never.state is Trouble.NOT_SERVING


def test_some_rejected_routes_need_attention_without_an_outage() -> None:
    fleet = status(lb=load_balancer(GOOD[0], condition("Programmed", "False", "RoutesRefused")))
    assert (fleet.state, fleet.load_balancers[0].programmed) == (Trouble.ATTENTION, False)


def test_unknown_load_balancers_are_not_counted_as_serving() -> None:
    lb = load_balancer(*GOOD, condition("Serving", "Unknown", "WaitingForFirstCheck", "no proxy has reported yet"))
    metadata = msgspec.structs.replace(lb.metadata, name="default.api", annotations={})
    text = text_of(fleet_of(load_balancers=[load_balancer(*GOOD), msgspec.structs.replace(lb, metadata=metadata)]))
    assert "2 load balancers: 1 serves, 1 is not known yet" in text
    assert "! load balancer tenant-east/default.api: no proxy has reported yet" in text
    assert "✓" not in text


def test_what_does_not_serve_for_a_known_reason_is_not_said_to_be_unknown_too() -> None:
    unknown = condition("Serving", "Unknown", "NotProgrammed", "its targets are healthy, but it is not programmed")
    fleet = status(lb=load_balancer(GOOD[0], condition("Programmed", "False"), unknown))
    assert (fleet.state, len(fleet.problems)) == (Trouble.NOT_SERVING, 1)


def test_parts_at_an_unreachable_provider_may_still_serve() -> None:
    """While the socket of a HAProxy, or a driver, does not answer, what it has goes on serving."""
    why = "HAProxy does not answer on /run/haproxy/admin.sock; check that it runs"
    serving = condition("Serving", "Unknown", "ProviderFailed", why)
    for programmed in ("ProviderFailed", "NoProxyConnected"):
        fleet = status(lb=load_balancer(GOOD[0], condition("Programmed", "False", programmed, why), serving))
        assert (fleet.state, len(fleet.problems)) == (Trouble.UNCONFIRMED, 1)
    pending = condition("Serving", "Unknown", "Pending")
    never = load_balancer(GOOD[0], condition("Programmed", "False", "ProviderFailed", why), pending)
    assert status(lb=never).state is Trouble.NOT_SERVING


def test_no_endpoint_and_no_target_are_one_problem() -> None:
    refs = condition("ResolvedRefs", "False", "BackendNotFound", "no ready endpoint for TCP/80")
    serving = condition("Serving", "False", "NoTargets", "TCP/80 has no target")
    (problem,) = status(lb=load_balancer(*GOOD, refs, serving)).problems
    assert problem.startswith("load balancer east/default/web: TCP/80 has no target; does an EndpointSlice")
    said_by_both = condition("Serving", "False", "NoTargets", refs.message)
    assert len(status(lb=load_balancer(*GOOD, refs, said_by_both)).problems) == 1
    assert len(status(lb=load_balancer(*GOOD, refs)).problems) == 1


def test_without_a_leader_nothing_is_known() -> None:
    assert EXIT_CODE_OF[status(hub_age_s=300).state] == 6


def test_the_headline_says_as_of_when_it_is_while_no_hub_leads() -> None:
    assert "1 load balancer, as of 5m ago, the last write of a hub: 1 serves" in text_of(status(hub_age_s=300))
    assert "1 load balancer, as last written by a hub, at an unknown time: 1 serves" in text_of(status(hub_age_s=None))
    assert "1 load balancer: 1 serves" in text_of(status())


def test_eighty_services_are_summed_up_first() -> None:
    text = text_of(many(80, 6))
    assert "80 load balancers: 74 serve, 6 need attention" in text.splitlines()[1]
    assert len(text.splitlines()) < 25
    assert "and 74 more, see them all with: fairlead status -o wide" in text
    assert "and 3 more with reason Drifted: fairlead status --problems" in text
    assert len([line for line in text_of(many(80, 0), wide=True).splitlines() if line.startswith("east/shop/s")]) == 80


def test_colours_are_for_terminals_and_not_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for wanted in (True, False):
        monkeypatch.setenv("NO_COLOR", "" if wanted else "1")
        out = io.StringIO()
        print_status(status(), Console(file=out, force_terminal=True, width=200))
        assert ("\x1b[32m" in out.getvalue()) is wanted
