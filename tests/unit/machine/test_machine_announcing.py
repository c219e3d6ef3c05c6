"""A machine follows plans, passes to its announcers what it serves, and reports; and its notifications to systemd."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path

import pytest
from aiohttp import web

from fairlead.errors import FairleadError, Forbidden, Unreachable
from fairlead.machine.announcing import AnnouncingMachine, notify_systemd
from fairlead.machine.kernel import KernelPath
from fairlead.model.machine import (
    AddressState,
    AnnouncedAddress,
    DrainState,
    LinkState,
    MachinePlan,
    MachineReport,
    SessionState,
)
from fairlead.providers.envoy.envoy_process import LocalEnvoy
from fairlead.runtime.background import Supervisor

ADDRESS = "192.0.2.7"


def plan_of(version: str) -> MachinePlan:
    return MachinePlan(machine="m1", version=version, addresses=(AnnouncedAddress(address=ADDRESS, machines=("m1",)),))


class Hub:
    """Answers with these plans or errors, one after the other; after the last one it waits."""

    def __init__(self, *answers: MachinePlan | FairleadError) -> None:
        self._answers = list(answers)
        self.reports: asyncio.Queue[MachineReport] = asyncio.Queue()

    async def plan(self, after: str) -> MachinePlan | None:
        if not self._answers:
            await asyncio.Event().wait()
        answer = self._answers.pop(0)
        if isinstance(answer, FairleadError):
            raise answer
        return answer

    async def forwarding(self, after: str) -> None:
        await asyncio.Event().wait()

    async def report(self, report: MachineReport) -> None:
        self.reports.put_nowait(report)


class NoEnvoys:
    """A machine whose Envoys have all ended, unless it has some."""

    def __init__(self, *envoys: LocalEnvoy) -> None:
        self.envoys: Sequence[LocalEnvoy] = envoys

    max_listeners = 100
    synced = True

    def listeners(self) -> Sequence[str]:
        return ()

    def draining(self) -> tuple[DrainState, ...]:
        return ()

    def refused(self) -> Mapping[str, str]:
        return {}


class Recorder:
    """An announcer that keeps what it gets; ``back``: an address is to move here."""

    def __init__(self, *, back: bool = False) -> None:
        self.applied: asyncio.Queue[tuple[str, dict[str, bool]]] = asyncio.Queue()
        self.unhealthy: asyncio.Queue[set[str] | None] = asyncio.Queue()
        self._back = back

    async def apply(
        self, plan: MachinePlan, *, serving: Mapping[str, bool], unhealthy: Collection[str] | None = ()
    ) -> None:
        self.applied.put_nowait((plan.version, dict(serving)))
        self.unhealthy.put_nowait(None if unhealthy is None else set(unhealthy))

    def due_back(self) -> bool:
        return self._back

    def addresses(self) -> Sequence[AddressState]:
        return ()

    def sessions(self) -> Sequence[SessionState]:
        return ()

    def links(self) -> Sequence[LinkState]:
        return ()

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def withdraw(self) -> None:
        self.applied.put_nowait(("withdrawn", {}))


async def while_running(
    hub: Hub, check: Callable[[Recorder], Awaitable[None]], *, plan: MachinePlan | None = None, withdraw: bool = False
) -> None:
    recorder, supervisor = Recorder(), Supervisor()
    machine = AnnouncingMachine(
        "m1",
        hub=hub,
        proxies=NoEnvoys(),
        kernel=KernelPath(Path("forwarding.json"), on_change=lambda: None),
        announcers={"recorder": recorder},
        changed=asyncio.Event(),
        plan=plan,
    )
    machine.follow(supervisor)
    machine.watch(supervisor)
    running = asyncio.create_task(supervisor.run_until_stopped(machine.withdraw if withdraw else None))
    try:
        async with asyncio.timeout(180):
            await check(recorder)
    finally:
        supervisor.stop()
        await running
    assert recorder.applied.qsize() == withdraw
    if withdraw:
        assert recorder.applied.get_nowait() == ("withdrawn", {}), "and nothing is announced after that"


@pytest.mark.req("P-5")
async def test_each_plan_reaches_the_announcers_with_what_is_served() -> None:
    hub = Hub(plan_of("1"), plan_of("2"))

    async def check(recorder: Recorder) -> None:
        assert await recorder.applied.get() == ("1", {ADDRESS: False})
        assert await recorder.applied.get() == ("2", {ADDRESS: False})
        report = await hub.reports.get()
        while report.plan != "2":
            report = await hub.reports.get()
        assert not report.proxy.alive
        assert report.max_listeners == 100

    await while_running(hub, check)


@pytest.mark.req("P-5")
async def test_a_hub_that_does_not_answer_changes_nothing_and_is_reported() -> None:
    hub = Hub(Unreachable("the hub does not answer"))

    async def check(recorder: Recorder) -> None:
        assert await recorder.applied.get() == ("1", {ADDRESS: False})
        report = await hub.reports.get()
        while not report.problems:
            report = await hub.reports.get()
        assert report.plan == "1"
        assert recorder.applied.empty()

    await while_running(hub, check, plan=plan_of("1"))


@pytest.mark.req("P-2")
async def test_a_machine_that_was_removed_leaves_everything_as_it_is() -> None:
    hub = Hub(plan_of("1"), Forbidden("machine m1 was removed"))

    async def check(recorder: Recorder) -> None:
        assert await recorder.applied.get() == ("1", {ADDRESS: False})
        assert await recorder.applied.get() == ("1", {})

    await while_running(hub, check)


@pytest.mark.req("P-6")
async def test_a_machine_whose_envoy_ends_with_it_withdraws_first() -> None:
    async def check(recorder: Recorder) -> None:
        assert await recorder.applied.get() == ("1", {ADDRESS: False})

    await while_running(Hub(plan_of("1")), check, withdraw=True)


@pytest.mark.req("P-9")
@pytest.mark.parametrize("back", [True, False], ids=["due back", "nothing is due"])
async def test_unhealthy_targets_reach_the_announcers_while_an_address_is_due_back(tmp_path: Path, back: bool) -> None:
    pages: list[str] = []
    broken: list[bool] = []
    asked_twice, refused_twice = asyncio.Event(), asyncio.Event()
    counts = {"healthy": 0, "total": 2}

    async def answer(request: web.Request) -> web.Response:
        pages.append(request.path_qs)
        if "membership" in request.path_qs and broken:
            broken.append(True)
            if len(broken) > 2:
                refused_twice.set()
            raise web.HTTPServiceUnavailable
        if pages.count("/ready") == 2:
            asked_twice.set()
        name = "cluster.TCPLoadBalancer/shop/web/TCP/80.membership"
        return web.Response(text="".join(f"{name}_{counted}: {count}\n" for counted, count in counts.items()))

    application = web.Application()
    application.router.add_get("/{page:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    envoy = LocalEnvoy(directory=tmp_path, bootstrap=b"", options=())
    await web.UnixSite(runner, str(envoy.admin_socket)).start()
    address = AnnouncedAddress(address=ADDRESS, machines=("m1", "m2"), load_balancers=("shop/web",))
    plan = MachinePlan(machine="m1", version="1", addresses=(address,))
    recorder, supervisor = Recorder(back=back), Supervisor()
    machine = AnnouncingMachine(
        "m1",
        hub=Hub(),
        proxies=NoEnvoys(envoy),
        kernel=KernelPath(Path("forwarding.json"), on_change=lambda: None),
        announcers={"recorder": recorder},
        changed=asyncio.Event(),
        plan=plan,
    )
    machine.watch(supervisor)
    running = asyncio.create_task(supervisor.run_until_stopped())
    try:
        async with asyncio.timeout(180):
            await asked_twice.wait()
            if back:
                assert await recorder.unhealthy.get() is None  # before the first answer
                assert await recorder.unhealthy.get() == {ADDRESS}
                # Without an answer nothing changes.
                broken.append(True)
                await refused_twice.wait()
                assert recorder.unhealthy.empty()
                broken.clear()
            counts["healthy"] = 1
            if back:
                assert await recorder.unhealthy.get() == set()
    finally:
        supervisor.stop()
        await running
        await runner.cleanup()
    assert any("membership" in page for page in pages) == back


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_notified_where_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    place = f"@fairlead-{tmp_path}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + place[1:] if abstract else place)
        monkeypatch.setenv("NOTIFY_SOCKET", place)
        notify_systemd("READY=1", "STATUS=Serving")
        assert systemd.recv(1000) == b"READY=1\nSTATUS=Serving"
    notify_systemd("WATCHDOG=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify_systemd("WATCHDOG=1")
