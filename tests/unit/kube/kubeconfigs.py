"""Kubeconfigs, sign-in plugins and a clock that can be set forward."""

from __future__ import annotations

import json
import stat
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from fairlead.runtime.clock import SystemClock

Fields = dict[str, Any]


class Clock(SystemClock):
    """The machine's clock, that can be set forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead_s)


def write(
    path: Path, *, user: Fields | None = None, cluster: Fields | None = None, current_context: str = "dev", **more: Any
) -> Path:
    content: Fields = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current_context,
        "contexts": [{"name": "dev", "context": {"cluster": "c1", "user": "me", "namespace": "team"}}],
        "clusters": [{"name": "c1", "cluster": {"server": "https://api.example:6443", **(cluster or {})}}],
        "users": [{"name": "me", "user": user or {}}],
        **more,
    }
    path.write_text(yaml.safe_dump(content))
    return path


def plugin(path: Path, script: str) -> Fields:
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": f"./{path.name}", "env": None}}


def credential(**status: str) -> str:
    content = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"print({json.dumps(json.dumps(content))})"
