"""The real programs that the provider tests run against: a HAProxy, and the example driver of the docs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.name_servers import Bind

DRIVER = Path(__file__).parents[3] / "examples" / "driver" / "driver.py"
PATIENCE_S = 180.0
ASK_AGAIN_S = 3.0


def wait_for(condition: Callable[[], bool], what: str, *, process: subprocess.Popen[bytes] | None = None) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"{what}: it ended with {process.returncode}")
        assert time.monotonic() < until_s, f"{what}: not within {PATIENCE_S} s"
        time.sleep(0.01)


def haproxy_binary() -> str:
    """Find HAProxy, or skip: ``make test`` installs it where it may."""
    binary = shutil.which("haproxy", path=f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin")
    if binary is None:
        pytest.skip("HAProxy is not installed: apt-get install haproxy, as root")
    return binary


class HAProxy:
    """One HAProxy in master-worker mode, with backends b0.. and a foreign server in each."""

    def __init__(self, directory: Path, *, backends: int = 40, extra: str = "") -> None:
        self.socket = directory / "admin.sock"
        self._moved = directory / "moved.sock"
        self._config = directory / "haproxy.cfg"
        self.backends = iter(f"b{number}" for number in range(backends))
        sections = "\n".join(
            f"backend b{number}\n  balance roundrobin\n  server theirs 192.0.2.1:1 weight 7 disabled"
            for number in range(backends)
        )
        self._config.write_text(
            f"global\n  stats socket {self.socket} mode 600 level admin expose-fd listeners\n  maxconn 1000\n"
            "  hard-stop-after 20s\n"
            "defaults\n  mode http\n  timeout connect 2s\n  timeout client 20s\n  timeout server 20s\n"
            f"  timeout queue 5s\n  option redispatch\n  retries 3\n{extra}\n{sections}\n"
        )
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [haproxy_binary(), "-W", "-db", "-q", "-f", str(self._config)], start_new_session=True
        )
        try:
            wait_for(lambda: self.pid() != "", "HAProxy", process=self._process)
        except BaseException:
            self.stop()
            raise

    def ask(self, *commands: str, timeout_s: float = 60.0) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(self.socket))
            connection.sendall(";".join(commands).encode() + b"\n")
            answer = b""
            while chunk := connection.recv(1 << 16):
                answer += chunk
        return answer.decode()

    def pid(self) -> str:
        # A worker that leaves in a reload can take a connection and never answer it: ask again soon.
        with contextlib.suppress(OSError):
            for line in self.ask("show info", timeout_s=0.5).splitlines():
                if line.startswith("Pid: "):
                    return line.removeprefix("Pid: ")
        return ""

    def servers(self, backend: str) -> dict[str, list[str]]:
        """Return the fields of ``show servers state`` by name, without the time of the last change."""
        rows = [line.split() for line in self.ask(f"show servers state {backend}").splitlines()]
        return {row[3]: row[4:9] + row[18:19] for row in rows if len(row) > 18 and row[1] == backend}

    def stat(self, backend: str, server: str, field: str) -> str:
        lines = self.ask(f"show stat {backend} 4 -1").splitlines()
        header = lines[0].removeprefix("# ").split(",")
        for line in lines[1:]:
            row = dict(zip(header, line.split(","), strict=False))
            if row.get("svname") == server:
                return row[field]
        return ""

    def reload(self) -> None:
        before, asked_s = self.pid(), 0.0

        def reloaded() -> bool:
            nonlocal asked_s
            if time.monotonic() - asked_s > ASK_AGAIN_S:
                # A master that is still busy with the reload before forgets that it was asked.
                asked_s = time.monotonic()
                self._process.send_signal(signal.SIGUSR2)
            return self.pid() not in ("", before)

        wait_for(reloaded, "reload of HAProxy", process=self._process)

    def reload_without(self, backend: str) -> None:
        """Reload a configuration in which a backend has another name."""
        text = self._config.read_text()
        self._config.write_text(text.replace(f"backend {backend}\n", f"backend renamed-{backend}\n"))
        self.reload()

    def restart(self) -> None:
        """Have it killed and started again: what it was given at run time is lost."""
        self.stop()
        self._start()

    def hide(self) -> None:
        self.socket.rename(self._moved)

    def show(self) -> None:
        self._moved.rename(self.socket)

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class ExampleDriver:
    """The driver that the docs print, as a process."""

    def __init__(self, directory: Path, *, source: Path = DRIVER) -> None:
        self.file = directory / "load-balancers.json"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._source = source
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        command: Iterable[str] = [sys.executable, str(self._source), str(self.file), str(self.port)]
        self._process = subprocess.Popen(list(command), stdout=subprocess.DEVNULL)
        wait_for(self._answers, "the example driver", process=self._process)

    def _answers(self) -> bool:
        request = urllib.request.Request(f"{self.url}/healthz", data=b"{}", method="POST")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(request, timeout=5).read()
            return True
        return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class BindKeys:
    """The keys of a BIND, as the hub's Secrets would have them."""

    def __init__(self, bind: Bind) -> None:
        self._bind = bind

    async def entry(self, name: str, entry: str) -> str:
        del entry
        return self._bind.secrets.get(name, "bm90IHRoZSByaWdodCBvbmU=")
