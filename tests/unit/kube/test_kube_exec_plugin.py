from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import Unreachable
from fairlead.kube import config as exec_plugin
from fairlead.kube.config import run_plugin

VERSION = "client.authentication.k8s.io/v1"


def answering(path: Path, script: str, **fields: Any) -> dict[str, Any]:
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{script}")
    path.chmod(0o700)
    return {"apiVersion": VERSION, "command": str(path), **fields}


def credential(status: str, *, version: str = VERSION) -> str:
    return f"print(json.dumps({{'apiVersion': {version!r}, 'kind': 'ExecCredential', 'status': {status}}}))"


async def test_a_plugin_gets_arguments_environment_and_what_is_asked(tmp_path: Path) -> None:
    said = "{'token': json.dumps([sys.argv[1:], os.environ['REGION'], json.loads(os.environ['KUBERNETES_EXEC_INFO'])])}"
    env = [{"name": "REGION", "value": "east"}]
    plugin = answering(tmp_path / "login", credential(said), args=["get", "token"], env=env)
    arguments, region, info = json.loads((await run_plugin(plugin, source="kubeconfig x")).token or "")
    assert (arguments, region) == (["get", "token"], "east")
    assert info == {"apiVersion": VERSION, "kind": "ExecCredential", "spec": {"interactive": sys.stdout.isatty()}}


@pytest.mark.parametrize(
    ("script", "sentence", "detail"),
    [
        (credential("{'token': 't'}", version="other/v1"), "failed", "answers in other/v1"),
        ("print('{}')", "failed", "apiVersion"),
        ("print('no JSON')", "failed", "malformed"),
        ("sys.exit('no network')", "failed", "exit code 1: no network"),
        (credential("{'clientCertificateData': 'x'}"), "neither a token nor a certificate", ""),
    ],
)
async def test_a_missing_answer_is_a_failure(tmp_path: Path, script: str, sentence: str, detail: str) -> None:
    plugin = answering(tmp_path / "login", script)
    with pytest.raises(Unreachable) as caught:
        await run_plugin(plugin, source="kubeconfig x")
    assert caught.value.sentence.startswith('Kubeconfig x: the sign-in plugin "')
    assert sentence in caught.value.sentence
    assert detail in caught.value.detail


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_plugin_that_writes_without_end_is_killed(tmp_path: Path, stream: str) -> None:
    script = (
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\nwhile True: sys.{stream}.write('x' * 65536)"
    )
    with pytest.raises(Unreachable, match="failed") as caught:
        await run_plugin(answering(tmp_path / "login", script), source="kubeconfig x")
    assert "1048576 bytes" in caught.value.detail
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_plugin_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_plugin, "_PLUGIN_S", 0.2)
    plugin = answering(tmp_path / "login", "time.sleep(600)")
    with pytest.raises(Unreachable, match=r"did not finish within 0\.2 s"):
        await run_plugin(plugin, source="kubeconfig x")
