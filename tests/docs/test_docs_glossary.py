"""The source calls things what the glossary calls them: no identifier has a word that the glossary avoids."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from tests.arch.arch_structure import nodes_of
from tests.docs.docs_console import ROOT

SOURCE = ROOT / "src" / "fairlead"

#: Words that the glossary avoids in one sense and that have another one, which is meant wherever they stand.
OTHER_SENSE = {
    "account": "Kubernetes' ServiceAccount; the account of a user",
    "driver": "the other side of the webhook protocol; LBCF's word",
    "manager": "Kubernetes' field manager",
    "rule": "a rule of RBAC, or of CEL",
    "lease": "Kubernetes' Lease",
    "cache": "a watch cache",
    "type": "a Service's, a condition's, an Event's",
    "ready": "a node's, an endpoint's, a process's",
    "synced": "a cache that has been read, a proxy that has acknowledged",
    "blocked": "a blocked window, in which no drill runs; AWS ARC's word",
    "seed": "what a hash starts from",
    "subscription": "what an Envoy subscribes to on its stream (xDS)",
}
#: Where the clusters of Kubernetes, Envoy and Cluster API are at home.
CLUSTERS_AT_HOME = ("kube", "providers/envoy", "testing", "capi/", "api/cluster", "cli/processes.py")
#: Elsewhere: the connection to one (kube.cluster.Cluster), what is in it, and words of Kubernetes and of kubeconfigs.
#: Those of the Multi-Cluster Services API are cluster set and source cluster.
CLUSTER_NAMES = re.compile(
    r"_?(cluster|cluster_?objects|cluster_ips?|cluster_name|cluster_roles?|cluster_role_bindings?|cluster_trust"
    r"|cluster_?sets?(_ip|_namespaces)?|(label_)?source_cluster|import_?cluster|clusters)",
    re.IGNORECASE,
)


def avoided() -> list[tuple[str, ...]]:
    """Return what the glossary's last column lists, in words."""
    phrases: list[tuple[str, ...]] = []
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| **"):
            listed = re.sub(r"\(.*?\)", "", line.strip("|").split("|")[2])
            phrases += [tuple(phrase.lower().split()) for phrase in listed.split(",") if phrase.strip()]
    return phrases


@cache
def places() -> dict[tuple[str, ...], list[tuple[str, str]]]:
    """Return file and identifier of every phrase in an identifier, by phrase."""
    longest = max(map(len, avoided()))
    entries: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        where = file.relative_to(SOURCE).as_posix()
        for name in sorted(set(identifiers(nodes_of(file)))):
            for phrase in phrases_of(name, longest):
                entries.setdefault(phrase, []).append((where, name))
    return entries


def identifiers(nodes: Mapping[type, list[Any]]) -> Iterator[str]:
    for kind in (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        yield from (node.name for node in nodes[kind])
    yield from (node.arg for node in nodes[ast.arg])
    yield from (node.id for node in nodes[ast.Name] if isinstance(node.ctx, ast.Store))
    yield from (node.attr for node in nodes[ast.Attribute] if isinstance(node.ctx, ast.Store))


@cache
def phrases_of(name: str, longest: int) -> frozenset[tuple[str, ...]]:
    parts = tuple(part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name))
    starts = range(len(parts))
    return frozenset(parts[start:end] for start in starts for end in range(start + 1, start + 1 + longest))


@pytest.mark.parametrize("phrase", avoided(), ids=" ".join)
def test_identifiers_have_no_avoided_word(phrase: tuple[str, ...]) -> None:
    if " ".join(phrase) in OTHER_SENSE:
        return
    for where, name in places().get(phrase, ()):
        at_home = phrase == ("cluster",) and (where.startswith(CLUSTERS_AT_HOME) or CLUSTER_NAMES.fullmatch(name))
        assert at_home, f"{where}: {name}: the glossary avoids {' '.join(phrase)!r}"


def test_every_exception_is_in_the_glossary() -> None:
    assert set(OTHER_SENSE) - {" ".join(phrase) for phrase in avoided()} == set()
