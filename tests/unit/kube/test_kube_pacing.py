"""When a changed status is worth a write, and which of its changes have an Event of their own."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from fairlead.api.kubernetes import Ingress, LoadBalancerStatus
from fairlead.api.meta import WireCondition
from fairlead.api.tcploadbalancer import TCPLoadBalancerStatus
from fairlead.kube.writes import AWAITED_S, FIRST_S, GATHER_S, PATIENCE_S, SETTLE_S, Pace, is_progress, without_seen
from tests.fleet_objects import condition

TRUE = {"Accepted": "True Accepted", "Programmed": "True Programmed", "Serving": "True Serving"}
PENDING = {**TRUE, "Programmed": "False Pending", "Serving": "Unknown WaitingForFirstCheck"}


def status(conditions: dict[str, str], targets: str = "1/1", address: str = "192.0.2.1") -> TCPLoadBalancerStatus:
    """Return a status with conditions as "status reason message"."""
    made: list[WireCondition] = []
    for kind, text in conditions.items():
        state, reason, *message = text.split(" ", 2)
        made.append(condition(kind, state, reason, *message))
    ingress = LoadBalancerStatus(ingress=[Ingress(ip=address)]) if address else LoadBalancerStatus()
    return TCPLoadBalancerStatus(conditions=made or None, targets=targets, load_balancer=ingress)


NOTHING = TCPLoadBalancerStatus()
SERVES = status(TRUE)


@pytest.mark.parametrize(
    ("old", "new", "wait_s"),
    [
        pytest.param(NOTHING, status(PENDING, address=""), FIRST_S, id="a first status that awaits an answer"),
        pytest.param(NOTHING, SERVES, 0.0, id="a first status with an address"),
        pytest.param(NOTHING, status({**TRUE, "Accepted": "False Invalid"}), 0.0, id="a first refusal"),
        pytest.param(SERVES, status(PENDING), PATIENCE_S, id="a change that awaits its answer"),
        pytest.param(SERVES, status(TRUE, "2/2"), SETTLE_S, id="a count"),
        pytest.param(SERVES, status({**TRUE, "Serving": "True Serving 1 of 2"}), SETTLE_S, id="a message"),
        pytest.param(SERVES, status(TRUE, address="192.0.2.2"), 0.0, id="another address"),
        pytest.param(SERVES, status({**TRUE, "Serving": "False NoTargets"}), 0.0, id="nothing is served"),
        pytest.param(SERVES, status({**TRUE, "Guarded": "True RemovalsHeld"}), 0.0, id="a condition appears"),
        pytest.param(status({**TRUE, "Stale": "True MemberLost"}), SERVES, 0.0, id="a condition goes"),
        pytest.param(
            status({**TRUE, "Serving": "False NoTargets"}),
            status({**TRUE, "Serving": "Unknown WaitingForFirstCheck"}),
            AWAITED_S,
            id="first targets, not checked yet",
        ),
        pytest.param(
            status({**TRUE, "Serving": "Unknown WaitingForFirstCheck"}), SERVES, 0.0, id="the first check passes"
        ),
        pytest.param(
            status({**TRUE, "Programmed": "False Pending"}),
            status({**TRUE, "Programmed": "False ProviderFailed"}),
            0.0,
            id="an answer that is a failure",
        ),
    ],
)
def test_how_long_a_status_is_held_back(old: TCPLoadBalancerStatus, new: TCPLoadBalancerStatus, wait_s: float) -> None:
    assert Pace().wait_s(old, new, now_s=100.0) == wait_s


def test_what_needs_no_answer_is_written_while_another_condition_awaits_one() -> None:
    paused = without_seen(SERVES, status({**PENDING, "Accepted": "False Invalid", "Paused": "True Paused"}))
    assert paused == status({**TRUE, "Accepted": "False Invalid", "Paused": "True Paused"}).conditions


@pytest.mark.parametrize("old", [NOTHING, msgspec.structs.replace(SERVES, observed_generation=1)])
def test_programmed_of_nothing_or_of_another_generation_is_not_kept(old: TCPLoadBalancerStatus) -> None:
    assert without_seen(old, status(PENDING)) is None


def test_what_awaits_an_answer_is_written_when_the_answer_takes_long() -> None:
    pace, pending = Pace(), status(PENDING)
    waits = [pace.wait_s(SERVES, pending, now_s=100.0 + at_s) for at_s in (0.0, PATIENCE_S - 1, PATIENCE_S)]
    assert waits == [PATIENCE_S, 1.0, 0.0]


def test_progress_without_end_is_written_once_a_second_and_slower_after_a_while() -> None:
    pace, written, at = Pace(), SERVES, list[float]()
    for tick in range(400):
        now_s, new = 100.0 + tick / 20, status(TRUE, f"{tick}/400")
        if not pace.wait_s(written, new, now_s=now_s):
            pace.written(now_s, progress=is_progress(written, new))
            written = new
            at.append(now_s)
    gaps = [round(after - before, 2) for before, after in itertools.pairwise(at)]
    assert gaps[:4] == [GATHER_S] * 4
    assert len(at) < 10
    assert sorted(gaps) == gaps


def test_a_quiet_minute_makes_progress_quick_again() -> None:
    pace = Pace()
    for now_s in range(10):
        pace.written(float(now_s), progress=True)
    assert pace.wait_s(SERVES, status(TRUE, "2/2"), now_s=10.0) > GATHER_S
    assert Pace(written_s=9.0, writes=9).wait_s(SERVES, status(TRUE, "2/2"), now_s=80.0) == SETTLE_S


def test_forty_backends_one_by_one_are_few_writes() -> None:
    """Each is Pending for a moment, so that Programmed comes and goes."""
    pace, written, writes = Pace(), SERVES, 0
    for tick in range(80):
        conditions = {**TRUE, "Programmed": "False Pending" if tick % 2 == 0 else "True Programmed"}
        new, now_s = status(conditions, f"{tick // 2}/40"), 100.0 + tick * 0.03
        if new != written and not pace.wait_s(written, new, now_s=now_s):
            pace.written(now_s, progress=is_progress(written, new))
            written, writes = new, writes + 1
    assert 1 <= writes <= 4
