"""A real Chromium without a window, driven over its DevTools protocol.

In: the address of a page; keys, clicks, expressions. Out: what the page shows. Never: talks to another machine.
Source: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from fairlead_demo.worlds.processes import ExpectationFailed

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_START_S = 180.0
_ANSWER_S = 180.0
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-port=0",
    "--window-size=1440,900",
)
#: True for an element; null while the expression throws.
_SAFELY = "(() => { try { const value = (%s); return value instanceof Node || value } catch { return null } })()"
_KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowDown": (40, ""), "ArrowUp": (38, ""),
         "End": (35, ""), "Home": (36, ""), "PageDown": (34, "")}  # fmt: skip


def chromium() -> Path | None:
    """Return the path of Chromium, None when it is not installed."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    return Path(path) if path else None


class Browser:
    """One Chromium with one tab."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._process: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader: asyncio.Task[None] | None = None
        #: Errors of the page (console and exceptions), and the URLs that it has requested.
        self.errors: list[str] = []
        self.requests: list[str] = []

    async def __aenter__(self) -> Self:
        path = chromium()
        if path is None:
            raise ExpectationFailed("there is no Chromium on this machine: apt-get install chromium, as root")
        self._home.mkdir(parents=True, exist_ok=True)
        log = (self._home / "chromium.log").open("wb")
        command = [str(path), *_OPTIONS, f"--user-data-dir={self._home}", "about:blank"]
        environment = {**os.environ, "HOME": str(self._home)}
        self._process = await asyncio.create_subprocess_exec(
            *command, stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL, env=environment, start_new_session=True
        )
        log.close()
        try:
            await self._connect()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self._end()

    async def open(self, url: str) -> None:
        """Load a page, as with a click on a link."""
        await self.call("Page.navigate", url=url)

    async def js(self, expression: str) -> Any:
        """Return the value of an expression in the page, awaited."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            raise ExpectationFailed(f"the page cannot evaluate {expression}", detail=str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    async def until(self, expression: str, what: str, *, timeout_s: float = 120.0) -> Any:
        """Return the value of an expression as soon as it is true of the page."""
        end_s = asyncio.get_running_loop().time() + timeout_s
        while not (value := await self.js(_SAFELY % expression)):
            if asyncio.get_running_loop().time() > end_s:
                text = await self.js("document.body?.innerText.slice(0, 2000)")
                raise ExpectationFailed(f"not within {timeout_s:g} s: {what}", detail=f"{text}\n{self.errors}")
            if any("ERR_NETWORK_CHANGED" in error and ".js" in error for error in self.errors):
                # Another test changed a network of this machine while scripts were loaded: a person would reload.
                self.errors.clear()
                await self.call("Page.reload")
            await asyncio.sleep(0.02)
        return value

    async def click(self, selector: str, *, held: Callable[[], Awaitable[None]] | None = None) -> None:
        """Click into the middle of an element; the button is down until ``held`` returns."""
        place = await self.until(
            f"(() => {{ const r = document.querySelector({selector!r}).getBoundingClientRect();"
            " return r.width && {x: r.x + r.width / 2, y: r.y + r.height / 2} })()",
            f"{selector} can be clicked",
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)
            if kind == "mousePressed" and held is not None:
                await held()

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other: names as in KeyboardEvent.key, or single characters."""
        for key in keys:
            code, text = _KEYS.get(key, (ord(key.upper()[0]), key))
            known = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **known)
            await self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    async def text(self, selector: str) -> str:
        """Return what an element shows; empty where there is none."""
        return str(await self.js(f"document.querySelector({selector!r})?.innerText ?? ''"))

    async def dark(self, *, on: bool) -> None:
        """Emulate ``prefers-color-scheme``: dark or light."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def screenshot(self, path: Path) -> None:
        """Write a screenshot of the tab, PNG or WebP by the suffix of ``path``."""
        kind = path.suffix.removeprefix(".")
        answer = await self.call("Page.captureScreenshot", format=kind, **({"quality": 85} if kind == "webp" else {}))
        await asyncio.to_thread(path.write_bytes, base64.b64decode(answer["data"]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        if self._socket is None:
            raise ExpectationFailed("the browser is not connected")
        number = next(self._ids)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(_ANSWER_S):
            answer: dict[str, Any] = await future
        if "error" in answer:
            raise ExpectationFailed(f"Chromium refuses {method}", detail=str(answer["error"]))
        return answer["result"]

    async def _connect(self) -> None:
        port = await self._port()
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            tabs = [each for each in await answer.json() if each["type"] == "page"]
        self._socket = await self._session.ws_connect(tabs[0]["webSocketDebuggerUrl"], max_msg_size=0, heartbeat=None)
        self._reader = asyncio.create_task(self._read())
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def _port(self) -> int:
        """Wait until Chromium has written its port, and return it."""
        path = self._home / "DevToolsActivePort"
        end_s = asyncio.get_running_loop().time() + _START_S
        while asyncio.get_running_loop().time() < end_s:
            with contextlib.suppress(OSError, ValueError, IndexError):
                return int(path.read_text().splitlines()[0])
            if self._process is not None and self._process.returncode is not None:
                break
            await asyncio.sleep(0.05)
        log = (self._home / "chromium.log").read_text(errors="replace")[-2000:]
        raise ExpectationFailed("Chromium has not started", detail=log)

    async def _read(self) -> None:
        if self._socket is None:
            return
        async for message in self._socket:
            body = message.json()
            if (future := self._answers.pop(body.get("id", 0), None)) is not None and not future.done():
                future.set_result(body)
            self._note(body.get("method", ""), body.get("params", {}))

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(str(details.get("exception", {}).get("description", details)))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    async def _end(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        if self._socket is not None:
            await self._socket.close()  # closing the session does not close it, which would warn when it is collected
        if self._session is not None:
            await self._session.close()
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
            await self._process.wait()
