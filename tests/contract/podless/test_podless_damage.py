"""A database with a missing or empty file is never read as an empty state."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from podless_child import child
from podless_client import Api, config_map

from podless import ApiServer
from podless.failure import ConfigurationError

CMS = "/api/v1/namespaces/default/configmaps"


async def _used(folder: Path, *, killed: bool) -> None:
    """Leave in ``folder`` what a server leaves that was stopped, or killed, after one write."""
    process, url, token = await child(folder)
    async with aiohttp.ClientSession() as session:
        (await Api(session, url, token).post(CMS, config_map("kept"))).ok(201)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    if not killed:
        server = ApiServer(folder)
        await server.start()
        await server.stop()


def _empty(folder: Path) -> None:
    os.truncate(folder / "state.sqlite", 0)


def _no_log(folder: Path) -> None:
    (folder / "state.sqlite-wal").unlink()


def _no_database(folder: Path) -> None:
    (folder / "state.sqlite").unlink()


def _no_files(folder: Path) -> None:
    for path in folder.glob("state.sqlite*"):
        path.unlink()


@pytest.mark.parametrize(
    ("killed", "damage", "sentence"),
    [
        (False, _empty, r"state\.sqlite is empty, and was not when it was used last: restore a copy"),
        (True, _empty, r"state\.sqlite is lost, its log state\.sqlite-wal is not: restore a copy of both"),
        (True, _no_database, r"state\.sqlite is lost, its log state\.sqlite-wal is not: restore a copy of both"),
        (True, _no_log, r"state\.sqlite-wal is missing, .* Put it back"),
    ],
)
async def test_missing_data_is_reported_and_the_rest_is_kept(
    tmp_path: Path, *, killed: bool, damage: Callable[[Path], None], sentence: str
) -> None:
    folder, copy = tmp_path / "data", tmp_path / "copy"
    await _used(folder, killed=killed)
    shutil.copytree(folder, copy)
    damage(folder)
    left = {path.name: path.stat().st_size for path in folder.iterdir()}
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=sentence):
            await ApiServer(folder).start()
    assert {path.name: path.stat().st_size for path in folder.iterdir()} == left
    shutil.rmtree(folder)
    copy.rename(folder)
    await _holds(folder, {"kept"})


@pytest.mark.parametrize("killed", [False, True])
async def test_a_database_that_was_moved_away_starts_as_an_empty_one(tmp_path: Path, *, killed: bool) -> None:
    await _used(tmp_path, killed=killed)
    _no_files(tmp_path)
    await _holds(tmp_path, set())


async def test_without_the_note_of_the_lock_file_what_the_database_has_is_served(tmp_path: Path) -> None:
    await _used(tmp_path, killed=True)
    _no_log(tmp_path)
    (tmp_path / "lock").unlink()
    await _holds(tmp_path, set())


async def _holds(folder: Path, names: set[str]) -> None:
    server = ApiServer(folder)
    async with aiohttp.ClientSession() as session:
        listed = (await Api(session, await server.start(), server.admin_token).get(CMS)).ok()
    await server.stop()
    assert {each["metadata"]["name"] for each in listed["items"]} == names
