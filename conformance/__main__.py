"""``make conformance``: build, start, run, judge, write down. Exit code 0 when every test that is claimed passes."""

from __future__ import annotations

import json
import subprocess
import sys

from conformance.build import Programs, build, why_not
from conformance.cluster import CLASS_PATH, UNUSABLE_ADDRESS, USABLE_ADDRESS, ClusterFailedError, RunCluster
from conformance.definitions import features_of, tests_of
from conformance.manifests import GATEWAY_CLASS
from conformance.page import page, table
from conformance.paths import ROOT, RunSettings, of_this_process
from conformance.verdict import Verdict, read_verdict
from fairlead import __version__

_PROFILES = "GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS,GATEWAY-TCP,GATEWAY-UDP"
_ALL_S = "90m"


def main() -> int:
    """Run, and return the exit code."""
    if reason := why_not():
        sys.stderr.write(f"The conformance suite is not run: {reason}.\n")
        return 0
    settings = of_this_process()
    programs = build(settings)
    cluster = RunCluster(settings, programs.assets)
    try:
        if not (settings.keep and cluster.running):
            cluster.start()
        _install(settings, programs)
        cluster.start_fairlead()
        verdict = _run(settings, programs, cluster)
        claimed = _claimed(cluster)
    except ClusterFailedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        log = _kept(settings) if settings.log.exists() else ""
        if not settings.keep:
            cluster.stop()
    tests = [test for test in tests_of(programs.api, programs.tests) if not settings.only or test.name == settings.only]
    lines = table(tests, verdict)
    lines.append(f"{verdict.count('PASS')} passed, {verdict.count('FAIL')} failed; output: {log}")
    sys.stdout.write("\n".join(lines) + "\n")
    if not settings.only:
        text = page(tests, features_of(programs.api), claimed, verdict)
        (ROOT / "docs" / "conformance.md").write_text(text, encoding="utf-8")
    return 0 if verdict.passed else 1


def _install(settings: RunSettings, programs: Programs) -> None:
    crds = programs.api / "config" / "crd" / "experimental"
    command = [sys.executable, "-m", "conformance.manifests", str(settings.kubeconfig), str(crds)]
    subprocess.run(["ip", "netns", "exec", settings.namespace, *command], cwd=ROOT, check=True)


def _run(settings: RunSettings, programs: Programs, cluster: RunCluster) -> Verdict:
    arguments = [
        "-test.v=test2json", "-test.run=^TestConformance$", f"-test.timeout={_ALL_S}",
        f"-kubeconfig={settings.kubeconfig}",
        f"-gateway-class={GATEWAY_CLASS}", f"-conformance-profiles={_PROFILES}", f"-usable-address={USABLE_ADDRESS}",
        f"-unusable-address={UNUSABLE_ADDRESS}",
    ]  # fmt: skip
    if settings.only:
        arguments.append(f"-run-test={settings.only}")
    else:
        report = ROOT / "build" / "conformance-report.yaml"
        report.parent.mkdir(exist_ok=True)
        arguments += [
            f"-report-output={report}", "-organization=fairlead", "-project=fairlead", "-url=https://fairlead.dev",
            f"-version=v{__version__}", "-contact=https://fairlead.dev",
        ]  # fmt: skip
    code = cluster.run_suite(programs.suite, *arguments)
    return read_verdict(settings.log.read_text(errors="replace"), code)


def _claimed(cluster: RunCluster) -> list[str]:
    text = cluster.kubectl_raw(CLASS_PATH)
    return [feature["name"] for feature in json.loads(text).get("status", {}).get("supportedFeatures") or ()]


def _kept(settings: RunSettings) -> str:
    """Copy the suite's output to where it stays when the run's directory is removed; return that path."""
    copy = settings.directory.with_suffix(".log")
    copy.write_bytes(settings.log.read_bytes())
    return str(copy)


if __name__ == "__main__":
    raise SystemExit(main())
