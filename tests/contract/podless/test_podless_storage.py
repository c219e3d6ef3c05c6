"""The state survives what kills a process or fills a disk, and the server reports what is wrong."""

import asyncio
import errno
import os
import re
import signal
import socket
import sqlite3
import stat
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from podless_child import child
from podless_client import Api, config_map, service

from podless import ApiServer
from podless.failure import ConfigurationError
from podless.store.sqlite import LOG_MAX_BYTES


async def test_every_acknowledged_write_survives_kill_9(tmp_path: Path) -> None:
    process, url, token = await child(tmp_path)
    acknowledged: dict[str, int] = {}

    async with aiohttp.ClientSession() as session:
        api = Api(session, url, token)
        api.cms = "/api/v1/namespaces/default/configmaps"

        async def writer(number: int) -> None:
            for index in range(10_000):
                name = f"c{number}-{index}"
                try:
                    answer = await api.post(api.cms, config_map(name))
                except aiohttp.ClientError:
                    return
                acknowledged[name] = int(answer.ok(201)["metadata"]["resourceVersion"])
                if len(acknowledged) == 300:
                    process.send_signal(signal.SIGKILL)

        await asyncio.gather(*(writer(number) for number in range(8)))
    await process.wait()
    server = ApiServer(tmp_path)
    url = await server.start()
    async with aiohttp.ClientSession() as session:
        api = Api(session, url, token)  # the token survives too
        listed = (await api.get("/api/v1/namespaces/default/configmaps")).ok()
        stored = {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in listed["items"]}
        assert acknowledged.items() <= stored.items()
        assert int(listed["metadata"]["resourceVersion"]) >= max(acknowledged.values())
    await server.stop()


async def test_a_restart_keeps_state_and_expires_watches(tmp_path: Path) -> None:
    first = ApiServer(tmp_path)
    async with aiohttp.ClientSession() as session:
        api = Api(session, await first.start(), first.admin_token)
        await api.post("/api/v1/namespaces", {"metadata": {"name": api.ns}})
        made = (await api.post(api.svcs, service("s"))).ok(201)
        owner = (await api.post(api.cms, config_map("own"))).ok(201)
        await api.post(api.cms, config_map("gone"))
        last = (await api.delete(api.cms + "/gone")).ok()
        assert last["status"] == "Success"
        rv = (await api.get(api.cms)).ok()["metadata"]["resourceVersion"]
        await first.stop()
        second = ApiServer(tmp_path)
        api.url = await second.start()
        assert (second.admin_token, (await api.get(api.svcs + "/s")).ok()) == (first.admin_token, made)
        assert (await api.get(api.cms + "/own")).ok() == owner
        store = second._running().store
        held_bytes = sum(len(each.raw) for bucket in store.buckets() for each in bucket.in_namespace(api.ns))
        assert store._bytes[api.ns] == held_bytes, "what is stored counts after a restart, too"
        again = (await api.post(api.cms, config_map("later"))).ok(201)
        assert int(again["metadata"]["resourceVersion"]) > int(rv)
        old = str(int(made["metadata"]["resourceVersion"]) - 1)
        events = await api.watch(api.cms, until=1, resourceVersion=old)
        assert events[0]["object"]["code"] == 410
        held = {"port": 81, "nodePort": made["spec"]["ports"][0]["nodePort"]}
        (await api.post(api.svcs, service("t", ports=[held]))).refused(422, "Invalid", "already allocated")
        await second.stop()


async def test_work_left_undone_is_done_after_a_restart(tmp_path: Path) -> None:
    first = ApiServer(tmp_path)
    async with aiohttp.ClientSession() as session:
        api = Api(session, await first.start(), first.admin_token)
        await api.post("/api/v1/namespaces", {"metadata": {"name": api.ns}})
        owner = (await api.post(api.cms, config_map("own"))).ok(201)
        ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "own", "uid": owner["metadata"]["uid"]}
        await api.post(api.cms, config_map("dep", ownerReferences=[ref]))
        await first.stop()
        with sqlite3.connect(tmp_path / "state.sqlite") as db:  # the owner went, and we died at once
            db.execute("DELETE FROM objects WHERE name = 'own'")
        db.close()
        second = ApiServer(tmp_path)
        api.url = await second.start()
        await api.gone(api.cms + "/dep")
        await second.stop()


