"""The Envoy of a machine is changed: what is refused before, what goes back, and what a restart goes on with."""

from __future__ import annotations

import asyncio
import filecmp
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.machine.upgrade import EnvoyRecord, EnvoyUpgrades, version_in
from fairlead.model.machine import EnvoyUpgrade
from fairlead.providers.envoy.envoy_process import LocalEnvoy
from fairlead.runtime.commands import running_as


class Machine:
    """A state directory, and programs that call themselves Envoy."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.upgrades = EnvoyUpgrades(directory)
        self.envoy = LocalEnvoy(directory=directory / "envoy", bootstrap=b"{}", options=())
        self.started: list[str] = []
        self.unhealthy: set[str] = set()

    def program(self, name: str, version: str) -> Path:
        path = self.directory / name
        path.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "{path}  version: 0a1b/{version}/Clean/RELEASE/X"; exit; }}\n'
            "exec sleep 600\n"
        )
        path.chmod(0o755)
        return path

    async def why_unhealthy(self) -> str:
        self.started.append(str(self.envoy._binary))
        return "it does not listen" if self.started[-1] in self.unhealthy else ""

    async def upgrade(self, requested: str, binary: Path, version: str = "") -> EnvoyRecord:
        wanted = EnvoyUpgrade(requested=requested, binary=str(binary), version=version)
        await self.upgrades.follow(wanted, self.envoy, self.why_unhealthy)
        return self.upgrades.record


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path)
    first = machine.program("envoy-1", "1.1.0")
    (tmp_path / "envoy.json").write_text(json.dumps({"binary": str(first)}))
    machine.upgrades = EnvoyUpgrades(tmp_path)
    machine.envoy.prepare(machine.upgrades.binary())
    # The programs have no admin interface: what is there already would not be adopted.
    await machine.envoy.start()
    try:
        yield machine
    finally:
        await machine.envoy.stop()


@pytest.mark.req("P-3")
async def test_the_binary_of_an_upgrade_is_kept_and_not_changed_twice(machine: Machine):
    second = machine.program("envoy-2", "1.2.0")
    assert await machine.upgrade("a", second, "1.2.0") == EnvoyRecord(binary=str(second), ended="a")
    await machine.upgrade("a", second, "1.2.0")
    assert machine.started == [str(second)]
    assert EnvoyUpgrades(machine.directory).binary() == second


@pytest.mark.req("P-3")
async def test_an_envoy_that_does_not_serve_gives_way_to_the_former_one(machine: Machine):
    first, second = machine.upgrades.binary(), machine.program("envoy-2", "1.2.0")
    machine.unhealthy.add(str(second))
    record = await machine.upgrade("a", second)
    assert (record.binary, record.ended) == (str(first), "a")
    assert "it does not listen" in record.problem
    assert machine.started == [str(second), str(first)]
    assert EnvoyUpgrades(machine.directory).binary() == first


@pytest.mark.req("P-3")
@pytest.mark.parametrize("case", ["missing", "relative", "others", "no envoy", "another version"])
async def test_a_binary_is_checked_before_the_running_one_ends(machine: Machine, case: str):
    binary, version = machine.program("envoy-2", "1.2.0"), ""
    match case:
        case "missing":
            binary.unlink()
        case "relative":
            binary = Path("envoy-2")
        case "others":
            binary.chmod(0o777)
        case "no envoy":
            binary.write_text("#!/bin/sh\necho hello\n")
        case _:
            version = "1.3.0"
    before = machine.envoy.running
    record = await machine.upgrade("a", binary, version)
    assert record.ended == "a"
    assert record.problem
    assert record.binary == str(machine.directory / "envoy-1")
    assert machine.envoy.running == before
    assert machine.started == []


@pytest.mark.req("P-3")
@pytest.mark.parametrize("link", [False, True], ids=["file", "link"])
@pytest.mark.parametrize("mode", [0o775, 0o757])
async def test_a_binary_in_a_directory_that_others_can_change_is_refused(machine: Machine, mode: int, link: bool):
    opened = machine.directory / "opened"
    (opened / "bin").mkdir(parents=True)
    binary = machine.program("opened/bin/envoy", "1.2.0")
    if link:
        (machine.directory / "bin").symlink_to("opened/bin")
        (machine.directory / "envoy-2").symlink_to(machine.directory / "bin" / "envoy")
        binary = machine.directory / "envoy-2"
    opened.chmod(mode)
    record = await machine.upgrade("a", binary)
    assert f"chmod go-w {opened}" in record.problem
    assert machine.started == []
    opened.chmod(0o1777)  # like /tmp: only the owner of a directory in it can replace that
    assert (await machine.upgrade("b", binary)).problem == ""
    assert machine.started == [str(binary)]


@pytest.mark.req("P-3")
async def test_an_interrupted_upgrade_is_made_again_with_the_same_former_binary(machine: Machine):
    first, second = machine.upgrades.binary(), machine.program("envoy-2", "1.2.0")
    machine.unhealthy.add(str(second))
    waits = asyncio.Event()

    async def never() -> str:
        waits.set()
        await asyncio.sleep(600)
        return ""

    wanted = EnvoyUpgrade(requested="a", binary=str(second))
    interrupted = asyncio.create_task(machine.upgrades.follow(wanted, machine.envoy, never))
    await waits.wait()
    interrupted.cancel()
    await asyncio.gather(interrupted, return_exceptions=True)
    machine.upgrades = EnvoyUpgrades(machine.directory)
    assert machine.upgrades.binary() == first, "what a boot starts meanwhile"
    record = await machine.upgrade("a", second)
    assert (record.binary, record.ended) == (str(first), "a")


@pytest.mark.req("P-3")
async def test_a_former_binary_that_a_package_replaced_is_kept(machine: Machine):
    installed, second = machine.directory / "envoy-1", machine.program("envoy-2", "1.2.0")
    await machine.envoy.stop()
    installed.unlink()
    shutil.copy("/bin/sleep", installed)
    process = await asyncio.create_subprocess_exec(installed, "600")
    machine.envoy.running = running_as(process.pid)
    installed.unlink()
    machine.program("envoy-1", "1.3.0")
    machine.unhealthy.add(str(second))
    record = await machine.upgrade("a", second)
    await process.wait()
    assert filecmp.cmp(record.binary, "/bin/sleep", shallow=False)
    machine.unhealthy.clear()
    assert (await machine.upgrade("b", second)).binary == str(second)
    assert not list(machine.directory.glob("envoy-former*"))


def test_the_version_is_read_from_what_envoy_prints():
    assert version_in("envoy  version: 9e55/1.40.0/Clean/RELEASE/BoringSSL\n") == "1.40.0"
    assert version_in("hello") == ""
