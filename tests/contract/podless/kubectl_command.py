"""The real kubectl, in a namespace of its own."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path


class Kubectl:
    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.kubeconfig = kubeconfig
        self.ns = namespace

    async def start(self, *args: str) -> asyncio.subprocess.Process:
        env = {
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(self.kubeconfig.parent),
            "PATH": "/usr/bin:/bin:/usr/local/bin",
        }
        return await asyncio.create_subprocess_exec(
            shutil.which("kubectl") or "kubectl",
            *args,
            env=env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def fails(self, line: str, stdin: str = "") -> str:
        return await self(line, stdin, code=1)

    async def __call__(self, line: str, stdin: str = "", *, code: int = 0) -> str:
        process = await self.start(*line.split(" "))
        out, _ = await process.communicate(stdin.encode())
        assert process.returncode == code, f"kubectl {line}: {out.decode()}"
        return out.decode().strip()
