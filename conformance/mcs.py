"""``make conformance-mcs``: run the conformance suite of the Multi-Cluster Services API. Exit code 0 when all pass.

The first member is the hub's cluster, too. The pods of its suite execute no commands, so the tests that need one,
of DNS and of connections, are left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import yaml

from conformance.build import build_mcs_suite, control_plane, source_of, why_not
from conformance.cluster import POOL, ClusterFailedError, RunCluster
from conformance.paths import ROOT, RunSettings, of_this_process
from fairlead import __version__
from fairlead.api.meta import JSONObject
from fairlead.api.tenant import TENANTS
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds
from fairlead.standalone.right_cluster import OWN_TENANT

#: Needs commands in pods.
_LEFT_OUT = ("DNS", "Connectivity")
_UNREACHABLE = "should be inaccessible"
_SHARED = {"spec": {"clusterSet": "conformance", "reachability": "Pods"}}


def main() -> int:
    """Run, and return the exit code."""
    if reason := why_not():
        sys.stderr.write(f"The conformance suite is not run: {reason}.\n")
        return 0
    settings = of_this_process()
    suite, assets = build_mcs_suite(settings), control_plane(settings)
    members = [
        RunCluster(_member_settings(settings, name), assets, number=number, dual_stack=True)
        for number, name in enumerate(_names(int(os.environ.get("MEMBERS") or 2)))
    ]
    try:
        for member in members:
            member.start()
        _start_fairlead(settings, members)
        code = members[0].run_suite(
            suite, "-test.v", "-test.timeout=30m", f"-kubeconfig={_merged(settings, members)}",
            f"-contexts={','.join(member.settings.directory.name for member in members)}",
            f"-ginkgo.label-filter={' && '.join(f'!{label}' for label in _LEFT_OUT)}", f"-ginkgo.skip={_UNREACHABLE}",
            "-ginkgo.v", "-project=fairlead", f"-version=v{__version__}",
        )  # fmt: skip
        report = members[0].settings.directory / "report.yaml"
        sys.stdout.write(f"{summary(yaml.safe_load(report.read_text()))}\n" if report.exists() else "")
        _keep(settings, members[0])
    except ClusterFailedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        if not settings.keep:
            # The first one has the network of all.
            for member in reversed(members):
                member.stop()
    return code


def summary(report: dict[str, Any]) -> str:
    """Return a line for each test of the suite's report, and how many there are of each outcome."""
    tests = [(group["name"], test) for group in report["groups"] for test in group["tests"]]
    rows = sorted((_outcome(test), group, test["desc"], test["message"]) for group, test in tests)
    counts = Counter(outcome for outcome, *_ in rows)
    lines = [f"{outcome}  {group}  {text}{message}" for outcome, group, text, message in rows]
    counted = ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "not run"))
    return "\n".join([*lines, f"{len(rows)} tests: {counted}"])


def _outcome(test: dict[str, Any]) -> str:
    return "passed" if test["passed"] else "not run" if test["skipped"] else "failed"


def _names(count: int) -> list[str]:
    return [OWN_TENANT, *(f"member-{number}" for number in range(2, count + 1))]


def _member_settings(settings: RunSettings, name: str) -> RunSettings:
    return msgspec.structs.replace(settings, directory=settings.directory / name)


def _start_fairlead(settings: RunSettings, members: list[RunCluster]) -> None:
    """Start hub and agents, and put the members into one set."""
    first, *others = members
    crds = source_of("sigs.k8s.io/mcs-api", of="mcs") / "config" / "crd"
    files = [str(member.settings.kubeconfig) for member in members]
    _inside(settings, sys.executable, "-m", "conformance.mcs", "install", str(crds), *files)
    first.run_fairlead("run", "--address-pool", POOL, "--stop-proxy")
    hub = str(first.settings.kubeconfig)
    for member in others:
        name, at_hub = member.settings.directory.name, str(member.settings.directory / "at-hub")
        cli = (sys.executable, "-m", "fairlead.cli.main")
        _inside(settings, *cli, "tenant", "add", name, "--kubeconfig", hub, "--output", at_hub)
        member.run_fairlead("agent", "--tenant", name, "--hub-kubeconfig", at_hub)
    names = [member.settings.directory.name for member in members]
    _inside(settings, sys.executable, "-m", "conformance.mcs", "share", hub, *names)
    # An agent leads some seconds after it is ready, and exports nothing before.
    first.wait("fairlead", lambda: _engaged(first) == set(names))


def _engaged(hub: RunCluster) -> set[str]:
    """Return the members whose agents have reported."""
    tenants = json.loads(hub.kubectl_raw(TENANTS.path("")) or "{}").get("items") or ()
    return {str(each["metadata"]["name"]) for each in tenants if each.get("status", {}).get("state") == "Engaged"}


def _inside(settings: RunSettings, *command: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    inside = ["ip", "netns", "exec", settings.namespace, *command]
    subprocess.run(inside, cwd=ROOT, check=True, env=environment)


def _merged(settings: RunSettings, members: list[RunCluster]) -> Path:
    """Write a kubeconfig with a context for each member, named after it."""
    merged: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}
    for member in members:
        name = member.settings.directory.name
        config = yaml.safe_load(member.settings.kubeconfig.read_text())
        merged["clusters"].append({**config["clusters"][0], "name": name})
        merged["users"].append({**config["users"][0], "name": name})
        merged["contexts"].append({"name": name, "context": {"cluster": name, "user": name}})
    path = settings.directory / "kubeconfig"
    path.write_text(yaml.safe_dump(merged))
    return path


def _keep(settings: RunSettings, first: RunCluster) -> None:
    """Copy what the suite wrote to where it stays."""
    for file in (first.settings.log, *first.settings.directory.glob("report.*")):
        kept = settings.directory.with_name(f"{settings.directory.name}-mcs{file.suffix}")
        kept.write_bytes(file.read_bytes())
        sys.stderr.write(f"{kept}\n")


async def _install(documents: list[JSONObject], kubeconfigs: list[str]) -> None:
    for kubeconfig in kubeconfigs:
        async with Cluster.from_kubeconfig(Path(kubeconfig), name="a member") as cluster:
            if problems := await install_crds(cluster, documents, "conformance"):
                sys.exit("\n".join(problems))


async def _share(hub: str, tenants: list[str]) -> None:
    async with Cluster.from_kubeconfig(Path(hub), name="the hub") as cluster:
        for tenant in tenants:
            await cluster.merge_patch(TENANTS, "", tenant, _SHARED, manager="conformance")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install", crds, *kubeconfigs]:
            documents = [yaml.safe_load(file.read_text()) for file in sorted(Path(crds).glob("multicluster.*.yaml"))]
            asyncio.run(_install(documents, kubeconfigs))
        case ["share", hub, *tenants]:
            asyncio.run(_share(hub, tenants))
        case _:
            raise SystemExit(main())
