"""The counts of a HAProxy: lines of ``show stat`` become counts by load balancer."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Counted, Totals
from fairlead.providers.haproxy.provider import BackendCounts, HAProxyTraffic
from fairlead.providers.haproxy.runtime_api import RuntimeApi

WEB = LoadBalancerKey("LoadBalancer", "shop", "web")
API = LoadBalancerKey("LoadBalancer", "shop", "api")
HEAD = "# pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,lastchg,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx"
OWNED = {WEB: frozenset({"w80", "w443"}), API: frozenset({"a80"})}


def stat(*rows: tuple[str, int, int], second: int = 1) -> str:
    """Return what HAProxy prints: name, sessions, answers 2xx; ``second`` is a column that differs each time."""
    lines = [
        f"{name},BACKEND,0,0,1,9,100,{total},{10 * total},{20 * total},{second},0,{good},0,0,0,"
        for name, total, good in rows
    ]
    return "\n".join([HEAD, *lines, "", ""])


@pytest.mark.req("OP-11")
def test_backends_of_a_load_balancer_are_summed_from_when_it_has_them() -> None:
    counts = BackendCounts()
    assert counts.take(stat(("w80", 5, 5), ("w443", 1, 1), ("a80", 7, 0), ("theirs", 9, 9)), OWNED) == {
        Counted(WEB): Totals(0, 2),
        Counted(API): Totals(0, 1),
    }
    changed = counts.take(stat(("w80", 6, 6), ("w443", 3, 3), ("a80", 7, 0), ("theirs", 10, 9), second=2), OWNED)
    assert changed == {Counted(WEB): Totals(3, 2, 30, 60, (0, 3, 0, 0, 0))}
    # Another load balancer gets the backend: what was before is not its own.
    moved = {API: frozenset({"w80"})}
    assert counts.take(stat(("w80", 7, 7), second=3), moved) == {Counted(API): Totals(0, 1)}
    assert counts.gone == {Counted(WEB)}
    assert counts.take(stat(("w80", 7, 7), second=4), {}) == {}
    assert counts.gone == {Counted(API)}


@pytest.mark.req("OP-11")
def test_after_a_reload_all_is_counted() -> None:
    counts = BackendCounts()
    counts.take(stat(("a80", 70, 0)), OWNED)
    counts.take(stat(("a80", 75, 0)), OWNED)
    assert counts.take(stat(("a80", 2, 0)), OWNED)[Counted(API)].connections == 2
    assert counts.take(stat(("a80", 90, 0)), OWNED)[Counted(API)].connections == 90


@pytest.mark.parametrize("text", ["", "\n", "Unknown command\n"])
def test_an_invalid_table_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        BackendCounts().take(text, OWNED)


class Api(RuntimeApi):
    """A HAProxy that prints what a test says; None: it prints nothing that can be read."""

    answers: list[str]

    async def run(self, commands):
        assert commands == ["show stat -1 2 -1"]
        return self.answers.pop(0)


@pytest.mark.req("OP-11")
async def test_after_a_gap_everything_is_read_as_the_first_time() -> None:
    api = Api("/run/haproxy.sock")
    good = stat(("a80", 70, 0))
    api.answers = [good, good, "no table", good]
    reader = HAProxyTraffic(owned=lambda: {api.path: OWNED}, api=lambda _socket: api)
    first, same, gap, again = [(await reader.read())[0] for _ in range(4)]
    assert (same.totals, bool(gap.problem)) == ({}, True)
    assert again == first


async def test_a_deleted_load_balancer_is_reported(tmp_path: Path) -> None:
    socket = str(tmp_path / "none.sock")
    (reading,) = await HAProxyTraffic(owned=lambda: {socket: OWNED}, api=RuntimeApi).read()
    assert reading.problem.startswith(f"there is no socket {socket}; start HAProxy")