class Full:
    """A connection whose disk is full while ``full`` is set."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.full = False

    def execute(self, sql: str, *values: Sequence[str | bytes | int | float | None]) -> sqlite3.Cursor:
        if self.full and sql == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")
        return self.db.execute(sql, *values)

    def close(self) -> None:
        self.db.close()


async def test_a_full_disk_refuses_writes_keeps_reading_and_recovers(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)
    async with aiohttp.ClientSession() as session:
        api = Api(session, await server.start(), server.admin_token)
        await api.post("/api/v1/namespaces", {"metadata": {"name": api.ns}})
        before = (await api.post(api.cms, config_map("a"))).ok(201)
        journal = server._parts.store._journal  # type: ignore[union-attr]
        disk = journal._db = Full(journal._db)  # type: ignore[attr-defined]
        disk.full = True
        for attempt in (
            api.post(api.cms, config_map("b")),
            api.patch(api.cms + "/a", {"data": {"k": "2"}}),
            api.delete(api.cms + "/a"),
        ):
            (await attempt).refused(507, "InsufficientStorage", str(tmp_path))
        assert (await api.get(api.cms + "/a")).ok() == before
        (await api.get(api.cms + "/b")).refused(404, "NotFound")
        disk.full = False
        after = (await api.patch(api.cms + "/a", {"data": {"k": "2"}})).ok()
        await server.stop()
        again = ApiServer(tmp_path)
        api.url = await again.start()
        assert (await api.get(api.cms + "/a")).ok() == after
        await again.stop()


async def test_a_really_full_database(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)
    async with aiohttp.ClientSession() as session:
        api = Api(session, await server.start(), server.admin_token)
        api.cms = "/api/v1/namespaces/default/configmaps"
        db = server._parts.store._journal._db  # type: ignore[union-attr]
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages + 2}")
        big = {"k": "x" * 100_000}
        (await api.post(api.cms, config_map("b", big))).refused(507, "InsufficientStorage", "full")
        (await api.get(api.cms + "/b")).refused(404, "NotFound")
        db.execute("PRAGMA max_page_count = 1000000")
        (await api.post(api.cms, config_map("b", big))).ok(201)
    await server.stop()


async def test_files_are_private(tmp_path: Path) -> None:
    server = ApiServer(tmp_path / "data")
    await server.start()
    server.write_kubeconfig(tmp_path / "kubeconfig")
    secret = [tmp_path / "kubeconfig", *(tmp_path / "data").iterdir()]
    names = {path.name for path in secret}
    assert {"admin.token", "signing.key", "tls.pem", "state.sqlite", "lock"} <= names
    assert [path.name for path in secret if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    await server.stop()


async def test_what_cannot_start_says_why(tmp_path: Path) -> None:
    running = ApiServer(tmp_path / "one")
    await running.start()
    port = int(running.url.rpartition(":")[2])
    with pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{port} cannot be listened on"):
        await ApiServer(port=port).start()
    with pytest.raises(
        ConfigurationError, match=rf"Another process uses the data directory {re.escape(str(tmp_path / 'one'))}"
    ):
        await ApiServer(tmp_path / "one").start()
    await running.stop()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=re.escape(str(tmp_path / "file"))):
        await ApiServer(tmp_path / "file" / "data").start()
    database = tmp_path / "one" / "state.sqlite"
    database.write_bytes(b"this is not a database, and it is long enough to be read as one" * 100)
    with pytest.raises(ConfigurationError, match=rf"{re.escape(str(database))} is damaged: restore a copy of it"):
        await ApiServer(tmp_path / "one").start()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_read_only_data_directory(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o500)  # noqa: PTH101
    with pytest.raises(ConfigurationError, match="cannot be written: make it writable"):
        await ApiServer(tmp_path).start()
    os.chmod(tmp_path, 0o700)  # noqa: PTH101


async def test_a_failed_start_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = ApiServer(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(ConfigurationError) as refused:
            await server.start()
        assert str(errno.EADDRINUSE) in refused.value.detail
    await server.start()
    await server.stop()


@pytest.mark.req("T-9")
async def test_the_kubeconfig_is_never_seen_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kubeconfig"
    async with _started() as server:
        server.write_kubeconfig(path)
        whole = path.read_text()
        path.chmod(0o644)
        seen: list[str] = []
        real_fsync = os.fsync

        def fsync(handle: int) -> None:
            seen.append(path.read_text())
            real_fsync(handle)

        monkeypatch.setattr(os, "fsync", fsync)
        server.write_kubeconfig(path)
    assert seen == [whole]  # all is on disk before it is there under its name
    assert path.read_text() == whole
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.with_suffix(".new").exists()


@asynccontextmanager
async def _started() -> AsyncGenerator[ApiServer]:
    server = ApiServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.mark.req("S-11")
async def test_many_small_patches_of_a_large_object_leave_no_large_log(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)
    await server.start()
    async with aiohttp.ClientSession() as session:
        api = Api(session, server.url, server.admin_token)
        api.cms = "/api/v1/namespaces/default/configmaps"
        (await api.post(api.cms, config_map("large", {"a": "x" * 1_000_000}))).ok(201)
        for number in range(100):
            (await api.patch(f"{api.cms}/large", {"data": {"n": str(number)}})).ok()
        size_bytes = (tmp_path / "state.sqlite-wal").stat().st_size
    await server.stop()
    assert size_bytes < LOG_MAX_BYTES + 4_000_000
