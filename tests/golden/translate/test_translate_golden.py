"""Translations of whole views, file by file: ``<intent>/<case>.in.json`` and what it becomes in ``<case>.out.json``.

A change of a message, a default or an order shows as a diff of files. ``make golden`` rewrites what comes out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.model.condition import ConditionReason
from fairlead.translate import tcp
from fairlead.translate.hostname import HostnameView, decide_hostname
from fairlead.translate.http import decide_http
from fairlead.translate.loadbalancer import decide_loadbalancer
from fairlead.translate.tcp import decide_tcp
from fairlead.translate.view import HTTPView, LoadBalancerView, TCPView
from tests.golden.translate.golden_views import allocated, read_view, shown

HERE = Path(__file__).parent
ROOM = Path(tcp.__file__).parent
#: Modules whose conditions only the translation of one of the intents has.
ONLY_TCP = frozenset({"tcp.py", "validate.py"})
ONLY_HTTP = frozenset({"http.py", "validate_http.py"})
#: What the intents of members share.
ONLY_MEMBER = frozenset({"member.py", "nodes.py", "validate.py"})
ONLY_HOSTNAME = frozenset({"hostname.py"})
#: Modules whose conditions are those of Tenants and AddressPools.
NO_INTENT = frozenset({"tenant.py", "address_pools.py"})
ONLY_LOADBALANCER = frozenset({"loadbalancer.py", "validate_loadbalancer.py"})

Golden = Callable[[Path, str], None]


def cases(intent: str) -> list[str]:
    return sorted(path.name.removesuffix(".in.json") for path in (HERE / intent).glob("*.in.json"))


@pytest.mark.parametrize("case", cases("tcp"))
@pytest.mark.req("I-7")
def test_tcp(case: str, golden: Golden) -> None:
    path = HERE / "tcp" / f"{case}.in.json"
    decision = decide_tcp(read_view(path, TCPView), allocated(path))
    golden(HERE / "tcp" / f"{case}.out.json", shown(decision))


@pytest.mark.parametrize("case", cases("http"))
@pytest.mark.req("K-41")
def test_http(case: str, golden: Golden) -> None:
    path = HERE / "http" / f"{case}.in.json"
    decision = decide_http(read_view(path, HTTPView), allocated(path))
    golden(HERE / "http" / f"{case}.out.json", shown(decision))


@pytest.mark.parametrize("case", cases("loadbalancer"))
@pytest.mark.req("L-37")
def test_loadbalancer(case: str, golden: Golden) -> None:
    view = read_view(HERE / "loadbalancer" / f"{case}.in.json", LoadBalancerView)
    golden(HERE / "loadbalancer" / f"{case}.out.json", shown(decide_loadbalancer(view)))


@pytest.mark.parametrize("case", cases("hostname"))
@pytest.mark.req("C-54")
def test_hostname(case: str, golden: Golden) -> None:
    view = read_view(HERE / "hostname" / f"{case}.in.json", HostnameView)
    golden(HERE / "hostname" / f"{case}.out.json", shown(decide_hostname(view)))


def reasons_named_in(*, without: frozenset[str]) -> set[str]:
    """Return the reasons that the modules of ``translate`` name."""
    text = "".join(path.read_text() for path in ROOM.glob("*.py") if path.name not in without | NO_INTENT)
    return {ConditionReason[name].value for name in re.findall(r"ConditionReason\.([A-Z_]+)", text)}


def reasons_in(intent: str) -> set[str]:
    """Return the reasons of the conditions in the golden files of ``intent``."""
    reasons: set[str] = set()
    for path in (HERE / intent).glob("*.out.json"):
        out = json.loads(path.read_text())
        for conditions in (out["conditions"], *out.get("groups", {}).values()):
            reasons |= {condition["reason"] for condition in conditions}
    return reasons


def test_every_reason_is_in_a_golden_file() -> None:
    assert reasons_named_in(without=ONLY_LOADBALANCER | ONLY_HTTP | ONLY_HOSTNAME) - reasons_in("tcp") == set()
    assert reasons_named_in(without=ONLY_LOADBALANCER | ONLY_TCP | ONLY_HOSTNAME) - reasons_in("http") == set()
    others = ONLY_TCP | ONLY_HTTP | ONLY_MEMBER
    assert reasons_named_in(without=others | ONLY_HOSTNAME) - reasons_in("loadbalancer") == set()
    its_own = frozenset(path.name for path in ROOM.glob("*.py")) - ONLY_HOSTNAME
    assert reasons_named_in(without=its_own) - reasons_in("hostname") == set()


def test_every_golden_file_has_its_case() -> None:
    for intent in ("tcp", "http", "loadbalancer", "hostname"):
        outputs = {path.name.removesuffix(".out.json") for path in (HERE / intent).glob("*.out.json")}
        assert outputs == set(cases(intent))
