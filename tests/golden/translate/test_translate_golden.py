"""Translations of whole views, file by file: ``<intent>/<case>.in.json`` and what it becomes in ``<case>.out.json``.

A change of a message, a default or an order shows as a diff of files. ``make golden`` rewrites what comes out.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.model.condition import ConditionReason
from fairlead.translate import member
from fairlead.translate.hostname import HostnameView, decide_hostname
from fairlead.translate.loadbalancer import decide_loadbalancer
from fairlead.translate.member import decide_http, decide_tcp
from fairlead.translate.view import HTTPView, LoadBalancerView, TCPView
from tests.golden.translate.golden_views import allocated, read_view, shown

HERE = Path(__file__).parent
ROOM = Path(member.__file__).parent
#: Modules whose conditions are those of Tenants, AddressPools and managed certificates; those of GlobalServices and
#: cluster sets are in their unit tests.
NO_INTENT = frozenset(
    {
        "http_backends.py",
        "tenant.py",
        "addresses.py",
        "announcing.py",
        "placement.py",
        "global_service.py",
        "returning.py",
        "shift.py",
        "drill.py",
        "cluster_set.py",
        "egress.py",
    }
)
SHARED = frozenset({"__init__.py", "certificates.py", "endpoints.py", "generated.py", "view.py"})
#: Functions whose conditions only one of the intents of members has; those of both are in the golden files of TCP.
ONLY_TCP = frozenset({"_tcp_resolved", "_tcp_refusals", "connection_refusals", "_class_refusals", "_address_refusals"})
ONLY_HTTP = frozenset({"_http_resolved", "_http_refusals", "_listener_conflicts"})
#: Those of shared modules that only the intents of members have.
ONLY_MEMBER = frozenset({"without_family"})

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


def reasons_named_in(*modules: str, without: frozenset[str] = frozenset()) -> set[str]:
    """Return the reasons that ``modules`` of ``translate`` name, except those of the functions ``without``."""
    nodes = [node for module in modules for node in ast.parse((ROOM / module).read_text()).body]
    named = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    assert without <= named.keys()
    text = "\n".join(ast.unparse(node) for node in nodes if node not in [named[name] for name in without])
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
    own = {path.name for path in ROOM.glob("*.py")} - SHARED - NO_INTENT
    assert own == {"member.py", "loadbalancer.py", "hostname.py"}
    assert reasons_named_in("member.py", *SHARED, without=ONLY_HTTP) - reasons_in("tcp") == set()
    assert reasons_named_in("member.py", *SHARED, without=ONLY_TCP) - reasons_in("http") == set()
    assert reasons_named_in("loadbalancer.py", *SHARED, without=ONLY_MEMBER) - reasons_in("loadbalancer") == set()
    assert reasons_named_in("hostname.py") - reasons_in("hostname") == set()


def test_every_golden_file_has_its_case() -> None:
    for intent in ("tcp", "http", "loadbalancer", "hostname"):
        outputs = {path.name.removesuffix(".out.json") for path in (HERE / intent).glob("*.out.json")}
        assert outputs == set(cases(intent))
